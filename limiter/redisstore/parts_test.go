package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// account is what callers know for sure of one bucket: tokens of grants they
// heard of, less those they have begun to give back. The server has taken what
// it grants before they hear, and gets back later, so it must never hold more.
type account struct {
	charge limiter.Charge
	out    int64
}

// books are the accounts of a run, and of slots that run. Guarded by mu.
type books struct {
	mu      sync.Mutex
	tenants []*account
	shared  *account
	running []int
	heard   int
	failed  int
	refused map[limiter.Dimension]int
}

const slotCap = 2

// newBooks are of two tenants with own tokens each, who share some. Nothing comes
// back but what is given back.
func newBooks(own, shared int64) *books {
	acc := func(d limiter.Dimension, who string, burst int64, home limiter.ID) *account {
		return &account{charge: limiter.Charge{
			Bucket: limiter.BucketID{Dimension: d, Class: limiter.Tokens, ID: limiter.Hash(d, who), Home: home},
			Rate:   limiter.Rate{Limit: 1, Per: 1000 * time.Hour, Burst: burst},
		}}
	}
	b := &books{shared: acc(limiter.Model, "m", shared, ""), refused: map[limiter.Dimension]int{}}
	for i := range 2 {
		who := fmt.Sprint("team", i)
		b.tenants = append(b.tenants, acc(limiter.Team, who, own, limiter.Hash(limiter.Team, who)))
		b.running = append(b.running, 0)
	}
	return b
}

// take asks for a cost of both buckets, and a slot.
func (b *books) take(i int, cost int64) limiter.Take {
	own, shared := b.tenants[i].charge, b.shared.charge
	own.Cost, shared.Cost = cost, cost
	slot := limiter.SlotID{Dimension: limiter.Team, ID: own.Bucket.ID, Home: own.Bucket.Home}
	return limiter.Take{Charges: []limiter.Charge{own, shared}, Slots: []limiter.Slot{{Slot: slot, Cap: slotCap}}}
}

// granted books a grant, and fails if it is one too many.
func (b *books) granted(t *testing.T, i int, cost int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard++
	for _, acc := range []*account{b.tenants[i], b.shared} {
		if acc.out += cost; acc.out > acc.charge.Rate.Burst {
			t.Errorf("C1: %s: %d of %d are out", acc.charge.Bucket.Dimension, acc.out, acc.charge.Rate.Burst)
		}
	}
	if b.running[i]++; b.running[i] > slotCap {
		t.Errorf("C1: tenant %d runs %d, cap %d", i, b.running[i], slotCap)
	}
}

// ended books the end of a request, of which back tokens are given back.
func (b *books) ended(i int, back int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[i]--
	b.tenants[i].out -= back
	b.shared.out -= back
}

func (b *books) noted(v limiter.Verdict, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil:
		b.failed++
	case v.Full[0]:
		b.refused["slot"]++
	}
	for i, d := range []limiter.Dimension{limiter.Team, limiter.Model} {
		if err == nil && v.Charges[i].Wait != 0 {
			b.refused[d]++
		}
	}
}

// caller plays one caller's part of the tape.
func (b *books) caller(t *testing.T, ctx context.Context, s *redisstore.Store, i int, rnd *rand.Rand) {
	for ctx.Err() == nil {
		cost := 1 + rnd.Int64N(12)
		k := b.take(i, cost)
		v, err := s.Admit(context.Background(), k)
		if err != nil && !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("admit: %v", err)
		}
		if err != nil || !v.OK {
			b.noted(v, err)
			time.Sleep(time.Duration(20+rnd.IntN(60)) * time.Millisecond)
			continue
		}
		b.granted(t, i, cost)
		time.Sleep(time.Duration(rnd.IntN(40)) * time.Millisecond)
		back := rnd.Int64N(cost + 1)
		if rnd.IntN(20) > 0 {
			back = cost
		}
		b.ended(i, back)
		f := limiter.Settlement{Free: []limiter.SlotID{k.Slots[0].Slot}}
		for _, ch := range k.Charges {
			f.Adjust = append(f.Adjust, limiter.Adjustment{Bucket: ch.Bucket, Rate: ch.Rate, Delta: back})
		}
		s.Settle(f)
	}
}

// play runs the tape of one seed and returns the books and a store to look with.
func (b *books) play(t *testing.T, seed uint64, faults bool, d time.Duration) *redisstore.Store {
	ctx, stop := context.WithTimeout(t.Context(), d)
	defer stop()
	bubble := storetest.NewBubble(t)
	var first *redisstore.Store
	var work sync.WaitGroup
	for r := range 3 {
		link := bubble.Link()
		s := newStore(t, redisstore.Options{
			Address: storetest.BubbleAddress, DialCtxFn: link.Dial, Layout: redisstore.LayoutTenant,
		})
		if first == nil {
			first = s
		}
		if faults {
			work.Go(func() { trouble(ctx, link, rand.New(rand.NewPCG(seed, uint64(r)))) })
		}
		for i := range 4 {
			work.Go(func() { b.caller(t, ctx, s, i%len(b.tenants), rand.New(rand.NewPCG(seed, uint64(100+20*r+i)))) })
		}
	}
	work.Wait()
	time.Sleep(redisstore.DefaultLeaseTTL + 2*time.Second)
	return first
}

// left compares every bucket and slot with the books in the end: equal when
// nothing was lost, else the server has taken more, if anything.
func (b *books) left(t *testing.T, s *redisstore.Store, exact bool) {
	for i, acc := range b.tenants {
		k := b.take(i, 1)
		k.Slots[0].Cap = 1
		v, err := s.Peek(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		if v.Full[0] {
			t.Errorf("tenant %d holds a slot in the end", i)
		}
		for j, a := range []*account{acc, b.shared} {
			taken := a.charge.Rate.Burst - v.Charges[j].Remaining
			if taken < a.out || exact && taken != a.out {
				t.Errorf("C1: %s of tenant %d: %d taken in the end, %d by the books", a.charge.Bucket.Dimension, i, taken, a.out)
			}
		}
	}
	t.Logf("%d grants, %d failures, refused by %v", b.heard, b.failed, b.refused)
}

// TestTwoCallsNeverOverAdmit: C1. Three replicas, a random tape, every request in
// two calls. At no time is more out than a bucket holds; in the end, after all
// compensations, both sides equal what was admitted, and what was lost with
// calls and replies only ever makes for less.
func TestTwoCallsNeverOverAdmit(t *testing.T) {
	rnd := storetest.Seeded(t)
	for _, c := range []struct {
		name   string
		faults bool
		scale  int64
		lasts  time.Duration
	}{{"nothing lost", false, 1, 1500 * time.Millisecond}, {"calls and replies lost", true, 4, 4 * time.Second}} {
		seed := rnd.Uint64()
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBooks(20*c.scale, 30*c.scale)
				s := b.play(t, seed, c.faults, c.lasts)
				b.left(t, s, !c.faults)
				if b.heard < 50 || !c.faults && (b.refused[limiter.Team] == 0 || b.refused[limiter.Model] == 0) || c.faults && b.failed < 10 {
					t.Error("too few grants, refusals or failures: this test shows nothing")
				}
			})
		})
	}
}

// tenantRig is a store in layout tenant, in a bubble.
func tenantRig(t *testing.T) (*redisstore.Store, *storetest.Bubble, *storetest.Link) {
	b := storetest.NewBubble(t)
	l := b.Link()
	s := newStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: l.Dial, Layout: redisstore.LayoutTenant})
	return s, b, l
}

// TestTwoCallsTellAsOne: whichever part refuses, the caller hears of every limit
// that does, and of levels as if nothing had been taken.
func TestTwoCallsTellAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := tenantRig(t)
		b := newBooks(40, 60)
		mustAdmit(t, s, limiter.Take{Charges: b.take(0, 40).Charges}) // the tenant is empty, 20 of 60 are left
		v, err := s.Admit(t.Context(), b.take(0, 21))
		if err != nil || v.OK || v.Charges[0].Wait == 0 || v.Charges[1].Wait == 0 {
			t.Errorf("both refuse: got %+v, %v", v, err)
		}
		v, err = s.Admit(t.Context(), b.take(1, 21))
		if err != nil || v.OK || v.Charges[0].Wait != 0 || v.Charges[1].Wait == 0 || v.Charges[0].Remaining != 40 || v.Full[0] {
			t.Errorf("only the shared bucket refuses: got %+v, %v", v, err)
		}
		synctest.Wait()
		if v, err := s.Peek(t.Context(), b.take(1, 1)); err != nil || v.Charges[0].Remaining != 40 || v.Charges[1].Remaining != 20 {
			t.Errorf("after the compensation: got %+v, %v; want 40 and 20", v, err)
		}
		if v, err := s.Admit(t.Context(), b.take(1, 20)); err != nil || !v.OK || v.Charges[0].Remaining != 20 || v.Charges[1].Remaining != 0 {
			t.Errorf("what is left: got %+v, %v", v, err)
		}
	})
}

// TestTurnsKeepSlotsApart: a turn whose bearer's own limits are kept elsewhere
// takes them after it; refused there, bucket and tag are given back.
func TestTurnsKeepSlotsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, link := tenantRig(t)
		b := newBooks(40, 60)
		pool := b.shared.charge
		pool.Bucket.Class = limiter.Requests
		bid := func(i int, cost int64) limiter.Bid {
			rest := b.take(i, cost)
			rest.Charges = rest.Charges[:1]
			return limiter.Bid{Tenant: b.tenants[i].charge.Bucket.ID, Weight: 2, Cost: 6, Since: limiter.Unknown, Rest: rest}
		}
		ask := func(bids ...limiter.Bid) limiter.TurnsVerdict {
			t.Helper()
			v, err := s.Turns(t.Context(), limiter.Turns{
				Pool: pool.Bucket, Rate: pool.Rate, Most: 8, Bids: bids, Rest: 10 * time.Millisecond, Grace: 50 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return v
		}
		level := func() int64 {
			v, err := s.Peek(t.Context(), limiter.Take{Charges: []limiter.Charge{pool}})
			if err != nil {
				t.Fatal(err)
			}
			return v.Charges[0].Remaining
		}
		v := ask(bid(0, 30), bid(1, 41))
		if v.Bids[0].State != limiter.BidGranted || v.Bids[0].Rest.Charges[0].Remaining != 10 || v.Bids[0].Finish != 3 {
			t.Errorf("a bid that fits: got %+v", v.Bids[0])
		}
		if v.Bids[1].State != limiter.BidBlocked || v.Bids[1].Rest.Charges[0].Wait == 0 {
			t.Errorf("a bid that its own limit blocks: got %+v", v.Bids[1])
		}
		if l := level(); l != 54 {
			t.Errorf("one of two turns was given back: %d left, want 54", l)
		}
		if v := ask(bid(1, 1)); v.Bids[0].State != limiter.BidGranted || v.Bids[0].Finish > v.Before+3 {
			t.Errorf("blocked before, it has its turn now, and has not been charged for it: got %+v", v)
		}
		if l := level(); l != 48 {
			t.Errorf("two turns taken: %d left, want 48", l)
		}
		link.Cut()
		time.Sleep(time.Second)
		link.Mend()
		time.Sleep(3 * time.Second)
		if l := level(); l != 48 {
			t.Errorf("after an outage: %d left, want 48", l)
		}
	})
}

// turnsAt bids for one turn at a bucket.
func turnsAt(c limiter.Charge) limiter.Turns {
	return limiter.Turns{Pool: c.Bucket, Rate: c.Rate, Most: 1, Grace: 50 * time.Millisecond, Bids: []limiter.Bid{
		{Tenant: limiter.Hash(limiter.User, "x"), Weight: 1, Cost: 1, Since: limiter.Unknown},
	}}
}
