package storetest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// Store is what the contract is about: a limiter.Store whose levels can be
// looked at without taking.
type Store interface {
	limiter.Store
	Peek(ctx context.Context, t limiter.Take) (limiter.Verdict, error)
}

// Fleet is replicas on one empty server, as a test of the contract needs them.
// Replicas need generous deadlines: the machine may be busy.
type Fleet struct {
	// Replica returns a new living replica. The fleet closes it.
	Replica func() Store
	// Crash ends one as kill -9 would: it is heard of no more.
	Crash func(Store)
	// LeaseTTL is long enough that a machine that stands still for most of a second
	// loses nobody's slots, where they have to be renewed.
	LeaseTTL time.Duration
	// Rounds of the test of the cap under load; zero means 200. A slow server
	// may do with fewer.
	Rounds int
}

// Contract runs every rule of limiter.Store, each on a fleet of its own.
func Contract(t *testing.T, open func(t *testing.T) Fleet) {
	for _, r := range []struct {
		name string
		run  func(*testing.T, Fleet)
	}{
		{"burst and wait", burstAndWait}, {"all or nothing", allOrNothing}, {"never", never},
		{"settle", settle}, {"peek takes nothing", peekTakesNothing}, {"slots are freed", slotsAreFreed},
		{"cap under load", capUnderLoad}, {"crash frees after the ttl", crashFrees}, {"close frees at once", closeFrees},
		{"live slots outlast the ttl", renewed}, {"cancelled", cancelled},
		{"turns by weight", turnsByWeight}, {"newcomers join", newcomersJoin}, {"turns are given back", turnsGivenBack},
		{"slots in turn", slotsInTurn}, {"slots in turn after a crash", slotsAfterCrash},
	} {
		t.Run(r.name, func(t *testing.T) { r.run(t, open(t)) })
	}
}

// healed bounds what a machine that is busy adds to a time that is promised.
const healed = 5 * time.Second

// hourly refills so slowly that nothing comes back during a test.
func hourly(n int64) limiter.Rate { return limiter.Rate{Limit: n, Per: time.Hour, Burst: n} }

func charge(d limiter.Dimension, who string, r limiter.Rate, cost int64) limiter.Charge {
	return limiter.Charge{Bucket: limiter.BucketID{Dimension: d, ID: limiter.Hash(d, who)}, Rate: r, Cost: cost}
}

func slotOf(who string, cap int) limiter.Slot {
	return limiter.Slot{Slot: limiter.SlotID{Dimension: limiter.User, ID: limiter.Hash(limiter.User, who)}, Cap: cap}
}

// admit asks and insists on an answer.
func admit(t *testing.T, s Store, k limiter.Take) limiter.Verdict {
	t.Helper()
	v, err := s.Admit(context.Background(), k)
	if err != nil {
		t.Fatalf("admit: %v", err)
	}
	return v
}

func peek(t *testing.T, s Store, k limiter.Take) limiter.Verdict {
	t.Helper()
	v, err := s.Peek(context.Background(), k)
	if err != nil {
		t.Fatalf("peek: %v", err)
	}
	return v
}

// Eventually waits until ok, at most for d. It is for what another goroutine or
// process does; inside a bubble no real time passes.
func Eventually(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}

func burstAndWait(t *testing.T, f Fleet) {
	a, b := f.Replica(), f.Replica()
	k := limiter.Take{Charges: []limiter.Charge{charge(limiter.User, "u", hourly(4), 1)}}
	for left := int64(3); left >= 0; left-- {
		s := a
		if left%2 == 0 {
			s = b
		}
		if v := admit(t, s, k); !v.OK || v.Charges[0].Remaining != left {
			t.Fatalf("got %+v, want a grant that leaves %d", v, left)
		}
	}
	v := admit(t, a, k)
	if v.OK || v.Charges[0].Wait <= 14*time.Minute || v.Charges[0].Wait > 15*time.Minute {
		t.Fatalf("empty: got %+v, want refused for just under 15 min", v)
	}
}

func allOrNothing(t *testing.T, f Fleet) {
	s := f.Replica()
	key, user := charge(limiter.APIKey, "k", hourly(10), 1), charge(limiter.User, "u", hourly(1), 1)
	k := limiter.Take{Charges: []limiter.Charge{key, user}, Slots: []limiter.Slot{slotOf("u", 2)}}
	admit(t, s, k)
	for range 3 {
		v := admit(t, s, k)
		if v.OK || v.Charges[0].Wait != 0 || v.Charges[1].Wait == 0 || v.Full[0] {
			t.Fatalf("user is empty, key and slot are not: got %+v", v)
		}
	}
	admit(t, s, limiter.Take{Slots: k.Slots}) // the second slot
	v := admit(t, s, limiter.Take{Charges: []limiter.Charge{key}, Slots: k.Slots})
	if v.OK || !v.Full[0] {
		t.Fatalf("both slots are held: got %+v", v)
	}
	if v := peek(t, s, k); v.Charges[0].Remaining != 9 {
		t.Fatalf("refused requests took from the key: %d left, want 9", v.Charges[0].Remaining)
	}
}

func never(t *testing.T, f Fleet) {
	s := f.Replica()
	for name, c := range map[string]limiter.Charge{
		"above burst": charge(limiter.User, "u", hourly(5), 6),
		"blocked":     charge(limiter.Team, "t", limiter.Rate{Per: time.Second}, 1),
	} {
		if v := admit(t, s, limiter.Take{Charges: []limiter.Charge{c}}); v.OK || v.Charges[0].Wait != limiter.Never {
			t.Errorf("%s: got %+v, want Never", name, v)
		}
	}
}

func settle(t *testing.T, f Fleet) {
	s := f.Replica()
	c := charge(limiter.User, "u", hourly(100), 40)
	c.Bucket.Class = limiter.Tokens
	k := limiter.Take{Charges: []limiter.Charge{c}, Slots: []limiter.Slot{slotOf("u", 9)}}
	free := []limiter.SlotID{k.Slots[0].Slot}
	for _, step := range []struct{ delta, want int64 }{{+30, 90}, {0, 50}, {-20, -10}} {
		if v := admit(t, s, k); !v.OK {
			t.Fatalf("got %+v, want a grant", v)
		}
		s.Settle(limiter.Settlement{
			Adjust: []limiter.Adjustment{{Bucket: c.Bucket, Rate: c.Rate, Delta: step.delta}}, Free: free,
		})
		Eventually(t, 5*time.Second, "the settled level", func() bool {
			return peek(t, s, k).Charges[0].Remaining == step.want
		})
	}
	c.Cost = 0
	if v := admit(t, s, limiter.Take{Charges: []limiter.Charge{c}}); v.OK {
		t.Fatalf("a free request on a debt: got %+v, want refused", v)
	}
}

func peekTakesNothing(t *testing.T, f Fleet) {
	s := f.Replica()
	k := limiter.Take{
		Charges: []limiter.Charge{charge(limiter.User, "u", hourly(1), 1)}, Slots: []limiter.Slot{slotOf("u", 1)},
	}
	for range 3 {
		if v := peek(t, s, k); !v.OK || v.Full[0] || v.Charges[0] != (limiter.ChargeVerdict{Remaining: 1}) {
			t.Fatalf("untouched: got %+v", v)
		}
	}
	admit(t, s, k)
	if v := peek(t, s, k); v.OK || !v.Full[0] || v.Charges[0].Wait == 0 {
		t.Fatalf("taken: got %+v", v)
	}
}

func slotsAreFreed(t *testing.T, f Fleet) {
	a, b := f.Replica(), f.Replica()
	k := limiter.Take{Slots: []limiter.Slot{slotOf("u", 2)}}
	free := limiter.Settlement{Free: []limiter.SlotID{k.Slots[0].Slot}}
	for range 20 {
		if v := admit(t, a, k); !v.OK {
			t.Fatalf("got %+v, want a grant", v)
		}
		if v := admit(t, b, k); !v.OK {
			t.Fatalf("got %+v, want a grant", v)
		}
		if v := admit(t, b, k); v.OK {
			t.Fatal("a third slot of two was granted")
		}
		a.Settle(free)
		b.Settle(free)
		b.Settle(free) // more than it holds: never below zero
		Eventually(t, 5*time.Second, "all is given back", func() bool {
			one := limiter.Take{Slots: []limiter.Slot{slotOf("u", 1)}}
			return !peek(t, b, one).Full[0]
		})
	}
}

// capUnderLoad: 60 callers on 3 replicas never run more than the cap, and don't
// keep each other from running either.
func capUnderLoad(t *testing.T, f Fleet) {
	const cap, callers = 5, 60
	rounds := int64(f.Rounds)
	if rounds == 0 {
		rounds = 200
	}
	replicas := []Store{f.Replica(), f.Replica(), f.Replica()}
	k := limiter.Take{Slots: []limiter.Slot{slotOf("u", cap)}}
	free := limiter.Settlement{Free: []limiter.SlotID{k.Slots[0].Slot}}
	var running, peak, granted atomic.Int64
	for range rounds {
		var wg sync.WaitGroup
		for i := range callers {
			s := replicas[i%len(replicas)]
			wg.Go(func() {
				v, err := s.Admit(context.Background(), k)
				if err != nil {
					t.Errorf("admit: %v", err)
				}
				if !v.OK {
					return
				}
				granted.Add(1)
				now := running.Add(1)
				for p := peak.Load(); now > p && !peak.CompareAndSwap(p, now); p = peak.Load() {
				}
				for range 10 {
					runtime.Gosched()
				}
				running.Add(-1)
				s.Settle(free)
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
	}
	if p := peak.Load(); p > cap {
		t.Fatalf("%d ran at once, cap %d", p, cap)
	}
	if g := granted.Load(); g < rounds {
		t.Fatalf("%d grants in %d rounds: free slots were not given out", g, rounds)
	}
	t.Logf("%d grants, peak %d", granted.Load(), peak.Load())
}

func crashFrees(t *testing.T, f Fleet) {
	a, b := f.Replica(), f.Replica()
	k := limiter.Take{Slots: []limiter.Slot{slotOf("u", 5)}}
	var taken time.Time // the leases last a ttl from here at least
	for range 5 {
		taken = time.Now()
		admit(t, a, k)
	}
	f.Crash(a)
	if v := admit(t, b, k); v.OK {
		if time.Since(taken) < f.LeaseTTL {
			t.Fatal("a slot was free at once after a crash")
		}
		b.Settle(limiter.Settlement{Free: []limiter.SlotID{k.Slots[0].Slot}}) // the machine stood still for a ttl
	}
	Eventually(t, f.LeaseTTL+healed, "the crashed replica's slots are free", func() bool {
		return !peek(t, b, limiter.Take{Slots: []limiter.Slot{slotOf("u", 1)}}).Full[0]
	})
	if early := f.LeaseTTL - time.Millisecond; time.Since(taken) < early { // servers round to ms
		t.Fatalf("free %v after they were taken, too early for a ttl of %v", time.Since(taken), f.LeaseTTL)
	}
	for range 5 {
		if v := admit(t, b, k); !v.OK {
			t.Fatalf("after the ttl: got %+v, want a grant", v)
		}
	}
}

func closeFrees(t *testing.T, f Fleet) {
	a, b := f.Replica(), f.Replica()
	k := limiter.Take{Slots: []limiter.Slot{slotOf("u", 1)}}
	admit(t, a, k)
	if err := a.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if v := admit(t, b, k); !v.OK {
		t.Fatalf("after Close: got %+v, want a grant", v)
	}
	if _, err := a.Admit(context.Background(), k); !errors.Is(err, limiter.ErrUnavailable) {
		t.Fatalf("admit of a closed store: %v, want ErrUnavailable", err)
	}
}

// renewed: a slot of a living replica is not lost, however long it runs. A machine
// that stands still may renew late, so a loss counts only if it has not for a while.
func renewed(t *testing.T, f Fleet) {
	a, b := f.Replica(), f.Replica()
	k := limiter.Take{Slots: []limiter.Slot{slotOf("u", 1)}}
	admit(t, a, k)
	start := time.Now()
	last, stood := start, time.Time{}
	for time.Since(start) < 2*f.LeaseTTL {
		full, now := peek(t, b, k).Full[0], time.Now()
		if now.Sub(last) > f.LeaseTTL/4 {
			stood = now
		}
		if !full && now.Sub(stood) > f.LeaseTTL {
			t.Fatal("a running request lost its slot")
		}
		last = now
		<-time.After(f.LeaseTTL / 20)
	}
}

func cancelled(t *testing.T, f Fleet) {
	s := f.Replica()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	k := limiter.Take{Charges: []limiter.Charge{charge(limiter.User, "u", hourly(1), 1)}}
	if _, err := s.Admit(ctx, k); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: got %v", err)
	}
	if v := peek(t, s, k); !v.OK {
		t.Fatal("a cancelled call took something")
	}
	if !s.Health().Usable || s.Health().State != "ok" {
		t.Fatalf("cancelling is no trouble of the store: %+v", s.Health())
	}
}
