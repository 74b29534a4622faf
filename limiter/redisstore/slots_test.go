package redisstore

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headway-limiter/headway/limiter"
)

func id(i int) limiter.SlotID {
	return limiter.SlotID{Dimension: limiter.User, ID: limiter.ID(fmt.Sprint(i))}
}

// pendingCall is an admit on its way in the model below.
type pendingCall struct {
	ask     []limiter.Slot
	wants   []int64
	seq     int64
	counted bool
}

// TestSlotsAgainstServer runs the table against a model of the script's rules,
// with calls in any order, lost calls and lost replies: what the server stores
// is never less than what runs, never more than the cap, and equal to it after
// the statements that the table itself asks for.
func TestSlotsAgainstServer(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	const cap, n = 3, 2
	s := newSlots(func() {})
	server := map[limiter.SlotID]struct{ count, seq int64 }{}
	var wire []pendingCall
	held := map[limiter.SlotID]int{}
	sync := func() {
		for {
			var sts []statement
			seq := s.due(func(_ limiter.SlotID, st func() statement) bool {
				if len(sts) == 1 {
					return false
				}
				sts = append(sts, st())
				return true
			})
			if len(sts) == 0 {
				return
			}
			st := sts[0]
			e := server[st.id]
			if seq > e.seq {
				e.count, e.seq = max(st.held, min(e.count, st.want)), seq
				server[st.id] = e
			}
			s.stated(sts, seq, []int64{e.count})
		}
	}
	run := func(c pendingCall) bool {
		for i, a := range c.ask {
			e := server[a.Slot]
			if c.wants[i] > int64(a.Cap) || (c.seq <= e.seq && c.wants[i] > e.count) {
				return false
			}
		}
		for i, a := range c.ask {
			if e := server[a.Slot]; c.seq > e.seq {
				server[a.Slot] = struct{ count, seq int64 }{c.wants[i], c.seq}
			}
		}
		return true
	}
	for step := range 50_000 {
		switch op := rnd.IntN(8); {
		case op < 3:
			c := pendingCall{wants: make([]int64, 1+rnd.IntN(n))}
			for i := range c.wants {
				c.ask = append(c.ask, limiter.Slot{Slot: id(i), Cap: cap})
			}
			c.seq, c.counted = s.draw(c.ask, c.wants)
			wire = append(wire, c)
		case op < 6 && len(wire) > 0:
			i := rnd.IntN(len(wire))
			c := wire[i]
			wire = append(wire[:i], wire[i+1:]...)
			switch fate := rnd.IntN(8); {
			case fate == 0: // lost
				s.dropped(c.ask, c.counted, true)
			case !run(c):
				s.dropped(c.ask, c.counted, false)
			case fate == 1: // granted, and nobody heard
				s.dropped(c.ask, c.counted, true)
			default:
				s.granted(c.ask, c.wants, c.seq, c.counted)
				for _, a := range c.ask {
					held[a.Slot]++
				}
			}
		case op == 6:
			if i := id(rnd.IntN(n)); held[i] > 0 {
				held[i]--
				s.release([]limiter.SlotID{i}, false)
			}
		default:
			sync()
		}
		for i := range n {
			if stored, runs := server[id(i)].count, int64(held[id(i)]); runs > stored || stored > cap {
				t.Fatalf("seed %d, step %d, slot %d: %d run, %d stored, cap %d", seed, step, i, runs, stored, cap)
			}
		}
	}
	for _, c := range wire {
		s.dropped(c.ask, c.counted, true)
	}
	sync()
	for i := range n {
		if stored, runs := server[id(i)].count, int64(held[id(i)]); stored != runs {
			t.Fatalf("seed %d: in the end slot %d: %d run, %d stored", seed, i, runs, stored)
		}
	}
	for i := range n {
		for range held[id(i)] {
			s.release([]limiter.SlotID{id(i)}, false)
		}
	}
	sync()
	if len(s.table) != 0 || len(s.dirty) != 0 {
		t.Fatalf("seed %d: %d slots and %d marks are left when nothing is held", seed, len(s.table), len(s.dirty))
	}
}

// TestFloodLeavesRoom: calls beyond the replica's own count are not pending, so
// however many there are, a freed slot can be asked for at once.
func TestFloodLeavesRoom(t *testing.T) {
	s := newSlots(func() {})
	ask, wants := []limiter.Slot{{Slot: id(0), Cap: 2}}, make([]int64, 1)
	for i := range 2 {
		seq, counted := s.draw(ask, wants)
		if wants[0] != int64(i+1) || !counted {
			t.Fatalf("call %d wants %d, counted %v", i, wants[0], counted)
		}
		s.granted(ask, wants, seq, counted)
	}
	for range 100 { // all under way at once
		if _, counted := s.draw(ask, wants); counted || wants[0] != 3 {
			t.Fatalf("a call beyond the cap wants %d, counted %v; want cap+1, false", wants[0], counted)
		}
	}
	s.release([]limiter.SlotID{id(0)}, false)
	if _, counted := s.draw(ask, wants); !counted || wants[0] != 2 {
		t.Fatalf("after a release the next wants %d, counted %v; want 2, true", wants[0], counted)
	}
}
