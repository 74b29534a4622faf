package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/headway-limiter/headway/gateway/agents"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// openAgents makes the set of agents, and puts cfg's into it.
func (g *Gateway) openAgents(cfg *config.Config) (err error) {
	o := agents.Options{Store: g.opts.Slots, Replicas: g.opts.Replicas, Probe: g.probe, Logger: g.log, Registerer: g.opts.Registerer}
	if g.opts.Fleet != nil {
		o.Fleet = g.opts.Fleet
	}
	if g.agents, err = agents.New(o); err != nil {
		return err
	}
	g.agents.Configure(agentsOf(cfg))
	return nil
}

// errNoSlots: somebody built a gateway in Go.
var errNoSlots = errors.New("upstreams with slots need Options.Slots")

// agentsOf are the agents of cfg.
func agentsOf(cfg *config.Config) agents.Config {
	out := agents.Config{Timeout: cfg.Queueing.QueueTimeout, Longest: cfg.Server.Timeouts.Total}
	for _, u := range cfg.Upstreams {
		if !u.IsAgent() {
			continue
		}
		a := agents.Agent{Name: u.Name, Slots: u.Slots, Depth: u.QueueDepth, Models: u.Models, Tags: u.Tags}
		if u.Probe.Path != "" {
			a.Probe = u.Probe.Interval
		}
		out.Agents = append(out.Agents, a)
	}
	return out
}

// probe asks an agent whether it is well.
func (g *Gateway) probe(ctx context.Context, name string) error {
	up := g.tables.Load().upstream(name)
	if up == nil {
		return nil // it is being removed
	}
	url := *up.base
	url.Path, url.RawPath = url.Path+up.Probe.Path, ""
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url.String(), nil)
	if err != nil {
		return err
	}
	r.Header["User-Agent"] = nil
	if up.Credential != "" {
		r.Header.Set("Authorization", "Bearer "+up.Credential.Reveal())
	}
	resp, err := up.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("gateway: the probe of %s was answered %d", name, resp.StatusCode)
	}
	return nil
}

// upstream finds one by name; nil: there is none.
func (t *tables) upstream(name string) *upstream { return t.ups[name] }

// slot waits for a slot of one of the candidates, all of which are agents. queue
// tells whether it may; if not, it is told at once that none is free. The error is
// that of agents.Set.Acquire. The slot has to be freed before the client has its last
// byte. All waits of x together are bounded as one.
func (g *Gateway) slot(ctx context.Context, x *exchange, candidates []*upstream, queue bool) (*agents.Slot, *upstream, error) {
	want := agents.Want{Queue: queue, Waited: x.waited, Until: x.latest(), Batch: x.patience.batch}
	want.Tenant, want.Weight = x.share(x.caller.Identities)
	for _, up := range candidates {
		want.Agents = append(want.Agents, up.Name)
	}
	slot, err := g.agents.Acquire(ctx, want)
	if err != nil {
		return nil, nil, err
	}
	x.waited = slot.Waited()
	i := slices.Index(want.Agents, slot.Agent())
	return slot, candidates[i], nil
}

// share is whom fairness at agents is between, as in the wait line, and its weight.
// Callers without a key are told apart by their address.
func (t *tables) share(who limiter.Identities) (limiter.ID, float64) {
	for _, d := range [...]limiter.Dimension{t.fair.TenantDimension, limiter.User, limiter.Team, limiter.APIKey} {
		if id := who.Of(d); id != "" {
			return id, cmp.Or(t.fair.Weights[id], t.fair.DefaultWeight, limiter.DefaultWeight)
		}
	}
	return cmp.Or(who.Client, limiter.Everyone), cmp.Or(t.fair.DefaultWeight, limiter.DefaultWeight)
}

// directly narrows a route to the agent that a direct path names; nil: it is not one
// of the route's.
func (rt *route) directly(agent string) *route {
	i := slices.IndexFunc(rt.candidates, func(up *upstream) bool { return up.Name == agent })
	if i < 0 {
		return nil
	}
	one := *rt
	one.candidates = rt.candidates[i : i+1]
	return &one
}

// alike returns the first candidates that are all agents, or all none.
func alike(candidates []*upstream) []*upstream {
	for i, up := range candidates {
		if up.IsAgent() != candidates[0].IsAgent() {
			return candidates[:i]
		}
	}
	return candidates
}

// without lists candidates other than up.
func without(candidates []*upstream, up *upstream) []*upstream {
	return slices.DeleteFunc(slices.Clone(candidates), func(o *upstream) bool { return o == up })
}
