package limiter_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
)

// decided is a store that gives everybody one answer.
type decided struct {
	limiter.Store
	local bool
	err   error
}

func (s decided) Admit(_ context.Context, t limiter.Take) (limiter.Verdict, error) {
	return limiter.Verdict{OK: true, Local: s.local, Charges: make([]limiter.ChargeVerdict, len(t.Charges))}, s.err
}

func (s decided) Settle(limiter.Settlement) {}

// Whoever asks while the store is out, for a proxy, for a request or for its
// backend, is counted once, under the policy that decided.
func TestOutageDecisionsAreCounted(t *testing.T) {
	for policy, store := range map[limiter.OutagePolicy]decided{
		limiter.LocalShare: {local: true},
		limiter.FailOpen:   {err: limiter.ErrUnavailable},
		limiter.FailClosed: {err: limiter.ErrUnavailable},
		"":                 {},
	} {
		t.Run("policy "+string(policy), func(t *testing.T) {
			cfg, registry := backends(), prometheus.NewRegistry()
			cfg.DefaultOutage, cfg.Registerer = policy, registry
			l, err := limiter.New(cfg, store, fleet.Solo("test"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			want := map[string]float64{}
			counted := func(what string, err error) {
				t.Helper()
				if (policy == limiter.FailClosed) != errors.Is(err, limiter.ErrUnavailable) {
					t.Errorf("%s: %v", what, err)
				}
				if policy != "" {
					want[string(policy)]++
				}
				if got := outages(t, registry); !maps.Equal(got, want) {
					t.Errorf("after %s: %v, want %v", what, got, want)
				}
			}
			_, err = l.Decide(context.Background(), []limiter.Ask{{Bucket: bucket(limiter.User, "ann"), Cost: 1}})
			counted("Decide", err)
			grant, err := l.Admit(context.Background(), user("ann"))
			counted("Admit", err)
			if grant == nil {
				return
			}
			defer grant.Done(limiter.Outcome{})
			_, err = grant.Select(context.Background(), list("a"))
			counted("Select", err)
		})
	}
}

// outages reads the decisions by policy.
func outages(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byPolicy := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "headway_limiter_outage_decisions_total" {
				byPolicy[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return byPolicy
}
