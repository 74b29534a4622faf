package gateway

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// A turn is one request that takes several dispatches: a small model classifies and
// another answers, a step takes over where one has failed, tools are called in
// between. To the caller it is a chat completion.
//
//	admit        the caller's limits, once, for the dearest way through the steps
//	step         per_model and per_backend of its model and upstream, a slot of its
//	             own, its answer; the slot is free before the next step begins
//	  tools      called without a slot, then the same step again
//	settle       the caller pays the sum of what all steps have used
//
// Each step is a request that the gateway makes of itself (turn_step.go): whatever
// holds for requests, throttles, outages and the choice among upstreams, holds for
// it. It waits for an agent whatever the workspace says, but never on a direct path. A
// limit that refuses the first step refuses the turn; a later step waits for it, as
// the turn would otherwise begin anew, and spend on its first step what the later lacked.
// All waits of one turn together are bounded by queue_timeout.
//
// A stream begins with the first byte of an answer to the caller, or with the first
// keep-alive comment, which no turn sends before its first step has been dispatched.
// From then on an error is an event, and the end of the connection (turn_stream.go).

// turn is one of the configuration's, with what is worked out once.
type turn struct {
	config.Turn
	steps []step
	tools map[string]config.Tool
}

// step is one of a turn's.
type step struct {
	config.Step
	candidates []*upstream // best first, at least one
}

// turnsOf lists the turns of cfg by path. Clients of chat completions append their
// own path to the base URL, so that leads there, too.
func turnsOf(cfg *config.Config, ups map[string]*upstream) map[string]*turn {
	out := map[string]*turn{}
	tools := map[string]config.Tool{}
	for _, t := range cfg.Tools {
		tools[t.Name] = t
	}
	for _, c := range cfg.Turns {
		t := &turn{Turn: c, tools: tools}
		for _, s := range c.Steps {
			st := step{Step: s}
			for _, i := range s.Can(cfg) {
				st.candidates = append(st.candidates, ups[cfg.Upstreams[i].Name])
			}
			t.steps = append(t.steps, st)
		}
		out[c.Path], out[c.Path+chatPath] = t, t
	}
	return out
}

// chatPath is what steps ask of an upstream, below /v1.
const chatPath = "/chat/completions"

// at finds a step by name; nil: there is none.
func (t *turn) at(name string) *step {
	if i := slices.IndexFunc(t.steps, func(s step) bool { return s.Name == name }); i >= 0 {
		return &t.steps[i]
	}
	return nil
}

// run is one turn on its way.
type run struct {
	*turn
	g       *Gateway
	x       *exchange // the caller's
	request *http.Request
	asked   question
	said    map[string]string // answers of earlier steps, by name
	out     *turnStream       // nil: the caller wants one answer
	used    int64             // tokens that steps have cost, so far
	started bool              // something was dispatched
	settle  func()            // ends the caller's grant
}

// serveTurn answers one request to a turn.
func (g *Gateway) serveTurn(x *exchange, r *http.Request, t *turn) {
	if r.Method != http.MethodPost {
		x.fail(wrongMethod(r, []string{http.MethodPost}))
		return
	}
	who, ok := g.known(x, r)
	if !ok {
		return
	}
	asked, wrong := g.question(x, r, t)
	if wrong != nil {
		x.fail(*wrong)
		return
	}
	x.patience = x.patienceOf(r.Header, who)
	grant := g.admit(x, r.Context(), x.admission(who, t.cost(asked)))
	if grant == nil {
		return
	}
	end := &ending{grant: grant}
	defer end.now() // a second time this does nothing
	g.describe(x.Header(), grant)
	ctx, cancel := context.WithDeadlineCause(r.Context(), time.Now().Add(t.Timeout), errTotal)
	defer cancel()
	u := &run{turn: t, g: g, x: x, request: r.WithContext(ctx), asked: asked, said: map[string]string{}}
	u.settle = func() {
		if !end.over {
			end.outcome = limiter.Outcome{Tokens: u.used, Void: !u.started}
			end.now()
		}
	}
	defer u.settle() // what was used counts however the turn ends, a panic included
	if asked.stream {
		u.out = newTurnStream(x, x.cfg.Queueing.KeepAlive)
		defer u.out.close()
	}
	u.walk()
}

// cost is the estimate for the dearest way through the steps: each asks what the
// caller asked and its own prompt. Fallbacks take the place of a step that has cost
// nothing, and further rounds of tools are paid when they are known.
func (t *turn) cost(q question) int64 {
	dear := map[string]int64{} // from a step to the end
	var most int64
	for _, s := range slices.Backward(t.steps) {
		var rest int64
		for _, c := range s.Choices {
			rest = max(rest, dear[c.Step])
		}
		most = q.costOf(&s) + max(rest, dear[s.Next], dear[s.Default])
		dear[s.Name] = most
	}
	return min(most, maxEstimate)
}

// walk goes from step to step until one answers the caller.
func (u *run) walk() {
	for s := &u.steps[0]; s != nil; {
		last := s.Kind == config.StepDispatch && s.Next == ""
		a := u.rounds(s, last)
		switch {
		case a.failed() && s.Fallback != "" && a.may(u.request.Context()):
			s = u.at(s.Fallback)
		case a.failed(), last:
			u.tell(a)
			return
		case s.Kind == config.StepClassify:
			name := s.choose(a.text())
			if name == "" {
				u.tell(failedStep(u.x, unclassified(s.Name)))
				return
			}
			s = u.at(name)
		default:
			u.said[s.Name] = a.text()
			s = u.at(s.Next)
		}
	}
}

// rounds asks one step, and again with what its tools have answered, until there is
// an answer without calls. last says that it is the caller's.
func (u *run) rounds(s *step, last bool) (a *answered) {
	body := u.asked.body(s, u.turn, u.said, last)
	for round := 0; ; round++ {
		if round == u.MaxRounds {
			body.forbidTools()
		}
		a = u.dispatch(s, body, last)
		calls := a.calls()
		if a.failed() || len(calls) == 0 || len(s.Tools) == 0 {
			return a
		}
		if round == u.MaxRounds {
			return failedStep(u.x, tooManyRounds(s.Name, u.MaxRounds))
		}
		body.add(a.message())
		for _, c := range calls {
			body.add(c.result(u.call(s, c)))
		}
	}
}

// tell ends the turn with an answer or a failure. The caller's slots are free before
// it has the last byte.
func (u *run) tell(a *answered) {
	u.settle()
	if u.out != nil {
		u.out.end(a)
		return
	}
	a.write(u.x)
}

// choose finds the step that an answer leads to: the choice that it is, else the
// first that stands in it as a word.
func (s *step) choose(text string) string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return strings.ContainsRune(" \t\r\n.,:;!?\"'`*()", r) })
	for _, c := range s.Choices {
		want := strings.ToLower(strings.TrimSpace(c.Answer))
		if strings.EqualFold(strings.TrimSpace(text), want) {
			return c.Step
		}
	}
	for _, c := range s.Choices {
		if slices.Contains(words, strings.ToLower(strings.TrimSpace(c.Answer))) {
			return c.Step
		}
	}
	return s.Default
}
