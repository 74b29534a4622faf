package limiter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

func TestPreviewIsWhatAdmitMeets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := limiter.Config{
			Fair: limiter.FairConfig{Enabled: true, Weights: map[limiter.ID]float64{limiter.Hash(limiter.User, "u"): 3}},
			Limits: map[limiter.Dimension]limiter.Limit{
				limiter.APIKey: {Rule: limiter.Rule{Requests: &limiter.Rate{Per: time.Second}}, Overrides: map[limiter.ID]limiter.Rule{
					limiter.Hash(limiter.APIKey, "k"): {Requests: perSecond(2), MaxInFlight: 5},
				}},
				limiter.User:    {Rule: limiter.Rule{Tokens: perSecond(100)}},
				limiter.Backend: {Rule: limiter.Rule{Tokens: perSecond(40)}},
			},
		}
		r := newRig(t, cfg)
		ask := limiter.Request{Identities: limiter.Identities{APIKey: limiter.Hash(limiter.APIKey, "k"), User: limiter.Hash(limiter.User, "u")}, Tokens: 60}
		preview := func(backend limiter.ID) []limiter.Met {
			all, err := r.Preview(context.Background(), ask, backend)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		all := preview("")
		if len(all) != 3 || all[0].Class != limiter.Requests || !all[0].Waits || all[0].Level.Remaining != 2 ||
			all[1].Class != limiter.Tokens || all[1].Waits || all[1].Level.Remaining != 100 || all[1].Missing() != 0 ||
			all[2].Cap != 5 {
			t.Fatalf("at first: %+v", all)
		}
		all = preview(limiter.Hash(limiter.Backend, "b"))
		if len(all) != 1 || all[0].Dimension != limiter.Backend || all[0].Never != limiter.ReasonExceedsBurst || all[0].Missing() != limiter.Never {
			t.Fatalf("at the backend: %+v", all)
		}
		again := preview("")
		if len(again) != 3 || again[1].Level.Remaining != 100 {
			t.Errorf("looking took something: %+v", again)
		}
		grant, err := r.Admit(context.Background(), ask)
		if err != nil {
			t.Fatal(err)
		}
		all = preview("")
		if got := all[1]; got.Level.Remaining != 40 || got.Missing() != 200*time.Millisecond {
			t.Errorf("after 60 of 100 tokens: %+v, missing for %v", got, got.Missing())
		}
		grant.Done(limiter.Outcome{Tokens: 150}) // a debt of 50
		if got := preview("")[1].Missing().Round(time.Millisecond); got != 1100*time.Millisecond {
			t.Errorf("60 tokens on top of a debt of 50: missing for %v, want 1.1s", got)
		}
		if tenant, ok := cfg.Tenant(ask); !ok || tenant.Weight != 3 || tenant.Dimension != limiter.User {
			t.Errorf("tenant %+v, %v", tenant, ok)
		}
		ask.Identities.APIKey = limiter.Hash(limiter.APIKey, "other")
		if got := preview("")[0]; got.Never != limiter.ReasonBlocked || got.Level != nil {
			t.Errorf("a blocked key: %+v", got)
		}
		ask.Skip = limiter.SkipAll
		if got := preview(""); len(got) != 0 {
			t.Errorf("an exempt one: %+v", got)
		}
	})
}
