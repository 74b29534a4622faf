package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// restate is a lease call of one counter.
func restate(inc string, seq, ttl int64, key string, held, want int64) Call {
	return Call{Op: Lease, Inc: inc, Seq: seq, TTL: ttl, Slots: []Slot{{Key: key, Held: held, Want: want}}}
}

// acquire is an admit of one counter.
func acquire(inc string, seq, ttl int64, key string, cap, want int64) Call {
	return Call{Op: Admit, Inc: inc, Seq: seq, TTL: ttl, Slots: []Slot{{Key: key, Cap: cap, Want: want}}}
}

// total returns what is stored for all, as a stranger sees it.
func total(s Raw, key string) int64 {
	return s.Run(Call{Op: Inspect, Inc: "ff", Slots: []Slot{{Key: key}}})[3]
}

// replica is a model of one replica's side of the protocol: what it holds, what
// it has asked for, and the messages that may still reach the server.
type replica struct {
	inc           string
	seq           int64
	held, pending int64
	wire          []message
}

// message is a call under way. A pending admit stays pending until its reply,
// or until nobody can run it any more.
type message struct {
	call  Call
	admit bool
}

func (r *replica) draw(admit bool, key string, cap, ttl int64) {
	r.seq++
	if !admit {
		r.wire = append(r.wire, message{call: restate(r.inc, r.seq, ttl, key, r.held, r.held+r.pending)})
		return
	}
	if r.held+r.pending >= cap {
		return // the replica's own count refuses it
	}
	r.pending++
	r.wire = append(r.wire, message{acquire(r.inc, r.seq, ttl, key, cap, r.held+r.pending), true})
}

// deliver runs one message, in any order, and may lose it, its reply, or run
// it twice.
func (r *replica) deliver(s Raw, rnd *rand.Rand, key string, cap, ttl int64) {
	i := rnd.IntN(len(r.wire))
	m := r.wire[i]
	r.wire = append(r.wire[:i], r.wire[i+1:]...)
	fate := rnd.IntN(10)
	if fate == 0 { // lost on the way: it can never run
		r.pending -= count(m.admit)
		return
	}
	reply := s.Run(m.call)
	if fate == 1 { // run twice, the second reply is heard
		reply = s.Run(m.call)
	}
	if !m.admit {
		return
	}
	r.pending--
	switch {
	case fate == 2: // the reply is lost: the caller was told no
	case reply[0] == 1:
		r.held++
	case reply[0] == 2: // overtaken: ask again
		r.draw(true, key, cap, ttl)
	}
}

func count(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// neverOverCap: L1 and L2 over random steps of replicas that lose, repeat and
// reorder calls. Nobody misses a ttl here; crash and slept are about that.
func neverOverCap(t *testing.T, s Raw) {
	rnd := Seeded(t)
	const steps, ttl = 1000, 3_600_000
	for _, cap := range []int64{1, 3, 5} {
		key := fmt.Sprintf("cap%d", cap)
		replicas := []*replica{{inc: "a1"}, {inc: "b1"}, {inc: "c1"}}
		for step := range steps {
			r := replicas[rnd.IntN(len(replicas))]
			switch p := rnd.IntN(10); {
			case len(r.wire) > 0 && (p < 5 || len(r.wire) > 6):
				r.deliver(s, rnd, key, cap, ttl)
			case p < 8:
				r.draw(true, key, cap, ttl)
			case r.held > 0:
				r.held--
				r.draw(false, key, cap, ttl)
			default:
				r.draw(false, key, cap, ttl)
			}
			var running int64
			for _, r := range replicas {
				running += r.held
			}
			if running > cap {
				t.Fatalf("L1: step %d: %d running, cap %d", step, running, cap)
			}
			if stored := total(s, key); stored < running {
				t.Fatalf("L2: step %d: %d stored, %d running", step, stored, running)
			}
		}
		var running int64
		for _, r := range replicas {
			r.seq++
			s.Run(restate(r.inc, r.seq, ttl, key, r.held, r.held)) // what is on the wire is lost
			running += r.held
		}
		if stored := total(s, key); stored != running {
			t.Fatalf("L2: after everybody's sync: %d stored, %d running", stored, running)
		}
	}
}

// crash: L3. What holds before the ttl is only looked at if it was before the ttl:
// a real server's clock runs on while the machine stands still.
func crash(t *testing.T, s Raw) {
	const ttl = 100 // ms
	for n := 0; ; n++ {
		key := fmt.Sprint("crash", n)
		first := s.Run(acquire("a1", 1, ttl, key, 2, 2))
		if first[0] != 1 {
			t.Fatalf("an empty counter: got %v, want a grant of 2", first)
		}
		successor := s.Run(acquire("a2", 1, ttl, key, 2, 1))
		s.Run(restate("a2", 2, ttl, key, 0, 0))
		r := s.Run(Call{Op: Inspect, Inc: "ff", Slots: []Slot{{Key: key}}})
		if r[1] >= first[1]+ttl*1000 && n < 100 {
			continue
		}
		if successor[0] != 0 || successor[2] != 1 {
			t.Fatalf("a successor before the ttl: got %v, want full: it inherits nothing", successor)
		}
		if r[3] != 2 {
			t.Fatalf("a successor's release freed others' slots: %d stored, want 2", r[3])
		}
		s.Wait(ttl * time.Millisecond)
		afterCrash(t, s, acquire("a2", 3, 3_600_000, key, 2, 2))
		return
	}
}

// afterCrash is the first call of the successor when the ttl is over.
func afterCrash(t *testing.T, s Raw, c Call) {
	if r := s.Run(c); r[0] != 1 {
		t.Fatalf("after the ttl: got %v, want a grant of 2", r)
	}
	if got := total(s, c.Slots[0].Key); got != 2 {
		t.Fatalf("after the ttl: %d stored, want the 2 of the successor", got)
	}
}

// replay: L4.
func replay(t *testing.T, s Raw) {
	const ttl = 3_600_000
	key := "replay"
	s.Run(acquire("a1", 1, ttl, key, 9, 1))
	s.Run(acquire("a1", 2, ttl, key, 9, 2))
	first := s.Run(restate("a1", 3, ttl, key, 1, 1))
	state := s.State()
	again := s.Run(restate("a1", 3, ttl, key, 1, 1))
	if first[3] != 1 || again[3] != first[3] || again[4] != first[4] || s.State() != state {
		t.Fatalf("a repeated sync: got %v, want the count of %v and no change", again, first)
	}
	for _, c := range []Call{
		restate("a1", 2, ttl, key, 2, 2), restate("a1", 1, ttl, key, 0, 0), acquire("a1", 2, ttl, key, 9, 2),
	} {
		s.Run(c)
		if got := s.State(); got != state {
			t.Fatalf("an older call %+v changed the state\nbefore: %s\nafter:  %s", c, state, got)
		}
	}
	// Covered by a later call that counted it as pending: granted, no write.
	if r := s.Run(acquire("a1", 2, ttl, key, 9, 1)); r[0] != 1 || s.State() != state {
		t.Fatalf("an overtaken, covered acquire: got %v, want a grant without a write", r)
	}
	// A sync never acquires, whatever it wants.
	if r := s.Run(restate("a1", 9, ttl, key, 1, 5)); r[3] != 1 {
		t.Fatalf("a sync that wants 5 and holds 1 of 1: count %d, want 1", r[3])
	}
}

// slept: a replica that slept past its ttl states the truth even above the cap,
// and nobody gets a slot until that has drained.
func slept(t *testing.T, s Raw) {
	const ttl, long = 30, 3_600_000
	key := "slept"
	s.Run(acquire("a1", 1, ttl, key, 2, 2))
	s.Wait(ttl * time.Millisecond)
	if r := s.Run(acquire("b1", 1, long, key, 2, 2)); r[0] != 1 {
		t.Fatalf("room left by a sleeper: got %v, want a grant", r)
	}
	if r := s.Run(restate("a1", 2, long, key, 2, 2)); r[3] != 2 || r[4] != 4 {
		t.Fatalf("the sleeper's truth: got %v, want 2 of 4 in all", r)
	}
	s.Run(restate("b1", 2, long, key, 1, 1))
	for _, inc := range []string{"a1", "b1", "c1"} {
		want := map[string]int64{"a1": 2, "b1": 2, "c1": 1}[inc] // not more than before
		if r := s.Run(acquire(inc, 8, long, key, 2, want)); r[0] != 0 {
			t.Fatalf("%s while 3 of 2 are held: got %v, want full", inc, r)
		}
	}
	s.Run(restate("a1", 9, long, key, 0, 0))
	if r := s.Run(acquire("c1", 9, long, key, 2, 1)); r[0] != 1 {
		t.Fatalf("after it drained: got %v, want a grant", r)
	}
}

// settleRetry: settled exactly once with a slot as witness; without one, charges
// at least once and refunds at most once.
func settleRetry(t *testing.T, s Raw) {
	b := Bucket{Key: "settle", Limit: token, Period: 3600 * second, Burst: 100 * token, Amount: 50 * token}
	key := "settle"
	slots := func(c Call, seq int64, retry bool) Call {
		c.Seq, c.TTL, c.Retry, c.Slots = seq, 3_600_000, retry, []Slot{{Key: key, Held: 1, Want: 1}}
		return c
	}
	level := func() int64 { return s.Run(look(b))[2] / token }
	start := single(b)
	start.Slots, start.TTL = []Slot{{Key: key, Cap: 9, Want: 2}}, 3_600_000
	s.Run(start) // 50 left, 2 held

	steps := []struct {
		what   string
		call   Call
		status int64
		level  int64
	}{
		{"first attempt", slots(adjust(b, 10*token), 2, false), 1, 60},
		{"its retry", slots(adjust(b, 10*token), 2, true), 0, 60},
		{"retry of a lost first attempt", slots(adjust(b, 10*token), 3, true), 1, 70},
		{"second retry", slots(adjust(b, 10*token), 3, true), 0, 70},
		{"overtaken refund", slots(adjust(b, 10*token), 2, true), 2, 70},
		{"overtaken charge", slots(adjust(b, -10*token), 2, true), 2, 60},
		{"refund without a witness", func() Call { c := adjust(b, 10*token); c.Retry = true; return c }(), 2, 60},
		{"charge without a witness", func() Call { c := adjust(b, -10*token); c.Retry = true; return c }(), 2, 50},
	}
	for _, st := range steps {
		if r := s.Run(st.call); r[0] != st.status || level() != st.level {
			t.Fatalf("%s: got %v and level %d, want status %d and level %d", st.what, r, level(), st.status, st.level)
		}
	}
	if got := total(s, key); got != 1 {
		t.Fatalf("released once: %d stored, want 1", got)
	}
}
