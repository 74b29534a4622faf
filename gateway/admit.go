package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// serve answers one request: who asks, for what, at which cost; may it start;
// pass it on; settle.
func (g *Gateway) serve(x *exchange, r *http.Request) {
	up, ok := x.route(r)
	if !ok {
		x.fail(unknownURL(r))
		return
	}
	x.upstream = up.Name
	ids, who := x.identify(r)
	if who == unknown {
		g.deny(x, r, ids)
		return
	}
	job, wrong := g.estimate(x, r, up)
	if wrong != nil {
		x.fail(*wrong)
		return
	}
	// The model comes from the body, so it is known only now; everything is
	// charged in one call, the limits before authentication included.
	ids.Model = limiter.Hash(limiter.Model, job.model)
	grant := g.admit(x, r.Context(), limiter.Request{
		Identities: ids,
		Tokens:     job.tokens,
		Deadline:   x.deadline,
		Anonymous:  who == anonymous,
	})
	if grant == nil {
		return
	}
	// Whatever happens from here on, a panic included, ends in Done: once,
	// and after forward has closed the upstream's body.
	outcome := limiter.Outcome{Tokens: unknownTokens}
	defer func() { grant.Done(outcome) }()
	g.metrics.decide("admitted", noLimit)
	g.describe(x.Header(), grant)
	g.forward(x, r, up, job, &outcome)
}

// unknownTokens leaves a request's estimate as it was.
const unknownTokens = -1

// admit asks the limiter, which may hold the request for a while. Nil means
// that the request was answered already.
func (g *Gateway) admit(x *exchange, ctx context.Context, request limiter.Request) *limiter.Grant {
	grant, err := g.limiter.Admit(ctx, request)
	var refusal *limiter.Refusal
	switch {
	case err == nil:
		return grant
	case errors.As(err, &refusal):
		g.metrics.decide("refused", refusal.LimitType())
		g.refuse(x, refusal)
	case errors.Is(err, limiter.ErrUnavailable):
		g.metrics.decide("unavailable", noLimit)
		x.fail(limiterUnavailable)
	case ctx.Err() != nil:
		// The client is gone, or this process ends: nobody may be listening.
		g.metrics.decide("gone", noLimit)
		x.fail(canceled)
	default:
		g.log.Error("gateway: admission failed", "request", x.id, "error", err)
		g.metrics.decide("failed", noLimit)
		x.fail(internalError)
	}
	return nil
}

// deny answers a request without a valid key: 401, unless the limits before
// authentication refuse it first. Guessing keys is so limited like any use. The
// body is not read, and the slot of the client is held just as long as it takes
// to say no.
func (g *Gateway) deny(x *exchange, r *http.Request, ids limiter.Identities) {
	grant := g.admit(x, r.Context(), limiter.Request{Identities: ids, Deadline: x.deadline, Anonymous: true})
	if grant == nil {
		return
	}
	defer grant.Done(limiter.Outcome{Tokens: unknownTokens})
	g.metrics.decide("unauthenticated", noLimit)
	x.Header().Set("WWW-Authenticate", "Bearer")
	f := invalidKey
	if !presentsKey(r.Header) {
		f = missingKey
	}
	x.fail(f)
}

// describe puts what a caller may know about its admission into its headers.
// They are set before the upstream is called and stay on whatever answer
// follows, a 502 included: the wait and the charge have happened.
func (g *Gateway) describe(h http.Header, grant *limiter.Grant) {
	setLevels(h, grant.Levels(), 0)
	if line := grant.Line(); line != nil {
		setLine(h, line)
		h.Set("x-fair-queue-estimated-wait-ms", milliseconds(line.Estimated))
	}
	if mode := grant.Degraded(); mode != "" {
		h.Set("x-headway-degraded", mode)
	}
}

// enter takes a place among the requests served at once; false means
// that there is none. Every true is followed by one g.running.Add(-1).
func (g *Gateway) enter(t *tables) bool {
	n := g.running.Add(1)
	if most := t.cfg.Server.MaxConcurrentRequests; most > 0 && n > int64(most) {
		g.running.Add(-1)
		return false
	}
	return true
}

// retryUnavailable is how long to wait for things that mend themselves in an
// unknown time: a store that is out, a full replica.
const retryUnavailable = time.Second
