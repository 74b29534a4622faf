package limiter_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/fairq"
)

// budget is a token budget of each user, with deferral on.
func budget(rate *limiter.Rate) limiter.Config {
	return limiter.Config{
		Limits:   map[limiter.Dimension]limiter.Limit{limiter.User: {Rule: limiter.Rule{Tokens: rate}}},
		Deferral: limiter.DeferralConfig{Enabled: true, MaxWait: 10 * time.Second, MaxHeld: 8},
	}
}

func tokens(name string, n int64) limiter.Request {
	r := user(name)
	r.Tokens = n
	return r
}

// line collects who was admitted when.
type arrivals struct {
	r     *rig
	begun time.Time
	all   sync.WaitGroup
	mu    sync.Mutex
	order []arrival
}

type arrival struct {
	what string
	at   time.Duration
}

func (a arrival) String() string { return fmt.Sprint(a.what, " ", a.at.Round(time.Millisecond)) }

func (r *rig) arrivals() *arrivals { return &arrivals{r: r, begun: time.Now()} }

// comes sends a request in the background, and notes its name when it is admitted,
// or why it is not.
func (a *arrivals) comes(ctx context.Context, name string, req limiter.Request) {
	a.all.Go(func() {
		g, err := a.r.Admit(ctx, req)
		var refusal *limiter.Refusal
		text := name
		switch {
		case errors.As(err, &refusal):
			text += " " + string(refusal.Reason)
		case err != nil:
			text += " " + err.Error()
		default:
			defer g.Done(limiter.Outcome{Tokens: req.Tokens})
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.order = append(a.order, arrival{text, time.Since(a.begun)})
	})
	synctest.Wait()
}

func (a *arrivals) want(t *testing.T, want ...string) {
	t.Helper()
	a.all.Wait()
	slices.SortStableFunc(a.order, func(x, y arrival) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.what, y.what)) })
	var texts []string
	for _, x := range a.order {
		texts = append(texts, x.String())
	}
	if got := strings.Join(texts, ", "); got != strings.Join(want, ", ") {
		t.Errorf("got  %s\nwant %s", got, strings.Join(want, ", "))
	}
}

// First come, first served: a large one is not overtaken by small ones, and each is
// admitted when the budget can cover it.
func TestDeferredInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, budget(perSecond(100)))
		r.must(tokens("a", 100)).Done(limiter.Outcome{Tokens: 100})
		a := r.arrivals()
		a.comes(t.Context(), "large", tokens("a", 90))
		a.comes(t.Context(), "small", tokens("a", 10))
		time.Sleep(200 * time.Millisecond) // 20 tokens are there, and the newcomer may not have them
		a.comes(t.Context(), "newcomer", tokens("a", 5))
		r.must(tokens("b", 50)).Done(limiter.Outcome{Tokens: 50}) // another's budget
		a.want(t, "large 900ms", "small 1s", "newcomer 1.05s")
	})
}

// Off, a refusal is answered at once; in both cases the wait that it tells is that of
// this cost, and one that waits so long passes.
func TestDeferralTellsTheWaitOfThisCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := budget(perSecond(10))
		cfg.Limits[limiter.User] = limiter.Limit{Rule: limiter.Rule{Tokens: &limiter.Rate{Limit: 10, Per: time.Second, Burst: 1000}}}
		r := newRig(t, cfg)
		r.must(tokens("a", 1000)).Done(limiter.Outcome{Tokens: 1000})
		begun := time.Now()
		got := r.refused(tokens("a", 150))
		if got.Reason != limiter.ReasonWaitExceedsBudget || got.LimitType() != "tokens" || got.RetryAfter != 15*time.Second || time.Since(begun) != 0 {
			t.Errorf("%+v after %v", got, time.Since(begun))
		}
		if got.Held == nil || got.Held.Waited != 0 || got.Line != nil {
			t.Errorf("held %+v, line %+v", got.Held, got.Line)
		}
		a := r.arrivals()
		a.comes(t.Context(), "held", tokens("a", 90))
		// Behind it: until 90, then 20 more.
		if got := r.refused(tokens("a", 20)); got.RetryAfter != 11*time.Second || got.Reason != limiter.ReasonWaitExceedsBudget {
			t.Errorf("behind another: %+v", got)
		}
		a.want(t, "held 9s")
		cfg.Deferral.Enabled = false
		if _, err := r.Reconfigure(cfg); err != nil {
			t.Fatal(err)
		}
		if got := r.refused(tokens("a", 20)); got.RetryAfter != 2*time.Second || got.Reason != limiter.ReasonTokens || got.Held != nil {
			t.Errorf("off: %+v", got)
		}
	})
}

// What bounds the wait: the number held, the time, the caller, and a replica that
// leaves. Nothing is taken by those that end so.
func TestDeferralHasBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := budget(&limiter.Rate{Limit: 1, Per: time.Second, Burst: 100})
		cfg.Deferral.MaxHeld = 3
		r := newRig(t, cfg)
		r.must(tokens("a", 100)).Done(limiter.Outcome{Tokens: 100})
		r.must(tokens("b", 100)).Done(limiter.Outcome{Tokens: 100})
		a := r.arrivals()
		ctx, leave := context.WithCancel(t.Context())
		a.comes(ctx, "first", tokens("a", 8))
		late := tokens("b", 2)
		late.Deadline = time.Now().Add(5 * time.Second) // what is left of its total timeout
		a.comes(t.Context(), "second", late)
		a.comes(t.Context(), "third", tokens("b", 3))
		a.comes(t.Context(), "fourth", tokens("b", 1))
		time.Sleep(time.Second)
		leave()
		synctest.Wait()
		if n := r.Waiting(); n != 2 {
			t.Errorf("%d are held", n)
		}
		tight := tokens("a", 8)
		tight.Deadline = time.Now().Add(6999 * time.Millisecond) // 1 of 8 is there
		a.comes(t.Context(), "tight", tight)
		a.comes(t.Context(), "drained", tokens("a", 9))
		time.Sleep(2 * time.Second)
		r.Drain()
		a.comes(t.Context(), "late", tokens("a", 100))
		a.want(t, "fourth queue_full 0s", "first context canceled 1s", "tight wait_exceeds_budget 1s", "second 2s",
			"drained draining 3s", "late draining 3s", "third draining 3s")
		for kind, want := range map[string]float64{"queue_full": 1, "client_gone": 1, "wait_exceeds_budget": 1, "draining": 3} {
			if n := r.counted("headway_held_refused_total", "deferred", kind); n != want {
				t.Errorf("%v refusals for %s are counted, want %v", n, kind, want)
			}
		}
	})
}

// counted is one series of what the lines of a kind count, by reason.
func (r *rig) counted(family, kind, reason string) float64 {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == family && labels["kind"] == kind && labels["reason"] == reason {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// A request first waits for its turn at the request count, then for its budget, and
// both waits together end with its total timeout.
func TestFairQueuedThenDeferred(t *testing.T) {
	for _, scope := range []limiter.FairnessScope{limiter.FairReplica, limiter.FairExact} {
		synctest.Test(t, func(t *testing.T) {
			cfg := shared(&limiter.Rate{Limit: 1, Per: time.Second, Burst: 1})
			cfg.Fair.Scope = scope
			cfg.Limits[limiter.User] = limiter.Limit{Rule: limiter.Rule{Tokens: &limiter.Rate{Limit: 10, Per: time.Second, Burst: 100}}}
			cfg.Deferral = limiter.DeferralConfig{Enabled: true, MaxWait: 10 * time.Second}
			r := newRig(t, cfg)
			r.must(tokens("a", 100)).Done(limiter.Outcome{Tokens: 100})
			begun := time.Now()
			g, err := r.Admit(t.Context(), tokens("a", 30))
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(begun); d < 3*time.Second || d > 3100*time.Millisecond {
				t.Errorf("%s: admitted after %v, when the budget holds 30 from 3s on", scope, d)
			}
			if g.Held() == nil || g.Held().Waited < 1900*time.Millisecond || g.Line() == nil || g.Line().Waited < 900*time.Millisecond {
				t.Errorf("%s: held %+v after line %+v", scope, g.Held(), g.Line())
			}
			g.Done(limiter.Outcome{Tokens: 30})
			tight := tokens("a", 90)
			tight.Deadline = time.Now().Add(5 * time.Second)
			refused := r.refused(tight)
			if refused.Reason != limiter.ReasonWaitExceedsBudget || refused.LimitType() != "tokens" || refused.Line == nil {
				t.Errorf("%s: %+v", scope, refused)
			}
			if d := time.Since(begun); d > 8200*time.Millisecond {
				t.Errorf("%s: answered after %v", scope, d)
			}
		})
	}
}

// Either mode, both or none: the fair queue does not defer, and deferral does not
// queue for request counts; in-flight refusals do neither.
func TestModesAreIndependent(t *testing.T) {
	for _, fair := range []bool{false, true} {
		for _, deferred := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				cfg := limiter.Config{
					Limits: map[limiter.Dimension]limiter.Limit{limiter.User: {Rule: limiter.Rule{
						Requests: perSecond(2), Tokens: perSecond(10), MaxInFlight: 1,
					}}},
					Fair:     limiter.FairConfig{Enabled: fair},
					Deferral: limiter.DeferralConfig{Enabled: deferred},
				}
				r := newRig(t, cfg)
				waits := func(req limiter.Request, want bool, what string) {
					begun := time.Now()
					g, err := r.Admit(t.Context(), req)
					if g != nil {
						g.Done(limiter.Outcome{Tokens: req.Tokens})
					}
					if (err == nil) != want || want != (time.Since(begun) > 0) {
						t.Errorf("fair %v, deferred %v: %s: %v after %v", fair, deferred, what, err, time.Since(begun))
					}
				}
				r.must(tokens("a", 10)).Done(limiter.Outcome{Tokens: 10})
				waits(tokens("a", 5), deferred, "tokens")
				r.must(tokens("b", 1)).Done(limiter.Outcome{Tokens: 1})
				r.must(tokens("b", 1)).Done(limiter.Outcome{Tokens: 1})
				waits(tokens("b", 1), fair, "requests")
				held := r.must(tokens("c", 1))
				waits(tokens("c", 1), false, "slots")
				held.Done(limiter.Outcome{Tokens: 1})
				skips := tokens("d", 10)
				skips.Skip = limiter.SkipQueue
				r.must(skips).Done(limiter.Outcome{Tokens: 10})
				waits(skips, false, "one that is never held")
			})
		}
	}
}

// A tenant whose own budget is empty holds nobody up who waits for a shared one.
func TestDeferredBehindTheirOwnBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := budget(&limiter.Rate{Limit: 10, Per: time.Second, Burst: 50})
		cfg.Limits[limiter.Model] = limiter.Limit{Rule: limiter.Rule{Tokens: perSecond(100)}}
		r := newRig(t, cfg)
		r.must(tokens("a", 50)).Done(limiter.Outcome{Tokens: 50})
		r.must(tokens("c", 50)).Done(limiter.Outcome{Tokens: 50})
		a := r.arrivals()
		a.comes(t.Context(), "a", tokens("a", 40))
		a.comes(t.Context(), "b", tokens("b", 40))
		a.comes(t.Context(), "a2", tokens("a", 1))
		a.comes(t.Context(), "d", tokens("d", 20))
		a.want(t, "b 400ms", "d 600ms", "a 4s", "a2 4.1s")
	})
}

// Limits may change while requests are held: they go on by the new ones at once, with
// the level that the store carries over (a tenth of the time is as good as a tenth of
// the tokens).
func TestReconfigureDeferred(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := budget(&limiter.Rate{Limit: 1, Per: time.Second, Burst: 100})
		cfg.Deferral.MaxWait = time.Minute
		r := newRig(t, cfg)
		r.must(tokens("a", 100)).Done(limiter.Outcome{Tokens: 100})
		a := r.arrivals()
		a.comes(t.Context(), "first", tokens("a", 50))
		a.comes(t.Context(), "second", tokens("a", 5))
		time.Sleep(10 * time.Second)
		cfg.Limits = map[limiter.Dimension]limiter.Limit{limiter.User: {Rule: limiter.Rule{Tokens: &limiter.Rate{Limit: 10, Per: time.Second, Burst: 100}}}}
		if kept, err := r.Reconfigure(cfg); err != nil || len(kept) > 0 {
			t.Fatal(kept, err)
		}
		a.want(t, "first 14.9s", "second 15.4s")
	})
	synctest.Test(t, func(t *testing.T) {
		cfg := budget(&limiter.Rate{Limit: 1, Per: time.Second, Burst: 100})
		r := newRig(t, cfg)
		r.must(tokens("a", 100)).Done(limiter.Outcome{Tokens: 100})
		a := r.arrivals()
		a.comes(t.Context(), "first", tokens("a", 9))
		time.Sleep(time.Second)
		cfg.Limits = nil
		if _, err := r.Reconfigure(cfg); err != nil {
			t.Fatal(err)
		}
		a.want(t, "first 1s")
	})
}

// When a large one leaves, those behind it need not wait for its cost.
func TestDeferredAfterALargeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, budget(&limiter.Rate{Limit: 10, Per: time.Second, Burst: 100}))
		r.must(tokens("a", 100)).Done(limiter.Outcome{Tokens: 100})
		a := r.arrivals()
		ctx, leave := context.WithCancel(t.Context())
		a.comes(ctx, "large", tokens("a", 90))
		a.comes(t.Context(), "small", tokens("a", 5))
		time.Sleep(time.Second)
		leave()
		a.want(t, "large context canceled 1s", "small 1s")
	})
}

// A store that hiccups costs nobody its place; one that is out ends the wait.
func TestDeferredBearsAHiccup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, budget(perSecond(10)))
		r.must(tokens("a", 10)).Done(limiter.Outcome{Tokens: 10})
		a := r.arrivals()
		a.comes(t.Context(), "first", tokens("a", 5))
		time.Sleep(450 * time.Millisecond)
		r.memory.SetDown(true)
		time.Sleep(100 * time.Millisecond)
		r.memory.SetDown(false)
		a.want(t, "first 560ms")
		r.must(tokens("b", 10)).Done(limiter.Outcome{Tokens: 10})
		r.memory.SetDown(true)
		if _, err := r.Admit(t.Context(), tokens("b", 5)); !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("with the store out: %v", err)
		}
		r.memory.SetDown(false)
	})
}

// mayWait is batch work of a user's.
func mayWait(name string, n int64, until time.Duration) limiter.Request {
	r := tokens(name, n)
	r.Batch, r.Deadline = true, time.Now().Add(until)
	return r
}

// Batch work waits for whatever time will lift, until its deadline and no longer.
func TestBatchWaitsForLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{limiter.User: {Rule: limiter.Rule{
			Requests: &limiter.Rate{Limit: 1, Per: 10 * time.Second, Burst: 2}, Tokens: perSecond(10), MaxInFlight: 1,
		}}}}
		r := newRig(t, cfg)
		first := r.must(tokens("a", 10))
		a := r.arrivals()
		a.comes(t.Context(), "slot", mayWait("a", 1, time.Hour))
		a.comes(t.Context(), "late", mayWait("a", 1, 6*time.Second))
		time.Sleep(5020 * time.Millisecond)
		first.Done(limiter.Outcome{Tokens: 10})
		synctest.Wait()
		a.comes(t.Context(), "requests", mayWait("a", 1, time.Hour))
		a.want(t, "slot 5.02s", "late deadline_exceeded 6s", "requests 10s")
		if got := r.refused(mayWait("a", 11, time.Hour)); got.Reason != limiter.ReasonExceedsBurst {
			t.Errorf("what can never pass: %+v", got)
		}
		if n := r.counted("headway_held_refused_total", "batch", "deadline_exceeded"); n != 1 {
			t.Errorf("%v are counted as late", n)
		}
	})
}

// Between tenants batch work takes turns by cost at a limit that they share, and what
// it has really cost is settled.
func TestBatchTakesTurnsAtALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{limiter.Model: {Rule: limiter.Rule{Tokens: perSecond(100)}}}}
		cfg.Fair.Weights = map[limiter.ID]float64{limiter.Hash(limiter.User, "heavy"): 3}
		r := newRig(t, cfg)
		r.must(tokens("a", 100)).Done(limiter.Outcome{Tokens: 100})
		served := map[string]int64{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, job := range []struct {
			name string
			n    int
			cost int64
		}{{"large", 200, 100}, {"small", 2000, 10}, {"heavy", 800, 50}} {
			for range job.n {
				all.Go(func() {
					g, err := r.Admit(t.Context(), mayWait(job.name, job.cost, 100*time.Second))
					if err != nil {
						return
					}
					mu.Lock()
					served[job.name] += job.cost
					mu.Unlock()
					g.Done(limiter.Outcome{Tokens: job.cost})
				})
			}
			synctest.Wait()
		}
		all.Wait()
		t.Logf("served by a limit of 100 a second in 100 s: %v", served)
		if total := served["large"] + served["small"] + served["heavy"]; total < 9700 || total > 10_100 {
			t.Errorf("%v: %d tokens in 100s of 100 a second", served, total)
		}
		for name, want := range map[string]float64{"large": 2000, "small": 2000, "heavy": 6000} {
			if got := float64(served[name]); got < 0.93*want || got > 1.07*want {
				t.Errorf("%s got %v tokens, want about %v", name, got, want)
			}
		}
	})
}

// Batch work comes after everybody else: those in wait lines, and those deferred.
func TestBatchComesLast(t *testing.T) {
	for _, scope := range []limiter.FairnessScope{limiter.FairReplica, limiter.FairExact} {
		synctest.Test(t, func(t *testing.T) {
			cfg := shared(&limiter.Rate{Limit: 1, Per: time.Second, Burst: 1})
			cfg.Fair.Scope = scope
			r := newRig(t, cfg)
			r.must(tokens("a", 1)).Done(limiter.Outcome{Tokens: 1})
			a := r.arrivals()
			a.comes(t.Context(), "batch", mayWait("b", 1, time.Hour))
			for i := range 4 {
				a.comes(t.Context(), fmt.Sprint("person", i), tokens(fmt.Sprint("p", i), 1))
			}
			a.all.Wait()
			if last := a.order[len(a.order)-1]; len(a.order) != 5 || last.what != "batch" || last.at > 5200*time.Millisecond {
				t.Errorf("%s: order %v", scope, a.order)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, budget(perSecond(10)))
		r.must(tokens("a", 10)).Done(limiter.Outcome{Tokens: 10})
		a := r.arrivals()
		a.comes(t.Context(), "batch", mayWait("a", 1, time.Hour))
		a.comes(t.Context(), "person", tokens("a", 10))
		a.all.Wait()
		if len(a.order) != 2 || a.order[0].String() != "person 1s" || a.order[1].at > 1200*time.Millisecond {
			t.Errorf("order %v", a.order)
		}
	})
}

// A tenant's batch work is bounded, that of others is not.
func TestBatchDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := budget(perSecond(10))
		cfg.BatchDepth = 2
		r := newRig(t, cfg)
		r.must(tokens("a", 10)).Done(limiter.Outcome{Tokens: 10})
		r.must(tokens("b", 10)).Done(limiter.Outcome{Tokens: 10})
		a := r.arrivals()
		for i := range 3 {
			a.comes(t.Context(), fmt.Sprint("a", i), mayWait("a", 1, time.Hour))
		}
		a.comes(t.Context(), "b", mayWait("b", 10, time.Hour))
		a.want(t, "a2 queue_full 0s", "a0 100ms", "a1 200ms", "b 1s")
	})
	// A queue of those that have expired, and have not left yet, refuses nobody.
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			cfg := budget(&limiter.Rate{Limit: 1, Per: time.Second, Burst: 10})
			cfg.BatchDepth = 2
			r := newRig(t, cfg)
			r.must(tokens("a", 10)).Done(limiter.Outcome{Tokens: 10})
			a := r.arrivals()
			a.comes(t.Context(), "late", mayWait("a", 9, time.Second))
			a.comes(t.Context(), "later", mayWait("a", 9, time.Second))
			time.Sleep(time.Second)
			a.comes(t.Context(), "new", mayWait("a", 2, time.Hour))
			a.want(t, "late deadline_exceeded 1s", "later deadline_exceeded 1s", "new 2s")
		})
	}
}

// The names of the series, and that nothing is left in them.
func TestHeldMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, budget(perSecond(10)))
		r.must(tokens("a", 10)).Done(limiter.Outcome{Tokens: 10})
		a := r.arrivals()
		a.comes(t.Context(), "a", tokens("a", 5))
		a.comes(t.Context(), "b", mayWait("a", 5, time.Hour))
		want := `
# HELP headway_held_requests Requests held until their limits can cover them, by kind: deferred for a token budget, or batch work.
# TYPE headway_held_requests gauge
headway_held_requests{kind="batch"} 1
headway_held_requests{kind="deferred"} 1
`
		if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), "headway_held_requests"); err != nil {
			t.Error(err)
		}
		a.all.Wait()
		if err := testutil.GatherAndCompare(r.registry, strings.NewReader(strings.ReplaceAll(want, "} 1", "} 0")), "headway_held_requests"); err != nil {
			t.Error(err)
		}
		if n, err := testutil.GatherAndCount(r.registry, "headway_held_grants_total", "headway_held_wait_seconds"); n != 4 || err != nil {
			t.Errorf("%d series: %v", n, err)
		}
	})
}

// The waits of a day do not overflow what orders them.
func TestDeferralConfigIsChecked(t *testing.T) {
	for _, cfg := range []limiter.Config{
		{Deferral: limiter.DeferralConfig{MaxWait: -1}}, {Deferral: limiter.DeferralConfig{MaxHeld: -1}}, {BatchDepth: -1},
	} {
		if cfg.Validate() == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	if limiter.DisciplineOfBatch != fairq.DRR {
		t.Error("batch work is not shared by cost")
	}
}

// What a request would meet, where it may wait.
func TestPreviewTellsWhatWaits(t *testing.T) {
	cfg := limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{limiter.User: {Rule: limiter.Rule{Requests: perSecond(1), Tokens: perSecond(1)}}}}
	waits := func(c limiter.Config, r limiter.Request) string {
		var all []bool
		for _, m := range c.Preview(r, "") {
			all = append(all, m.Waits)
		}
		return fmt.Sprint(all)
	}
	r := tokens("a", 1)
	if got := waits(cfg, r); got != "[false false]" {
		t.Errorf("nothing on: %s", got)
	}
	cfg.Deferral.Enabled = true
	if got := waits(cfg, r); got != "[false true]" {
		t.Errorf("deferral: %s", got)
	}
	r.Batch = true
	if got := waits(cfg, r); got != "[true true]" {
		t.Errorf("batch: %s", got)
	}
}
