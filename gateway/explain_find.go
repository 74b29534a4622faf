package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// What the gateway answers by itself, in words.
const (
	ownFiles  = "the Batch API (files and batches)"
	ownModels = "the list of models, from the configuration"
)

// ShownStep is a step of a turn.
type ShownStep struct {
	Name     string          `json:"name"`
	Kind     string          `json:"kind"`
	Model    string          `json:"model"`
	Tokens   int64           `json:"tokens"` // what it is taken to cost
	Then     string          `json:"then"`   // what follows it
	Limits   []ShownLimit    `json:"limits"` // those of its model
	Upstream []ShownUpstream `json:"upstreams"`
}

// eachClient stands for a client whose address is not known. Limits of clients are
// the default ones for it.
var eachClient = limiter.Hash(limiter.Client, "each client address")

// client is whose limits of clients apply, and what is exempt.
func (p *preview) client() (limiter.ID, error) {
	p.skip = p.by.skip
	if p.question.Client == "" {
		return eachClient, nil
	}
	addr, err := netip.ParseAddr(p.question.Client)
	if err != nil {
		return "", fmt.Errorf("gateway: the client %q is no IP address", shorten(p.question.Client))
	}
	addr = addr.Unmap().WithZone("")
	for _, e := range p.exempt {
		if e.clients.Contains(addr) {
			p.skip |= e.skip
		}
	}
	return limiter.Hash(limiter.Client, config.ClientIdentity(addr)), nil
}

// find works out what serves the request, as the gateway does for requests that come.
func (p *preview) find() error {
	at, err := url.ParseRequestURI(p.question.Path)
	if err != nil || p.question.Path[0] != '/' {
		return fmt.Errorf("gateway: %q is no path such as %s", shorten(p.question.Path), DefaultPath)
	}
	outer := &http.Request{Method: p.question.Method, URL: at}
	x := &exchange{tables: p.tables, request: outer}
	r, wrong := x.locate(outer)
	if wrong == nil {
		wrong = x.enter(caller{by: p.by})
	}
	if wrong != nil {
		return wrong.explained()
	}
	p.place = x.place
	switch {
	case p.cfg.Batch.Enabled && IsFiles(p.place.path):
		p.own = ownFiles
		return nil
	case p.turns[p.place.path] != nil:
		if p.turn = p.turns[p.place.path]; r.Method != http.MethodPost {
			return wrongMethod(r, []string{http.MethodPost}).explained()
		}
		return nil
	case x.asksModels(r):
		p.own = ownModels
		return nil
	}
	if p.route, wrong = p.tables.route(r); wrong != nil {
		if wrong.allow != "" {
			return fmt.Errorf("gateway: the route of %s takes %s, not %s", shorten(p.question.Path), wrong.allow, shorten(r.Method))
		}
		return fmt.Errorf("gateway: no route takes %s %s", shorten(r.Method), shorten(p.question.Path))
	}
	if p.place.direct != "" {
		if p.route = p.route.directly(p.place.direct); p.route == nil {
			return fmt.Errorf("gateway: agent %s is none of the upstreams that the route of %s has", p.place.direct, shorten(p.place.path))
		}
	}
	return nil
}

// explained is the failure as the reason why there is nothing to explain.
func (f failure) explained() error {
	return errors.New("gateway: the answer is " + fmt.Sprint(f.status) + " " + f.code + ": " + f.message)
}

// dispatches lists what is sent upstream. asked is what each step of a turn is.
func (p *preview) dispatches(asked question) []leg {
	switch {
	case p.own != "":
		return nil
	case p.turn == nil:
		return []leg{{model: p.question.Model, request: p.request, candidates: p.route.candidates}}
	}
	var all []leg
	for i := range p.turn.steps {
		s := &p.turn.steps[i]
		r := p.request
		r.Model, r.Tokens, r.Step = limiter.Hash(limiter.Model, s.Model), asked.costOf(s), true
		out := func(up *upstream) bool { return p.place.direct != "" && p.place.direct != up.Name }
		all = append(all, leg{step: s, model: s.Model, request: r, candidates: slices.DeleteFunc(slices.Clone(s.candidates), out)})
	}
	return all
}

// meet has ask say which limits there are, and with which levels. Of a client that is
// not known, there are none.
func (p *preview) meet(ask func(r limiter.Request, backend limiter.ID) []limiter.Met) {
	p.limits = ask(p.request, "")
	for i := range p.limits {
		if p.limits[i].Dimension == limiter.Client && p.question.Client == "" {
			p.limits[i].Level = nil
		}
	}
	for i := range p.legs {
		s := &p.legs[i]
		if s.step != nil {
			s.limits = ask(s.request, "")
		}
		for _, up := range s.candidates {
			s.backends = append(s.backends, ask(s.request, up.id))
		}
	}
}

// where words the place of the request; empty: it is none in particular.
func (p *preview) where() string {
	switch at := p.place; {
	case at.direct != "":
		return "directly to agent " + at.direct
	case at.project != "":
		return "project " + at.project + " of workspace " + at.workspace
	case at.workspace != "":
		return "workspace " + at.workspace
	}
	return ""
}

// then words what follows a step.
func (s *step) then() string {
	var parts []string
	for _, c := range s.Choices {
		parts = append(parts, fmt.Sprintf("%q: %s", c.Answer, c.Step))
	}
	switch {
	case s.Default != "":
		parts = append(parts, "else: "+s.Default)
	case s.Next != "":
		parts = append(parts, "next: "+s.Next)
	case s.Kind == config.StepDispatch:
		parts = append(parts, "answers the caller")
	}
	if s.Fallback != "" {
		parts = append(parts, "if it fails: "+s.Fallback)
	}
	return strings.Join(parts, ", ")
}
