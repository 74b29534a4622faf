package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/pace"
	"github.com/headway-limiter/headway/limiter/throttle"
)

// dispatch sends a request that was admitted to the first of its candidates that
// has not used up its own limits, whose provider can be asked soon, and that can be
// reached. Of agents that stand in a row among the candidates it is the least loaded
// that has a slot free. Where there is none, either nothing was started, and
// everything is given back, or the request failed like one to a single upstream.
//
// A provider's refusal is no answer yet while there are candidates left: the next one
// is tried, and the latest refusal passed on if there is none. Batch work tries all,
// and then waits for the one that can be asked first.
func (g *Gateway) dispatch(x *exchange, r *http.Request, grant *limiter.Grant, j job, end *ending) {
	for t := (&tour{rest: j.candidates}); ; {
		up, left, err := g.choose(x, r, grant, t.rest, end)
		if err != nil {
			if t.settles(x) {
				continue
			}
			if !t.begun && t.throttled == nil && x.outlasts(r.Context(), err) {
				t.rest = j.candidates
				continue
			}
			t.ends(g, x, r, j, end, err, false)
			return
		}
		x.upstream, t.rest = up.Name, left
		run, err := g.ask(x, r, up, j, t.asksAround(x, j))
		if err != nil {
			end.release()
			if t.heldUp(g, grant, up, err) {
				t.ends(g, x, r, j, end, err, true)
				return
			}
			g.metrics.passOver(up.Name, "throttled")
			continue
		}
		if !t.begun {
			t.begun = true
			g.metrics.decide("admitted", noLimit)
			g.describe(x.Header(), grant)
			Started(r.Context())
		}
		refusal, unreached := g.forward(x, r, up, j, run, end, t.movable(x, up, j))
		switch {
		case refusal != nil:
			t.turnedAway(x, up, refusal)
			g.metrics.passOver(up.Name, "refused")
		case unreached != nil:
			t.unreached = unreached
			g.metrics.passOver(up.Name, "unreachable")
		default:
			return
		}
		end.release()
		if len(t.rest) == 0 && unreached != nil && t.kept == nil {
			grant.Deselect()
			x.fail(*unreached)
			return
		}
	}
}

// choose returns the first candidate that has room, and those left to be tried after
// it. If it is an agent, end has a slot of it; it is worth to wait for one where only
// agents are left.
func (g *Gateway) choose(x *exchange, r *http.Request, grant *limiter.Grant, rest []*upstream, end *ending) (up *upstream, left []*upstream, err error) {
	if len(rest) == 0 {
		_, err = grant.Select(r.Context(), nil)
	}
	for len(rest) > 0 {
		run := alike(rest)
		var i int
		if run[0].IsAgent() {
			queue := len(run) == len(rest) && g.queues(r.Context(), x)
			up, err = g.chooseAgent(x, r, grant, run, queue, end)
		} else if i, err = grant.Select(r.Context(), backends(run)); err == nil {
			up = run[i]
		}
		for _, exhausted := range run[:i] {
			g.metrics.passOver(exhausted.Name, "exhausted")
		}
		if err == nil {
			return up, without(rest[i:], up), nil
		}
		if r.Context().Err() != nil || errors.Is(err, limiter.ErrUnavailable) {
			return nil, nil, err
		}
		rest = rest[len(run):]
	}
	return nil, nil, err
}

// chooseAgent returns the first agent that has a slot free, which end has then, and
// room by its own limits.
func (g *Gateway) chooseAgent(x *exchange, r *http.Request, grant *limiter.Grant, run []*upstream, queue bool, end *ending) (up *upstream, err error) {
	for len(run) > 0 {
		if end.slot, up, err = g.slot(r.Context(), x, run, queue); err != nil {
			return nil, err
		}
		if _, err = grant.Select(r.Context(), []limiter.ID{up.id}); err == nil {
			return up, nil
		}
		end.release()
		g.metrics.passOver(up.Name, "exhausted")
		run = without(run, up)
	}
	return nil, err
}

// backends are the identities of upstreams.
func backends(ups []*upstream) []limiter.ID {
	ids := make([]limiter.ID, len(ups))
	for i, up := range ups {
		ids[i] = up.id
	}
	return ids
}

// forward passes the request on to up and its answer back, and leaves in end
// how it ended. A failure is returned, and nothing is answered, where up could
// not be reached: nothing of the request was sent, so that another may have it. So is
// a refusal of up's provider, if the request may move on from that.
// When forward returns, or panics with http.ErrAbortHandler to cut a broken
// answer short, the upstream's body is closed.
func (g *Gateway) forward(x *exchange, r *http.Request, up *upstream, j job, run *pace.Run, end *ending, movable bool) (*kept, *failure) {
	defer run.Failed() // unless it was answered
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	dog := watch(cancel, up.Timeouts)
	defer dog.hold()

	var link reach
	out := outbound(link.trace(ctx), x, r, up, j.body, dog)
	if j.body.stream != nil {
		// A transport waits for what it reads before it gives up.
		defer context.AfterFunc(ctx, func() { out.Body.Close() })()
		defer out.Body.Close()
	}
	resp, err := up.transport.RoundTrip(out)
	if err != nil {
		f, provider := broken(x.causeOf(ctx, up, dog), err, j.body.most)
		if j.body.stream != nil {
			out.Body.Close() // before it is answered
		}
		end.outcome.Failed = provider
		end.heard, end.sick = provider, provider
		level := slog.LevelDebug // clients leave all the time
		if provider {
			level = slog.LevelWarn
		}
		g.log.Log(ctx, level, "gateway: upstream call failed", "request", x.id, "upstream", up.Name, "code", f.code, "error", err)
		if provider && context.Cause(ctx) == nil && !link.made(err) {
			return nil, &f
		}
		x.fail(f)
		return nil, nil
	}
	heed(resp, up, run)
	defer resp.Body.Close()
	refused := false
	defer func() {
		if !refused {
			run.Settled(j.used(end.outcome.Tokens))
		}
	}()
	dog.answered()
	end.outcome.Failed = resp.StatusCode >= http.StatusBadRequest
	end.heard, end.sick = true, resp.StatusCode >= http.StatusInternalServerError
	if end.slot != nil && !end.sick {
		end.slot.Answers()
	}
	if movable {
		if k := keep(resp, up); k != nil {
			refused = true
			run.Settled(throttle.Cost{})
			return k, nil
		}
	}
	g.respond(ctx, x, resp, up, dog, end, j.tokens)
	g.learn(j, end.usage)
	return nil, nil
}

// reach watches whether a call gets a connection. Before it has one, nothing of
// its request can have been sent.
type reach struct{ wanted, got atomic.Bool }

// trace returns ctx with the watch in it. The transport tells of every attempt:
// one that follows a connection that turned out to be dead begins anew.
func (l *reach) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { l.wanted.Store(true); l.got.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { l.got.Store(true) },
	})
}

// made reports whether a call that ended in err may have had a connection. Of
// transports that tell nothing, only an error of dialing says no.
func (l *reach) made(err error) bool {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return false
	}
	return l.got.Load() || !l.wanted.Load()
}
