package redisstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// ledger is what callers know for sure, to judge a store that loses messages.
type ledger struct {
	running, peak    atomic.Int64
	granted, refused atomic.Int64
	unavailable      atomic.Int64
	taken, back      atomic.Int64 // tokens of heard grants; given back at most
}

// TestChaos: three replicas whose links freeze, mute and break at random, never
// for as long as the ttl. No more than the cap ever run; in the end no slot is
// left, and the bucket has at most what grants, charges at least once and
// refunds at most once leave of it.
func TestChaos(t *testing.T) {
	rnd := storetest.Seeded(t)
	for range 2 {
		seed := rnd.Uint64()
		synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
	}
}

func chaos(t *testing.T, seed uint64) {
	const cap, callers, burst = 5, 30, 1_000_000
	ctx, stop := context.WithTimeout(t.Context(), 6*time.Second)
	defer stop()
	b, l := storetest.NewBubble(t), &ledger{}
	k := oneTake(burst, cap)
	k.Charges[0].Cost = 10
	k.Charges[0].Bucket.Class = limiter.Tokens
	var stores []*redisstore.Store
	var faults, work sync.WaitGroup
	for i := range 3 {
		link := b.Link()
		s := newStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: link.Dial})
		stores = append(stores, s)
		faults.Go(func() { trouble(ctx, link, rand.New(rand.NewPCG(seed, uint64(i)))) })
		for j := range callers / 3 {
			work.Go(func() { l.call(t, ctx, s, k, rand.New(rand.NewPCG(seed, uint64(100+10*i+j)))) })
		}
	}
	work.Wait()
	faults.Wait()
	time.Sleep(redisstore.DefaultLeaseTTL + 2*time.Second)

	t.Logf("%d granted, %d refused, %d unavailable, peak %d", l.granted.Load(), l.refused.Load(), l.unavailable.Load(), l.peak.Load())
	if p := l.peak.Load(); p > cap {
		t.Errorf("%d ran at once, cap %d", p, cap)
	}
	if l.granted.Load() < 50 || l.unavailable.Load() < 100 {
		t.Error("too few grants or failures: this test shows nothing")
	}
	one := k
	one.Slots = []limiter.Slot{{Slot: k.Slots[0].Slot, Cap: 1}}
	v, err := stores[0].Peek(t.Context(), one)
	if err != nil || v.Full[0] {
		t.Errorf("in the end: got %+v, %v; want no slot held", v, err)
	}
	if most := burst - l.taken.Load() + l.back.Load(); v.Charges[0].Remaining > most {
		t.Errorf("%d tokens left, at most %d", v.Charges[0].Remaining, most)
	}
}

// call asks, runs and settles until ctx ends.
func (l *ledger) call(t *testing.T, ctx context.Context, s *redisstore.Store, k limiter.Take, rnd *rand.Rand) {
	for ctx.Err() == nil {
		v, err := s.Admit(ctx, k)
		switch {
		case errors.Is(err, limiter.ErrUnavailable):
			l.unavailable.Add(1)
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			t.Errorf("admit: %v", err)
		case err == nil && !v.OK:
			l.refused.Add(1)
		case err == nil:
			l.granted.Add(1)
			l.taken.Add(k.Charges[0].Cost)
			now := l.running.Add(1)
			l.peak.Store(max(now, l.peak.Load()))
			time.Sleep(time.Duration(rnd.IntN(50)) * time.Millisecond)
			l.running.Add(-1)
			delta := rnd.Int64N(20) - 10
			l.back.Add(delta)
			s.Settle(limiter.Settlement{
				Adjust: []limiter.Adjustment{{Bucket: k.Charges[0].Bucket, Rate: k.Charges[0].Rate, Delta: delta}},
				Free:   []limiter.SlotID{k.Slots[0].Slot},
			})
		}
		time.Sleep(time.Duration(rnd.IntN(60)) * time.Millisecond)
	}
}

// trouble breaks a link in some way, and mends it, until ctx ends.
func trouble(ctx context.Context, l *storetest.Link, rnd *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rnd.IntN(1500)) * time.Millisecond)
		hold := time.Duration(rnd.IntN(400)) * time.Millisecond
		switch rnd.IntN(4) {
		case 0:
			l.Freeze()
			time.Sleep(hold)
			l.Thaw()
		case 1:
			l.Mute()
			time.Sleep(hold)
			l.Unmute()
		case 2:
			l.Cut()
			time.Sleep(hold)
			l.Mend()
		case 3: // executed, then broken before the answer
			l.Mute()
			time.Sleep(hold / 10)
			l.Cut()
			l.Unmute()
			l.Mend()
		}
	}
}
