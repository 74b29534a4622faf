package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headway-limiter/headway/gateway/console"
)

const (
	// shownTenants is how many tenants are listed, altogether and in each line.
	shownTenants = 100
	// mostListeners bounds the connections that live events are sent to.
	mostListeners = 16
	// eventEvery is how often they are sent a snapshot, eventTime how long one may
	// take to be read.
	eventEvery = time.Second
	eventTime  = 10 * time.Second
)

// consoleEdge mounts the console and the documents that it shows. Both follow
// server.console.
func (g *Gateway) consoleEdge(e *echo.Echo) {
	get := func(path string, h http.Handler) {
		e.Match([]string{http.MethodGet, http.MethodHead}, path, echo.WrapHandler(g.ifConsole(h)))
	}
	get("/", http.RedirectHandler(console.Base, http.StatusFound)) // a place may change
	get("/console", http.RedirectHandler(console.Base, http.StatusMovedPermanently))
	get(console.Base+"*", console.Handler())
	get("/api/session", http.HandlerFunc(g.session))
	for path, document := range map[string]func(console.Live) any{
		"overview": func(l console.Live) any { return l.Overview },
		"tenants":  func(l console.Live) any { return l.Tenants },
		"queues":   func(l console.Live) any { return l.Queues },
		"agents":   func(l console.Live) any { return l.Agents },
		"refusals": func(l console.Live) any { return l.Refusals },
	} {
		get("/api/"+path, g.operators(func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusOK, document(g.shown(0)))
		}))
	}
	e.GET("/api/events", echo.WrapHandler(g.ifConsole(g.operators(g.events))))
}

// ifConsole answers 404 while the console is off.
func (g *Gateway) ifConsole(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.tables.Load().cfg.Server.Console {
			unknownURL(r).write(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// visitor is who looks at the admin listener.
type visitor struct {
	operator bool
	key      principal // who asks, if it is not an operator
}

// visitor finds out who sends r. Where there is no admin token everybody who can
// reach the listener is an operator, except who comes with an API key: that is a
// person who wants to see what its owner sees. A credential that is neither is
// refused, so that a mistyped one is noticed.
func (g *Gateway) visitor(r *http.Request) (v visitor, wrong *failure) {
	t := g.tables.Load()
	needed := t.cfg.Server.AdminToken.Reveal() != ""
	presented := presentsKey(r.Header)
	switch key, known := t.principal(r.Header.Get("Authorization")); {
	case !needed && !presented, needed && g.authorized(r):
		return visitor{operator: true}, nil
	case known:
		return visitor{key: key}, nil
	}
	f := failure{status: http.StatusUnauthorized, kind: kindInvalid, code: "invalid_admin_token",
		message: "Sign in with the admin token, or with an API key."}
	return v, &f
}

// operators lets only operators see a document. API keys see their workspaces.
func (g *Gateway) operators(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, wrong := g.visitor(r)
		if wrong == nil && !v.operator {
			wrong = &failure{status: http.StatusForbidden, kind: kindInvalid, code: "operators_only",
				message: "This needs the admin token."}
		}
		if wrong != nil {
			wrong.refuseVisitor(w, r)
			return
		}
		next(w, r)
	}
}

// refuseVisitor answers a visitor. There is no challenge in the answer: browsers
// would ask for a password by themselves.
func (f failure) refuseVisitor(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	f.write(w, r)
}

// session answers GET /api/session: who is signed in.
func (g *Gateway) session(w http.ResponseWriter, r *http.Request) {
	v, wrong := g.visitor(r)
	if wrong != nil {
		wrong.refuseVisitor(w, r)
		return
	}
	s := console.Session{Kind: "operator", Token: g.tables.Load().cfg.Server.AdminToken.Reveal() != "", Replica: g.self()}
	if !v.operator {
		s.Kind, s.Key = "key", v.key.id
	}
	writeJSON(w, http.StatusOK, s)
}

// writeJSON writes a document that is out of date at once.
func writeJSON(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // who has left cannot be told
}

// events answers GET /api/events: a snapshot now and then each second, as
// server-sent events, until the listener leaves, may no longer look, or this
// replica drains. Each later one has only refusals that the one before had not.
func (g *Gateway) events(w http.ResponseWriter, r *http.Request) {
	if g.draining.Load() {
		failure{status: http.StatusServiceUnavailable, kind: kindServer, code: "draining",
			message: "This replica is shutting down.", retry: retryUnavailable}.refuseVisitor(w, r)
		return
	}
	if g.listeners.Add(1) > mostListeners {
		g.listeners.Add(-1)
		failure{status: http.StatusServiceUnavailable, kind: kindServer, code: "too_many_listeners",
			message: fmt.Sprintf("%d others listen to live events already.", mostListeners), retry: eventTime}.refuseVisitor(w, r)
		return
	}
	defer g.listeners.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // to proxies
	conn := http.NewResponseController(w)
	tick := time.NewTicker(eventEvery)
	defer tick.Stop()
	for seen := uint64(0); ; {
		live := g.shown(seen)
		seen = live.Refusals.Total
		_ = conn.SetWriteDeadline(time.Now().Add(eventTime)) // where the connection cannot, nothing hangs (tests)
		if err := writeEvent(w, "state", live); err != nil || conn.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-g.drained:
			_ = writeEvent(w, "draining", struct{}{})
			return
		}
		if v, wrong := g.visitor(r); wrong != nil || !v.operator || !g.tables.Load().cfg.Server.Console {
			return // since a change of the configuration
		}
	}
}

// writeEvent writes one server-sent event. JSON has no line ends outside of
// strings, and in them they are escaped.
func writeEvent(w http.ResponseWriter, name string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, body)
	return err
}
