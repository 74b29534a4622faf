package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/pace"
	"github.com/headway-limiter/headway/limiter/quota"
	"github.com/headway-limiter/headway/limiter/throttle"
)

// tour is one request's way along its candidates.
type tour struct {
	rest      []*upstream      // still to be tried
	begun     bool             // one was asked
	unreached *failure         // of the last that could not be
	throttled *limiter.Refusal // of the provider that can be asked first
	kept      *kept            // the latest refusal by a provider; nil: there was none
	moves     int              // refusals by providers that it went on from

	// Of batch work, which waits where it can be asked first.
	best  *upstream
	after time.Duration // when, as far as known
	waits bool          // it waits there; before, it only asks around
}

const (
	// maxMoves is how many refusals of providers one request goes on from. Each has
	// cost a call.
	maxMoves = 4
	// maxBatchMoves is the same of batch work, which goes back into line: the pause
	// that follows a refusal keeps it from asking on.
	maxBatchMoves = 32
)

// asksAround reports whether x would rather try the next than wait for this one.
func (t *tour) asksAround(x *exchange, j job) bool { return !t.waits && len(j.candidates) > 1 }

// movable reports whether a refusal by up is not the end.
func (t *tour) movable(x *exchange, up *upstream, j job) bool {
	switch {
	case j.body.stream != nil: // it is spent
		return false
	case x.patience.batch && up.Throttle.Enabled:
		return t.moves < maxBatchMoves
	}
	return len(t.rest) > 0 && t.moves < maxMoves
}

// heldUp notes that up cannot be asked yet, as err of ask says. final means that no
// other candidate is to be tried.
func (t *tour) heldUp(g *Gateway, grant *limiter.Grant, up *upstream, err error) (final bool) {
	var refused *pace.Refused
	if errors.As(err, &refused) && (t.best == nil || refused.Wait < t.after) && refused.Why != throttle.WhyStopped {
		t.best, t.after = up, refused.Wait
	}
	t.throttled, final = g.throttled(grant, t.throttled, err)
	return final
}

// turnedAway notes a provider's refusal. Batch work with nowhere else to go waits
// until the provider takes it, if time is all that it needs.
func (t *tour) turnedAway(x *exchange, up *upstream, k *kept) {
	t.kept, t.unreached = k, nil
	t.moves++
	if x.patience.batch && len(t.rest) == 0 && up.Throttle.Enabled && (k.class == quota.ClassQuota || k.class == quota.ClassOverload) {
		t.rest, t.waits = []*upstream{up}, true
	}
}

// settles reports whether batch work that has asked everywhere waits now, and where.
func (t *tour) settles(x *exchange) bool {
	if !x.patience.batch || t.waits || t.best == nil {
		return false
	}
	t.rest, t.waits = []*upstream{t.best}, true
	return true
}

// ends answers a request that no candidate takes, for the reason err. chosen says
// that one would have, but for its provider.
func (t *tour) ends(g *Gateway, x *exchange, r *http.Request, j job, end *ending, err error, chosen bool) {
	switch {
	case t.kept != nil && r.Context().Err() == nil && !errors.Is(err, pace.ErrDraining):
		g.passOn(x, r, t.kept, j, end)
	case t.unreached != nil && !chosen: // the others are not all exhausted: one is down
		end.outcome.Failed = true
		x.fail(*t.unreached)
	default:
		end.outcome.Void = true
		g.decline(x, r.Context(), sooner(t.throttled, err))
	}
}

// kept is a provider's refusal, held back while another candidate is tried.
type kept struct {
	resp  *http.Response // its body is in memory
	up    *upstream
	class quota.Class
}

// keep returns resp, the answer of up, as a refusal to be kept; nil: it is something
// else, and still whole. An error of more than maxOverheard bytes is not held.
func keep(resp *http.Response, up *upstream) *kept {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusPaymentRequired, 529:
	case http.StatusBadRequest, http.StatusForbidden, http.StatusServiceUnavailable:
		if up.Kind != config.KindOpenAI { // what that means elsewhere nobody knows
			return nil
		}
	default:
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxOverheard+1))
	if err != nil || len(body) > maxOverheard {
		resp.Body = replay{io.MultiReader(bytes.NewReader(body), failing{err}, resp.Body), resp.Body}
		return nil
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	switch class := quota.Classify(resp.StatusCode, resp.Header, body); class {
	case quota.ClassQuota, quota.ClassDaily, quota.ClassTerminal, quota.ClassOverload:
		return &kept{resp, up, class}
	}
	return nil
}

// replay is a body of which a part was read already.
type replay struct {
	io.Reader
	io.Closer
}

// failing is a reader that fails, or ends where there is no error.
type failing struct{ error }

func (f failing) Read([]byte) (int, error) {
	if f.error == nil {
		return 0, io.EOF
	}
	return 0, f.error
}

// passOn answers with a refusal that was kept, because nobody else takes the request.
func (g *Gateway) passOn(x *exchange, r *http.Request, k *kept, j job, end *ending) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	dog := watch(cancel, k.up.Timeouts)
	defer dog.hold()
	dog.answered()
	x.upstream, end.outcome.Failed = k.up.Name, true
	g.respond(ctx, x, k.resp, k.up, dog, end, j.tokens)
}
