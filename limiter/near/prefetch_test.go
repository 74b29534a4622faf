package near_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
	"github.com/headway-limiter/headway/limiter/near"
)

// level is what the store holds for c.
func (f *crowd) level(t testing.TB, c limiter.Charge) int64 {
	t.Helper()
	c.Cost = 0
	v, err := f.memory.Replica(memstore.Options{}).Peek(context.Background(), take(c))
	if err != nil {
		t.Fatal(err)
	}
	return v.Charges[0].Remaining
}

// warm makes replica i busy with k at rate per second for a while.
func (f *crowd) warm(t testing.TB, i int, k limiter.Take, rate int, d time.Duration) (granted int64) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second / time.Duration(rate)) {
		if v := admit(t, f.near[i], k); v.OK {
			granted++
		}
	}
	return granted
}

// slowly refills so slowly that nothing comes back during a test.
func slowly(burst int64) limiter.Rate {
	return limiter.Rate{Limit: 1, Per: 1000 * time.Hour, Burst: burst}
}

// TestLeftoversGoBack: what is not used goes back after 250 ms without use, at
// once when others wait for their turn, and at Close; all of it, once.
func TestLeftoversGoBack(t *testing.T) {
	k := take(key("k", slowly(100_000), 1))
	for name, end := range map[string]func(*testing.T, *crowd){
		"unused": func(t *testing.T, f *crowd) {
			time.Sleep(200 * time.Millisecond)
			if f.wires[0].settles.Load() != 0 {
				t.Error("given back before 250 ms have passed")
			}
			time.Sleep(110 * time.Millisecond)
		},
		"turns": func(_ *testing.T, f *crowd) {
			f.near[0].Turns(context.Background(), limiter.Turns{Pool: k.Charges[0].Bucket, Rate: k.Charges[0].Rate, Most: 1})
		},
		"close": func(_ *testing.T, f *crowd) { f.near[0].Close(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, near.Options{Prefetch: true}, func(t *testing.T, f *crowd) {
				used := f.warm(t, 0, k, 1000, time.Second)
				if kept := 100_000 - used - f.level(t, k.Charges[0]); kept <= 0 || kept > 100 {
					t.Fatalf("%d tokens are kept here, want some up to 100", kept)
				}
				end(t, f)
				if left := f.level(t, k.Charges[0]); left != 100_000-used {
					t.Errorf("%d left, %d used of 100,000", left, used)
				}
				if n := f.wires[0].settles.Load(); n != 1 {
					t.Errorf("%d settlements, want 1", n)
				}
			})
		})
	}
}

// TestLeaseExpires: during an outage tokens taken before are good for a second,
// and lost afterwards.
func TestLeaseExpires(t *testing.T) {
	inBubble(t, 1, near.Options{Prefetch: true}, func(t *testing.T, f *crowd) {
		k := take(key("k", slowly(100_000), 1))
		f.warm(t, 0, k, 1000, 1001*time.Millisecond)
		f.memory.SetDown(true)
		ok := 0
		for range 200 {
			if _, err := f.near[0].Admit(context.Background(), k); err == nil {
				ok++
			} else if !errors.Is(err, limiter.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if ok == 0 || ok > 100 {
			t.Errorf("%d admitted from what was here, want some up to 100", ok)
		}
		f.memory.SetDown(false)
		used := f.warm(t, 0, k, 1000, time.Second)
		if used < 990 {
			t.Errorf("%d of 1000 admitted after the outage", used)
		}
	})
}

// TestPrefetchRefusesNothing: a call refused with what it wanted in advance is
// made again without. Another takes the bucket down behind our back.
func TestPrefetchRefusesNothing(t *testing.T) {
	inBubble(t, 1, both, func(t *testing.T, f *crowd) {
		c := key("k", slowly(100_000), 1)
		f.warm(t, 0, take(c), 1000, time.Second)
		c.Cost = f.level(t, c) - 3
		admit(t, f.memory.Replica(memstore.Options{}), take(c))
		c.Cost = 1
		kept := 100 // at most
		got := int(f.warm(t, 0, take(c), 1000, 200*time.Millisecond))
		if left := f.level(t, c); left != 0 || got < 3 || got > 3+kept {
			t.Errorf("%d admitted with 3 left in the store, which now has %d", got, left)
		}
	})
}

// TestNothingInAdvance: P2 and what else is no business of prefetch: shared
// buckets that others wait for, Takes with slots, buckets near empty.
func TestNothingInAdvance(t *testing.T) {
	r := slowly(1000)
	model := key("m", r, 1)
	model.Bucket.Dimension = limiter.Model
	turns := model
	turns.InTurn = true
	slot := limiter.Slot{Slot: limiter.SlotID{Dimension: limiter.User, ID: "u"}, Cap: 1 << 30}
	for name, k := range map[string]limiter.Take{
		"slots":        {Charges: []limiter.Charge{key("k", r, 1)}, Slots: []limiter.Slot{slot}},
		"near empty":   take(key("k", slowly(40), 1)),
		"shared empty": take(model),
		"claimed":      take(turns),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 20, near.Options{Prefetch: true}, func(t *testing.T, f *crowd) {
				switch name {
				case "shared empty":
					f.spend(t, model)
				case "claimed":
					f.near[0].Turns(context.Background(), limiter.Turns{Pool: turns.Bucket, Rate: r, Most: 1})
				}
				before := f.level(t, k.Charges[0])
				used := f.warm(t, 0, k, 1000, 900*time.Millisecond)
				if left := f.level(t, k.Charges[0]); left != before-used {
					t.Errorf("%d left of %d, %d used", left, before, used)
				}
			})
		})
	}
	t.Run("shared and quiet", func(t *testing.T) {
		inBubble(t, 2, near.Options{Prefetch: true}, func(t *testing.T, f *crowd) {
			used := f.warm(t, 0, take(turns), 1000, 900*time.Millisecond)
			if asked := f.wires[0].asked.Load(); asked > used/10 {
				t.Errorf("%d calls for %d requests", asked, used)
			}
		})
	})
}

// TestOneCallFillsAll: a Take of several buckets is decided here as a whole, and
// one call fills all of them.
func TestOneCallFillsAll(t *testing.T) {
	inBubble(t, 8, both, func(t *testing.T, f *crowd) {
		rnd := rand.New(rand.NewPCG(3, 3))
		k := take(key("k", perSecond(2000, 400), 1), key("k", perSecond(1_000_000, 400_000), 500))
		k.Charges[1].Bucket.Class = limiter.Tokens
		begin := f.calls()
		n := int64(0)
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); n++ {
			time.Sleep(time.Duration(rnd.ExpFloat64() / 900 * float64(time.Second)))
			k.Charges[1].Cost = 250 + rnd.Int64N(500)
			s := f.near[rnd.IntN(8)]
			if v := admit(t, s, k); !v.OK {
				t.Fatalf("got %+v", v)
			}
			if used := k.Charges[1].Cost * 9 / 10; n%2 == 0 {
				s.Settle(limiter.Settlement{Adjust: []limiter.Adjustment{{Bucket: k.Charges[1].Bucket, Rate: k.Charges[1].Rate, Delta: k.Charges[1].Cost - used}}})
			}
		}
		calls := f.calls() - begin - n/2 // settlements of requests aside
		t.Logf("%.3f calls per request of two buckets", float64(calls)/float64(n))
		if calls > n/5 {
			t.Errorf("%d calls for %d requests", calls, n)
		}
	})
}

// TestWindowExcess: P1. All replicas fill up on a full bucket, then everybody
// comes at once: beyond burst + rate × window no more than half a burst, and from
// the bucket's birth nothing at all.
func TestWindowExcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 8
		f := newCrowd(t, n, both, 200*time.Microsecond)
		r := perSecond(2000, 400)
		k := take(key("k", r, 1))
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { f.warm(t, i, k, 220, 2*time.Second) })
		}
		all.Wait()
		kept := int64(0)
		var mu sync.Mutex
		start := time.Now()
		for i := range n {
			all.Go(func() {
				for range 200 {
					if v := admit(t, f.near[i], k); v.OK {
						mu.Lock()
						kept++
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		w := time.Since(start)
		allowed := float64(r.Burst) + float64(r.Limit)*w.Seconds()
		t.Logf("%d admitted in %v, %.0f without prefetch; half a burst is %d", kept, w, allowed, r.Burst/2)
		if over := float64(kept) - allowed; over > float64(r.Burst)/2 {
			t.Errorf("%.0f beyond the window's allowance, at most %d", over, r.Burst/2)
		}
		if float64(kept) < 0.9*float64(r.Burst) {
			t.Errorf("%d admitted at once from a bucket near full", kept)
		}
	})
}

// TestHotKeyConcurrently: no more than is allowed, by a crowd of goroutines, and
// afterwards nothing is reserved for ever.
func TestHotKeyConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, 4, both, 100*time.Microsecond)
		r := perSecond(5000, 500)
		k := take(key("k", r, 1))
		begin := time.Now()
		var all sync.WaitGroup
		var mu sync.Mutex
		granted := 0
		for i := range 32 {
			rnd := rand.New(rand.NewPCG(uint64(i), 9))
			all.Go(func() {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				for time.Since(begin) < 2*time.Second {
					v, err := f.near[i%4].Admit(ctx, k)
					if err != nil {
						t.Error(err)
						return
					}
					if v.OK {
						mu.Lock()
						granted++
						mu.Unlock()
					}
					time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Millisecond))))
				}
			})
		}
		all.Wait()
		allowed := float64(r.Burst) + float64(r.Limit)*time.Since(begin).Seconds()
		if ratio := float64(granted) / allowed; ratio > 1 || ratio < 0.98 {
			t.Errorf("%d admitted, %.0f allowed: %.4f", granted, allowed, ratio)
		}
		time.Sleep(5 * time.Second)
		again, start := int64(0), time.Now()
		for i := range 4 {
			for range 125 {
				if v := admit(t, f.near[i], k); v.OK {
					again++
				}
			}
		}
		for _, s := range f.near {
			s.Close(context.Background())
		}
		refilled := float64(r.Limit) * time.Since(start).Seconds()
		if sum := float64(again + f.level(t, k.Charges[0])); again < 400 || sum > 500+refilled || sum < 499+refilled-1 {
			t.Errorf("of a full bucket %d admitted, with what is left %.0f, want 500 + %.1f", again, sum, refilled)
		}
		t.Logf("%d admitted, %.0f allowed", granted, allowed)
	})
}
