package limiter_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// What a snapshot tells of a line and of its tenants, while some wait and after
// some were turned away.
func TestSnapshotTellsWhoWaitsAndWhoWasServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := shared(&limiter.Rate{Limit: 10, Per: time.Second, Burst: 1})
		cfg.Fair.MaxQueueDepthPerTenant = 3
		cfg.Fair.Weights = map[limiter.ID]float64{limiter.Hash(limiter.User, "ann"): 3}
		r := newRig(t, cfg)
		if s := r.Snapshot(10); s.Waiting != 0 || len(s.Lines) != 0 || len(s.Busiest) != 0 || !s.Fair {
			t.Errorf("before the first request: %+v", s)
		}
		c := &crowd{r: r}
		for i := range 5 { // one starts, three wait, one is too many
			c.send(t.Context(), fmt.Sprint(i), user("ann"))
		}
		c.send(t.Context(), "bob", user("bob"))
		s := r.Snapshot(10)
		if len(s.Lines) != 1 || s.Waiting != 4 || s.Tenants != 2 || s.MaxWaiting != limiter.DefaultMaxTotalQueued {
			t.Fatalf("with four in line: %+v", s)
		}
		ln := s.Lines[0]
		if ln.Bucket.Dimension != limiter.Model || ln.Waiting != 4 || len(ln.Tenants) != 2 {
			t.Fatalf("the line: %+v", ln)
		}
		ann, bob := ln.Tenants[0], ln.Tenants[1]
		if ann.ID != limiter.Hash(limiter.User, "ann") || ann.Waiting != 3 || ann.Weight != 3 || ann.Position != 1 {
			t.Errorf("ann's part of the line: %+v", ann)
		}
		if bob.Waiting != 1 || bob.Position < 2 || bob.Position > 4 {
			t.Errorf("bob's part of the line: %+v", bob)
		}
		if one := r.Snapshot(1); len(one.Busiest) != 1 || one.Counted != 2 || len(one.Lines[0].Tenants) != 1 {
			t.Errorf("asked for one tenant: %+v", one)
		}
		c.ended()
		time.Sleep(time.Second) // the interval is closed
		s = r.Snapshot(10)
		if len(s.Busiest) != 2 {
			t.Fatalf("tenants: %+v", s.Busiest)
		}
		first := s.Busiest[0]
		if first.ID != ann.ID || first.Admitted != 4 || first.Refused[limiter.ReasonTenantQueueFull] != 1 || first.Waiting != 0 {
			t.Errorf("ann: %+v", first)
		}
		// Of five grants one came before anybody competed.
		if got := first.Received + s.Busiest[1].Received; got != 4 || first.FleetReceived != first.Received {
			t.Errorf("received at the pool: %v and %+v", got, first)
		}
		if got := first.Entitled + s.Busiest[1].Entitled; got < 3.999 || got > 4.001 {
			t.Errorf("entitled to %v of the 4 that were served", got)
		}
	})
}

// A request that was admitted and then found no backend is none that was served.
func TestSnapshotTakesVoidGrantsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, shared(perSecond(10)))
		g := r.must(user("ann"))
		g.Refused(limiter.ReasonProviderPaused, time.Second)
		g.Done(limiter.Outcome{Void: true})
		r.must(user("ann")).Done(limiter.Outcome{})
		r.must(limiter.Request{Anonymous: true}).Done(limiter.Outcome{}) // of no tenant
		s := r.Snapshot(10)
		if len(s.Busiest) != 1 || s.Busiest[0].Admitted != 1 || s.Busiest[0].Refused[limiter.ReasonProviderPaused] != 1 {
			t.Errorf("got %+v", s.Busiest)
		}
	})
}

// Who is turned away at the door of a line that nobody stands in has not begun one:
// a flood of tenants leaves nothing behind.
func TestRefusedAtTheDoorBeginsNoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := shared(perSecond(1000))
		cfg.Limits = map[limiter.Dimension]limiter.Limit{limiter.User: {Rule: limiter.Rule{Requests: &limiter.Rate{Limit: 1, Per: 4 * time.Second, Burst: 1}}}}
		cfg.Fair.MaxTenants = 1
		r := newRig(t, cfg)
		wait := func(name string) {
			r.must(user(name)).Done(limiter.Outcome{})
			go func() {
				if g, err := r.Admit(t.Context(), user(name)); err != nil {
					t.Errorf("%s: %v", name, err)
				} else {
					g.Done(limiter.Outcome{})
				}
			}()
			synctest.Wait()
		}
		wait("first")
		for i := range 100 {
			name := strconv.Itoa(i)
			r.must(user(name)).Done(limiter.Outcome{})
			if got := r.refused(user(name)); got.Reason != limiter.ReasonTenantTableFull || got.Line == nil || got.RetryAfter < 4*time.Second {
				t.Fatalf("%+v", got)
			}
		}
		if lines := r.Snapshot(1).Lines; len(lines) != 1 || lines[0].Waiting != 1 {
			t.Errorf("%d lines, the longest %+v", len(lines), lines[0])
		}
		time.Sleep(5 * time.Second)
		wait("7") // whom there is room for now
		time.Sleep(5 * time.Second)
	})
}
