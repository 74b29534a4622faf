package replica_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// shared is the configuration of a fleet that goes on by shares.
func shared(scope string) string {
	return "redis: {on_outage: local_share}\n" + yaml(scope, rate, names(tenants))
}

// Redis is gone for 30 s. The fleet stays within the limit and uses most of it,
// and tenants share it over the whole outage, whichever replicas they meet: each
// orders its turns by what gossip tells of service elsewhere.
func TestFairnessWithoutAStore(t *testing.T) {
	for _, c := range []struct {
		scope string
		span  time.Duration
		used  float64
	}{{"exact", 30 * time.Second, 0.98}, {"gossip", 10 * time.Second, 0.8}} { // under gossip, who leads rests
		scope, span := c.scope, c.span
		if underRace && scope == "gossip" {
			continue
		}
		t.Run(scope, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSim(t, 4, shared(scope))
				time.Sleep(10 * time.Second) // counts are stable
				time.AfterFunc(warmup-time.Second, func() { s.links(func(m *member) { m.link.Cut() }) })
				f := s.contend(splits["heavyall"], span)
				t.Log(f)
				if f.jain < 0.98 || f.worst < 0.75 {
					t.Errorf("unfair without a store: %v", f)
				}
				if f.used < c.used || f.used > 1.005 {
					t.Errorf("%.3f of the limit was used", f.used)
				}
				// Back again, turns are the store's, and as fair as ever.
				s.links(func(m *member) { m.link.Mend() })
				time.Sleep(2 * time.Second)
				s.provider.Ledger().Reset()
				f = s.contend(splits["heavyall"], 10*time.Second)
				t.Logf("afterwards: %v", f)
				if scope == "exact" && (f.jain < 0.999 || f.worst < 0.9 || f.used < 0.98) {
					t.Errorf("exact fairness after an outage: %v", f)
				}
			})
		})
	}
}

// The store goes and comes back under load: no waiter is lost, answers say who
// decided, and the bucket is not spent twice.
func TestOutageUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, 4, shared("exact"))
		time.Sleep(10 * time.Second)
		begin := time.Now()
		off, back := begin.Add(5*time.Second), begin.Add(15*time.Second)
		time.AfterFunc(time.Until(off), func() { s.links(func(m *member) { m.link.Freeze() }) })
		time.AfterFunc(time.Until(back), func() { s.links(func(m *member) { m.link.Thaw() }) })
		var load []tenant
		for i, name := range names(tenants) {
			load = append(load, tenant{name, 2 * float64(rate) / tenants, func(n int) *member { return s.members[(i+n)%4] }})
		}
		s.provider.Ledger().Reset()
		c := s.run(20*time.Second, load)
		statuses := map[int]int{}
		var detected, healed time.Duration
		for _, list := range c.answers {
			for _, a := range list {
				statuses[a.status]++
				at := a.sent.Add(a.took)
				if a.degraded == "local" {
					if d := at.Sub(off); detected == 0 || d < detected {
						detected = d
					}
					healed = max(healed, at.Sub(back))
				}
			}
		}
		admitted := float64(len(s.provider.Ledger().Starts()))
		t.Logf("answers %v; first by a share %v after the freeze, last %v after the thaw; admitted %.3f of the limit",
			statuses, detected, healed, admitted/rate/time.Since(begin).Seconds())
		if statuses[http.StatusOK]+statuses[http.StatusTooManyRequests] != len(flat(c)) {
			t.Errorf("answers %v: want admissions and refusals by limits alone", statuses)
		}
		if allowed := rate/10 + rate*time.Since(begin).Seconds(); admitted > allowed+rate/20 || admitted < 0.9*allowed {
			t.Errorf("%.0f admitted, %.0f allowed", admitted, allowed)
		}
		if detected > 500*time.Millisecond || healed > 2*time.Second {
			t.Errorf("detected after %v, healed after %v", detected, healed)
		}
	})
}

func flat(c *crowd) (list []answer) {
	for _, l := range c.answers {
		list = append(list, l...)
	}
	return list
}
