package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/limiter"
)

// verdict is how one request in a line ended.
type verdict struct {
	name  string
	grant bool
	err   error
	took  time.Duration
	line  *limiter.LineInfo
}

// crowd sends requests from goroutines of their own and keeps how they ended.
type crowd struct {
	r    *rig
	wait sync.WaitGroup
	mu   sync.Mutex
	all  []verdict // in the order they ended
}

func (c *crowd) send(ctx context.Context, name string, req limiter.Request) {
	start := time.Now()
	c.wait.Go(func() {
		g, err := c.r.Admit(ctx, req)
		v := verdict{name: name, grant: g != nil, err: err, took: time.Since(start)}
		if g != nil {
			v.line = g.Line()
			g.Done(limiter.Outcome{})
		}
		var refusal *limiter.Refusal
		if errors.As(err, &refusal) {
			v.line = refusal.Line
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, v)
	})
	synctest.Wait() // arrivals are in order
}

// ended waits for everybody and returns the verdicts.
func (c *crowd) ended() []verdict {
	c.wait.Wait()
	return c.all
}

// reasonOf is the reason of a refusal, "" for anything else.
func reasonOf(err error) limiter.Reason {
	var refusal *limiter.Refusal
	if errors.As(err, &refusal) {
		return refusal.Reason
	}
	return ""
}

func TestLineIsFirstComeFirstServedForOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, shared(&limiter.Rate{Limit: 10, Per: time.Second, Burst: 1}))
		c := &crowd{r: r}
		for i := range 6 {
			c.send(t.Context(), fmt.Sprint(i), user("a"))
		}
		for i, v := range c.ended() {
			if v.name != fmt.Sprint(i) || !v.grant {
				t.Fatalf("place %d went to request %s (%v)", i, v.name, v.err)
			}
			if want := time.Duration(i) * 100 * time.Millisecond; v.took != want {
				t.Errorf("request %d took %v, want %v", i, v.took, want)
			}
			if i == 0 {
				if v.line != nil {
					t.Error("the first did not wait, yet has a line")
				}
				continue
			}
			if v.line.Position != i || v.line.Waited != v.took || v.line.Scope != limiter.ScopeReplica || v.line.TenantDimension != limiter.User {
				t.Errorf("request %d was told %+v", i, v.line)
			}
		}
	})
}

func TestLineSharesByWeight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := shared(&limiter.Rate{Limit: 100, Per: time.Second, Burst: 1})
		cfg.Fair.Weights = map[limiter.ID]float64{limiter.Hash(limiter.User, "gold"): 3}
		cfg.Fair.MaxWait = time.Minute
		r := newRig(t, cfg)
		c := &crowd{r: r}
		r.must(user("nobody")).Done(limiter.Outcome{}) // empties the bucket
		for range 30 {
			c.send(t.Context(), "gold", user("gold"))
			c.send(t.Context(), "plain", user("plain"))
		}
		gold := 0
		for i, v := range c.ended()[:40] {
			if v.name == "gold" {
				gold++
			}
			if want := float64(i+1) * 3 / 4; float64(gold) < want-1 || float64(gold) > want+1 {
				t.Errorf("after %d grants gold has %d, want %.1f ± 1", i+1, gold, want)
			}
		}
	})
}

func TestNewcomerDoesNotStealTheRefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, shared(&limiter.Rate{Limit: 10, Per: time.Second, Burst: 1}))
		c := &crowd{r: r}
		c.send(t.Context(), "first", user("a"))
		c.send(t.Context(), "waiter", user("a"))
		time.Sleep(99 * time.Millisecond)
		c.send(t.Context(), "newcomer", user("b")) // of another tenant, 1 ms before the refill
		var order []string
		for _, v := range c.ended() {
			order = append(order, v.name)
		}
		if got := strings.Join(order, " "); got != "first waiter newcomer" {
			t.Errorf("served %s", got)
		}
	})
}

func TestOtherPoolsAreNotBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, shared(&limiter.Rate{Limit: 1, Per: time.Second, Burst: 1}))
		c := &crowd{r: r}
		c.send(t.Context(), "", user("a"))
		c.send(t.Context(), "", user("a"))
		other := user("a")
		other.Model = limiter.Hash(limiter.Model, "other")
		start := time.Now()
		r.must(other).Done(limiter.Outcome{})
		if d := time.Since(start); d != 0 {
			t.Errorf("waited %v for a pool of its own", d)
		}
		c.ended()
	})
}

func TestBoundsAndTheirReasons(t *testing.T) {
	cases := []struct {
		name   string
		tune   func(*limiter.Config)
		before []string // users who wait already
		user   string
		want   limiter.Reason
		place  int
	}{
		{"tenant's queue", func(c *limiter.Config) { c.Fair.MaxQueueDepthPerTenant = 2 },
			[]string{"a", "a"}, "a", limiter.ReasonTenantQueueFull, 3},
		{"another tenant's queue is not full", func(c *limiter.Config) { c.Fair.MaxQueueDepthPerTenant = 2 },
			[]string{"a", "a"}, "b", "", 0},
		{"all queues", func(c *limiter.Config) { c.Fair.MaxTotalQueued = 3 },
			[]string{"a", "b", "c"}, "d", limiter.ReasonQueueFull, 4},
		{"tenant table", func(c *limiter.Config) { c.Fair.MaxTenants = 2 },
			[]string{"a", "b"}, "c", limiter.ReasonTenantTableFull, 3},
		{"known tenant with a full table", func(c *limiter.Config) { c.Fair.MaxTenants = 2 },
			[]string{"a", "b"}, "b", "", 0},
		{"too long a wait", func(c *limiter.Config) { c.Fair.MaxWait = 90 * time.Millisecond },
			nil, "a", limiter.ReasonWaitExceedsBudget, 1},
		{"waited as long as it may", func(c *limiter.Config) { c.Fair.MaxWait = 150 * time.Millisecond },
			[]string{"a", "a", "a"}, "a", limiter.ReasonDeadlineExceeded, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := shared(&limiter.Rate{Limit: 10, Per: time.Second, Burst: 1})
				c.tune(&cfg)
				r := newRig(t, cfg)
				r.must(user("nobody")).Done(limiter.Outcome{})
				crowd := &crowd{r: r}
				for _, u := range c.before {
					crowd.send(t.Context(), "before", user(u))
				}
				crowd.send(t.Context(), "probe", user(c.user))
				for _, v := range crowd.ended() {
					if v.name != "probe" {
						continue
					}
					if got := reasonOf(v.err); got != c.want {
						t.Fatalf("ended with %q (%v), want %q", got, v.err, c.want)
					}
					if c.want != "" && v.line.Position != c.place {
						t.Errorf("position %d, want %d", v.line.Position, c.place)
					}
				}
			})
		})
	}
}

func TestRequestDeadlineBoundsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, shared(&limiter.Rate{Limit: 1, Per: time.Second, Burst: 1}))
		r.must(user("a")).Done(limiter.Outcome{})
		hurried := user("a")
		hurried.Deadline = time.Now().Add(500 * time.Millisecond)
		if got := r.refused(hurried); got.Reason != limiter.ReasonWaitExceedsBudget || got.RetryAfter != time.Second {
			t.Errorf("%+v", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := r.Admit(ctx, user("a"))
		if got := reasonOf(err); got != limiter.ReasonDeadlineExceeded || time.Since(start) != 500*time.Millisecond {
			t.Errorf("ended with %v after %v", err, time.Since(start))
		}
	})
}

func TestLeaversFreeTheirPlaceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := shared(&limiter.Rate{Limit: 1, Per: time.Second, Burst: 1})
		cfg.Fair.MaxQueueDepthPerTenant = 50
		r := newRig(t, cfg)
		r.must(user("a")).Done(limiter.Outcome{})
		c := &crowd{r: r}
		ctx, leavers := context.WithCancel(t.Context())
		for i := range 50 {
			if i == 37 {
				c.send(t.Context(), "stays", user("a"))
			} else {
				c.send(ctx, "leaves", user("a"))
			}
		}
		leavers()
		synctest.Wait()
		if n := r.Waiting(); n != 1 {
			t.Fatalf("%d wait, want 1", n)
		}
		for _, v := range c.ended() {
			switch {
			case v.name == "leaves" && !errors.Is(v.err, context.Canceled):
				t.Errorf("a leaver got %v, %v", v.grant, v.err)
			case v.name == "stays" && (!v.grant || v.took != time.Second):
				t.Errorf("the one who stayed got %v, %v after %v; want a grant after 1s", v.grant, v.err, v.took)
			}
		}
		reasons := `
			# HELP rate_limit_fair_queue_refused_total Requests refused instead of, or after, waiting in line.
			# TYPE rate_limit_fair_queue_refused_total counter
			rate_limit_fair_queue_refused_total{reason="client_gone",tenant_dimension="user"} 49
		`
		if err := testutil.GatherAndCompare(r.registry, strings.NewReader(reasons), "rate_limit_fair_queue_refused_total"); err != nil {
			t.Error(err)
		}
	})
}

func TestDrainAnswersEveryWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, shared(&limiter.Rate{Limit: 1, Per: time.Second, Burst: 1}))
		r.must(user("a")).Done(limiter.Outcome{})
		c := &crowd{r: r}
		for range 5 {
			c.send(t.Context(), "waiter", user("a"))
		}
		start := time.Now()
		r.Drain()
		for _, v := range c.ended() {
			if reasonOf(v.err) != limiter.ReasonDraining {
				t.Errorf("ended with %v", v.err)
			}
		}
		if got := r.refused(user("b")); got.Reason != limiter.ReasonDraining {
			t.Errorf("a newcomer got %+v", got)
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("draining took %v", d)
		}
	})
}

// A tenant whose own bucket is empty must not slow the others of its pool.
func TestTenantWithoutTokensTakesNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := shared(&limiter.Rate{Limit: 100, Per: time.Second, Burst: 1})
		cfg.Limits[limiter.User] = limiter.Limit{Overrides: map[limiter.ID]limiter.Rule{
			limiter.Hash(limiter.User, "slow"): {Requests: &limiter.Rate{Limit: 2, Per: time.Second, Burst: 1}},
		}}
		cfg.Fair.MaxWait, cfg.Fair.MaxQueueDepthPerTenant = time.Minute, 1000
		r := newRig(t, cfg)
		c := &crowd{r: r}
		r.must(user("nobody")).Done(limiter.Outcome{})
		for range 20 {
			c.send(t.Context(), "slow", user("slow"))
		}
		for range 400 {
			c.send(t.Context(), "quick", user("quick"))
		}
		served := map[string]int{}
		var last time.Duration
		for _, v := range c.ended() {
			if !v.grant {
				t.Fatalf("%s: %v", v.name, v.err)
			}
			served[v.name]++
			if v.name == "quick" {
				last = v.took
			} else if float64(served["slow"]) > 2*v.took.Seconds()+1.01 {
				t.Errorf("slow got %d grants in %v", served["slow"], v.took)
			}
		}
		// 400 quick grants and at most 2/s of slow ones at 100/s, less 2 %.
		if limit := time.Duration(1.02 * float64(4*time.Second+80*time.Millisecond)); last > limit {
			t.Errorf("quick was done after %v, want at most %v", last, limit)
		}
	})
}

func TestOutageEndsWaits(t *testing.T) {
	for _, policy := range []limiter.OutagePolicy{limiter.FailClosed, limiter.FailOpen} {
		t.Run(string(policy), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := shared(&limiter.Rate{Limit: 10, Per: time.Second, Burst: 1})
				cfg.DefaultOutage = policy
				r := newRig(t, cfg)
				c := &crowd{r: r}
				for range 5 {
					c.send(t.Context(), "", user("a"))
				}
				r.memory.SetDown(true)
				for i, v := range c.ended()[1:] {
					if closed := errors.Is(v.err, limiter.ErrUnavailable); closed != (policy == limiter.FailClosed) {
						t.Errorf("waiter %d ended with %v, %v", i, v.grant, v.err)
					}
				}
			})
		})
	}
}

// The tape of a random crowd: whatever happens, everybody gets an answer, no
// place is lost, and no more is granted than the bucket gives.
func TestRandomCrowds(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomCrowd(t, seed) })
		})
	}
}

func randomCrowd(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	rate := limiter.Rate{Limit: 20 + rng.Int64N(80), Per: time.Second, Burst: 1 + rng.Int64N(10)}
	cfg := shared(&rate)
	cfg.Limits[limiter.User] = limiter.Limit{Rule: limiter.Rule{Requests: &limiter.Rate{Limit: 30, Per: time.Second, Burst: 5}}}
	cfg.Limits[limiter.Team] = limiter.Limit{Rule: limiter.Rule{MaxInFlight: 3}}
	cfg.Fair.MaxWait = 2 * time.Second
	cfg.Fair.MaxTotalQueued, cfg.Fair.MaxTenants, cfg.Fair.MaxQueueDepthPerTenant = 60, 5, 20
	cfg.Fair.MaxInFlight = 1 + rng.IntN(4)
	r := newRig(t, cfg)
	c, begin := &crowd{r: r}, time.Now()
	for range 400 {
		req := user(fmt.Sprint("u", rng.IntN(7)))
		req.Team = limiter.Hash(limiter.Team, fmt.Sprint(rng.IntN(3)))
		ctx, cancel := context.WithCancel(context.Background())
		if rng.IntN(4) == 0 {
			time.AfterFunc(time.Duration(rng.IntN(400))*time.Millisecond, cancel)
		} else {
			t.Cleanup(cancel)
		}
		c.send(ctx, "", req)
		time.Sleep(time.Duration(rng.IntN(12)) * time.Millisecond)
		if rng.IntN(200) == 0 {
			r.memory.SetDown(true)
			time.AfterFunc(50*time.Millisecond, func() { r.memory.SetDown(false) })
		}
	}
	granted := 0
	for _, v := range c.ended() {
		if v.grant {
			granted++
		}
		if v.took > cfg.Fair.MaxWait {
			t.Errorf("one waited %v", v.took)
		}
	}
	allowed := float64(rate.Burst) + float64(rate.Limit)*time.Since(begin).Seconds()
	if float64(granted) > allowed+1e-6 || granted < 50 {
		t.Errorf("granted %d, allowed %.1f", granted, allowed)
	}
}

// A store that does not answer for a moment costs no waiter its place.
func TestWaitersBearAHiccup(t *testing.T) {
	for _, scope := range []limiter.FairnessScope{limiter.FairReplica, limiter.FairGossip, limiter.FairExact} {
		t.Run(string(scope), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := shared(&limiter.Rate{Limit: 100, Per: time.Second, Burst: 1})
				cfg.Fair.Scope = scope
				r := newRig(t, cfg)
				c := &crowd{r: r}
				for i := range 30 {
					c.send(t.Context(), fmt.Sprint(i), user("a"))
				}
				time.Sleep(55 * time.Millisecond)
				r.memory.SetDown(true)
				time.Sleep(150 * time.Millisecond)
				r.memory.SetDown(false)
				for i, v := range c.ended() {
					if v.name != fmt.Sprint(i) || !v.grant {
						t.Fatalf("place %d: request %s ended with %v", i, v.name, v.err)
					}
					if want := time.Duration(i)*10*time.Millisecond + 200*time.Millisecond; v.took > want {
						t.Errorf("request %d took %v", i, v.took)
					}
				}
			})
		})
	}
}

// A waiter that is overtaken by tenants of greater weight is not told so: the
// same waiter, patient for longer and longer, never hears of a higher position.
func TestPositionsNeverRise(t *testing.T) {
	for _, scope := range []limiter.FairnessScope{limiter.FairReplica, limiter.FairExact} {
		told, before := []int{}, 0
		for patience := 200 * time.Millisecond; patience <= 3*time.Second; patience += 200 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				cfg := shared(&limiter.Rate{Limit: 10, Per: time.Second, Burst: 1})
				cfg.Fair.Scope = scope
				cfg.Fair.Weights = map[limiter.ID]float64{limiter.Hash(limiter.User, "gold"): 20}
				c := &crowd{r: newRig(t, cfg)}
				ctx := context.Background()
				for range 4 {
					c.send(ctx, "plain", user("plain"))
				}
				waiter := user("plain")
				waiter.Deadline = time.Now().Add(patience)
				c.send(ctx, "waiter", waiter)
				for range 40 {
					c.send(ctx, "gold", user("gold"))
					time.Sleep(50 * time.Millisecond)
				}
				before = 0
				for _, v := range c.ended() {
					if v.name == "waiter" {
						if v.line == nil {
							t.Fatalf("%v: no position: %+v", scope, v)
						}
						told = append(told, v.line.Position)
						break
					}
					before++
				}
			})
		}
		t.Logf("%v: positions %v, others before it at last %d", scope, told, before)
		for i := range told[1:] {
			if told[i+1] > told[i] {
				t.Errorf("%v: positions %v, the %d. is higher", scope, told, i+2)
			}
		}
		if before <= told[0] {
			t.Errorf("%v: %d were served before it, told was %d: nobody overtook it", scope, before, told[0])
		}
	}
}

// Who comes second to a cold line is told to wait for longer than the first.
func TestColdLineEstimates(t *testing.T) {
	for _, scope := range []limiter.FairnessScope{limiter.FairReplica, limiter.FairExact} {
		synctest.Test(t, func(t *testing.T) {
			cfg := shared(&limiter.Rate{Limit: 10, Per: time.Second, Burst: 1})
			cfg.Fair.Scope = scope
			c := &crowd{r: newRig(t, cfg)}
			for _, name := range []string{"at once", "first", "second", "third"} {
				c.send(context.Background(), name, user("u"))
			}
			var last time.Duration
			for _, v := range c.ended()[1:] {
				if v.line == nil || v.line.Estimated <= last || v.line.Estimated < v.took/2 || v.line.Estimated > 2*v.took {
					t.Errorf("%v: %s waited %v, told %+v; the one before was told %v", scope, v.name, v.took, v.line, last)
					continue
				}
				last = v.line.Estimated
			}
		})
	}
}
