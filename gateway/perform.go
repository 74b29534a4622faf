package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/headway-limiter/headway/limiter"
)

// Owner is on whose behalf files are kept and jobs run. It holds nothing that a
// store must not see.
type Owner struct {
	Tenant limiter.ID // who sees its files and batches, and shares with others
	Weight float64    // its share, > 0
	Key    string     // id of the API key, as configured
	User   limiter.ID // whom the request named, or the key's own; empty: none
	Place  string     // what the path began with that names a place; empty: nothing
}

// Files is the API of files and batches, which the gateway serves itself.
type Files interface {
	// Serves reports whether a path, without what names a place, is one of its own.
	Serves(path string) bool
	// ServeOwner answers a request of somebody with a valid key.
	ServeOwner(w http.ResponseWriter, r *http.Request, owner Owner)
}

// IsFiles reports whether a path, without what names a place, is one of the API of
// files and batches.
func IsFiles(path string) bool {
	for _, own := range [...]string{"/v1/files", "/v1/batches"} {
		if path == own || strings.HasPrefix(path, own+"/") {
			return true
		}
	}
	return false
}

// serveFiles answers a request about files or batches. It is charged to the limits
// before authentication alone: whoever waits for a budget may still ask for how long.
func (g *Gateway) serveFiles(x *exchange, r *http.Request, outer string) {
	who, wrong := x.identify(r)
	if wrong != nil {
		x.fail(*wrong)
		return
	}
	tenant, ok := g.limiter.Tenant(who.Identities)
	if who.standing != known || !ok {
		g.deny(x, r, who)
		return
	}
	if wrong := x.enter(who); wrong != nil {
		x.fail(*wrong)
		return
	}
	grant := g.admit(x, r.Context(), x.atDoor(who))
	if grant == nil {
		return
	}
	defer grant.Done(limiter.Outcome{Tokens: unknownTokens})
	g.metrics.decide("admitted", noLimit)
	g.opts.Files.ServeOwner(x, r, Owner{
		Tenant: tenant.ID, Weight: tenant.Weight, Key: who.by.id, User: who.User,
		Place: outer[:len(outer)-len(x.place.path)],
	})
}

// Complain answers with an error in the shape of all others. The type follows from
// the status.
func Complain(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	f := failure{status: status, kind: kindInvalid, code: code, message: message}
	switch {
	case status >= http.StatusInternalServerError:
		f.kind, f.retry = kindServer, retryUnavailable
	case status == http.StatusTooManyRequests:
		f.kind = kindLimit
	}
	f.write(w, r)
}

// Performed is the answer to a request that the gateway made of itself.
type Performed struct {
	Status int
	Header http.Header
	Body   []byte
	Tokens int64 // that it cost, as the answer tells; -1: it does not tell
}

// MaxPerformed bounds the body of an answer that is held in memory, in bytes. One
// call about a document carries a little more (see redisstore.Store.Eval).
const MaxPerformed = 3 << 20

// Errors of Perform.
var (
	ErrTooLarge = fmt.Errorf("gateway: the answer is larger than %d bytes", MaxPerformed)
	ErrBroke    = errors.New("gateway: the answer ended before it was complete")
)

// Perform serves r as if owner had sent it, without a connection: limits, throttle,
// agents and metrics hold. The path is that of the gateway's API. Whatever would be
// an answer, refusals included, is one; errors are ErrTooLarge and ErrBroke, after
// which the work may have been done, and ctx.Err(). A key that is configured no more
// is answered 401.
func (g *Gateway) Perform(ctx context.Context, owner Owner, r *http.Request) (Performed, error) {
	m := &memory{header: http.Header{}}
	cut := m.serve(g.performs, r.WithContext(context.WithValue(ctx, ownerKey{}, owner)))
	switch {
	case ctx.Err() != nil:
		return Performed{}, ctx.Err()
	case m.tooLarge:
		return Performed{}, ErrTooLarge
	case cut || m.status == 0:
		return Performed{}, ErrBroke
	}
	out := Performed{Status: m.status, Header: m.header, Body: m.body.Bytes(), Tokens: unknownTokens}
	var s usageScanner
	s.scan(out.Body)
	if used, told := s.usage.total(); told && m.status < http.StatusBadRequest {
		out.Tokens = used
	}
	return out, nil
}

// OnStart returns a ctx for Perform that has f called when an upstream is asked: the
// request waits for nothing of ours any more. A request of several steps has it called
// for each. f must not block.
func OnStart(ctx context.Context, f func()) context.Context {
	return context.WithValue(ctx, startKey{}, f)
}

// startKey is where OnStart keeps its f.
type startKey struct{}

// Started tells whoever waits for it by OnStart.
func Started(ctx context.Context) {
	if f, ok := ctx.Value(startKey{}).(func()); ok {
		f()
	}
}

// ownerKey is where Perform says on whose behalf it asks.
type ownerKey struct{}

// own is who asks if the gateway itself does, on somebody's behalf.
func (t *tables) own(r *http.Request) (caller, bool) {
	owner, ok := r.Context().Value(ownerKey{}).(Owner)
	if !ok {
		return caller{}, false
	}
	for _, p := range t.keys {
		if p.id == owner.Key {
			who := caller{standing: known, skip: p.skip, by: p}
			who.APIKey, who.User, who.Team = p.key, p.user, p.team
			if p.names && owner.User != "" {
				who.User = owner.User
			}
			return who, true
		}
	}
	return caller{}, true
}

// Routed reports whether a request like those of [Gateway.Perform] to a path, sent by
// POST, leads to an upstream or a turn.
func (g *Gateway) Routed(path string) bool {
	t := g.tables.Load()
	_, wrong := t.route(&http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}})
	return wrong == nil || t.turns[path] != nil
}

// Price estimates what a request to a path would cost in tokens, at least 1. It goes
// by bytes, for there may be thousands of requests in a file.
func (g *Gateway) Price(path string, body []byte) int64 {
	asked, ok := readAsk(body)
	if !ok {
		return 1
	}
	q := asked.query(path, g.tables.Load().cfg)
	q.Bytes = true
	return max(1, g.opts.Cost.Estimate(q).Total())
}

// memory is an http.ResponseWriter without a connection.
type memory struct {
	header   http.Header
	status   int
	body     bytes.Buffer
	tooLarge bool
}

// serve runs a handler and reports whether it cut the answer short.
func (m *memory) serve(h http.Handler, r *http.Request) (cut bool) {
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				panic(p)
			}
			cut = true
		}
	}()
	h.ServeHTTP(m, r)
	return false
}

// Header implements http.ResponseWriter.
func (m *memory) Header() http.Header { return m.header }

// WriteHeader implements http.ResponseWriter.
func (m *memory) WriteHeader(status int) {
	if m.status == 0 && status >= http.StatusOK {
		m.status = status
	}
}

// Write implements io.Writer. What is too much ends the answer.
func (m *memory) Write(p []byte) (int, error) {
	m.WriteHeader(http.StatusOK)
	if m.body.Len()+len(p) > MaxPerformed {
		m.tooLarge = true
		return 0, ErrTooLarge
	}
	return m.body.Write(p)
}

// Flush implements http.Flusher: there is nobody to send to.
func (m *memory) Flush() {}
