package gateway

import (
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// outage is what an outage of the store means for this replica, by the policies
// of what is limited. With nothing limited both are false.
type outage struct {
	closed bool // some limited dimension is fail_closed: what it applies to gets 503
	shared bool // some limited dimension is local_share: it takes a share to go on
}

// outageOf looks at the dimensions that ask the store: those with requests,
// tokens or, unless each replica counts for itself, caps in flight.
func outageOf(cfg *config.Config) (o outage) {
	limits := cfg.Limiter()
	add := func(d limiter.Dimension) {
		p := limits.OutageOf(d)
		o.closed, o.shared = o.closed || p == limiter.FailClosed, o.shared || p == limiter.LocalShare
	}
	asks := func(r limiter.Rule) bool {
		return r.Requests != nil || r.Tokens != nil || r.MaxInFlight > 0 && !limits.LocalSlots
	}
	for d, l := range limits.Limits {
		some := asks(l.Rule)
		for _, r := range l.Overrides {
			some = some || asks(r)
		}
		if some {
			add(d)
		}
	}
	if s := cfg.RateLimitService; s.Listen != "" && len(s.Limits) > 0 {
		add(limiter.Descriptor)
	}
	return o
}

// readiness is the answer of /readyz.
type readiness struct {
	Ready bool `json:"ready"`
	// Reasons say what is wrong, also where that does not make this replica
	// unready (a store that is out under fail_open or local_share).
	Reasons  []string   `json:"reasons"`
	Draining bool       `json:"draining"`
	Store    storeState `json:"store"`
	Fleet    fleetState `json:"fleet"`
}

// storeState is the store as this replica sees it, and since when.
type storeState struct {
	Usable bool      `json:"usable"`
	State  string    `json:"state"`
	Since  time.Time `json:"since,omitzero"`
}

// fleetState is the gossip view: how many replicas, and how old the oldest news
// of any of them is.
type fleetState struct {
	Members int   `json:"members"`
	Fresh   bool  `json:"fresh"`
	AgeMS   int64 `json:"age_ms"`
}

// readiness looks at everything a request would need. A store that is out
// makes a replica unready if it would refuse requests for that: if any limited
// dimension is fail_closed, or needs a share that this replica does not have yet.
// Requests that no such dimension applies to would pass; a load balancer cannot
// tell them apart.
func (g *Gateway) readiness() readiness {
	health := g.opts.Store()
	out := readiness{
		Ready: true, Reasons: []string{}, Draining: g.draining.Load(),
		Store: storeState{Usable: health.Usable, State: health.State, Since: health.Since},
		Fleet: fleetState{Members: 1, Fresh: true},
	}
	if g.opts.Fleet != nil {
		v := g.opts.Fleet.View()
		out.Fleet = fleetState{Members: v.Members, Fresh: v.Fresh, AgeMS: v.Age.Milliseconds()}
		if !v.Fresh {
			out.Reasons = append(out.Reasons, "fleet: not every member was heard of lately")
		}
	}
	if !health.Usable {
		o := g.tables.Load().outage
		out.Reasons = append(out.Reasons, "store: "+health.State)
		out.Ready = !o.closed
		if o.shared && g.opts.Share != nil && !g.opts.Share() {
			out.Reasons = append(out.Reasons, "no share of the limits yet")
			out.Ready = false
		}
	}
	if out.Draining {
		out.Reasons = append(out.Reasons, "draining")
		out.Ready = false
	}
	return out
}

// Ready reports whether requests can be served, as /readyz does.
func (g *Gateway) Ready() bool { return g.readiness().Ready }
