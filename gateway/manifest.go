package gateway

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/workspace"
	"github.com/headway-limiter/headway/limiter"
)

// manifest tells a marketplace, or a program, what a workspace offers. It holds
// nothing about upstreams but the names and models of agents, and no limits of
// single callers. URLs are relative to the one that it was read from.
type manifest struct {
	Object    string          `json:"object"` // always workspace.manifest
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	BaseURL   string          `json:"base_url"` // for SDKs
	Queueing  bool            `json:"inference_queueing_enabled"`
	Retention bool            `json:"zero_data_retention"`
	Endpoints []endpoint      `json:"endpoints"`
	Models    []manifestModel `json:"models"` // empty: agents and upstreams take any
	Agents    []manifestAgent `json:"agents"`
	Limits    manifestLimits  `json:"limits"`
}

// endpoint is one that can be called, below a base URL.
type endpoint struct {
	Method string `json:"method"`
	Path   string `json:"path"`
}

type manifestModel struct {
	ID     string   `json:"id"`
	Agents []string `json:"agents"` // that serve it directly
}

// manifestAgent is one that can be called directly, which never waits.
type manifestAgent struct {
	Name      string     `json:"name"`
	BaseURL   string     `json:"base_url"`
	Models    []string   `json:"models"` // empty: any
	Tags      []string   `json:"tags"`
	Endpoints []endpoint `json:"endpoints"`
}

// manifestLimits are those that every caller meets. Absent rules limit nothing.
type manifestLimits struct {
	MaxBody        int64                `json:"max_body_bytes"`   // of JSON
	MaxUpload      int64                `json:"max_upload_bytes"` // of anything else
	RequestTimeout int64                `json:"request_timeout_ms"`
	QueueTimeout   int64                `json:"queue_timeout_ms"` // longest wait for a busy agent
	PerAPIKey      *ruleView            `json:"per_api_key,omitempty"`
	PerUser        *ruleView            `json:"per_user,omitempty"`
	PerModel       *ruleView            `json:"per_model,omitempty"`
	Models         map[string]*ruleView `json:"models,omitempty"` // in place of per_model
}

// ruleView is one rule. Absent rates are unlimited.
type ruleView struct {
	Requests    *rateView `json:"requests,omitempty"`
	Tokens      *rateView `json:"tokens,omitempty"`
	MaxInFlight int       `json:"max_in_flight_requests,omitempty"`
}

type rateView struct {
	Limit int64 `json:"limit"`
	PerMS int64 `json:"per_ms"`
	Burst int64 `json:"burst"`
}

// endpoints are what callers may find behind a base URL, where a route leads there.
var endpoints = []endpoint{
	{http.MethodPost, "/v1/chat/completions"}, {http.MethodPost, "/v1/completions"}, {http.MethodPost, "/v1/responses"},
	{http.MethodPost, "/v1/messages"}, {http.MethodPost, "/v1/embeddings"}, {http.MethodPost, "/v1/rerank"}, {http.MethodPost, "/v1/score"},
	{http.MethodPost, "/v1/audio/transcriptions"}, {http.MethodPost, "/v1/audio/translations"}, {http.MethodPost, "/v1/audio/speech"},
	{http.MethodGet, "/v1/realtime"}, {http.MethodGet, "/v1/models"},
}

// manifest answers /workspaces/{id}/manifest, if that is what r asks for. Until the
// workspace publishes it, it is for keys with a role there; then for everybody,
// whatever key is sent along.
func (g *Gateway) manifest(x *exchange, r *http.Request) bool {
	space, id, rest := split(r.URL.EscapedPath())
	if space != inWorkspace || rest != "/manifest" || !config.PlaceID(id) {
		return false
	}
	who, wrong := x.identify(r)
	if wrong != nil {
		x.fail(*wrong)
		return true
	}
	d, read := g.workspaces.Known(id)
	open := read && d.Published && declares(x.cfg, id)
	if !open && who.standing != known {
		g.deny(x, r, who)
		return true
	}
	grant := g.admit(x, r.Context(), x.atDoor(who))
	if grant == nil {
		return true
	}
	defer grant.Done(limiter.Outcome{Tokens: unknownTokens})
	g.metrics.decide("admitted", noLimit)
	switch f := methods(r, false); {
	case !open && (who.by.roles[id] == "" || !declares(x.cfg, id)):
		x.fail(unknownPlace("workspace", id))
	case f != nil:
		x.fail(*f)
	case !read: // nobody knows yet what it says
		x.fail(*g.unreadable(errUnread))
	default:
		x.sendManifest(r, d, open)
	}
	return true
}

// errUnread: this replica has not read the document since it started.
var errUnread = fmt.Errorf("gateway: not read yet: %w", limiter.ErrUnavailable)

// sendManifest answers with the manifest, or with 304. Its tag is a digest, so that
// it changes with the configuration, too.
func (x *exchange) sendManifest(r *http.Request, d workspace.Document, open bool) {
	m := x.manifestOf(d)
	body, err := json.Marshal(m)
	if err != nil {
		x.fail(internalError)
		return
	}
	sum := sha256.Sum256(body)
	tag := fmt.Sprintf(`"%x"`, sum[:12])
	h := x.Header()
	h.Set("ETag", tag)
	h.Set("Vary", "Authorization, X-Api-Key, Api-Key")
	h.Set("X-Content-Type-Options", "nosniff")
	if h.Set("Cache-Control", "private, no-cache"); open {
		h.Set("Cache-Control", "public, no-cache")
	}
	if matches(r.Header.Values("If-None-Match"), tag, true) {
		x.WriteHeader(http.StatusNotModified)
		return
	}
	answerJSON(x, r, m)
}

// manifestOf works the manifest of a workspace out.
func (t *tables) manifestOf(d workspace.Document) manifest {
	m := manifest{
		Object: "workspace.manifest", ID: d.ID, Name: d.Name, BaseURL: "/" + inWorkspace + "/" + d.ID + "/v1",
		Queueing: d.Queues(), Retention: d.Retention,
		Endpoints: []endpoint{}, Models: []manifestModel{}, Agents: []manifestAgent{}, Limits: limitsOf(t.cfg),
	}
	behind := map[*upstream][]endpoint{}
	for _, e := range endpoints {
		rt, wrong := t.route(&http.Request{Method: e.Method, URL: &url.URL{Path: e.Path}})
		if wrong != nil || rt.kind != config.KindOpenAI {
			continue
		}
		e.Path = strings.TrimPrefix(e.Path, "/v1")
		m.Endpoints = append(m.Endpoints, e)
		for _, up := range rt.candidates {
			behind[up] = append(behind[up], e)
		}
	}
	models := map[string][]string{}
	for up, list := range behind {
		named := isAgent(up.Upstream) && config.PlaceID(up.Name)
		for _, model := range up.Models {
			if models[model] = append([]string{}, models[model]...); named {
				models[model] = append(models[model], up.Name)
			}
		}
		if named {
			m.Agents = append(m.Agents, manifestAgent{
				Name: up.Name, BaseURL: "/" + atAgent + "/" + up.Name + "/v1",
				Models: append([]string{}, up.Models...), Tags: append([]string{}, up.Tags...), Endpoints: list,
			})
		}
	}
	slices.SortFunc(m.Agents, func(a, b manifestAgent) int { return strings.Compare(a.Name, b.Name) })
	for _, id := range slices.Sorted(maps.Keys(models)) {
		slices.Sort(models[id])
		m.Models = append(m.Models, manifestModel{id, models[id]})
	}
	return m
}

// limitsOf are the limits that every caller of a configuration meets. What single
// keys, users and teams have instead is their business.
func limitsOf(cfg *config.Config) manifestLimits {
	l := cfg.RateLimiting
	out := manifestLimits{
		MaxBody: int64(cfg.Server.MaxBody), MaxUpload: int64(cfg.Server.MaxUpload),
		RequestTimeout: cfg.Server.Timeouts.Total.Milliseconds(), QueueTimeout: cfg.Queueing.QueueTimeout.Milliseconds(),
		PerAPIKey: ruleOf(l.PerAPIKey.Rule), PerUser: ruleOf(l.PerUser.Rule), PerModel: ruleOf(l.PerModel.Rule),
	}
	for model, rule := range l.PerModel.Overrides {
		if out.Models == nil {
			out.Models = map[string]*ruleView{}
		}
		out.Models[model] = ruleOf(rule)
	}
	return out
}

// ruleOf is a rule as it is told; nil: it limits nothing.
func ruleOf(r config.Rule) *ruleView {
	if r == (config.Rule{}) {
		return nil
	}
	return &ruleView{rateOf(r.Requests), rateOf(r.Tokens), r.MaxInFlightRequests}
}

func rateOf(r *config.Rate) *rateView {
	if r == nil {
		return nil
	}
	return &rateView{Limit: r.Limit, PerMS: r.Per.Milliseconds(), Burst: cmp.Or(r.Burst, r.Limit)}
}
