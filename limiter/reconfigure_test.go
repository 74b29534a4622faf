package limiter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// scopes are those in which a line on the model's bucket works differently.
var scopes = []limiter.FairnessScope{limiter.FairReplica, limiter.FairGossip, limiter.FairExact}

// waiting starts n requests of as many users as there are places in a line, and
// returns how each ended and when, counted from the call.
func (r *rig) waiting(n int) (ended func() []result) {
	start, results := time.Now(), make(chan result, n)
	for i := range n {
		go func() {
			g, err := r.Admit(context.Background(), user(fmt.Sprint("u", i%4)))
			if g != nil {
				g.Done(limiter.Outcome{Tokens: -1})
			}
			results <- result{err, time.Since(start)}
		}()
	}
	return func() (all []result) {
		for range n {
			all = append(all, <-results)
		}
		return all
	}
}

type result struct {
	err error
	at  time.Duration
}

// change puts cfg in force, which must keep nothing.
func (r *rig) change(cfg limiter.Config) {
	r.t.Helper()
	if kept, err := r.Reconfigure(cfg); err != nil || len(kept) > 0 {
		r.t.Fatalf("Reconfigure: kept %v, %v", kept, err)
	}
}

// scoped is shared with a scope.
func scoped(rate *limiter.Rate, scope limiter.FairnessScope) limiter.Config {
	cfg := shared(rate)
	cfg.Fair.Scope = scope
	return cfg
}

// TestWaitersFollowTheLimit: those in line are served, held or refused by a
// changed limit as if they had come under it; nobody is lost.
func TestWaitersFollowTheLimit(t *testing.T) {
	slow := &limiter.Rate{Limit: 1, Per: 4 * time.Second, Burst: 1}
	for _, c := range []struct {
		name   string
		before *limiter.Rate
		after  *limiter.Rate // nil: none
		judge  func(i int, r result) bool
	}{
		{"raised", slow, perSecond(100), func(_ int, r result) bool { return r.err == nil && r.at < 1800*time.Millisecond }},
		{"removed", slow, nil, func(_ int, r result) bool { return r.err == nil && r.at < 600*time.Millisecond }},
		{"blocked", slow, perSecond(0), func(_ int, r result) bool {
			return reasonOf(r.err) == limiter.ReasonBlocked && r.at < 600*time.Millisecond
		}},
		{"lowered", perSecond(10), slow, func(i int, r result) bool {
			// 5 in half a second, of the 10 of the burst nothing is left; then one in 4 s.
			return (r.err == nil) == (i < 2)
		}},
	} {
		for _, scope := range scopes {
			t.Run(c.name+"/"+string(scope), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, scoped(c.before, scope))
					for range c.before.Burst {
						r.must(user("first")).Done(limiter.Outcome{})
					}
					ended := r.waiting(20)
					time.Sleep(500 * time.Millisecond)
					next := scoped(c.after, scope)
					if c.after == nil {
						next.Limits = nil
					}
					r.change(next)
					results := ended()
					slices.SortFunc(results, func(a, b result) int { return int(a.at - b.at) })
					if c.name == "lowered" { // whoever was served before does not count
						results = slices.DeleteFunc(results, func(r result) bool { return r.at <= 500*time.Millisecond })
						served := 0
						for _, r := range results {
							if r.err == nil {
								served++
							}
						}
						if len(results) < 13 || served != 1 {
							t.Fatalf("%d waited on, %d were served, want 1 of about 15 in 4.5 s: %v", len(results), served, results)
						}
						return
					}
					for i, res := range results {
						if !c.judge(i, res) && res.at > 500*time.Millisecond {
							t.Fatalf("waiter %d: %v after %v", i, res.err, res.at)
						}
					}
				})
			})
		}
	}
}

// TestWeightsAndBoundsChangeLive: of two tenants in line the one whose weight is
// raised is served more from then on, and a lowered bound refuses newcomers alone.
func TestWeightsAndBoundsChangeLive(t *testing.T) {
	for _, scope := range scopes {
		t.Run(string(scope), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := scoped(perSecond(20), scope)
				cfg.Fair.MaxQueueDepthPerTenant = 100
				r := newRig(t, cfg)
				for range 20 {
					r.must(user("first")).Done(limiter.Outcome{})
				}
				served := make(chan string, 200)
				for _, name := range []string{"a", "b"} {
					for range 45 {
						go func() {
							if g, err := r.Admit(context.Background(), user(name)); err == nil {
								g.Done(limiter.Outcome{})
								served <- name
							}
						}()
					}
				}
				time.Sleep(1050 * time.Millisecond)
				cfg.Fair.Weights = map[limiter.ID]float64{limiter.Hash(limiter.User, "a"): 3}
				cfg.Fair.MaxTotalQueued = 10
				r.change(cfg)
				before := len(served)
				if got := r.refused(user("c")).Reason; got != limiter.ReasonQueueFull {
					t.Fatalf("a newcomer in a line above its new bound: %s", got)
				}
				time.Sleep(2 * time.Second)
				count := map[string]int{}
				for i := range len(served) {
					if name := <-served; i >= before {
						count[name]++
					}
				}
				if a, b := count["a"], count["b"]; a < 26 || a > 34 || b < 6 || b > 14 {
					t.Fatalf("in 2 s at 20/s, weights 3 to 1: %d and %d", a, b)
				}
				time.Sleep(5 * time.Second)
			})
		})
	}
}

// TestSettlesByTheRatesInForce: what a request took of a bucket that has shrunk is
// given back in proportion, and nothing where no limit is left.
func TestSettlesByTheRatesInForce(t *testing.T) {
	budget := func(n int64) limiter.Config {
		return limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{
			limiter.User: {Rule: limiter.Rule{Tokens: &limiter.Rate{Limit: n, Per: 1000 * time.Hour, Burst: n}}},
		}}
	}
	for _, c := range []struct {
		name    string
		after   limiter.Config
		used    int64
		covered int64 // of the new bucket afterwards, exactly
	}{
		{"lowered, less used", budget(100), 0, 100}, // 40 of 100 left, 60 of 100 back
		{"lowered, half used", budget(100), 300, 70},
		{"lowered, more used", budget(1000 / 2), 700, 100}, // 200 of 500 left, 100 more charged
		{"raised", budget(2000), 0, 1000},
		{"removed", limiter.Config{}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, budget(1000))
				req := user("a")
				req.Tokens = 600
				g := r.must(req)
				r.change(c.after)
				if c.covered == 0 {
					g.Done(limiter.Outcome{Tokens: c.used})
					r.change(budget(1000))
					c.covered = 400 // as it was left
				} else {
					req.Tokens = 1
					if other, err := r.Admit(context.Background(), req); err == nil { // lets the store know the change
						other.Done(limiter.Outcome{Failed: true})
					}
					g.Done(limiter.Outcome{Tokens: c.used})
				}
				time.Sleep(1100 * time.Millisecond)
				req.Tokens = c.covered + 1
				if got := r.refused(req); got.Reason != limiter.ReasonTokens && got.Reason != limiter.ReasonExceedsBurst {
					t.Fatalf("one token more than %d: %v", c.covered, got)
				}
				req.Tokens = c.covered
				r.must(req).Done(limiter.Outcome{Tokens: c.covered})
			})
		})
	}
}

// TestReconfigureIsAllOrNothing: a wrong configuration changes nothing, and what
// cannot change is kept and named.
func TestReconfigureIsAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, shared(perSecond(1)))
		wrong := shared(&limiter.Rate{Limit: -1, Per: 0})
		wrong.Fair.DefaultWeight = -1
		if _, err := r.Reconfigure(wrong); err == nil || !strings.Contains(err.Error(), "limit -1") || !strings.Contains(err.Error(), "weight -1") {
			t.Fatalf("a wrong configuration: %v", err)
		}
		r.must(user("a")).Done(limiter.Outcome{})
		next := scoped(perSecond(1), limiter.FairExact)
		next.Fair.Discipline, next.Fair.TenantDimension, next.LocalSlots = "sfq", limiter.Team, true
		kept, err := r.Reconfigure(next)
		if want := []string{"tenant dimension", "fairness scope", "discipline", "local slots"}; err != nil || !slices.Equal(kept, want) {
			t.Fatalf("kept %v, %v; want %v", kept, err, want)
		}
		r.must(user("a")).Done(limiter.Outcome{}) // waits a second, as before
	})
}
