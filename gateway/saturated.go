package gateway

import (
	"net/http"
	"time"

	"github.com/headway-limiter/headway/gateway/agents"
	"github.com/headway-limiter/headway/limiter"
)

// retryStrategy tells programs how to come back to agents that were saturated: not all
// at once, and more slowly each time.
type retryStrategy struct {
	Type           string  `json:"type"` // always exponential_backoff
	InitialDelayMS int64   `json:"initial_delay_ms"`
	MaxDelayMS     int64   `json:"max_delay_ms"`
	Multiplier     float64 `json:"multiplier"`
	Jitter         float64 `json:"jitter"` // part by which each delay varies
}

// Parts of every retryStrategy. Its longest delay is what official SDKs wait for.
const (
	retryMultiplier = 2
	retryJitter     = 0.25
	retryMost       = time.Minute
)

// leaving turns away those who would have to wait for a slot here.
var leaving = failure{status: http.StatusServiceUnavailable, kind: kindServer, code: "draining",
	message: "This replica is shutting down. Retry to reach another.", retry: retryUnavailable}

// saturated answers a request for which no agent had a slot. 429 is for one that was
// shed because it may not wait; 503 for one that we would have served later, but could
// not, and where no agent is well, as an overloaded backend would answer itself.
func (g *Gateway) saturated(x *exchange, s *agents.Saturated) {
	f := failure{status: http.StatusServiceUnavailable, kind: kindServer, code: string(s.Reason)}
	switch {
	case s.Down:
		f.message = "No agent that can serve this request is well. Retry later."
	case s.Reason == agents.ReasonQueueTimeout:
		f.message = "All agents are busy, and the request waited as long as it may."
	case s.Reason == limiter.ReasonQueueFull:
		f.message = "All agents are busy, and too many requests are waiting."
	default:
		f.status, f.kind = http.StatusTooManyRequests, kindLimit
		f.message = "All agents that can serve this request are busy."
	}
	secs, ms := g.spread.wait(s.RetryAfter)
	f.retryAfter = secs
	if s.Reason == agents.ReasonCapacity {
		f.strategy = &retryStrategy{
			Type: "exponential_backoff", InitialDelayMS: ms, MaxDelayMS: max(ms, retryMost.Milliseconds()),
			Multiplier: retryMultiplier, Jitter: retryJitter,
		}
	}
	f.details = &details{Reason: f.code, RetryAfterMS: ms}
	setRetry(x.Header(), secs, ms)
	x.fail(f)
}
