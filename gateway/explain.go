package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/headway-limiter/headway/gateway/agents"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/cost"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/pace"
)

// Question asks what a request would meet. It is also the body of POST
// /api/explain.
type Question struct {
	KeyID  string `json:"key,omitempty"`     // id of the API key that it comes with
	RawKey string `json:"raw_key,omitempty"` // the key itself, in place of its id
	Path   string `json:"path,omitempty"`    // empty: DefaultPath
	Method string `json:"method,omitempty"`  // empty: POST
	// Client is the address that it comes from; empty: any, so nothing is known of
	// that client's own levels and exemptions.
	Client string `json:"client,omitempty"`
	// Model it names, in place of the body's.
	Model string `json:"model,omitempty"`
	// Body is that of the request; empty: none but Model and the next two.
	Body      json.RawMessage `json:"body,omitempty"`
	Tokens    int64           `json:"tokens,omitempty"`     // of the prompt, in place of Body
	MaxTokens int64           `json:"max_tokens,omitempty"` // bound on the completion, in place of Body's; 0: none
	Batch     bool            `json:"batch,omitempty"`
}

// DefaultPath is what requests are usually sent to.
const DefaultPath = "/v1/chat/completions"

// Explanation says what a request would meet, and why. It names users, teams and
// levels of shared buckets: it is for operators.
type Explanation struct {
	Key      string          `json:"key"` // its id; empty: none
	Method   string          `json:"method"`
	Path     string          `json:"path"`
	Place    string          `json:"place,omitempty"`  // workspace, project or agent that it is sent to; empty: none
	Client   string          `json:"client,omitempty"` // its address; empty: limits of clients are those of each
	Model    string          `json:"model"`            // empty: none is named, or the path is a turn's
	Own      string          `json:"own,omitempty"`    // what the gateway answers by itself; empty: it passes the request on
	Turn     string          `json:"turn,omitempty"`   // the turn's name; empty: the path is none's
	Steps    []ShownStep     `json:"steps,omitempty"`  // of the turn, which have the upstreams
	Live     bool            `json:"live"`             // levels are those of a running replica
	Exempt   []string        `json:"exempt,omitempty"`
	Estimate ShownEstimate   `json:"estimate"`
	Limits   []ShownLimit    `json:"limits"`
	Queue    ShownQueue      `json:"queue"`
	Upstream []ShownUpstream `json:"upstreams"`
	Verdict  string          `json:"verdict"`
}

// ShownEstimate is what the request is taken to cost, in tokens.
type ShownEstimate struct {
	Input         int64   `json:"input"`
	Output        int64   `json:"output"`
	Total         int64   `json:"total"`
	How           string  `json:"how"` // as cost.Estimate has it, or "given"
	Vocabulary    string  `json:"vocabulary,omitempty"`
	Bytes         int64   `json:"text_bytes"`
	BytesPerToken float64 `json:"bytes_per_token,omitempty"`
	Why           string  `json:"why"`
}

// ShownLimit is one limit: a bucket, or a cap on requests in flight.
type ShownLimit struct {
	Dimension string  `json:"dimension"`
	Class     string  `json:"class"`
	Limit     int64   `json:"limit"` // per PerS, or the cap
	PerS      float64 `json:"per_s,omitempty"`
	Burst     int64   `json:"burst,omitempty"`
	Cost      int64   `json:"cost"`
	Left      *int64  `json:"left,omitempty"` // absent: not asked, or a cap
	// MissingS is how long until the cost is there: 0 if it is, or is not known.
	MissingS float64 `json:"missing_s,omitempty"`
	Never    string  `json:"never,omitempty"` // the reason why it can never pass
	Refused  string  `json:"refused"`         // what follows a refusal: "queued", "429" or "next upstream"
	OnOutage string  `json:"on_outage"`
}

// ShownQueue is where the request would wait.
type ShownQueue struct {
	Enabled   bool    `json:"enabled"`
	Tenant    string  `json:"tenant,omitempty"` // its name, or its hash
	Dimension string  `json:"tenant_dimension,omitempty"`
	Weight    float64 `json:"weight,omitempty"`
	Scope     string  `json:"scope,omitempty"`
	MaxWaitMS int64   `json:"max_wait_ms,omitempty"`
	Waiting   int     `json:"waiting"` // of all tenants, here
	Own       int     `json:"own"`     // of this tenant, here
	// Agents is where it would wait for a slot; nil: no agent is the last resort. Of a
	// turn, that of the first step.
	Agents *ShownAgents `json:"agents,omitempty"`
}

// ShownUpstream is a candidate, in the order in which they are tried.
type ShownUpstream struct {
	Name     string       `json:"name"`
	Serves   bool         `json:"serves"` // the model
	Limits   []ShownLimit `json:"limits,omitempty"`
	Throttle string       `json:"throttle,omitempty"` // how its provider's quota is kept; empty: not
	Slots    int          `json:"slots,omitempty"`    // of an agent
	Held     int          `json:"held,omitempty"`     // of them, in the fleet as far as known
	Waiting  int          `json:"waiting,omitempty"`  // for a slot, here
	Healthy  *bool        `json:"healthy,omitempty"`
	State    string       `json:"state,omitempty"` // of its provider's account: open, paused, ...
	Quota    []string     `json:"quota,omitempty"` // what its provider has left
}

// Explain answers q for a replica that would run cfg, without asking anybody. e
// estimates; nil: by bytes alone. The error says what is wrong with q or cfg.
func Explain(cfg *config.Config, q Question, e *cost.Estimator) (Explanation, error) {
	t, err := newTables(cfg, http.DefaultTransport)
	if err != nil {
		return Explanation{}, fmt.Errorf("gateway: %w", err)
	}
	if e == nil {
		e = cost.New(false)
	}
	p, err := t.preview(q, e)
	if err != nil {
		return Explanation{}, err
	}
	p.meet(cfg.Limiter().Preview)
	return p.explain(), nil
}

// explain answers q with what this replica knows now.
func (g *Gateway) explain(ctx context.Context, q Question) (Explanation, error) {
	t := g.tables.Load()
	p, err := t.preview(q, g.opts.Cost)
	if err != nil {
		return Explanation{}, err
	}
	p.live, p.queueing, p.states = true, g.workspaces.Queues, g.agents.States()
	p.meet(func(r limiter.Request, backend limiter.ID) []limiter.Met {
		// Without a usable store there are no levels, and everything else still holds.
		all, _ := g.limiter.Preview(ctx, r, backend)
		return all
	})
	out := p.explain()
	s := g.limiter.Snapshot(math.MaxInt)
	out.Queue.Waiting = s.Waiting
	for _, b := range s.Busiest {
		if b.Tenant.ID == p.tenant.ID {
			out.Queue.Own = b.Waiting
		}
	}
	states := g.pace.States(time.Now())
	describeProviders(out.Upstream, out.Model, states)
	for _, step := range out.Steps {
		describeProviders(step.Upstream, step.Model, states)
	}
	return out, nil
}

// describeProviders adds what is known of the providers behind upstreams.
func describeProviders(ups []ShownUpstream, model string, states []pace.State) {
	for i := range ups {
		for _, s := range states {
			if s.Upstream == ups[i].Name && s.Model == model {
				ups[i].State, ups[i].Quota = pauses[s.Why], quotas(s)
			}
		}
	}
}

// quotas words what a provider has left.
func quotas(s pace.State) (out []string) {
	for _, q := range s.Quotas {
		out = append(out, fmt.Sprintf("%.0f of %d %s per %s left, reserve %.0f, told %v ago",
			max(0, math.Floor(q.Left)), q.Limit, q.Unit, Brief(q.Window), q.Reserve, q.Age.Round(time.Millisecond)))
	}
	return out
}

// preview is what an explanation is made of.
type preview struct {
	*tables
	question Question
	by       principal
	place    place
	own      string // what the gateway answers by itself; empty: nothing
	turn     *turn  // nil: the path is none's
	route    *route // nil: own or turn is set
	skip     limiter.Skip
	request  limiter.Request
	tenant   limiter.Tenant
	queued   bool // there is a line that it may wait in
	estimate ShownEstimate
	limits   []limiter.Met
	legs     []leg

	live     bool
	queueing func(workspace string) bool // whether its requests wait for agents
	states   []agents.State              // nil: not asked
}

// leg is one dispatch: the only one of a request that is passed on, or a step of a
// turn.
type leg struct {
	step       *step // nil: no turn's
	model      string
	request    limiter.Request
	candidates []*upstream
	limits     []limiter.Met   // beside those of the whole request
	backends   [][]limiter.Met // of each candidate
}

// preview finds out whose request q is, where it goes and what it costs.
func (t *tables) preview(q Question, e *cost.Estimator) (*preview, error) {
	q.Path, q.Method = cmp.Or(q.Path, DefaultPath), strings.ToUpper(cmp.Or(q.Method, http.MethodPost))
	p := &preview{tables: t, question: q, queueing: t.seeded}
	var err error
	if p.by, err = t.keyOf(q); err != nil {
		return nil, err
	}
	client, err := p.client()
	if err != nil {
		return nil, err
	}
	if err := p.find(); err != nil {
		return nil, err
	}
	asked, err := p.price(e)
	if err != nil {
		return nil, err
	}
	p.request = limiter.Request{
		Identities: limiter.Identities{Client: client, APIKey: p.by.key, User: p.by.user, Team: p.by.team, Model: limiter.Hash(limiter.Model, p.question.Model)},
		Tokens:     p.estimate.Total, Anonymous: p.by.key == "", Skip: p.skip,
		Batch: p.route != nil && (p.question.Batch || p.by.batch),
	}
	if p.own == ownFiles {
		p.request.Identities, p.request.Anonymous = limiter.Identities{Client: client}, true
	}
	p.legs = p.dispatches(asked)
	p.tenant, p.queued = t.cfg.Limiter().Tenant(p.request)
	return p, nil
}

// keyOf finds the key of q. No answer repeats a raw key.
func (t *tables) keyOf(q Question) (principal, error) {
	switch {
	case q.RawKey != "":
		if p, ok := t.keys[sha256.Sum256([]byte(q.RawKey))]; ok {
			return p, nil
		}
		return principal{}, errors.New("gateway: the raw key is none of the configured keys")
	case q.KeyID != "":
		for _, p := range t.keys {
			if p.id == q.KeyID {
				return p, nil
			}
		}
		if _, raw := t.principal(q.KeyID); raw {
			return principal{}, errors.New("gateway: there is no key with that id: it is a key itself, whose id is asked for")
		}
		return principal{}, fmt.Errorf("gateway: there is no key with the id %q; headway config show lists the keys", shorten(q.KeyID))
	case t.cfg.Anonymous:
		return principal{}, nil
	}
	return principal{}, errors.New("gateway: a key is missing: give its id (--key, or the field key)")
}

// price estimates the request, and finds its model. What it returns is what each step
// of a turn is asked.
func (p *preview) price(e *cost.Estimator) (turned question, err error) {
	q := &p.question
	asked := ask{completion: -1, choices: 1}
	if len(q.Body) > 0 {
		var ok bool
		if asked, ok = readAsk(q.Body); !ok || asked.badModel {
			return turned, errors.New("gateway: the body is not the JSON object of a request")
		}
	}
	asked.model = cmp.Or(q.Model, asked.model)
	path := p.place.path
	if p.turn != nil { // which asks for its own
		asked.model, path = p.turn.steps[0].Model, chatPath
	} else {
		q.Model = asked.model
	}
	if q.MaxTokens > 0 {
		asked.completion = min(q.MaxTokens, cost.Max)
	}
	switch {
	case q.Tokens < 0:
		return turned, fmt.Errorf("gateway: %d tokens are fewer than none", q.Tokens)
	case p.own != "":
		p.estimate.How, p.estimate.Why = cost.None, "the gateway answers by itself: no tokens are counted"
		return turned, nil
	case p.turn == nil && p.route.kind != config.KindOpenAI:
		p.estimate.How, p.estimate.Why = cost.None, "the upstream is of kind http: bodies are not read, and tokens not counted"
		return turned, nil
	}
	query := asked.query(path, p.cfg)
	if !query.Bytes {
		e.Prepare(asked.model)
	}
	query.Fixed += min(q.Tokens, cost.Max)
	got := e.Estimate(query)
	p.estimate = ShownEstimate{
		Input: got.Input, Output: got.Output, Total: got.Total(), How: got.How, Vocabulary: got.Vocabulary,
		Bytes: query.Text.Bytes(), BytesPerToken: math.Round(100*got.BytesPerToken) / 100,
		Why: whyInput(got, query.Text.Bytes(), q.Tokens) + "; " + whyOutput(asked, query),
	}
	if q.Tokens > 0 && got.How == cost.None {
		p.estimate.How = "given"
	}
	turned = question{prompt: got.Input, completion: got.Output}
	if p.turn != nil {
		p.question.Model, p.estimate.Total = "", p.turn.cost(turned)
		p.estimate.Why += fmt.Sprintf("; total: %d for the dearest way through the steps, with their own prompts and bounds", p.estimate.Total)
	}
	return turned, nil
}
