package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// exchange is one request and its answer on the way through the gateway. It
// remembers what was sent, so that nothing is answered twice. It is used by
// the request's goroutine alone.
type exchange struct {
	http.ResponseWriter
	*tables  // of the configuration that it began with
	request  *http.Request
	id       string
	start    time.Time
	deadline time.Time // the total timeout
	place    place
	upstream string // its name, empty before routing
	status   int    // 0: nothing sent yet

	caller   caller // once it is identified and its model known
	patience patience
	waited   time.Duration // for slots of agents, and for limits of later steps, so far
	inner    bool          // a step of a turn: our own work, not a caller's
	later    bool          // and not the first: to refuse it would waste what was done

	recent *recent            // where refusals are kept; nil: nowhere
	asked  limiter.Identities // that admission was asked for; zero before
}

// WriteHeader implements http.ResponseWriter. Informational statuses (1xx) do
// not begin the answer.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 && status >= http.StatusOK {
		x.status = status
	}
	x.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	return x.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// fail answers with an error of our own. Nothing must have been sent yet.
func (x *exchange) fail(f failure) {
	x.remember(f)
	f.write(x, x.request)
}

// errTotal is the cause of a request's end when its total timeout has passed.
var errTotal = errors.New("gateway: the request's total timeout has passed")

// lastWords is how long after the total timeout an answer may still take to
// reach the client.
const lastWords = 5 * time.Second

// lastRead is how long after it a body may still come in: less, so that there
// is time to say that it did not.
const lastRead = time.Second

// observe wraps a handler with what holds for every request: an id, a total
// timeout, a place among the requests served at once, metrics, and an answer
// even when the handler panics.
func (g *Gateway) observe(next func(*exchange, *http.Request)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := time.Now()
		t := g.tables.Load()
		x := &exchange{ResponseWriter: w, tables: t, request: r, id: requestID(r.Header), recent: &g.recent, start: now, deadline: now.Add(t.cfg.Server.Timeouts.Total)}
		x.Header().Set("x-request-id", x.id)
		if g.draining.Load() {
			x.Header().Set("Connection", "close") // move to a replica that stays
		}
		defer g.finish(x)
		if !g.enter(t) {
			g.metrics.decide("overloaded", noLimit)
			x.fail(overloaded)
			return
		}
		defer g.running.Add(-1)
		ctx, cancel := context.WithDeadlineCause(r.Context(), x.deadline, errTotal)
		defer cancel()
		// Reads and writes ignore contexts: bound them too. Where the
		// connection cannot (tests), the context has to do.
		conn := http.NewResponseController(w)
		_ = conn.SetReadDeadline(x.deadline.Add(lastRead))
		_ = conn.SetWriteDeadline(x.deadline.Add(lastWords))
		next(x, r.WithContext(ctx))
	})
}

// finish counts a request and catches its panic. http.ErrAbortHandler is the
// way to cut a connection and passes on; anything else is a bug, answered with
// 500, or by cutting the connection when the answer has begun.
func (g *Gateway) finish(x *exchange) {
	p := recover()
	if p != nil && p != http.ErrAbortHandler {
		g.log.Error("gateway: a handler panicked", "request", x.id, "panic", p, "stack", string(debug.Stack()))
		g.metrics.panics.Inc()
		if x.status == 0 {
			p = nil
			x.fail(internalError)
		} else {
			p = http.ErrAbortHandler
		}
	}
	g.metrics.observe(x.upstream, x.status, time.Since(x.start))
	if p != nil {
		panic(p)
	}
}

// maxRequestID bounds the ids that callers may bring along.
const maxRequestID = 128

// requestID returns the caller's id if it is harmless, else a new one of 128
// random bits.
func requestID(h http.Header) string {
	id := h.Get("X-Request-Id")
	const safe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	if id != "" && len(id) <= maxRequestID && strings.Trim(id, safe) == "" {
		return id
	}
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
