package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/headway-limiter/headway/limiter"
)

// Realtime transcription is a WebSocket that stays open over many utterances. It is
// one request to the caller's limits for as long as it is open. Each utterance needs a
// slot of the agent, which is taken without waiting (realtime_turns.go): who speaks
// cannot be told to wait. Where none is free the utterance is dropped, the caller is
// told so in an event, and the session goes on.

const (
	realtimePath = "/v1/realtime"
	// keyProtocol begins the subprotocol that browsers send a key in, which cannot set
	// headers.
	keyProtocol = "openai-insecure-api-key."
	// realtimeProtocol is the one that is spoken.
	realtimeProtocol = "realtime"
	// maxSession is how long a session may be open, as at OpenAI.
	maxSession = time.Hour
	// goodbye bounds a closing handshake.
	goodbye = 2 * time.Second
)

// badIntent: other sessions would have the model speak, for which there are no slots.
var badIntent = failure{status: http.StatusBadRequest, kind: kindInvalid, code: "unsupported_intent",
	message: "Only realtime sessions with intent=transcription are served here."}

// asksRealtime reports whether r opens a realtime session.
func (x *exchange) asksRealtime(r *http.Request) bool {
	return x.place.path == realtimePath && r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// serveRealtime serves one session, from its handshake to its end.
func (g *Gateway) serveRealtime(x *exchange, r *http.Request) {
	rt, wrong := x.route(r)
	if wrong == nil && x.place.direct != "" {
		if rt = rt.directly(x.place.direct); rt == nil {
			wrong = &failure{}
			*wrong = unknownURL(x.request)
		}
	}
	if wrong != nil {
		x.fail(*wrong)
		return
	}
	protocols := protocolsOf(r.Header)
	who, ok := g.known(x, r)
	if !ok {
		return
	}
	model := r.URL.Query().Get("model")
	candidates := rt.serving(model)
	switch {
	case r.URL.Query().Get("intent") != "transcription":
		x.fail(badIntent)
		return
	case len(candidates) == 0:
		x.fail(unknownModel(model))
		return
	case g.draining.Load():
		x.fail(leaving)
		return
	}
	who.Model = limiter.Hash(limiter.Model, model)
	grant := g.admit(x, r.Context(), x.admission(who, 0))
	if grant == nil {
		return
	}
	end := &ending{grant: grant, outcome: limiter.Outcome{Void: true}}
	defer end.now()
	s, err := g.connect(x, r, grant, candidates, protocols)
	if err != nil {
		g.decline(x, r.Context(), err)
		return
	}
	g.metrics.decide("admitted", noLimit)
	if s == nil {
		x.fail(unreachable)
		return
	}
	if !s.accept(r) {
		return
	}
	s.serve()
	end.outcome = limiter.Outcome{Tokens: s.used}
}

// protocolsOf returns the subprotocols that a client offers. A key among them goes to
// the header that it could not set, unless there is one.
func protocolsOf(h http.Header) []string {
	var out []string
	for p := range strings.SplitSeq(strings.Join(h.Values("Sec-Websocket-Protocol"), ","), ",") {
		p = strings.TrimSpace(p)
		if key, ok := strings.CutPrefix(p, keyProtocol); !ok {
			out = append(out, p)
		} else if !presentsKey(h) {
			h.Set("Authorization", "Bearer "+key)
		}
	}
	return slices.DeleteFunc(out, func(p string) bool { return p == "" })
}

// session is one that is open.
type session struct {
	g      *Gateway
	x      *exchange
	up     *upstream
	client *websocket.Conn
	agent  *websocket.Conn
	ctx    context.Context // of the session; its cause is how it ended
	end    context.CancelCauseFunc
	idle   *time.Timer // ends it

	utterances
}

// connect opens the agent's side, with the first of the candidates that takes it, and
// whose own limits do: those with fewer sessions through this replica, for their slots,
// go first. Nil: none can be reached. The error is that of the last whose limits refuse,
// if none was tried.
func (g *Gateway) connect(x *exchange, r *http.Request, grant *limiter.Grant, candidates []*upstream, protocols []string) (*session, error) {
	ctx := context.WithoutCancel(r.Context()) // a session outlives the total timeout
	tried, refused := false, error(nil)
	for _, up := range g.sessions.order(candidates) {
		if _, err := grant.Select(r.Context(), []limiter.ID{up.id}); err != nil {
			g.metrics.passOver(up.Name, "exhausted")
			refused = err
			continue
		}
		x.upstream = up.Name
		out := outbound(ctx, x, r, up, body{}, nil)
		out.Header.Del("Origin") // that of a page is between the browser and us
		for name := range out.Header {
			if strings.HasPrefix(name, "Sec-Websocket-") {
				out.Header.Del(name)
			}
		}
		dialing, cancel := context.WithTimeout(r.Context(), up.Timeouts.Connect+up.Timeouts.ResponseHeader)
		agent, _, err := websocket.Dial(dialing, out.URL.String(), &websocket.DialOptions{
			HTTPClient: &http.Client{Transport: up.transport, CheckRedirect: noRedirect},
			HTTPHeader: out.Header, Host: out.Host, Subprotocols: protocols,
		})
		cancel()
		if err == nil {
			return &session{g: g, x: x, up: up, agent: agent, utterances: utterances{items: map[string]*utterance{}}}, nil
		}
		grant.Deselect()
		tried = true
		g.metrics.passOver(up.Name, "unreachable")
		g.log.Warn("gateway: no realtime session", "request", x.id, "upstream", up.Name, "error", err)
	}
	if tried {
		refused = nil
	}
	return nil, refused
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// accept completes the client's handshake. False means that it was answered already.
// Any origin will do: callers are known by their keys, which no browser sends by
// itself.
func (s *session) accept(r *http.Request) bool {
	r.Header.Set("Connection", "Upgrade")
	var err error
	s.client, err = websocket.Accept(s.x, r, &websocket.AcceptOptions{Subprotocols: []string{realtimeProtocol}, InsecureSkipVerify: true})
	if err != nil {
		_ = s.agent.CloseNow()
		return false
	}
	s.x.status = http.StatusSwitchingProtocols
	// An event that is too large is read to its end, so that its sender, who may not
	// read before it is sent, can be told; one that is far too large is not.
	most := 2 * int64(s.x.cfg.Server.MaxBody)
	s.client.SetReadLimit(most)
	s.agent.SetReadLimit(most)
	return true
}

// Ends of a session, as causes. Each is told to both sides.
var (
	errIdle    = websocket.CloseError{Code: websocket.StatusGoingAway, Reason: "the session was idle"}
	errExpired = websocket.CloseError{Code: websocket.StatusGoingAway, Reason: "the session has reached its longest time"}
	errLeaving = websocket.CloseError{Code: websocket.StatusGoingAway, Reason: "this replica is shutting down"}
	errBinary  = websocket.CloseError{Code: websocket.StatusUnsupportedData, Reason: "events are text"}
	errTooBig  = websocket.CloseError{Code: websocket.StatusMessageTooBig, Reason: "the event is larger than server.max_body"}
	errGarbled = websocket.CloseError{Code: websocket.StatusProtocolError, Reason: "this is not the WebSocket protocol"}
	errLost    = websocket.CloseError{Code: websocket.StatusInternalError, Reason: "the other side is lost"}
)

// serve passes events on in both directions until one side closes, or the session's
// time is up. When it returns, all slots are free and both connections closed.
func (s *session) serve() {
	ctx, cancel := context.WithCancelCause(context.Background())
	s.ctx, s.end = ctx, cancel
	defer cancel(nil)
	defer s.g.sessions.add(s)()
	silence := s.x.cfg.Server.Timeouts.Idle
	s.idle = time.AfterFunc(silence, func() { cancel(errIdle) })
	defer s.idle.Stop()
	longest := time.AfterFunc(maxSession, func() { cancel(errExpired) })
	defer longest.Stop()
	var both sync.WaitGroup
	both.Go(func() { s.pump(s.client, silence, s.fromClient) })
	both.Go(func() { s.pump(s.agent, silence, s.fromAgent) })
	<-ctx.Done()
	s.freeAll()
	code, reason := closing(context.Cause(ctx))
	both.Go(func() { _ = s.client.Close(code, reason) })
	both.Go(func() { _ = s.agent.Close(code, reason) })
	hard := time.AfterFunc(goodbye, func() { _ = s.client.CloseNow(); _ = s.agent.CloseNow() })
	defer hard.Stop()
	both.Wait()
	s.freeAll() // of what was taken meanwhile
}

// pump reads events from one side until there are no more, which ends the session.
func (s *session) pump(from *websocket.Conn, silence time.Duration, handle func(event []byte) error) {
	for {
		// Not s.ctx: its end would break the connection before the closing handshake.
		kind, event, err := from.Read(context.Background())
		switch {
		case err != nil && from == s.client && garbled(err):
			err = errGarbled
		case err != nil:
		case kind != websocket.MessageText:
			err = errBinary
		case len(event) > int(s.x.cfg.Server.MaxBody):
			err = errTooBig
		default:
			s.idle.Reset(silence)
			err = handle(event)
		}
		if err != nil {
			s.end(err)
			return
		}
	}
}

// garbled reports whether an error of reading means that frames came which are none,
// rather than that the other side closed, or that the connection broke.
func garbled(err error) bool {
	var broke net.Error
	for _, lost := range [...]error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, context.Canceled, websocket.ErrMessageTooBig} {
		if errors.Is(err, lost) {
			return false
		}
	}
	return websocket.CloseStatus(err) < 0 && !errors.As(err, &broke)
}

// closing is how the end of one side is told to the other. Codes that stand for the
// lack of one cannot be sent.
func closing(cause error) (websocket.StatusCode, string) {
	var c websocket.CloseError
	switch {
	case !errors.As(cause, &c), c.Code == websocket.StatusAbnormalClosure:
		return errLost.Code, errLost.Reason
	case c.Code == websocket.StatusNoStatusRcvd:
		return websocket.StatusNormalClosure, ""
	}
	return c.Code, c.Reason
}

// send writes an event to one side. A side that does not take it in time is lost.
func (s *session) send(to *websocket.Conn, event []byte) error {
	// Not below s.ctx, as in pump.
	ctx, cancel := context.WithTimeout(context.Background(), s.up.Timeouts.Idle)
	defer cancel()
	return to.Write(ctx, websocket.MessageText, event)
}

// sessions are those that are open through this replica.
type sessions struct {
	mu     sync.Mutex
	open   map[*session]bool
	change chan struct{} // closed when one ends; nil: nobody waits for it
}

// add keeps s until the returned function is called.
func (o *sessions) add(s *session) (remove func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[*session]bool{}
	}
	o.open[s] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.open, s)
		if o.change != nil {
			close(o.change)
			o.change = nil
		}
	}
}

// order sorts candidates by their sessions for each of their slots, fewest first.
func (o *sessions) order(candidates []*upstream) []*upstream {
	o.mu.Lock()
	defer o.mu.Unlock()
	load := map[string]float64{}
	for s := range o.open {
		load[s.up.Name] += 1 / float64(max(s.up.Slots, 1))
	}
	out := slices.Clone(candidates)
	slices.SortStableFunc(out, func(a, b *upstream) int {
		switch la, lb := load[a.Name], load[b.Name]; {
		case la < lb:
			return -1
		case la > lb:
			return 1
		}
		return 0
	})
	return out
}

// EndSessions waits until no realtime session is open. When ctx ends, those that are
// left are closed as by a server that goes away. While the gateway drains, their next
// utterances are refused.
func (g *Gateway) EndSessions(ctx context.Context) {
	done := ctx.Done()
	for {
		g.sessions.mu.Lock()
		if len(g.sessions.open) == 0 {
			g.sessions.mu.Unlock()
			return
		}
		if g.sessions.change == nil {
			g.sessions.change = make(chan struct{})
		}
		change := g.sessions.change
		if done == nil || ctx.Err() != nil {
			for s := range g.sessions.open {
				s.end(errLeaving)
			}
		}
		g.sessions.mu.Unlock()
		select {
		case <-change:
		case <-done:
			done = nil
		}
	}
}
