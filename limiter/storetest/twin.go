package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Twin runs a random tape of n calls on a server and compares every reply with
// the oracle's at the same Redis time: fresh, repeated and outdated sequences,
// debts, refunds, retries, fences, expiring leases, several decisions a call, and,
// if changing, limits that change. A server that expires keys by its own clock, up to 2 ms late,
// must not be given changing limits: an expired bucket is full of the new
// burst, one that is about to expire is full of the old.
func Twin(t *testing.T, s Raw, o Oracle, n int, changing bool) {
	rnd := Seeded(t)
	tape := tape{rnd: rnd, seq: map[string]int64{}, changing: changing}
	var wait time.Duration
	for i := range n {
		c := tape.next()
		got := s.Run(c)
		if !changing && stood(tape.now, got[1], wait) {
			tape.now = got[1]
			restart(s, o)
			continue
		}
		if want := o.At(got[1], c); !slices.Equal(got, want) {
			t.Fatalf("call %d: %+v\ngot  %v\nwant %v", i, c, got, want)
		}
		tape.now, wait = got[1], 0
		if rnd.IntN(3) == 0 {
			wait = time.Duration(rnd.Int64N(4000)) * time.Microsecond
			s.Wait(wait)
		}
	}
}

// stood tells whether a real server stood still between two replies (µs), beside the
// wait it was told. Keys may have ended meanwhile, which it judges in ms and by the
// instant at which a call begins, so that either answer is right near their end.
func stood(before, now int64, wait time.Duration) bool {
	return before > 0 && now-before > (wait+100*time.Millisecond).Microseconds()
}

// restart makes a server and its oracle equal again.
func restart(s Raw, o Oracle) {
	s.Flush()
	o.(interface{ Flush() }).Flush()
}

// tape draws calls.
type tape struct {
	rnd *rand.Rand
	seq map[string]int64
	now int64

	changing bool
}

func (p *tape) next() Call {
	c := Call{Op: Op(p.rnd.IntN(4)), Inc: fmt.Sprintf("a%d", p.rnd.IntN(3)), TTL: 20, Retry: p.rnd.IntN(3) == 0}
	if c.Op == Inspect && p.rnd.IntN(2) == 0 {
		c.Op = Admit // the interesting one
	}
	c.Seq, c.NotAfter = p.sequence(c.Inc)
	if c.Op != Lease {
		for i := range p.rnd.IntN(4) {
			c.Buckets = append(c.Buckets, p.bucket(i, c.Op))
		}
	}
	c.Slots = p.slots(c.Op, p.rnd.IntN(3))
	if c.Op == Admit && p.rnd.IntN(2) == 0 {
		p.also(&c)
	}
	return c
}

// sequence draws a sequence of inc and a fence.
func (p *tape) sequence(inc string) (seq, notAfter int64) {
	p.seq[inc]++
	seq = p.seq[inc] + 3
	if p.rnd.IntN(4) == 0 {
		seq -= p.rnd.Int64N(4) // repeated or overtaken
	}
	if p.rnd.IntN(5) == 0 && p.now > 0 {
		notAfter = p.now + p.rnd.Int64N(2000) - 500
	}
	return seq, notAfter
}

func (p *tape) slots(op Op, n int) (list []Slot) {
	for i := range n {
		held := p.rnd.Int64N(4)
		list = append(list, Slot{Key: fmt.Sprintf("s%d", i), Cap: 1 + p.rnd.Int64N(6), Held: held, Want: held + p.rnd.Int64N(3)})
		if op == Admit {
			list[i].Want++
		}
	}
	return list
}

func (p *tape) bucket(i int, op Op) Bucket {
	b := Bucket{
		Key: fmt.Sprintf("b%d", i), Limit: []int64{500, 1000, 7}[i] * token,
		Period: []int64{second, 700_001, second}[i], Burst: 20 * token, Amount: p.rnd.Int64N(9) * token,
	}
	if p.changing && p.rnd.IntN(3) == 0 {
		b.Limit, b.Burst = (1+p.rnd.Int64N(1000))*token, (1+p.rnd.Int64N(40))*token
	}
	if p.rnd.IntN(10) == 0 {
		b.Amount = p.rnd.Int64N(50 * token) // also above the burst
		b.MaxDebt = p.rnd.Int64N(30 * token)
	}
	if p.rnd.IntN(40) == 0 {
		b.Limit, b.Burst = 0, 0
	}
	if op == Settle {
		b.MaxDebt = 100 * token
		if p.rnd.IntN(2) == 0 {
			b.Amount = -b.Amount
		}
	}
	return b
}
