package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/headway-limiter/headway/limiter"
)

// answered is what became of one dispatch of a step: the answer, or the failure that
// a caller would have got.
type answered struct {
	memory
	cut   bool        // it broke off
	shown bool        // something of it went to the caller already
	sse   *stepStream // it came as a stream; nil: all of it is in memory
}

// failed reports whether there is no usable answer.
func (a *answered) failed() bool { return a.cut || a.status >= http.StatusBadRequest || a.status == 0 }

// may reports whether another step may take over: nobody has seen anything, and the
// failure is not the caller's mistake, which every step would meet.
func (a *answered) may(ctx context.Context) bool {
	mistake := a.status == http.StatusBadRequest || a.status == http.StatusRequestEntityTooLarge || a.status == http.StatusUnprocessableEntity
	return !a.shown && !mistake && ctx.Err() == nil
}

// failedStep is a failure of our own as the answer to a step.
func failedStep(x *exchange, f failure) *answered {
	a := &answered{memory: memory{header: http.Header{}}}
	a.header.Set("X-Request-Id", x.id) // for the shape of the body
	f.write(a, x.request)
	return a
}

// unclassified: the model has answered none of the choices.
func unclassified(step string) failure {
	return failure{status: http.StatusBadGateway, kind: kindServer, code: "unclassified",
		message: fmt.Sprintf("The answer of step %s leads nowhere.", step)}
}

// tooManyRounds: the model went on calling tools when it was told not to.
func tooManyRounds(step string, most int) failure {
	return failure{status: http.StatusBadGateway, kind: kindServer, code: "tool_rounds_exceeded",
		message: fmt.Sprintf("Step %s called tools in more than %d rounds.", step, most)}
}

// dispatch asks one step's model once. What it cost is added to the turn, and its slot
// is free when dispatch returns.
func (u *run) dispatch(s *step, b stepBody, last bool) *answered {
	a := &answered{memory: memory{header: http.Header{}}}
	data := b.bytes()
	if most := u.x.cfg.Server.MaxBody; int64(len(data)) > int64(most) {
		return failedStep(u.x, bodyTooLarge(most))
	}
	candidates := slices.DeleteFunc(slices.Clone(s.candidates), func(up *upstream) bool { return !u.x.reaches(up) })
	if len(candidates) == 0 {
		return failedStep(u.x, unknownURL(u.x.request))
	}
	var w http.ResponseWriter = a
	if last && u.out != nil {
		a.sse = &stepStream{answered: a, out: u.out, tools: len(s.Tools) > 0}
		w = a.sse
	}
	r := stepRequest(u.request, len(data))
	inner := u.x.within(w, r)
	if inner.later = u.started; u.started { // by its deadline, which is that of the start
		inner.patience.until = inner.deadline
	}
	a.cut = cutShort(func() { u.ask(inner, r, u.asked.jobOf(s, candidates, data)) })
	u.x.upstream, u.x.waited = inner.upstream, inner.waited
	if a.sse != nil && !a.cut {
		_ = a.sse.finish() // a client that left is noticed elsewhere
	}
	if a.tooLarge {
		return failedStep(u.x, tooLarge)
	}
	if u.started {
		u.out.hush()
	}
	return a
}

// tooLarge: an answer that has to be held is larger than is held of any.
var tooLarge = failure{status: http.StatusBadGateway, kind: kindServer, code: "answer_too_large",
	message: fmt.Sprintf("The answer of a step is larger than %d bytes.", MaxPerformed)}

// ask has the limits of the model and the upstreams decide, and sends the request.
func (u *run) ask(inner *exchange, r *http.Request, j job) {
	who := inner.caller
	who.Model = limiter.Hash(limiter.Model, j.model)
	part := inner.admission(who, j.tokens)
	part.Step = true
	grant := u.g.admit(inner, r.Context(), part)
	if grant == nil {
		return
	}
	end := &ending{grant: grant, outcome: limiter.Outcome{Tokens: unknownTokens}}
	defer func() {
		end.now()
		switch o := end.outcome; {
		case o.Void:
			return
		case o.Failed: // costs nothing
		case o.Tokens < 0:
			u.used += j.tokens
		default:
			u.used += o.Tokens
		}
		u.started = true
	}()
	u.g.dispatch(inner, r, grant, j, end)
}

// within is an exchange for a request that the gateway makes of itself on the way. It
// has the time that r's context has, and waits as x does.
func (x *exchange) within(w http.ResponseWriter, r *http.Request) *exchange {
	inner := &exchange{
		ResponseWriter: w, tables: x.tables, request: r, id: x.id, start: x.start, deadline: x.deadline,
		place: x.place, caller: x.caller, patience: x.patience, waited: x.waited, inner: true, recent: x.recent,
	}
	if end, ok := r.Context().Deadline(); ok {
		inner.deadline = end
	}
	return inner
}

// stepRequest is the caller's request as that of a step: its headers, but another
// path, and a body of n bytes.
func stepRequest(r *http.Request, n int) *http.Request {
	out := r.Clone(r.Context())
	out.URL = &url.URL{Path: "/v1" + chatPath}
	out.Body, out.ContentLength = http.NoBody, int64(n)
	out.Header.Set("Content-Type", "application/json")
	for _, name := range []string{"Content-Length", "Accept", "Anthropic-Version"} {
		out.Header.Del(name)
	}
	return out
}

// cutShort runs f and reports whether it has cut its answer short.
func cutShort(f func()) (cut bool) {
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				panic(p)
			}
			cut = true
		}
	}()
	f()
	return false
}

// write answers the caller with a, which is all in memory.
func (a *answered) write(x *exchange) {
	if a.cut || a.status == 0 {
		x.fail(upstreamBroke)
		return
	}
	maps.Copy(x.Header(), a.header)
	x.WriteHeader(a.status)
	_, _ = x.Write(a.body.Bytes()) // a client that left cannot be told
}

// chatAnswer is the part of a chat completion that turns go by.
type chatAnswer struct {
	Choices []struct {
		Message json.RawMessage `json:"message"`
	} `json:"choices"`
}

// message is the assistant's message, nil if there is none.
func (a *answered) message() json.RawMessage {
	if a.sse != nil && a.sse.passing {
		return a.sse.message()
	}
	var s chatAnswer
	if json.Unmarshal(a.body.Bytes(), &s) != nil || len(s.Choices) == 0 {
		return nil
	}
	return s.Choices[0].Message
}

// text is what the model has said.
func (a *answered) text() string {
	_, text := readMessage(a.message())
	return text
}

// calls are the tools that the model wants called.
func (a *answered) calls() []toolCall {
	if a.failed() {
		return nil
	}
	var m struct {
		Calls []toolCall `json:"tool_calls"`
	}
	if message := a.message(); bytes.Contains(message, []byte("tool_calls")) {
		_ = json.Unmarshal(message, &m) // calls that cannot be read are none
	}
	return m.Calls
}
