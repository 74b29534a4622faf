package gateway

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"time"
)

// waiting is the comment that keeps a stream alive. It ends in a single line end: a
// blank line would end an event, and some clients take an event without data ill.
const waiting = ": waiting\n"

// turnStream is the caller's side of a streamed turn. Nothing is sent before the
// first step was dispatched. While a later step waits, or tools are called, a comment
// goes out now and then, and begins the stream if nothing has.
type turnStream struct {
	x    *exchange
	conn *http.ResponseController
	tick *time.Ticker
	stop chan struct{}
	done sync.WaitGroup
	span time.Duration // between comments

	mu    sync.Mutex
	quiet bool // comments may be sent: a step is over, and nothing of the next is there
	begun bool
}

// newTurnStream returns a stream to x's caller. It has to be closed.
func newTurnStream(x *exchange, span time.Duration) *turnStream {
	s := &turnStream{x: x, conn: http.NewResponseController(x), stop: make(chan struct{}), span: span, tick: time.NewTicker(span)}
	s.done.Go(func() {
		defer s.tick.Stop()
		for {
			select {
			case <-s.tick.C:
				s.comment()
			case <-s.stop:
				return
			}
		}
	})
	return s
}

// close ends the comments.
func (s *turnStream) close() {
	close(s.stop)
	s.done.Wait()
}

// hush says that from now on nothing comes for a while.
func (s *turnStream) hush() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = true
	s.tick.Reset(s.span)
}

func (s *turnStream) comment() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quiet {
		_ = s.sendLocked(nil, []byte(waiting)) // a client that left is noticed elsewhere
	}
}

// send passes a part of an answer on, whose headers are h.
func (s *turnStream) send(h http.Header, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = false
	return s.sendLocked(h, p)
}

func (s *turnStream) sendLocked(h http.Header, p []byte) error {
	if !s.begun {
		s.begun = true
		maps.Copy(s.x.Header(), h)
		s.x.Header().Set("Content-Type", "text/event-stream")
		s.x.Header().Set("Cache-Control", "no-cache")
		s.x.Header().Set("X-Accel-Buffering", "no") // for a proxy in front of us
		s.x.WriteHeader(http.StatusOK)
	}
	if _, err := s.x.Write(p); err != nil {
		return err
	}
	return s.conn.Flush()
}

// end ends the turn with a. A stream that has begun and cannot be completed ends in an
// error event and a cut connection, never as if it were whole.
func (s *turnStream) end(a *answered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = false
	switch {
	case !s.begun:
		a.write(s.x)
		return
	case a.sse != nil && a.sse.passing && !a.failed():
		if s.sendLocked(nil, a.sse.held) == nil {
			return
		}
	case !a.shown || !a.cut: // else the error event was in what was passed on
		body := bytes.TrimSpace(a.body.Bytes())
		if a.cut || a.status < http.StatusBadRequest || !json.Valid(body) || bytes.ContainsAny(body, "\r\n") {
			body = bytes.TrimSpace(upstreamBroke.body(s.x.request, s.x.id))
		}
		_ = s.sendLocked(nil, []byte("\n\nevent: error\ndata: "+string(body)+"\n\n"))
	}
	panic(http.ErrAbortHandler)
}

// stepStream is where the answer of a streamed step goes. Of a step without tools
// every byte passes as it comes. With tools its frames are looked at: those of a call
// are for us, and the end of the stream is held back until it is known to be the end
// of the turn.
type stepStream struct {
	*answered
	out   *turnStream
	tools bool

	passing bool   // it is an event stream
	rest    []byte // of a frame that is not complete
	held    []byte // the frame that ends the stream
	content []byte // what the model said
	wanted  []toolCall
}

// maxFrame bounds a frame, and what a model says and calls beside it, in bytes.
const maxFrame = 1 << 20

// WriteHeader implements http.ResponseWriter.
func (k *stepStream) WriteHeader(status int) {
	k.answered.WriteHeader(status)
	k.passing = k.status == http.StatusOK && mediaType(k.header) == "text/event-stream"
}

// Write implements io.Writer.
func (k *stepStream) Write(p []byte) (int, error) {
	if k.status == 0 {
		k.WriteHeader(http.StatusOK)
	}
	if !k.passing {
		return k.answered.Write(p)
	}
	if !k.tools {
		return len(p), k.pass(p)
	}
	for k.rest = append(k.rest, p...); ; {
		n := frameEnd(k.rest)
		if n == 0 {
			break
		}
		if err := k.frame(k.rest[:n]); err != nil {
			return 0, err
		}
		k.rest = k.rest[n:]
	}
	if len(k.rest)+len(k.content) > maxFrame {
		return 0, ErrTooLarge
	}
	return len(p), nil
}

// finish takes what is left for the last frame: some servers end without its blank line.
func (k *stepStream) finish() error {
	rest := k.rest
	if k.rest = nil; len(bytes.TrimSpace(rest)) == 0 {
		return nil
	}
	return k.frame(rest)
}

func (k *stepStream) pass(p []byte) error {
	k.shown = true
	h := k.header.Clone()
	h.Del("Content-Length") // what is held back is not counted
	return k.out.send(h, p)
}

// frameEnd returns the index behind the blank line that ends the first frame, 0 if it
// is not there yet.
func frameEnd(p []byte) int {
	lf, crlf := bytes.Index(p, []byte("\n\n")), bytes.Index(p, []byte("\r\n\r\n"))
	switch {
	case crlf >= 0 && (lf < 0 || crlf < lf):
		return crlf + 4
	case lf >= 0:
		return lf + 2
	}
	return 0
}

// chatChunk is the part of a chunk that tools are called in.
type chatChunk struct {
	Choices []struct {
		Delta struct {
			Content string `json:"content"`
			Calls   []struct {
				Index int `json:"index"`
				toolCall
			} `json:"tool_calls"`
		} `json:"delta"`
	} `json:"choices"`
}

// frame decides about one frame. Once a call has begun, all that follows is about it.
func (k *stepStream) frame(p []byte) error {
	var data []byte
	for line := range bytes.SplitSeq(p, []byte("\n")) {
		if rest, ok := bytes.CutPrefix(line, []byte(dataField)); ok {
			data = append(data, bytes.TrimSpace(rest)...)
		}
	}
	if string(data) == "[DONE]" {
		k.held = append([]byte(nil), p...)
		return nil
	}
	var d chatChunk
	if json.Unmarshal(data, &d) == nil && len(d.Choices) > 0 {
		k.content = append(k.content, d.Choices[0].Delta.Content...)
		for _, c := range d.Choices[0].Delta.Calls {
			k.call(c.Index, c.toolCall)
		}
	}
	if len(k.wanted) > 0 && !bytes.Contains(p, []byte("event: error")) {
		return nil
	}
	return k.pass(p)
}

// call adds a piece of a call: its id and name come once, its arguments bit by bit.
func (k *stepStream) call(i int, piece toolCall) {
	if i < 0 || i >= maxCalls {
		return
	}
	for len(k.wanted) <= i {
		k.wanted = append(k.wanted, toolCall{Type: "function"})
	}
	c := &k.wanted[i]
	if piece.ID != "" {
		c.ID = piece.ID
	}
	c.Function.Name += piece.Function.Name
	if len(c.Function.Arguments) < maxFrame {
		c.Function.Arguments += piece.Function.Arguments
	}
}

// message is what the model has said in all, as a message.
func (k *stepStream) message() json.RawMessage {
	m := map[string]any{"role": "assistant", "content": string(k.content)}
	if len(k.wanted) > 0 {
		m["tool_calls"] = k.wanted
	}
	return mustJSON(m)
}
