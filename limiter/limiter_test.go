package limiter_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// rig is one limiter over its own memory, inside a bubble.
type rig struct {
	*limiter.Limiter
	t        *testing.T
	memory   *memstore.Memory
	registry *prometheus.Registry
}

func perSecond(n int64) *limiter.Rate {
	return &limiter.Rate{Limit: n, Per: time.Second, Burst: n}
}

// newRig starts a limiter that is closed, and checked for bugs, when the test
// ends.
func newRig(t *testing.T, cfg limiter.Config) *rig {
	t.Helper()
	r := &rig{t: t, memory: memstore.New(), registry: prometheus.NewRegistry()}
	cfg.Registerer = r.registry
	store := r.memory.Replica(memstore.Options{})
	l, err := limiter.New(cfg, store, fleet.Solo("test"))
	if err != nil {
		t.Fatal(err)
	}
	r.Limiter = l
	t.Cleanup(func() {
		l.Close()
		store.Close(context.Background())
		if n := l.Running(); n != 0 {
			t.Errorf("%d grants were never finished", n)
		}
		if n := l.Waiting(); n != 0 {
			t.Errorf("%d waiters are left", n)
		}
		if n, err := testutil.GatherAndCount(r.registry, "headway_limiter_bugs_total"); n != 0 || err != nil {
			t.Errorf("bugs were counted: %d series, %v", n, err)
		}
	})
	return r
}

// user returns a request of one named user for model m.
func user(name string) limiter.Request {
	return limiter.Request{Identities: limiter.Identities{
		User: limiter.Hash(limiter.User, name), Model: limiter.Hash(limiter.Model, "m"),
	}}
}

// must admits r at once or fails the test.
func (r *rig) must(req limiter.Request) *limiter.Grant {
	r.t.Helper()
	g, err := r.Admit(context.Background(), req)
	if err != nil {
		r.t.Fatalf("Admit: %v", err)
	}
	return g
}

// refused expects a refusal.
func (r *rig) refused(req limiter.Request) *limiter.Refusal {
	r.t.Helper()
	g, err := r.Admit(context.Background(), req)
	if g != nil {
		g.Done(limiter.Outcome{})
	}
	var refusal *limiter.Refusal
	if !errors.As(err, &refusal) {
		r.t.Fatalf("Admit: got %v, %v; want a refusal", g, err)
	}
	return refusal
}

// shared is a limit on the model, with the wait line on.
func shared(rate *limiter.Rate) limiter.Config {
	return limiter.Config{
		Limits: map[limiter.Dimension]limiter.Limit{limiter.Model: {Rule: limiter.Rule{Requests: rate}}},
		Fair:   limiter.FairConfig{Enabled: true},
	}
}

// A user who is named by keys of two teams has two homes, hence two counters. They
// are one series: two of the same labels would make a whole scrape fail.
func TestSlotsOfTwoHomesAreOneSeries(t *testing.T) {
	cfg := limiter.Config{Homes: true, Limits: map[limiter.Dimension]limiter.Limit{limiter.User: {Rule: limiter.Rule{MaxInFlight: 2}}}}
	r := newRig(t, cfg)
	for _, team := range []string{"red", "blue"} {
		req := user("ann")
		req.Team = limiter.Hash(limiter.Team, team)
		defer r.must(req).Done(limiter.Outcome{})
	}
	series, err := testutil.GatherAndCount(r.registry, "rate_limit_inflight_requests")
	if series != 1 || err != nil {
		t.Errorf("%d series, %v", series, err)
	}
}

func TestRefusedTakesNothingAndRetryAfterIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{
			limiter.User: {Rule: limiter.Rule{Requests: &limiter.Rate{Limit: 4, Per: time.Second, Burst: 2}}},
		}})
		for range 2 {
			r.must(user("a")).Done(limiter.Outcome{})
		}
		for range 10 { // refusals must not push the next admission away
			got := r.refused(user("a"))
			if got.Reason != limiter.ReasonRequests || got.LimitType() != "user" || got.RetryAfter != 250*time.Millisecond {
				t.Fatalf("refusal %+v, want requests of user after 250ms", got)
			}
		}
		r.must(user("b")).Done(limiter.Outcome{}) // somebody else's bucket
		time.Sleep(250*time.Millisecond - time.Microsecond)
		r.refused(user("a"))
		time.Sleep(time.Microsecond)
		r.must(user("a")).Done(limiter.Outcome{})
	})
}

func TestUnlimitedNeedsNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limiter.Config{})
		r.memory.SetDown(true)
		r.must(user("a")).Done(limiter.Outcome{})
	})
}

func TestHopelessRequestsAreToldNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := shared(&limiter.Rate{Limit: 0, Per: time.Second})
		cfg.Limits[limiter.User] = limiter.Limit{Rule: limiter.Rule{Tokens: perSecond(100)}}
		r := newRig(t, cfg)
		big := user("a")
		big.Tokens = 101
		big.Model = ""
		if got := r.refused(big); got.Reason != limiter.ReasonExceedsBurst || got.RetryAfter != limiter.Never || got.LimitType() != "tokens" {
			t.Errorf("cost above burst: %+v", got)
		}
		if got := r.refused(user("a")); got.Reason != limiter.ReasonBlocked || got.RetryAfter != limiter.Never {
			t.Errorf("limit 0: %+v", got)
		}
	})
}

func TestTokensSettleToWhatWasUsed(t *testing.T) {
	cases := []struct {
		name    string
		outcome limiter.Outcome
		left    int64 // of 1000, after an estimate of 300
	}{
		{"less than estimated", limiter.Outcome{Tokens: 100}, 900},
		{"more than estimated", limiter.Outcome{Tokens: 500}, 500},
		{"debt", limiter.Outcome{Tokens: 1300}, 0},
		{"unknown", limiter.Outcome{Tokens: -1}, 700},
		{"failed", limiter.Outcome{Tokens: -1, Failed: true}, 1000},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{
					limiter.APIKey: {Rule: limiter.Rule{Tokens: &limiter.Rate{Limit: 1, Per: time.Hour, Burst: 1000}}},
				}})
				key := limiter.Request{Identities: limiter.Identities{APIKey: limiter.Hash(limiter.APIKey, "k")}}
				costly := key
				costly.Tokens = 300
				r.must(costly).Done(c.outcome)
				g, err := r.Admit(t.Context(), key)
				if c.name == "debt" { // even a free request waits until it is paid
					var refusal *limiter.Refusal
					if !errors.As(err, &refusal) || refusal.Reason != limiter.ReasonTokens || refusal.RetryAfter != 300*time.Hour {
						t.Fatalf("with 300 tokens of debt: %v, %+v", err, refusal)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer g.Done(limiter.Outcome{})
				if got := g.Levels().Tokens.Remaining; got != c.left {
					t.Errorf("left %d tokens, want %d", got, c.left)
				}
			})
		})
	}
}

func TestInFlightIsRefusedNeverQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := shared(perSecond(1000))
		cfg.Limits[limiter.User] = limiter.Limit{Rule: limiter.Rule{MaxInFlight: 2}}
		r := newRig(t, cfg)
		a, b := r.must(user("a")), r.must(user("a"))
		got := r.refused(user("a"))
		if got.Reason != limiter.ReasonInFlight || got.LimitType() != "inflight" || got.Dimension != limiter.User || got.RetryAfter != time.Second || got.Line != nil {
			t.Errorf("past the cap: %+v", got)
		}
		if n, _ := testutil.GatherAndCount(r.registry, "rate_limit_inflight_requests"); n != 1 {
			t.Errorf("%d series of slots held, want 1", n)
		}
		a.Done(limiter.Outcome{})
		r.must(user("a")).Done(limiter.Outcome{})
		b.Done(limiter.Outcome{})
		if n, _ := testutil.GatherAndCount(r.registry, "rate_limit_inflight_requests"); n != 0 {
			t.Errorf("%d series of slots held by nobody", n)
		}
	})
}

func TestDoneTwiceIsCountedAndFreesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, reg := memstore.New().Replica(memstore.Options{}), prometheus.NewRegistry()
		l, err := limiter.New(limiter.Config{
			Limits:     map[limiter.Dimension]limiter.Limit{limiter.User: {Rule: limiter.Rule{MaxInFlight: 5}}},
			Registerer: reg,
		}, store, fleet.Solo("test"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		a, _ := l.Admit(t.Context(), user("a"))
		b, _ := l.Admit(t.Context(), user("a"))
		a.Done(limiter.Outcome{})
		a.Done(limiter.Outcome{})
		if got := store.Held(limiter.SlotID{Dimension: limiter.User, ID: limiter.Hash(limiter.User, "a")}); got != 1 {
			t.Errorf("%d slots held, want 1", got)
		}
		b.Done(limiter.Outcome{})
		if n, _ := testutil.GatherAndCount(reg, "headway_limiter_bugs_total"); n != 1 {
			t.Errorf("the second Done was not counted")
		}
	})
}

func TestOutagePolicies(t *testing.T) {
	limits := map[limiter.Dimension]limiter.Limit{
		limiter.User:  {Rule: limiter.Rule{Requests: perSecond(1)}},
		limiter.Model: {Rule: limiter.Rule{Requests: perSecond(1)}},
	}
	open := limiter.FailOpen
	cases := []struct {
		name string
		cfg  limiter.Config
		open bool
	}{
		{"default is closed", limiter.Config{Limits: limits}, false},
		{"open", limiter.Config{Limits: limits, DefaultOutage: open}, true},
		{"one dimension closed", limiter.Config{Limits: limits, DefaultOutage: open,
			OnOutage: map[limiter.Dimension]limiter.OutagePolicy{limiter.Model: limiter.FailClosed}}, false},
		{"the closed dimension does not apply", limiter.Config{Limits: limits, DefaultOutage: open,
			OnOutage: map[limiter.Dimension]limiter.OutagePolicy{limiter.Team: limiter.FailClosed}}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, c.cfg)
				r.memory.SetDown(true)
				for range 5 {
					g, err := r.Admit(t.Context(), user("a"))
					if c.open {
						if err != nil || g.Degraded() != "open" {
							t.Fatalf("open: %v, %v", g, err)
						}
						g.Done(limiter.Outcome{})
					} else if !errors.Is(err, limiter.ErrUnavailable) {
						t.Fatalf("closed: %v, %v", g, err)
					}
				}
				r.memory.SetDown(false)
				g := r.must(user("a")) // the outage cost the bucket nothing
				if g.Degraded() != "" {
					t.Error("still degraded")
				}
				g.Done(limiter.Outcome{})
			})
		})
	}
}

func TestAnonymousIsLimitedByAddressAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := shared(perSecond(1))
		cfg.Limits[limiter.Client] = limiter.Limit{Rule: limiter.Rule{Requests: perSecond(3)}}
		r := newRig(t, cfg)
		req := user("a")
		req.Client, req.Anonymous = limiter.Hash(limiter.Client, "192.0.2.1"), true
		for range 3 {
			r.must(req).Done(limiter.Outcome{})
		}
		if got := r.refused(req); got.Dimension != limiter.Client || got.Line != nil {
			t.Errorf("anonymous past the client limit: %+v", got)
		}
	})
}

func TestConfigNamesEveryMistake(t *testing.T) {
	bad := func(limit, burst int64, per time.Duration) limiter.Limit {
		return limiter.Limit{Rule: limiter.Rule{Requests: &limiter.Rate{Limit: limit, Per: per, Burst: burst}}}
	}
	cfg := limiter.Config{
		Limits: map[limiter.Dimension]limiter.Limit{
			limiter.User: bad(-1, 1, time.Second), limiter.Team: bad(1, 0, time.Second), limiter.Model: bad(1, 1, 0),
			limiter.APIKey: {Overrides: map[limiter.ID]limiter.Rule{"x": {MaxInFlight: -2}}},
		},
		Fair: limiter.FairConfig{Scope: "region", TenantDimension: limiter.Model, DefaultWeight: math.NaN(),
			Weights: map[limiter.ID]float64{"w": 1001}, MaxTenants: -1},
		DefaultOutage: "maybe",
	}
	cfg.Limits["users"] = limiter.Limit{Rule: limiter.Rule{Requests: perSecond(1)}}
	err := cfg.Validate()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) < 6 {
		t.Fatalf("want every mistake at once, got: %v", err)
	}
	for _, want := range []string{"user requests", "limit -1", "team requests", "burst 0", "model requests", "period", "override x", "-2",
		`scope "region"`, `tenant dimension "model"`, "weight NaN", "1001", "max tenants", `"maybe"`,
		`"users" is not a dimension`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing %q in:\n%v", want, err)
		}
	}
	if _, err := limiter.New(cfg, nil, nil); err == nil {
		t.Error("New took a wrong configuration")
	}
	if _, err := limiter.New(limiter.Config{}, nil, nil); err == nil || !strings.Contains(err.Error(), "the store is nil") {
		t.Errorf("New without a store: %v", err)
	}
}

// A name that is taken makes New fail, and leaves nothing behind that would make the
// next try fail, too.
func TestNewCanBeTriedAgain(t *testing.T) {
	registry := prometheus.NewRegistry()
	taken := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headway_limiter_bugs_total", Help: "Broken invariants seen, by kind; anything but zero is a bug.",
	}, []string{"kind"})
	registry.MustRegister(taken)
	cfg := limiter.Config{Registerer: registry}
	if _, err := limiter.New(cfg, memstore.New().Replica(memstore.Options{}), fleet.Solo("test")); err == nil {
		t.Fatal("a name was taken, and New did not mind")
	}
	registry.Unregister(taken)
	l, err := limiter.New(cfg, memstore.New().Replica(memstore.Options{}), nil) // nil: a fleet of one
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
