package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Headers between a load client, the replica that passes them on, and the
// provider.
const (
	// HeaderTenant names the tenant a request is written down under. Without
	// it the user field of the JSON body does, and without that the request is
	// written down under the empty name.
	HeaderTenant = "X-Load-Tenant"
	// HeaderFault asks for a Fault, HeaderLatency for a time to the first byte
	// ("250ms") in place of the configured one.
	HeaderFault   = "X-Load-Fault"
	HeaderLatency = "X-Load-Latency"
	// HeaderServiceTime is the time from a request's arrival at the provider to
	// the head of its answer, in milliseconds with fractions.
	HeaderServiceTime = "X-Provider-Ms"
)

// Bounds of what the provider takes and gives.
const (
	maxBody       = 16 << 20        // of a request
	maxTenantName = 128             // longer names are cut
	maxTokens     = 100_000         // of one answer
	maxLatency    = 5 * time.Minute // asked for by header
)

// ProviderConfig shapes a simulated provider. The zero value answers at once
// with 16 tokens and refuses nothing.
type ProviderConfig struct {
	// Seed makes latencies, sizes and faults repeatable: the n-th request to
	// arrive always draws the same numbers.
	Seed uint64
	// Latency is the time to the first byte in seconds, TokenGap the pause
	// before each further token of a stream.
	Latency, TokenGap Dist
	// Tokens is the length of a completion, at least 1; a request's own
	// max_tokens cuts it. The zero Dist means 16.
	Tokens Dist
	// Padding is the bytes added to the answers of plain paths.
	Padding Dist
	// Models is what GET /v1/models lists; every model is served all the same.
	Models []string
	// Quota is what the provider itself enforces and states in its headers.
	Quota QuotaConfig
	// Faults spoil some answers by chance; a request's own HeaderFault wins.
	Faults []FaultRule
	// Late has some answers tell of the past, and overtake one another.
	Late LateRule
	// Window is what the ledger counts starts per; zero means a second.
	Window time.Duration
}

// Provider is a simulated provider with a ledger:
//
//	/v1/chat/completions, /v1/completions   JSON, or a stream of events up to [DONE]
//	/v1/responses, /v1/messages             JSON, or a stream of typed events
//	/v1/embeddings, /v1/rerank, /v1/score, /v1/models    JSON
//	/v1/audio/transcriptions, translations  JSON or typed events, for a form
//	/v1/audio/speech                        bytes, in pieces or not
//	GET /ledger, POST /ledger/reset         the ledger; neither is written down in it
//	anything else                           a small JSON echo of method, path and size
//
// It never answers with, or keeps, headers or bodies of a request. Provider is
// an http.Handler and safe for concurrent use.
type Provider struct {
	cfg    ProviderConfig
	ledger *Ledger
	quota  *quota
	late   *lateness
	gate   gate
	seen   atomic.Uint64 // requests so far: the stream of random numbers each draws from
}

// NewProvider returns a provider, or what is wrong with cfg.
func NewProvider(cfg ProviderConfig) (*Provider, error) {
	if cfg.Tokens == (Dist{}) {
		cfg.Tokens = Constant(16)
	}
	q, err := newQuota(cfg.Quota)
	if err != nil {
		return nil, err
	}
	for _, f := range cfg.Faults {
		if err := f.validate(); err != nil {
			return nil, err
		}
	}
	if err := cfg.Late.validate(); err != nil {
		return nil, err
	}
	return &Provider{cfg: cfg, ledger: NewLedger(cfg.Window), quota: q, late: &lateness{LateRule: cfg.Late}}, nil
}

// Ledger is what the provider has seen.
func (p *Provider) Ledger() *Ledger { return p.ledger }

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /ledger":
		writeJSON(w, http.StatusOK, p.ledger.Snapshot())
	case "POST /ledger/reset":
		p.ledger.Reset()
		w.WriteHeader(http.StatusNoContent)
	default:
		p.serve(w, r)
	}
}

// exchange is one request on its way through the provider.
type exchange struct {
	*Provider
	w       http.ResponseWriter
	r       *http.Request
	arrived time.Time
	rng     *rand.Rand
	in      input
	call    *Call
	fault   Fault           // "" for none
	held    <-chan struct{} // closed when it may be answered; nil: nothing holds it
	tokens  int64           // of the completion
}

// serve answers a request that counts.
func (p *Provider) serve(w http.ResponseWriter, r *http.Request) {
	x := &exchange{
		Provider: p, w: w, r: r, arrived: time.Now(),
		rng: rand.New(rand.NewPCG(p.cfg.Seed, p.seen.Add(1))),
	}
	if status, err := x.read(); err != nil {
		writeError(w, status, "invalid_request_error", "invalid_body", err.Error())
		return
	}
	// Everything is drawn before anything is awaited, in a fixed order.
	latency := x.latency()
	x.tokens = x.completionTokens()
	x.fault = p.chooseFault(r.Header.Get(HeaderFault), x.rng)
	levels := http.Header{}
	wait, unit, left := p.quota.take(x.arrived, levels, x.cost())
	told, held := p.late.spoil(x.arrived, levels, x.rng)
	maps.Copy(w.Header(), told)
	if wait > 0 {
		p.ledger.refuse()
		writeQuotaError(w, wait, unit)
		return
	}
	x.call = p.ledger.start(x.tenant(), x.in.Model, left)
	defer x.call.End(0) // for those that leave early
	if x.spoiledEarly() || !x.sleep(latency+held) || x.spoiledLate() {
		return
	}
	w.Header().Set(HeaderServiceTime, strconv.FormatFloat(float64(time.Since(x.arrived))/1e6, 'f', 3, 64))
	x.answer()
}

// input is what the provider understands of a body.
type input struct {
	Model         string `json:"model"`
	User          string `json:"user"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           int64           `json:"max_tokens"`
	MaxCompletionTokens int64           `json:"max_completion_tokens"`
	Messages            json.RawMessage `json:"messages"`
	Prompt              json.RawMessage `json:"prompt"`
	Input               json.RawMessage `json:"input"`
	Documents           json.RawMessage `json:"documents"`
	Text2               json.RawMessage `json:"text_2"`
	EncodingFormat      string          `json:"encoding_format"`
	Dimensions          int             `json:"dimensions"`

	size int64 // of the body in bytes
}

// read takes in the body. Only the paths of the model API have to be JSON or a form.
func (x *exchange) read() (status int, err error) {
	body := http.MaxBytesReader(x.w, x.r.Body, maxBody)
	kind, params, _ := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	if endpoints[x.r.URL.Path] != nil && kind == "multipart/form-data" {
		err = x.readForm(body, params["boundary"])
	} else if endpoints[x.r.URL.Path] == nil {
		x.in.size, err = io.Copy(io.Discard, body)
	} else {
		var data []byte
		if data, err = io.ReadAll(body); err == nil {
			x.in.size, err = int64(len(data)), json.Unmarshal(data, &x.in)
		}
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return http.StatusRequestEntityTooLarge, fmt.Errorf("body is larger than %d bytes", int64(maxBody))
	}
	if err != nil {
		return http.StatusBadRequest, errors.New("body is not the JSON object that this path takes")
	}
	return 0, nil
}

func (x *exchange) tenant() string {
	name := cmp.Or(x.r.Header.Get(HeaderTenant), x.in.User)
	return name[:min(len(name), maxTenantName)]
}

func (x *exchange) latency() time.Duration {
	d := x.cfg.Latency.Duration(x.rng)
	if x.r.Header.Get(HeaderLatency) == LatencyHeld {
		x.held = x.holding()
	}
	if asked, err := time.ParseDuration(x.r.Header.Get(HeaderLatency)); err == nil {
		d = min(max(asked, 0), maxLatency)
	}
	return d
}

func (x *exchange) completionTokens() int64 {
	n := min(max(int64(x.cfg.Tokens.Sample(x.rng)), 1), maxTokens)
	if bound := cmp.Or(x.in.MaxCompletionTokens, x.in.MaxTokens); bound > 0 {
		n = min(n, bound)
	}
	return n
}

// promptTokens takes four bytes for a token, as is usual for English.
func (x *exchange) promptTokens() int64 {
	bytes := len(x.in.Messages) + len(x.in.Prompt) + len(x.in.Input)
	return max(int64(bytes+3)/4, 1)
}

// cost is the tokens of the whole exchange, 1 where there are none.
func (x *exchange) cost() int64 {
	switch x.r.URL.Path {
	case "/v1/chat/completions", "/v1/completions", pathResponses, pathMessages:
		return x.promptTokens() + x.tokens
	case "/v1/embeddings":
		return x.promptTokens()
	}
	return 1
}

// sleep waits d, or less if the client leaves; then it is false.
func (x *exchange) sleep(d time.Duration) bool {
	if x.held != nil {
		select {
		case <-x.held:
		case <-x.r.Context().Done():
			return false
		}
	}
	if d <= 0 {
		return x.r.Context().Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.r.Context().Done():
		return false
	}
}

// endpoints are the paths that take and give JSON of the model API.
var endpoints = map[string]func(*exchange){
	"/v1/chat/completions": (*exchange).complete,
	"/v1/completions":      (*exchange).complete,
	"/v1/embeddings":       (*exchange).embed,
	pathResponses:          (*exchange).respond,
	pathMessages:           (*exchange).converse,
	"/v1/rerank":           (*exchange).rank,
	"/v1/score":            (*exchange).rank,
	pathSpeech:             (*exchange).speak,

	"/v1/audio/transcriptions": (*exchange).transcribe,
	"/v1/audio/translations":   (*exchange).transcribe,
}

func (x *exchange) answer() {
	if serve := endpoints[x.r.URL.Path]; serve != nil {
		serve(x)
		return
	}
	if name, ok := strings.CutPrefix(x.r.URL.Path, "/v1/models"); ok && x.r.Method == http.MethodGet {
		x.models(strings.TrimPrefix(name, "/"))
		return
	}
	x.finish(map[string]any{
		"method": x.r.Method, "path": x.r.URL.Path, "received_bytes": x.in.size,
		"padding": strings.Repeat("x", int(x.cfg.Padding.Sample(x.rng))),
	})
}

// finish ends the call and then writes body, the whole answer.
func (x *exchange) finish(body any) {
	data, err := json.Marshal(body)
	if err != nil {
		panic(fmt.Sprintf("bench: answer of %s: %v", x.r.URL.Path, err)) // only plain structs get here
	}
	x.call.End(x.cost())
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if x.fault == FaultCut {
		x.w.Write(data[:len(data)/2])
		x.abort()
	}
	x.w.Write(data)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) // the client may be gone: nobody to tell
}

// writeError answers in the error shape of the model API.
func writeError(w http.ResponseWriter, status int, kind, code, message string) {
	writeJSON(w, status, map[string]any{"error": map[string]any{
		"message": message, "type": kind, "param": nil, "code": code,
	}})
}
