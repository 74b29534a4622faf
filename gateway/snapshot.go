package gateway

import (
	"math"
	"time"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/gateway/console"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/throttle"
)

// shown is everything that operators are shown, with the refusals after the first
// seen of them. It costs about as much as a scrape.
func (g *Gateway) shown(seen uint64) console.Live {
	t, s := g.tables.Load(), g.limiter.Snapshot(shownTenants)
	return console.Live{
		Overview: g.overview(t, s),
		Tenants:  t.tenants(s, time.Now()),
		Queues:   t.queuesOf(s),
		Agents:   g.agentStates(),
		Refusals: g.recent.since(seen),
	}
}

// self is this replica's name in the fleet; empty: it has none.
func (g *Gateway) self() string {
	if g.opts.Fleet == nil {
		return ""
	}
	return g.opts.Fleet.View().Self
}

// overview is the replica as a whole.
func (g *Gateway) overview(t *tables, s limiter.Snapshot) console.Overview {
	ready := g.readiness()
	o := console.Overview{
		At: time.Now(), Replica: g.self(), Build: g.opts.Build, Config: t.cfg.Hash(),
		Ready: ready.Ready, Reasons: ready.Reasons, Draining: ready.Draining,
		Store: console.Store{
			Usable: ready.Store.Usable, State: ready.Store.State, Since: ready.Store.Since, Mode: t.cfg.Redis.Mode,
		},
		Fleet:   console.Fleet{Members: ready.Fleet.Members, Fresh: ready.Fleet.Fresh, AgeMS: ready.Fleet.AgeMS},
		Serving: g.Running(), Running: s.Running, Waiting: s.Waiting, Most: s.MaxWaiting,
		Decisions: map[string]int64{}, Providers: []console.Provider{},
	}
	o.Fleet.Replicas = []console.Member{{
		Name: o.Replica, Self: true, Build: o.Build, Config: o.Config, InFlight: s.Running, Waiting: s.Waiting,
	}}
	if g.opts.Fleet != nil {
		for _, d := range g.opts.Fleet.View().Replicas {
			o.Fleet.Replicas = append(o.Fleet.Replicas, member(d))
		}
	}
	for decision, n := range g.metrics.tallies {
		o.Decisions[decision] = n.Load()
	}
	now := time.Now()
	for _, p := range g.pace.States(now) {
		q := console.Provider{Upstream: p.Upstream, State: pauses[p.Why], Waiting: p.Waiting, Batch: p.Batch, Quotas: []console.Quota{}}
		if id := limiter.Hash(limiter.Model, p.Model); id != "" {
			q.Model = t.names.of(id)
		}
		if p.Why != "" {
			q.UntilMS = max(1, p.Until.Sub(now).Milliseconds())
		}
		for _, s := range p.Quotas {
			q.Quotas = append(q.Quotas, quotaOf(s))
		}
		o.Providers = append(o.Providers, q)
	}
	return o
}

// pauses are the words for what a provider's account is in.
var pauses = map[throttle.Why]string{
	"": "open", throttle.WhyPaused: "paused", throttle.WhyOverload: "overloaded", throttle.WhyStopped: "stopped",
}

func quotaOf(s throttle.Status) console.Quota {
	return console.Quota{
		Unit: string(s.Unit), WindowMS: s.Window.Milliseconds(), Limit: s.Limit,
		Left: max(0, math.Floor(s.Left)), Reserve: s.Reserve, AgeMS: s.Age.Milliseconds(),
	}
}

// member is another replica as its digest describes it.
func member(d fleet.Digest) console.Member {
	m := console.Member{Name: d.Replica, Build: d.Build, Config: d.Config, InFlight: d.InFlight}
	for _, p := range d.Pools {
		m.Waiting += p.Depth
	}
	return m
}

// agentStates are the backends with slots.
func (g *Gateway) agentStates() console.Agents {
	out := console.Agents{List: []console.Agent{}}
	for _, a := range g.agents.States() {
		out.List = append(out.List, console.Agent{
			Name: a.Name, Slots: a.Slots, Here: a.Held, Fleet: a.Fleet, Waiting: a.Waiting, Healthy: a.Healthy,
			Models: a.Models, Tags: append([]string{}, a.Tags...), // a list in JSON, also without any
		})
	}
	return out
}

// tenants lists the busiest. What was admitted where nobody competed, a tenant was
// entitled to.
func (t *tables) tenants(s limiter.Snapshot, now time.Time) console.Tenants {
	out := console.Tenants{List: []console.Tenant{}, Counted: s.Counted}
	for _, b := range s.Busiest {
		alone := max(0, float64(b.Admitted)-b.Received)
		row := console.Tenant{
			ID: string(b.ID), Name: t.names[b.ID], Dimension: string(b.Dimension), Weight: b.Weight,
			Entitled: b.FleetEntitled + alone, Received: b.FleetReceived + alone, Contended: b.FleetEntitled+b.FleetReceived > 0,
			Waiting: b.Waiting, Elsewhere: b.Elsewhere, Admitted: b.Admitted, RefusedBy: map[string]int64{},
			IdleSeconds: max(0, now.Sub(b.Touched).Seconds()),
		}
		for reason, n := range b.Refused {
			row.Refused += n
			row.RefusedBy[string(reason)] = int64(n)
		}
		out.List = append(out.List, row)
	}
	return out
}

// queuesOf describes the wait lines.
func (t *tables) queuesOf(s limiter.Snapshot) console.Queues {
	out := console.Queues{
		Enabled: s.Fair, Scope: string(s.Scope), Discipline: string(s.Discipline), Waiting: s.Waiting, Most: s.MaxWaiting,
		Asking: s.Asking, MostAsking: s.MaxAsking, Lines: []console.Line{},
	}
	for _, ln := range s.Lines {
		row := console.Line{
			Dimension: string(ln.Bucket.Dimension), ID: string(ln.Bucket.ID), Name: t.names[ln.Bucket.ID],
			Waiting: ln.Waiting, Elsewhere: ln.Elsewhere, Asking: ln.Asking, RestsMS: ln.Rests.Milliseconds(),
			SpacingMS: float64(ln.Spacing.Microseconds()) / 1000, Tenants: []console.LineTenant{},
		}
		for _, w := range ln.Tenants {
			row.Tenants = append(row.Tenants, console.LineTenant{
				ID: string(w.ID), Name: t.names[w.ID], Weight: w.Weight, Waiting: w.Waiting,
				Position: w.Position, Scope: string(w.Scope), WaitedMS: w.Waited.Milliseconds(),
			})
		}
		out.Lines = append(out.Lines, row)
	}
	return out
}
