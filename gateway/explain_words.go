package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headway-limiter/headway/gateway/cost"
	"github.com/headway-limiter/headway/limiter"
)

// whyInput words where the input's tokens come from.
func whyInput(e cost.Estimate, bytes, given int64) string {
	switch {
	case given > 0:
		return fmt.Sprintf("input: %d tokens as given", given)
	case e.How == cost.Counted:
		return fmt.Sprintf("input: %d bytes of text, counted with %s", bytes, e.Vocabulary)
	case e.How == cost.Sampled:
		return fmt.Sprintf("input: %d bytes of text, of which parts were counted with %s", bytes, e.Vocabulary)
	case e.How == cost.Learned:
		return fmt.Sprintf("input: %d bytes of text at %.2f bytes a token, learned from the model's usage", bytes, e.BytesPerToken)
	case e.How == cost.Assumed:
		return fmt.Sprintf("input: %d bytes of text at %d bytes a token, for nothing better is known", bytes, cost.DefaultBytesPerToken)
	}
	return "input: there is no text"
}

// whyOutput words the bound on the output.
func whyOutput(a ask, q cost.Query) string {
	switch {
	case q.Completion <= 0 && a.completion != 0:
		return "output: none on this path"
	case a.completion < 0:
		return fmt.Sprintf("output: %d by default_completion_tokens, for the request bounds nothing", q.Completion)
	case q.Choices > 1:
		return fmt.Sprintf("output: %d for each of %d choices", q.Completion, q.Choices)
	}
	return fmt.Sprintf("output: at most %d, as the request says", q.Completion)
}

// explain puts everything into words and numbers.
func (p *preview) explain() Explanation {
	out := Explanation{
		Key: p.by.id, Method: p.question.Method, Path: p.question.Path, Place: p.where(), Client: p.question.Client,
		Model: p.question.Model, Own: p.own, Live: p.live, Exempt: exemptOf(p.request.Skip),
		Estimate: p.estimate, Limits: p.shown(p.limits), Upstream: []ShownUpstream{},
	}
	f := p.fair
	if out.Queue.Enabled = f.Enabled; p.queued {
		out.Queue.Tenant, out.Queue.Dimension = p.names.of(p.tenant.ID), string(p.tenant.Dimension)
		out.Queue.Weight, out.Queue.Scope, out.Queue.MaxWaitMS = p.tenant.Weight, string(f.Scope), f.MaxWait.Milliseconds()
	}
	if p.turn != nil {
		out.Turn = p.turn.Name
	}
	for _, s := range p.legs {
		if ups := p.upstreams(s); s.step == nil {
			out.Upstream = ups
		} else {
			out.Steps = append(out.Steps, ShownStep{
				Name: s.step.Name, Kind: s.step.Kind, Model: s.model, Tokens: s.request.Tokens, Then: s.step.then(),
				Limits: p.shown(s.limits), Upstream: ups,
			})
		}
	}
	var saturated bool
	if len(p.legs) > 0 {
		out.Queue.Agents, saturated = p.lastAgents(p.legs[0])
	}
	if out.Verdict = p.verdict(); saturated && out.Verdict == admitted {
		out.Verdict = out.Queue.Agents.verdict()
	}
	return out
}

// upstreams lists the candidates of a dispatch.
func (p *preview) upstreams(s leg) []ShownUpstream {
	out := []ShownUpstream{}
	for i, up := range s.candidates {
		shown := ShownUpstream{
			Name: up.Name, Serves: up.serves(s.model), Limits: p.shown(s.backends[i]), Slots: up.Slots, Throttle: p.pacing(up),
		}
		if state, known := p.state(up); known && up.IsAgent() {
			shown.Held, shown.Waiting, shown.Healthy = state.Fleet, state.Waiting, &state.Healthy
		}
		out = append(out, shown)
	}
	return out
}

// pacing words how requests to an upstream are spread over its provider's quota.
func (p *preview) pacing(up *upstream) string {
	switch {
	case !up.Throttle.Enabled:
		return ""
	case p.request.Batch:
		return fmt.Sprintf("batch: in turn by cost, while more than %.0f %% of the quota is left", 100*up.Throttle.Reserve)
	}
	return fmt.Sprintf("waits up to %s for the provider's quota", Brief(up.Throttle.MaxWait))
}

// exemptOf lists what does not apply.
func exemptOf(s limiter.Skip) (out []string) {
	for _, c := range [...]struct {
		bit  limiter.Skip
		name string
	}{{limiter.SkipRequests, "requests"}, {limiter.SkipTokens, "tokens"}, {limiter.SkipInFlight, "inflight"}, {limiter.SkipQueue, "queue"}} {
		if s&c.bit != 0 {
			out = append(out, c.name)
		}
	}
	return out
}

// shown lists limits for people.
func (p *preview) shown(all []limiter.Met) []ShownLimit {
	out := make([]ShownLimit, 0, len(all))
	policies := p.cfg.Limiter()
	for _, m := range all {
		l := ShownLimit{
			Dimension: string(m.Dimension), Class: m.Class.String(), Limit: m.Rate.Limit, PerS: m.Rate.Per.Seconds(), Burst: m.Rate.Burst,
			Cost: m.Cost, Never: string(m.Never), Refused: "429", OnOutage: string(policies.OutageOf(m.Dimension)),
		}
		if m.Cap > 0 {
			l.Limit, l.Cost = int64(m.Cap), 1
		}
		if m.Level != nil {
			l.Left = &m.Level.Remaining
		}
		if wait := m.Missing(); wait > 0 {
			l.MissingS = seconds3(wait)
		}
		switch {
		case m.Waits:
			l.Refused = "queued"
		case m.Dimension == limiter.Backend:
			l.Refused = "next upstream"
		}
		out = append(out, l)
	}
	return out
}

// seconds3 is d in seconds, rounded up to milliseconds.
func seconds3(d time.Duration) float64 {
	return float64((d+time.Millisecond-1)/time.Millisecond) / 1000
}

// admitted is the verdict on a request that nothing stands in the way of.
const admitted = "Would be admitted now, if its in-flight slots are free and nobody is before it."

// verdict says in a sentence what would happen to the request now, or with full
// buckets where levels are not known.
func (p *preview) verdict() string {
	limits := p.limits
	if len(p.legs) > 0 {
		first := p.legs[0]
		if !slices.ContainsFunc(first.candidates, func(up *upstream) bool { return up.serves(first.model) }) {
			return fmt.Sprintf("404 model_not_found: no upstream of the route serves %q.", first.model)
		}
		limits = slices.Concat(limits, first.limits)
	}
	var short *limiter.Met // the longest wait
	for i, m := range limits {
		if m.Never != "" {
			return fmt.Sprintf("429 %s by the %s limit on %s, for ever: a retry cannot help.", m.Never, m.Dimension, m.Class)
		}
		if wait := m.Missing(); wait > 0 && (short == nil || wait > short.Missing()) {
			short = &limits[i]
		}
	}
	switch {
	case short == nil && p.own != "":
		return "The gateway answers by itself: " + p.own + "."
	case short == nil && p.live:
		return admitted
	case short == nil:
		return "Would be admitted while the buckets hold its cost; ask a running replica (--admin) for their levels."
	case short.Waits && short.Class == limiter.Tokens && !p.request.Batch && short.Missing() >= p.cfg.RateLimiting.DeferredAdmission.MaxWait():
		return fmt.Sprintf("429 now: the %s limit on tokens has too little for %.3f s, longer than requests are held.", short.Dimension, seconds3(short.Missing()))
	case short.Waits && short.Class == limiter.Tokens:
		return fmt.Sprintf("Would be held: the %s limit on tokens has too little for %.3f s.", short.Dimension, seconds3(short.Missing()))
	case short.Waits:
		return fmt.Sprintf("Would wait in line: the %s limit on %s has too little for %.3f s.", short.Dimension, short.Class, seconds3(short.Missing()))
	}
	return fmt.Sprintf("429 now: the %s limit on %s has too little for %.3f s.", short.Dimension, short.Class, seconds3(short.Missing()))
}

// explainPage answers POST /api/explain.
func (g *Gateway) explainPage(w http.ResponseWriter, r *http.Request) {
	var q Question
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, int64(g.tables.Load().cfg.Server.MaxBody)+maxPromise))
	d.DisallowUnknownFields()
	err := d.Decode(&q)
	if err == nil && d.More() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		err = badQuestion(err)
	}
	var out Explanation
	if err == nil {
		out, err = g.explain(r.Context(), q)
	}
	if err != nil {
		failure{status: http.StatusUnprocessableEntity, kind: kindInvalid, code: "cannot_explain", message: err.Error()}.write(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // who has left cannot be told
}

// badQuestion words why a question cannot be read.
func badQuestion(err error) error {
	var wrong *json.UnmarshalTypeError
	// encoding/json has no type for it.
	if field, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		var known []string
		for f := range reflect.TypeFor[Question]().Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			known = append(known, name)
		}
		return fmt.Errorf("gateway: a question has no field %s; its fields are %s", shorten(field), strings.Join(known, ", "))
	}
	if errors.As(err, &wrong) && wrong.Field != "" {
		return fmt.Errorf("gateway: the field %q of a question is a %s, not a %s", wrong.Field, wrong.Value, wrong.Type)
	}
	return errors.New("gateway: the body is not the JSON object of a question")
}

// Brief is d for people: as Go writes it, without parts that are zero, as in 1m.
func Brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
