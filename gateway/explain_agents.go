package gateway

import (
	"fmt"
	"slices"
	"time"

	"github.com/headway-limiter/headway/gateway/agents"
	"github.com/headway-limiter/headway/gateway/config"
)

// ShownAgents is the wait for a slot, once the limits have let a request pass.
type ShownAgents struct {
	Names     []string `json:"names"` // any of them will do
	Waits     bool     `json:"waits"` // false: it is shed at once if none has a slot free
	Why       string   `json:"why"`   // the rule by which it does, or not
	Tenant    string   `json:"tenant"`
	Weight    float64  `json:"weight"`
	MaxWaitMS int64    `json:"max_wait_ms"`
	Slots     int      `json:"slots"`     // of those that are well
	Held      int      `json:"held"`      // of them, in the fleet as far as known
	Waiting   int      `json:"waiting"`   // here
	Elsewhere int      `json:"elsewhere"` // waiting at other replicas, as far as known

	down bool // none is well
	full bool // no line has room
}

// seeded reports whether a workspace's requests wait for agents, as its document
// begins.
func (t *tables) seeded(id string) bool {
	i := slices.IndexFunc(t.cfg.Workspaces, func(w config.Workspace) bool { return w.ID == id })
	return i < 0 || t.cfg.Workspaces[i].Queueing == nil || *t.cfg.Workspaces[i].Queueing
}

// waits reports whether the request may wait for an agent, and by which rule, as
// Gateway.queues does.
func (p *preview) waits() (ok bool, why string) {
	switch home := p.place.workspace; {
	case p.place.direct != "":
		return false, "a direct path never waits"
	case p.turn != nil:
		return true, "steps of turns always wait"
	case home == "":
		return true, "no workspace says otherwise"
	case p.queueing(home):
		return true, "workspace " + home + " has inference_queueing_enabled: true"
	default:
		return false, "workspace " + home + " has inference_queueing_enabled: false"
	}
}

// lastAgents returns the wait for the agents that are the last resort of s; nil: it is
// not for agents, or one of the upstreams before them takes the request at once.
// tried says that none does.
func (p *preview) lastAgents(s leg) (out *ShownAgents, tried bool) {
	rest := slices.DeleteFunc(slices.Clone(s.candidates), func(up *upstream) bool { return !up.serves(s.model) })
	tried = p.live
	for len(rest) > 0 {
		run := alike(rest)
		free := !run[0].IsAgent() || slices.ContainsFunc(run, p.hasSlot)
		tried = tried && !free
		if rest = rest[len(run):]; len(rest) == 0 && run[0].IsAgent() {
			return p.wait(run), tried
		}
	}
	return nil, false
}

// state is what is known of an agent; false: nothing.
func (p *preview) state(up *upstream) (agents.State, bool) {
	i := slices.IndexFunc(p.states, func(s agents.State) bool { return s.Name == up.Name })
	if i < 0 {
		return agents.State{}, false
	}
	return p.states[i], true
}

// hasSlot reports whether an agent is known to have a slot free.
func (p *preview) hasSlot(up *upstream) bool {
	s, known := p.state(up)
	return known && s.Healthy && s.Fleet < s.Slots
}

// wait describes the wait for any of run, all of which are agents.
func (p *preview) wait(run []*upstream) *ShownAgents {
	out := &ShownAgents{MaxWaitMS: p.cfg.Queueing.QueueTimeout.Milliseconds(), down: p.live, full: p.live}
	out.Waits, out.Why = p.waits()
	tenant, weight := p.share(p.request.Identities)
	if out.Tenant, out.Weight = p.names.of(tenant), weight; tenant == p.request.Client {
		out.Tenant = "client " + p.question.Client
		if p.question.Client == "" {
			out.Tenant = "the client's address"
		}
	}
	for _, up := range run {
		out.Names = append(out.Names, up.Name)
		s, known := p.state(up)
		if known && !s.Healthy {
			continue
		}
		out.down = false
		out.full = out.full && s.Waiting+s.Elsewhere >= up.QueueDepth
		out.Slots += up.Slots
		out.Held, out.Waiting, out.Elsewhere = out.Held+s.Fleet, out.Waiting+s.Waiting, out.Elsewhere+s.Elsewhere
	}
	return out
}

// verdict says what happens to a request that finds no slot free.
func (a *ShownAgents) verdict() string {
	busy := fmt.Sprintf("no slot is free (%d of %d held, %d waiting)", a.Held, a.Slots, a.Waiting+a.Elsewhere)
	switch {
	case a.down:
		return "503 now: no agent that serves it is well; one request after another is let through to see whether it is again."
	case !a.Waits:
		return fmt.Sprintf("429 %s now: %s, and %s.", agents.ReasonCapacity, busy, a.Why)
	case a.full:
		return fmt.Sprintf("503 queue_full now: %s, and queue_depth lets no more.", busy)
	}
	return fmt.Sprintf("Would wait for a slot, for up to %s: %s; tenant %s has weight %g.",
		Brief(time.Duration(a.MaxWaitMS)*time.Millisecond), busy, a.Tenant, a.Weight)
}
