package near_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
	"github.com/headway-limiter/headway/limiter/near"
)

var deny = near.Options{DenyCache: true}

func take(c ...limiter.Charge) limiter.Take { return limiter.Take{Charges: c} }

// admit asks and insists on an answer.
func admit(t testing.TB, s limiter.Store, k limiter.Take) limiter.Verdict {
	t.Helper()
	v, err := s.Admit(context.Background(), k)
	if err != nil {
		t.Fatalf("admit: %v", err)
	}
	return v
}

// spend takes everything out of the bucket of c, past everybody's memory.
func (f *crowd) spend(t testing.TB, c limiter.Charge) {
	t.Helper()
	s := f.memory.Replica(memstore.Options{})
	v, err := s.Peek(context.Background(), take(c))
	if err != nil {
		t.Fatal(err)
	}
	c.Cost = v.Charges[0].Remaining
	admit(t, s, take(c))
}

// asks is how many Admits f makes of the store.
func (w *wire) asks(f func()) int64 {
	before := w.asked.Load()
	f()
	return w.asked.Load() - before
}

// inBubble runs f on a crowd of n replicas.
func inBubble(t *testing.T, n int, o near.Options, f func(t *testing.T, c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newCrowd(t, n, o, 0)) })
}

// A refusal is repeated without a call, its wait is what is left of the first
// one, and who sleeps exactly that long is admitted, at whichever replica.
func TestToldWaitIsKept(t *testing.T) {
	for _, r := range []limiter.Rate{perSecond(1, 1), perSecond(3, 10), perSecond(100, 10), perSecond(2000, 400), perSecond(5000, 1), {Limit: 7, Per: time.Hour, Burst: 9}} {
		t.Run(fmt.Sprint(r), func(t *testing.T) {
			inBubble(t, 2, deny, func(t *testing.T, f *crowd) {
				k := take(key("a", r, 1))
				f.spend(t, k.Charges[0])
				admit(t, f.near[1], k) // which now holds back for a time of its own
				first := admit(t, f.near[0], k)
				told := first.Charges[0].Wait
				if first.OK || told <= 0 {
					t.Fatalf("an empty bucket: got %+v", first)
				}
				asked := f.wires[0].asks(func() {
					if v := admit(t, f.near[0], k); v.OK || v.Charges[0].Wait > told || v.Charges[0].Wait < told/2 {
						t.Errorf("again at once: got %+v, first told %v", v, told)
					}
				})
				if asked != 0 {
					t.Errorf("refused again with %d calls", asked)
				}
				at := time.Now().Add(told)
				if rest := told / 2; told > 40*time.Millisecond && told < time.Second {
					time.Sleep(rest)
					again := f.wires[0].asks(func() {
						v := admit(t, f.near[0], k)
						if got := v.Charges[0].Wait; v.OK || time.Now().Add(got).Sub(at).Abs() > time.Microsecond {
							t.Errorf("half way: got %+v, want what is left of %v", v, told)
						}
					})
					if again != 0 {
						t.Errorf("half way: %d calls", again)
					}
				}
				time.Sleep(time.Until(at))
				if v := admit(t, f.near[1], k); !v.OK {
					t.Errorf("slept exactly %v, then alone: got %+v", told, v)
				}
			})
		})
	}
}

// Nor does it matter whether there was room to remember the refusal.
func TestToldWaitIsKeptWithoutRoom(t *testing.T) {
	few := near.Options{DenyCache: true, MaxBuckets: 64}
	inBubble(t, 2, few, func(t *testing.T, f *crowd) {
		for i := range 2000 {
			k := take(key(fmt.Sprint("other", i), limiter.Rate{Limit: 1, Per: time.Hour, Burst: 1}, 1))
			admit(t, f.near[0], k)
			admit(t, f.near[0], k)
		}
		k := take(key("a", perSecond(200, 10), 1))
		f.spend(t, k.Charges[0])
		admit(t, f.near[1], k) // which now holds back for 5 to 15 ms
		remembered := f.near[0].Buckets()
		told := admit(t, f.near[0], k).Charges[0].Wait
		if f.near[0].Buckets() != remembered {
			t.Fatal("there was room to remember it")
		}
		time.Sleep(told)
		if v := admit(t, f.near[1], k); !v.OK {
			t.Errorf("slept exactly %v, then alone: got %+v", told, v)
		}
	})
}

// A refusal of a whole burst tells how full the bucket is, though the line that was
// known before ends at the same instant: at the burst.
func TestRefusalOfTheBurst(t *testing.T) {
	inBubble(t, 1, deny, func(t *testing.T, f *crowd) {
		c, empty := key("a", perSecond(1, 10), 2), key("empty", perSecond(1, 1), 1)
		f.spend(t, c)
		time.Sleep(3400 * time.Millisecond)
		f.spend(t, empty)
		admit(t, f.near[0], take(c, empty)) // which tells 3 left, so there are less than 4
		c.Cost = 10
		if v := admit(t, f.near[0], take(c)); v.OK || v.Charges[0].Wait != 6600*time.Millisecond {
			t.Fatalf("a burst of 10 beside 3.4: got %+v", v)
		}
		c.Cost = 8
		if v := admit(t, f.near[0], take(c)); v.OK || v.Charges[0].Wait != 4600*time.Millisecond {
			t.Errorf("8 beside 3.4: got %+v, want to wait 4.6 s", v)
		}
	})
}

// A wait told from memory covers what is refused for longer by another bucket,
// or it is not told from memory.
func TestUnknownBucketsAreAskedFor(t *testing.T) {
	inBubble(t, 1, deny, func(t *testing.T, f *crowd) {
		user := func(u string) limiter.Charge {
			c := key(u, perSecond(1, 5), 1)
			c.Bucket.Dimension = limiter.User
			return c
		}
		hot := key("hot", perSecond(2, 2), 1)
		f.spend(t, hot)
		f.spend(t, user("poor"))
		admit(t, f.near[0], take(hot, user("rich")))
		for _, step := range []struct {
			who  string
			asks int64
			wait time.Duration
		}{{"rich", 0, 500 * time.Millisecond}, {"poor", 1, time.Second}, {"poor", 0, time.Second}, {"other", 1, 500 * time.Millisecond}} {
			k := take(hot, user(step.who))
			asks := f.wires[0].asks(func() {
				v := admit(t, f.near[0], k)
				if wait := max(v.Charges[0].Wait, v.Charges[1].Wait); v.OK || wait != step.wait {
					t.Errorf("%s: got %+v, want to wait %v", step.who, v, step.wait)
				}
			})
			if asks != step.asks {
				t.Errorf("%s: %d calls, want %d", step.who, asks, step.asks)
			}
		}
	})
}

// So it is where only the whole tokens of the other bucket are known.
func TestRoughlyKnownBucketsAreAskedFor(t *testing.T) {
	inBubble(t, 1, deny, func(t *testing.T, f *crowd) {
		c, empty := key("a", perSecond(20, 100), 3), key("empty", perSecond(1, 1), 1)
		f.spend(t, c)
		f.spend(t, empty)
		time.Sleep(500 * time.Millisecond)
		admit(t, f.near[0], take(c, empty)) // which tells 10 left, so there are less than 11
		c.Cost = 31
		if v := admit(t, f.near[0], take(c, empty)); v.OK || v.Charges[0].Wait != 1050*time.Millisecond {
			t.Errorf("31 beside 10: got %+v, want to wait 1.05 s", v)
		}
		c.Cost = 12
		asked := f.wires[0].asks(func() {
			if v := admit(t, f.near[0], take(c, empty)); v.OK || v.Charges[1].Wait != 500*time.Millisecond {
				t.Errorf("12 beside 10: got %+v, want to wait 0.5 s for the other bucket", v)
			}
		})
		if asked != 0 {
			t.Errorf("12 beside 10: %d calls, though the other wait covers it", asked)
		}
	})
}

// What costs less than what was refused may pass, and is asked for; what costs
// more is not.
func TestCheaperMayAsk(t *testing.T) {
	inBubble(t, 1, deny, func(t *testing.T, f *crowd) {
		cost := func(n int64) limiter.Take { return take(key("k", perSecond(10, 100), n)) }
		admit(t, f.near[0], cost(80))
		admit(t, f.near[0], cost(50))
		asks := f.wires[0].asks(func() {
			if v := admit(t, f.near[0], cost(60)); v.OK || v.Charges[0].Wait != 4*time.Second {
				t.Errorf("60 of 20: got %+v, want 4 s", v)
			}
		})
		if asks != 0 {
			t.Errorf("a dearer one: %d calls", asks)
		}
		time.Sleep(20 * time.Millisecond)
		if v := admit(t, f.near[0], cost(20)); !v.OK {
			t.Errorf("20 of 20: got %+v", v)
		}
	})
}

func TestGiveBackClears(t *testing.T) {
	inBubble(t, 1, deny, func(t *testing.T, f *crowd) {
		c := key("k", perSecond(1, 10), 5)
		f.spend(t, c)
		admit(t, f.near[0], take(c))
		f.near[0].Settle(limiter.Settlement{Adjust: []limiter.Adjustment{{Bucket: c.Bucket, Rate: c.Rate, Delta: 5}}})
		if v := admit(t, f.near[0], take(c)); !v.OK {
			t.Errorf("after 5 came back: got %+v", v)
		}
	})
}

// What a refusal from memory says is left is what is left, after the refill and
// what came back or was charged here since the store was asked; so it fits the
// wait.
func TestLevelsOfRefusals(t *testing.T) {
	for _, delta := range []int64{0, 450, 100, -30} {
		inBubble(t, 1, deny, func(t *testing.T, f *crowd) {
			c := key("k", limiter.Rate{Limit: 1000, Per: 100 * time.Second, Burst: 600}, 500)
			c.Bucket.Class = limiter.Tokens
			f.spend(t, c)
			admit(t, f.near[0], take(c)) // refused with nothing left
			if delta != 0 {
				f.near[0].Settle(limiter.Settlement{Adjust: []limiter.Adjustment{{Bucket: c.Bucket, Rate: c.Rate, Delta: delta}}})
			}
			time.Sleep(90 * time.Millisecond)
			var v limiter.Verdict
			if n := f.wires[0].asks(func() { v = admit(t, f.near[0], take(c)) }); n != 0 || v.OK {
				t.Fatalf("%d calls for %+v", n, v)
			}
			s := f.memory.Replica(memstore.Options{})
			real, err := s.Peek(context.Background(), take(c))
			if err != nil {
				t.Fatal(err)
			}
			got, want := v.Charges[0].Remaining, real.Charges[0].Remaining
			if got > want || got < want-1 {
				t.Errorf("with %+d: told %d are left, true is %d", delta, got, want)
			}
			if least := c.Cost - int64(v.Charges[0].Wait/(100*time.Millisecond)) - 1; delta >= 0 && got < least {
				t.Errorf("with %+d: told %d are left, and %v to wait", delta, got, v.Charges[0].Wait)
			}
		})
	}
}

// A give-back elsewhere is noticed within a second, by one caller in ten for
// each further one: the others do not all ask at once.
func TestBeliefEnds(t *testing.T) {
	inBubble(t, 2, deny, func(t *testing.T, f *crowd) {
		c := key("k", limiter.Rate{Limit: 1, Per: time.Hour, Burst: 10}, 1)
		f.spend(t, c)
		admit(t, f.near[0], take(c))
		time.Sleep(1001 * time.Millisecond)
		asks := f.wires[0].asks(func() {
			for range 100 {
				admit(t, f.near[0], take(c))
			}
		})
		if asks != 1 {
			t.Errorf("after a second: %d calls of 100, want 1", asks)
		}
		f.near[1].Settle(limiter.Settlement{Adjust: []limiter.Adjustment{{Bucket: c.Bucket, Rate: c.Rate, Delta: 5}}})
		if v := admit(t, f.near[0], take(c)); v.OK {
			t.Error("cannot know yet")
		}
		time.Sleep(1001 * time.Millisecond)
		if v := admit(t, f.near[0], take(c)); !v.OK {
			t.Errorf("a second after it was given back elsewhere: got %+v", v)
		}
	})
}

// While the store is out its word stands for what it was worth, then whoever
// asks learns that it is out.
func TestOutage(t *testing.T) {
	inBubble(t, 1, deny, func(t *testing.T, f *crowd) {
		c := key("k", limiter.Rate{Limit: 1, Per: time.Hour, Burst: 10}, 1)
		f.spend(t, c)
		admit(t, f.near[0], take(c))
		f.memory.SetDown(true)
		if v := admit(t, f.near[0], take(c)); v.OK {
			t.Errorf("just refused: got %+v", v)
		}
		time.Sleep(1001 * time.Millisecond)
		for range 3 {
			if _, err := f.near[0].Admit(context.Background(), take(c)); !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("a second later: got %v", err)
			}
		}
		if f.near[0].Health().Usable {
			t.Error("the health is not that of the store")
		}
	})
}

// Slots, claims on turns and what can never pass are the store's to tell, each
// time.
func TestNotRemembered(t *testing.T) {
	inBubble(t, 1, deny, func(t *testing.T, f *crowd) {
		slot := limiter.Slot{Slot: limiter.SlotID{Dimension: limiter.User, ID: "u"}, Cap: 1}
		dear, blocked := key("k", perSecond(1, 5), 6), key("b", limiter.Rate{Per: time.Second}, 1)
		pool := key("pool", perSecond(10, 10), 1)
		pool.InTurn = true
		admit(t, f.near[0], limiter.Take{Slots: []limiter.Slot{slot}})
		f.spend(t, pool)
		f.near[0].Turns(context.Background(), limiter.Turns{
			Pool: pool.Bucket, Rate: pool.Rate, Most: 1, Grace: time.Hour, Bids: []limiter.Bid{{Tenant: "t", Weight: 1, Cost: 1, Since: limiter.Unknown}},
		})
		time.Sleep(500 * time.Millisecond) // there are tokens, but they are claimed
		for name, k := range map[string]limiter.Take{
			"slot": {Slots: []limiter.Slot{slot}}, "slot and bucket": {Charges: []limiter.Charge{key("s", perSecond(1, 5), 1)}, Slots: []limiter.Slot{slot}},
			"above burst": take(dear), "blocked": take(blocked), "claimed": take(pool),
		} {
			if asks := f.wires[0].asks(func() {
				for range 3 {
					if v := admit(t, f.near[0], k); v.OK {
						t.Errorf("%s: got a grant", name)
					}
				}
			}); asks != 3 {
				t.Errorf("%s: %d calls for 3 requests", name, asks)
			}
		}
	})
}

// Who stands in a line is not held back beyond the bucket's own wait.
func TestWaitersPass(t *testing.T) {
	inBubble(t, 1, deny, func(t *testing.T, f *crowd) {
		k := take(key("k", perSecond(1000, 100), 1))
		f.spend(t, k.Charges[0])
		if v := admit(t, f.near[0], k); v.Charges[0].Wait != 15*time.Millisecond {
			t.Errorf("a newcomer: got %+v, want to wait 15 ms", v)
		}
		k.Waited = true
		if v := admit(t, f.near[0], k); v.Charges[0].Wait != time.Millisecond {
			t.Errorf("a waiter: got %+v, want to wait 1 ms", v)
		}
		time.Sleep(time.Millisecond)
		if v := admit(t, f.near[0], k); !v.OK {
			t.Errorf("a waiter, 1 ms later: got %+v", v)
		}
	})
}

// A changed limit makes memory void.
func TestChangedLimit(t *testing.T) {
	inBubble(t, 1, deny, func(t *testing.T, f *crowd) {
		c := key("k", limiter.Rate{Limit: 1, Per: time.Hour, Burst: 10}, 1)
		f.spend(t, c)
		admit(t, f.near[0], take(c))
		c.Rate.Limit = 3600 * 1000
		time.Sleep(time.Millisecond)
		if asks := f.wires[0].asks(func() { admit(t, f.near[0], take(c)) }); asks != 1 {
			t.Error("a raised limit was not asked for")
		}
	})
}

// Memory is bounded, and what finds no room is decided by the store.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newCrowd(t, 1, near.Options{DenyCache: true, Prefetch: true, MaxBuckets: 640}, 0)
		for round := range 3 {
			for i := range 5000 {
				k := take(key(fmt.Sprint(round, i), limiter.Rate{Limit: 1, Per: time.Hour, Burst: 1}, 1))
				if v := admit(t, f.near[0], k); !v.OK {
					t.Fatalf("%d: got %+v", i, v)
				}
				for range 2 {
					if v := admit(t, f.near[0], k); v.OK {
						t.Fatalf("%d: got a second token of one", i)
					}
				}
			}
			if n := f.near[0].Buckets(); n > 640 {
				t.Fatalf("%d buckets remembered, at most 640", n)
			}
			time.Sleep(3 * time.Second)
		}
	})
}
