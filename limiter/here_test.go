package limiter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// watched is a store that counts calls, and can be made to fail in odd ways.
type watched struct {
	limiter.Store
	t     *testing.T
	calls atomic.Int64
	admit func(limiter.Take) (limiter.Verdict, error) // nil: as the store does
}

func (w *watched) Admit(ctx context.Context, k limiter.Take) (limiter.Verdict, error) {
	w.calls.Add(1)
	w.look(k)
	if w.admit != nil {
		return w.admit(k)
	}
	return w.Store.Admit(ctx, k)
}

func (w *watched) Turns(ctx context.Context, k limiter.Turns) (limiter.TurnsVerdict, error) {
	for _, b := range k.Bids {
		w.look(b.Rest)
	}
	return w.Store.Turns(ctx, k)
}

func (w *watched) Settle(f limiter.Settlement) {
	w.calls.Add(1)
	if len(f.Free) > 0 {
		w.t.Errorf("slots %v reach the store", f.Free)
	}
	w.Store.Settle(f)
}

func (w *watched) look(k limiter.Take) {
	if len(k.Slots) > 0 {
		w.t.Errorf("slots %v reach the store", k.Slots)
	}
}

// newLocal starts a limiter that counts slots itself, over its own replica of
// memory.
func newLocal(t *testing.T, memory *memstore.Memory, cfg limiter.Config) (*limiter.Limiter, *watched) {
	t.Helper()
	cfg.LocalSlots = true
	store := &watched{Store: memory.Replica(memstore.Options{}), t: t}
	l, err := limiter.New(cfg, store, fleet.Solo("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		store.Close(context.Background())
	})
	return l, store
}

// capped allows n requests of a user at once, and 1000 in all.
func capped(n int) limiter.Config {
	return limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{
		limiter.User: {Rule: limiter.Rule{Requests: per(1000), MaxInFlight: n}},
	}}
}

// free counts how many more requests of ann l takes, and ends them.
func free(t *testing.T, l *limiter.Limiter) (n int) {
	t.Helper()
	var held []*limiter.Grant
	for {
		g, err := l.Admit(context.Background(), user("ann"))
		var refusal *limiter.Refusal
		switch {
		case err == nil:
			held = append(held, g)
			continue
		case !errors.As(err, &refusal) || refusal.LimitType() != "inflight" || refusal.RetryAfter != time.Second:
			t.Errorf("refused with %v", err)
		}
		for _, g := range held {
			g.Done(limiter.Outcome{})
		}
		return len(held)
	}
}

func TestLocalSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		one, store := newLocal(t, memory, capped(2))
		two, _ := newLocal(t, memory, capped(2))
		g, err := one.Admit(context.Background(), user("ann"))
		if err != nil {
			t.Fatal(err)
		}
		if a, b := free(t, one), free(t, two); a != 1 || b != 2 {
			t.Errorf("beside one that runs, %d and %d more may", a, b)
		}
		calls := store.calls.Load()
		h, _ := one.Admit(context.Background(), user("ann"))
		if n := free(t, one); n != 0 || store.calls.Load() != calls+1 {
			t.Errorf("%d more, and %d calls for a refusal", n, store.calls.Load()-calls-1)
		}
		g.Done(limiter.Outcome{})
		h.Done(limiter.Outcome{})
		if n := free(t, one); n != 2 {
			t.Errorf("%d of 2 are free in the end", n)
		}

		// Caps alone need no store at all.
		only := capped(2)
		only.Limits[limiter.User] = limiter.Limit{Rule: limiter.Rule{MaxInFlight: 2}}
		bare, store := newLocal(t, memory, only)
		if n := free(t, bare); n != 2 || store.calls.Load() != 0 {
			t.Errorf("%d are free, for %d calls", n, store.calls.Load())
		}
	})
}

// Whatever becomes of the call to the store, a slot is held by a grant or free.
func TestLocalSlotsAreNeverLost(t *testing.T) {
	for _, c := range []struct {
		name string
		fate func(limiter.Take) (limiter.Verdict, error)
	}{
		{"refused", func(k limiter.Take) (limiter.Verdict, error) {
			return limiter.Verdict{Charges: []limiter.ChargeVerdict{{Wait: time.Second}}}, nil
		}},
		{"out", func(limiter.Take) (limiter.Verdict, error) { return limiter.Verdict{}, limiter.ErrUnavailable }},
		{"cancelled", func(limiter.Take) (limiter.Verdict, error) { return limiter.Verdict{}, context.Canceled }},
		{"panics", func(limiter.Take) (limiter.Verdict, error) { panic("store") }},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, store := newLocal(t, memstore.New(), capped(2))
			store.admit = c.fate
			func() {
				defer func() { _ = recover() }()
				if g, err := l.Admit(context.Background(), user("ann")); err == nil {
					t.Errorf("%s: granted %v", c.name, g)
				}
			}()
			store.admit = nil
			if n := free(t, l); n != 2 {
				t.Errorf("%s: %d of 2 are free afterwards", c.name, n)
			}
		})
	}
}

// Caps of this replica hold while the store is out and policy lets requests in.
func TestLocalSlotsHoldWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := capped(2)
		cfg.DefaultOutage = limiter.FailOpen
		memory := memstore.New()
		l, _ := newLocal(t, memory, cfg)
		memory.SetDown(true)
		if n := free(t, l); n != 2 {
			t.Errorf("%d of 2 without the store", n)
		}
		g, _ := l.Admit(context.Background(), user("ann"))
		memory.SetDown(false)
		if n := free(t, l); n != 1 {
			t.Errorf("%d beside one that began without the store", n)
		}
		g.Done(limiter.Outcome{Void: true})
		if n := free(t, l); n != 2 {
			t.Errorf("%d of 2 in the end", n)
		}
	})
}

// A waiter whose turn comes while its slots are full is refused, and its turn
// goes to the next.
func TestLocalSlotsInTurn(t *testing.T) {
	for _, scope := range []limiter.FairnessScope{limiter.FairReplica, limiter.FairExact} {
		synctest.Test(t, func(t *testing.T) {
			cfg := shared(perSecond(1))
			cfg.Limits[limiter.User] = limiter.Limit{Rule: limiter.Rule{MaxInFlight: 1}}
			cfg.Fair.Scope = scope
			l, _ := newLocal(t, memstore.New(), cfg)
			g, err := l.Admit(context.Background(), user("carl"))
			if err != nil {
				t.Fatal(err)
			}
			g.Done(limiter.Outcome{})
			var wg sync.WaitGroup
			start := time.Now()
			for _, name := range []string{"ann", "bob"} {
				wg.Go(func() {
					g, err := l.Admit(context.Background(), user(name))
					var refusal *limiter.Refusal
					switch {
					case name == "bob" && err == nil:
						if took := time.Since(start); took > 1100*time.Millisecond {
							t.Errorf("%s: bob had his turn after %v", scope, took)
						}
						g.Done(limiter.Outcome{})
					case name == "bob" || !errors.As(err, &refusal) || refusal.LimitType() != "inflight":
						t.Errorf("%s: %s: %v, %v", scope, name, g, err)
					}
				})
				synctest.Wait()
			}
			other := user("ann")
			other.Model = "" // waits for nothing
			if g, err = l.Admit(context.Background(), other); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			g.Done(limiter.Outcome{})
		})
	}
}

// Over a random tape of admissions, ends and failures of the store, never more
// than the cap run, and in the end every slot is free.
func TestLocalSlotsTape(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		l, store := newLocal(t, memstore.New(), capped(most))
		odds := rand.New(rand.NewPCG(seed, 1))
		var mu sync.Mutex
		store.admit = func(k limiter.Take) (limiter.Verdict, error) {
			mu.Lock()
			fate, d := odds.IntN(4), time.Duration(odds.IntN(20))*time.Millisecond
			mu.Unlock()
			time.Sleep(d)
			switch fate {
			case 0:
				return limiter.Verdict{Charges: []limiter.ChargeVerdict{{Wait: time.Second}}}, nil
			case 1:
				return limiter.Verdict{}, limiter.ErrUnavailable
			}
			return store.Store.Admit(context.Background(), k)
		}
		var running, peak, granted atomic.Int64
		var wg sync.WaitGroup
		for i := range 20 {
			own := rand.New(rand.NewPCG(seed, uint64(i)+2))
			wg.Go(func() {
				for range 30 {
					time.Sleep(time.Duration(own.IntN(100)) * time.Millisecond)
					g, err := l.Admit(context.Background(), user("ann"))
					if err != nil {
						continue
					}
					granted.Add(1)
					for n := running.Add(1); ; {
						if old := peak.Load(); n <= old || peak.CompareAndSwap(old, n) {
							break
						}
					}
					time.Sleep(time.Duration(own.IntN(50)) * time.Millisecond)
					running.Add(-1)
					g.Done(limiter.Outcome{Failed: own.IntN(2) == 0, Void: own.IntN(4) == 0})
				}
			})
		}
		wg.Wait()
		store.admit = nil
		if p := peak.Load(); p > most || p < 2 || granted.Load() < 20 {
			t.Errorf("seed %d: %d ran at once, %d in all", seed, p, granted.Load())
		}
		if n := free(t, l); n != most {
			t.Errorf("seed %d: %d of %d are free in the end", seed, n, most)
		}
	})
}
