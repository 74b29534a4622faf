package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// Error types, in the words of OpenAI's API: what its SDKs sort by. For callers of
// Anthropic's API they are translated (anthropic.go).
const (
	kindInvalid = "invalid_request_error"
	kindLimit   = "rate_limit_error"
	kindServer  = "server_error"
)

// envelope is the body of every error.
type envelope struct {
	Error errorBody `json:"error"`
}

// errorBody has the fields that OpenAI's SDKs read, in their order, and our own
// details.
type errorBody struct {
	Message string   `json:"message"`
	Type    string   `json:"type"`
	Code    string   `json:"code"`
	Param   *string  `json:"param"` // always null
	Details *details `json:"details,omitempty"`
	// Of saturated agents: the seconds of Retry-After, and how to go on from there.
	RetryAfter    int64          `json:"retry_after,omitempty"`
	RetryStrategy *retryStrategy `json:"retry_strategy,omitempty"`
}

// details tell programs what the message tells people. Optional fields are left
// out rather than null or zero: without a wait line its answers must not change
// by a byte.
type details struct {
	LimitType         string     `json:"limit_type,omitempty"`
	Reason            string     `json:"reason,omitempty"`
	RetryAfterMS      int64      `json:"retry_after_ms,omitempty"` // absent: never
	FairQueue         *fairQueue `json:"fair_queue,omitempty"`     // absent: never near a wait line
	Held              *held      `json:"held,omitempty"`           // absent: it was not to be held
	InflightDimension string     `json:"inflight_dimension,omitempty"`
	Dimension         string     `json:"dimension,omitempty"` // of a token budget
}

// held is for how long a request was held until its limits could cover it.
type held struct {
	WaitedMS int64 `json:"waited_ms"`
}

// fairQueue is what became of a request in the wait line.
type fairQueue struct {
	TenantDimension string `json:"tenant_dimension"`
	Reason          string `json:"reason"`
	Position        int    `json:"position"`
	WaitedMS        int64  `json:"waited_ms"`
}

// failure is one answer that is not the upstream's. It is a value, complete
// before the first byte is sent, so that an answer is never half written.
type failure struct {
	status  int
	kind    string
	code    string
	message string
	retry   time.Duration // > 0: how long to wait; 0: no Retry-After
	details *details
	allow   string // methods that would do, for 405

	retryAfter int64 // s, as in the header; 0: not said in the body
	strategy   *retryStrategy
}

// Failures that need no more words.
var (
	missingKey = failure{status: http.StatusUnauthorized, kind: kindInvalid, code: "invalid_api_key",
		message: "No API key was sent. Put one into the Authorization header: Bearer YOUR_KEY."}
	invalidKey = failure{status: http.StatusUnauthorized, kind: kindInvalid, code: "invalid_api_key",
		message: "The API key is not valid."}
	limiterUnavailable = failure{status: http.StatusServiceUnavailable, kind: kindServer, code: "limiter_unavailable",
		message: "Limits cannot be checked right now. Retry soon.", retry: retryUnavailable}
	overloaded = failure{status: http.StatusServiceUnavailable, kind: kindServer, code: "overloaded",
		message: "This replica serves as many requests as it may. Retry soon.", retry: retryUnavailable}
	canceled = failure{status: http.StatusServiceUnavailable, kind: kindServer, code: "canceled",
		message: "The request was canceled before it started.", retry: retryUnavailable}
	outOfTime = failure{status: http.StatusServiceUnavailable, kind: kindServer, code: "timeout",
		message: "The time that a request may take was over before it started.", retry: retryUnavailable}
	internalError = failure{status: http.StatusInternalServerError, kind: kindServer, code: "internal_error",
		message: "Internal error."}
	unreachable = failure{status: http.StatusBadGateway, kind: kindServer, code: "upstream_unreachable",
		message: "The upstream could not be reached."}
	upstreamTimeout = failure{status: http.StatusGatewayTimeout, kind: kindServer, code: "upstream_timeout",
		message: "The upstream did not answer in time."}
	upstreamBroke = failure{status: http.StatusBadGateway, kind: kindServer, code: "upstream_broke",
		message: "The upstream's answer ended before it was complete."}
	badBody = failure{status: http.StatusBadRequest, kind: kindInvalid, code: "invalid_body",
		message: "The request body could not be read."}
	slowBody = failure{status: http.StatusRequestTimeout, kind: kindInvalid, code: "body_timeout",
		message: "The request body did not arrive in time."}
	encodedBody = failure{status: http.StatusUnsupportedMediaType, kind: kindInvalid, code: "unsupported_encoding",
		message: "Send the request body without Content-Encoding."}
	othersUser = failure{status: http.StatusForbidden, kind: kindInvalid, code: "user_not_allowed",
		message: "The user that the request names belongs to another team."}
	badJSON = failure{status: http.StatusBadRequest, kind: kindInvalid, code: "invalid_json",
		message: "The request body is not a JSON object."}
	badModel = failure{status: http.StatusBadRequest, kind: kindInvalid, code: "invalid_model",
		message: "The field model is not text."}
)

// badName names a member whose case is wrong.
func badName(name string) failure {
	return failure{status: http.StatusBadRequest, kind: kindInvalid, code: "invalid_field",
		message: fmt.Sprintf("The field %q has to be written in lower case.", name)}
}

// bodyTooLarge names the bound: whoever meets it should not have to search.
func bodyTooLarge(most fmt.Stringer) failure {
	return failure{status: http.StatusRequestEntityTooLarge, kind: kindInvalid, code: "body_too_large",
		message: fmt.Sprintf("The request body is larger than %v.", most)}
}

// unknownURL repeats the path as it was matched, decoded.
func unknownURL(r *http.Request) failure {
	return failure{status: http.StatusNotFound, kind: kindInvalid, code: "unknown_url",
		message: fmt.Sprintf("Unknown URL: %s %s.", shorten(r.Method), shorten(r.URL.Path))}
}

// wrongMethod lists what the path does take, as RFC 9110 §15.5.6 demands.
func wrongMethod(r *http.Request, allowed []string) failure {
	return failure{status: http.StatusMethodNotAllowed, kind: kindInvalid, code: "method_not_allowed", allow: strings.Join(allowed, ", "),
		message: fmt.Sprintf("%s does not take %s.", shorten(r.URL.Path), shorten(r.Method))}
}

// badUser complains of a user header that names nobody in particular.
func badUser(header string) failure {
	return failure{status: http.StatusBadRequest, kind: kindInvalid, code: "invalid_user",
		message: fmt.Sprintf("The header %s has to name one user in at most %d bytes.", header, maxUser)}
}

// unknownModel uses the code that OpenAI uses.
func unknownModel(model string) failure {
	return failure{status: http.StatusNotFound, kind: kindInvalid, code: "model_not_found",
		message: fmt.Sprintf("The model %q does not exist here.", shorten(model))}
}

// shorten bounds what an answer repeats of its request.
func shorten(text string) string {
	const most = 100
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}

// content is the error itself, in OpenAI's words.
func (f failure) content() errorBody {
	return errorBody{Message: f.message, Type: f.kind, Code: f.code, Details: f.details, RetryAfter: f.retryAfter, RetryStrategy: f.strategy}
}

// body is the failure as JSON, one line, in the shape that r's caller reads. id
// is that of the request.
func (f failure) body(r *http.Request, id string) []byte {
	var body any = envelope{f.content()}
	if speaksAnthropic(r) {
		body = anthropicErrorOf(f, id)
	}
	out, err := json.Marshal(body)
	if err != nil {
		panic(err) // plain structs of text and numbers
	}
	return append(out, '\n')
}

// write sends the failure. Headers that were set before stay, except those
// that describe another body.
func (f failure) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	body := f.body(r, h.Get("X-Request-Id"))
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if f.allow != "" {
		h.Set("Allow", f.allow)
	}
	if f.retry > 0 && h.Get("Retry-After") == "" {
		setRetry(h, seconds(f.retry), f.retry.Milliseconds())
	}
	w.WriteHeader(f.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that left cannot be told
	}
}

// refuse answers a refusal of the limiter: 429 for the caller's own limit, 503
// when it is this replica that is leaving. A request that can never pass gets no Retry-After and is marked for
// SDKs not to retry.
func (g *Gateway) refuse(x *exchange, r *limiter.Refusal) {
	f := failure{status: http.StatusTooManyRequests, kind: kindLimit, code: "rate_limited", message: explain(r)}
	if r.Reason == limiter.ReasonDraining {
		f.status, f.kind, f.code = http.StatusServiceUnavailable, kindServer, "draining"
	} else {
		g.metrics.exceeded.WithLabelValues(r.LimitType()).Inc()
	}
	// Only what is true of this refusal is said; see details.
	h, d := x.Header(), &details{LimitType: r.LimitType(), Reason: string(r.Reason)}
	f.details = d
	if r.Degraded != "" {
		h.Set("x-headway-degraded", r.Degraded)
	}
	var secs int64
	if r.RetryAfter == limiter.Never {
		h.Set("x-should-retry", "false")
	} else {
		secs, d.RetryAfterMS = g.spread.wait(r.RetryAfter)
		setRetry(h, secs, d.RetryAfterMS)
	}
	switch r.Class {
	case limiter.Tokens:
		d.Dimension = string(r.Dimension)
	case limiter.InFlight:
		d.InflightDimension = string(r.Dimension)
	}
	if line := r.Line; line != nil {
		setLine(h, line)
		d.FairQueue = &fairQueue{
			TenantDimension: string(line.TenantDimension),
			Reason:          string(r.Reason),
			Position:        line.Position,
			WaitedMS:        line.Waited.Milliseconds(),
		}
	}
	if r.Held != nil {
		setHeld(h, r.Held)
		d.Held = &held{r.Held.Waited.Milliseconds()}
	}
	setLevels(h, r.Levels, secs)
	x.fail(f)
}

// wait turns a refusal's wait into milliseconds, rounded up, and whole seconds,
// which are those rounded up, so that both name one instant. It is spread by up
// to a tenth, so that callers refused together do not return together. Below
// spreadSeconds it stays within the second that it began in: one more in the
// header would be more than a tenth.
func (j jitter) wait(d time.Duration) (secs, ms int64) {
	const spreadSeconds = 10
	ms = max(int64((d+time.Millisecond-1)/time.Millisecond), 1)
	spread := ms + j(ms)
	if secs = (ms + 999) / 1000; secs < spreadSeconds {
		return secs, min(spread, 1000*secs)
	}
	return (spread + 999) / 1000, spread
}

// explanations say in words what a reason means; %s is the limit.
var explanations = map[limiter.Reason]string{
	limiter.ReasonRequests:          "Too many requests for the %s limit.",
	limiter.ReasonTokens:            "The token budget of the %s limit cannot cover this request now.",
	limiter.ReasonInFlight:          "Too many requests of this %s are running.",
	limiter.ReasonExceedsBurst:      "This request is larger than the %s limit can ever allow.",
	limiter.ReasonBlocked:           "The %s limit allows no requests.",
	limiter.ReasonProviderPaused:    "The provider refuses requests of this %s for now.",
	limiter.ReasonProviderQuota:     "Too little is left of the provider's quota of this %s.",
	limiter.ReasonProviderStopped:   "The provider has stopped the account of this %s.",
	limiter.ReasonQueueFull:         "Too many requests for the %s limit, and too many are waiting.",
	limiter.ReasonTenantQueueFull:   "Too many requests for the %s limit, and too many of yours are waiting.",
	limiter.ReasonTenantTableFull:   "Too many requests for the %s limit, and too many others are waiting.",
	limiter.ReasonWaitExceedsBudget: "Too many requests for the %s limit, and the wait is longer than a request may wait.",
	limiter.ReasonDeadlineExceeded:  "Too many requests for the %s limit; the request waited as long as it may.",
	limiter.ReasonDraining:          "This replica is shutting down. Retry to reach another.",
}

// heldBack are the same of requests that were held, or not because of a bound.
var heldBack = map[limiter.Reason]string{
	limiter.ReasonQueueFull:         "The %s limit cannot cover this request now, and too many are waiting.",
	limiter.ReasonWaitExceedsBudget: "The %s limit cannot cover this request before it has waited as long as it may.",
	limiter.ReasonDeadlineExceeded:  "The %s limit could not cover this request; it waited as long as it may.",
}

// explain is the message of a refusal.
func explain(r *limiter.Refusal) string {
	text := explanations[r.Reason]
	if held := heldBack[r.Reason]; held != "" && (r.Held != nil || r.Dimension == limiter.Backend) {
		text = held
	}
	if r.Reason == limiter.ReasonDraining {
		return text
	}
	return fmt.Sprintf(text, r.Dimension)
}
