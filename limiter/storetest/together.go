package storetest

import (
	"slices"
	"testing"
	"time"
)

// togetherMost is how many decisions a random call has at most.
const togetherMost = 16

// also gives an admit further decisions of its shape, about the same few keys: a
// bucket or a counter that several of them name is the rule.
func (p *tape) also(c *Call) {
	for range p.rnd.IntN(togetherMost) {
		d := Call{Op: Admit, Inc: c.Inc, TTL: c.TTL}
		d.Seq, d.NotAfter = p.sequence(c.Inc)
		for i := range c.Buckets {
			d.Buckets = append(d.Buckets, p.bucket(i, Admit))
		}
		d.Slots = p.slots(Admit, len(c.Slots))
		c.Also = append(c.Also, d)
	}
}

// Parted cuts the reply to an admit into those of its decisions: status, time,
// rest, as each would have got it alone.
func Parted(c Call, reply []int64) (list [][]int64) {
	width := 2*len(c.Buckets) + len(c.Slots)
	for _, b := range c.Buckets {
		if b.InTurn {
			width++
		}
	}
	now, rest := reply[1], slices.Concat(reply[:1], reply[2:])
	for range 1 + len(c.Also) {
		list = append(list, slices.Concat(rest[:1], []int64{now}, rest[1:][:width]))
		rest = rest[1+width:]
	}
	return list
}

// together: decisions of one call are made in order, each as if it were alone,
// and what one of them is told or refused changes nothing for the others.
func together(t *testing.T, s Raw) {
	// A bucket that hardly refills, and a counter of three slots.
	take := func(seq, cost, want int64) Call {
		return Call{
			Op: Admit, Inc: "a1", TTL: 60_000, Seq: seq,
			Buckets: []Bucket{{Key: "shared", Limit: token, Period: 3600 * second, Burst: 10 * token, Amount: cost * token}},
			Slots:   []Slot{{Key: "shared", Cap: 3, Want: want}},
		}
	}
	call := take(10, 4, 1)
	late := take(11, 1, 2)
	late.NotAfter = 1
	call.Also = []Call{
		late,
		take(12, 7, 2), // refused: 6 are left
		take(13, 3, 2), // granted: the same bucket and counter again
		take(9, 1, 4),  // overtaken, and not covered by what is stored
		take(8, 1, 2),  // overtaken, but covered: granted without a slot of its own
		take(14, 1, 4), // refused: the fourth slot of three
		take(15, 2, 3), // granted: the last tokens and the last slot
	}
	got := Parted(call, s.Run(call))
	for i, want := range []struct{ status, left, lease int64 }{
		{1, 6, 0}, {3, 0, 0}, {0, 6, 0}, {1, 3, 0}, {2, 3, 2}, {1, 2, 0}, {0, 2, 1}, {1, 0, 0},
	} {
		r := got[i]
		if r[0] != want.status || r[4] != want.lease || r[2] < want.left*token || r[2] > want.left*token+1000 {
			t.Errorf("decision %d: got %v, want status %d, %d tokens left, counter %d", i, r, want.status, want.left, want.lease)
		}
	}
	if stored := total(s, "shared"); stored != 3 {
		t.Errorf("%d slots are stored, want 3", stored)
	}
	nothing(t, s, take)
}

// nothing: B3 for calls of several decisions, all of which are refused.
func nothing(t *testing.T, s Raw, take func(seq, cost, want int64) Call) {
	late := take(21, 1, 1)
	late.NotAfter = 1
	call := take(20, 5, 2)
	call.Also = []Call{late, take(22, 5, 2), take(23, 0, 4), take(2, 0, 4), take(24, 11, 1)}
	before := s.State()
	for i, r := range Parted(call, s.Run(call)) {
		if r[0] == 1 {
			t.Errorf("decision %d: got %v, want a refusal", i, r)
		}
	}
	if after := s.State(); after != before {
		t.Errorf("a call without a grant changed the state\nbefore: %s\nafter:  %s", before, after)
	}
}

// Together runs a random tape of n calls on two servers with the same clock,
// which stands still unless told to wait. On the first every decision has a call
// of its own; answers and stored values must be equal.
func Together(t *testing.T, one, other Raw, n int) {
	rnd := Seeded(t)
	tape := tape{rnd: rnd, seq: map[string]int64{}, changing: true}
	for i := range n {
		c := tape.next()
		list := append([]Call{c}, c.Also...)
		var want, got [][]int64
		for _, d := range list {
			d.Also = nil
			want = append(want, one.Run(d))
		}
		if got = [][]int64{other.Run(c)}; c.Op == Admit {
			got = Parted(c, got[0])
		}
		if !slices.EqualFunc(got, want, slices.Equal[[]int64]) {
			t.Fatalf("call %d: %+v\ngot  %v\nwant %v", i, c, got, want)
		}
		if alone, together := one.State(), other.State(); alone != together {
			t.Fatalf("call %d: %+v\none decision a call: %s\ntogether:            %s", i, c, alone, together)
		}
		d := time.Duration(rnd.Int64N(4000)) * time.Microsecond
		one.Wait(d)
		other.Wait(d)
	}
}
