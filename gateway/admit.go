package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headway-limiter/headway/gateway/agents"
	"github.com/headway-limiter/headway/limiter"
)

// serve answers one request: where it stands, who asks, for what, at which cost; may it start;
// pass it on; settle.
func (g *Gateway) serve(x *exchange, r *http.Request) {
	if g.serveWorkspaces(x, r) {
		return
	}
	outer := r.URL.Path
	r, wrong := x.locate(r)
	if wrong != nil {
		x.fail(*wrong)
		return
	}
	if g.opts.Files != nil && g.opts.Files.Serves(x.place.path) {
		g.serveFiles(x, r, outer)
		return
	}
	if g.serveOwn(x, r) {
		return
	}
	rt, wrong := x.route(r)
	if wrong != nil {
		x.fail(*wrong)
		return
	}
	if x.place.direct != "" {
		if rt = rt.directly(x.place.direct); rt == nil {
			x.fail(unknownURL(x.request))
			return
		}
	}
	x.upstream = rt.candidates[0].Name // until one is selected
	who, ok := g.known(x, r)
	if !ok {
		return
	}
	job, wrong := g.estimate(x, r, rt)
	if wrong != nil {
		x.fail(*wrong)
		return
	}
	// The model comes from the body, so it is known only now; everything is
	// charged in one call, the limits before authentication included.
	who.Model = limiter.Hash(limiter.Model, job.model)
	x.patience = x.patienceOf(r.Header, who)
	grant := g.admit(x, r.Context(), x.admission(who, job.tokens))
	if grant == nil {
		return
	}
	// Whatever happens from here on, a panic included, ends in Done: before the
	// last bytes of an answer, or else here, where net/http has not yet sent
	// what it held back of a short answer and the end of a chunked one.
	end := &ending{grant: grant, outcome: limiter.Outcome{Tokens: unknownTokens}}
	defer end.now()
	g.dispatch(x, r, grant, job, end)
}

// known finds out who asks, and whether they may do so here. False means that the
// request was answered already.
func (g *Gateway) known(x *exchange, r *http.Request) (who caller, ok bool) {
	who, wrong := x.identify(r)
	if wrong != nil {
		x.fail(*wrong)
		return who, false
	}
	if who.standing == unknown || who.standing == anonymous && x.place.scoped {
		g.deny(x, r, who)
		return who, false
	}
	if wrong := x.enter(who); wrong != nil {
		x.fail(*wrong)
		return who, false
	}
	x.caller = who
	return who, true
}

// ending ends a request's grant exactly once, and the slot of its agent. A client
// that has the whole answer may ask again at once, so the slots must be free by then.
// It is used by the request's goroutine alone.
type ending struct {
	grant   *limiter.Grant
	outcome limiter.Outcome // settled by now; later changes do not count
	usage   usage           // what the answer told, if it came to its end
	over    bool

	slot  *agents.Slot // of an agent; nil: none is held
	heard bool         // the agent was asked, and how that ended says how it is
	sick  bool         // it failed
}

func (e *ending) now() {
	if !e.over {
		e.over = true
		e.release()
		e.grant.Done(e.outcome)
	}
}

// release frees the slot of the agent, if there is one.
func (e *ending) release() {
	switch {
	case e.slot == nil:
	case e.heard:
		e.slot.Free(e.sick)
	default:
		e.slot.Cancel()
	}
	e.slot, e.heard, e.sick = nil, false, false
}

// unknownTokens leaves a request's estimate as it was.
const unknownTokens = -1

// admit asks the limiter, which may hold the request for a while. Nil means
// that the request was answered already.
func (g *Gateway) admit(x *exchange, ctx context.Context, request limiter.Request) *limiter.Grant {
	x.asked = request.Identities
	grant, err := g.limiter.Admit(ctx, request)
	for err != nil && x.later && x.outlasts(ctx, err) {
		grant, err = g.limiter.Admit(ctx, request)
	}
	if err != nil {
		g.decline(x, ctx, err)
		return nil
	}
	return grant
}

// decline answers a request that the limiter did not let start.
func (g *Gateway) decline(x *exchange, ctx context.Context, err error) {
	var refusal *limiter.Refusal
	var saturated *agents.Saturated
	switch {
	case errors.As(err, &saturated):
		g.metrics.decide("saturated", noLimit)
		g.saturated(x, saturated)
	case errors.Is(err, agents.ErrDraining):
		g.metrics.decide("refused", noLimit)
		x.fail(leaving)
	case errors.As(err, &refusal):
		g.metrics.decide("refused", refusal.LimitType())
		g.refuse(x, refusal)
	case errors.Is(err, limiter.ErrUnavailable):
		g.metrics.decide("unavailable", noLimit)
		x.fail(limiterUnavailable)
	case errors.Is(context.Cause(ctx), errTotal):
		g.metrics.decide("gone", noLimit)
		x.fail(outOfTime)
	case ctx.Err() != nil:
		// The client is gone, or this process ends: nobody may be listening.
		g.metrics.decide("gone", noLimit)
		x.fail(canceled)
	default:
		g.log.Error("gateway: admission failed", "request", x.id, "error", err)
		g.metrics.decide("failed", noLimit)
		x.fail(internalError)
	}
}

// deny answers a request without a valid key: 401, unless the limits before
// authentication refuse it first. Guessing keys is so limited like any use. The
// body is not read, and the slot of the client is held just as long as it takes
// to say no.
func (g *Gateway) deny(x *exchange, r *http.Request, who caller) {
	grant := g.admit(x, r.Context(), limiter.Request{Identities: who.Identities, Deadline: x.latest(), Anonymous: true, Skip: who.skip})
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
	setHeld(h, grant.Held())
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
