package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// respond passes an upstream's answer on, and ends the grant with what it cost,
// where the answer says so, before the client has its last byte. An answer that breaks off is never ended as if it were
// whole: respond panics with http.ErrAbortHandler, which cuts the connection.
func (g *Gateway) respond(ctx context.Context, x *exchange, resp *http.Response, up *upstream, dog *watchdog, end *ending, estimate int64) {
	sse := mediaType(resp.Header) == "text/event-stream"
	copyAnswerHeaders(x.Header(), resp.Header)
	announceTrailer(x.Header(), resp.Trailer)
	if sse {
		x.Header().Set("X-Accel-Buffering", "no") // for a proxy in front of us
	}
	meter := newMeter(resp, up, sse)
	conn := http.NewResponseController(x)
	x.WriteHeader(resp.StatusCode)
	if resp.ContentLength < 0 && x.request.Method != http.MethodHead { // whose answer would be complete
		_ = conn.Flush() // the first byte may be long in coming
	}
	settle := func(err error) {
		if !end.over {
			meter.settle(&end.outcome, estimate, err)
			end.usage = meter.usage(err)
			end.now()
		}
	}
	err := copyBody(x, conn, resp, dog, meter, func() { settle(nil) })
	if cause := x.causeOf(ctx, up, dog); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		resp.Body.Close() // who is granted the agent's slot must find it done with us
		end.sick = end.sick || !notTheirs(err)
	}
	settle(err)
	if err == nil {
		setTrailer(x.Header(), resp.Trailer)
		return
	}
	level := slog.LevelWarn
	if errors.Is(err, context.Canceled) {
		level = slog.LevelDebug // clients leave all the time
	}
	g.log.Log(ctx, level, "gateway: answer broke off", "request", x.id, "upstream", up.Name, "error", err)
	if sse {
		sayBroken(x, conn, x.request, err)
	}
	panic(http.ErrAbortHandler)
}

// notTheirs reports whether an answer broke off for a reason that says nothing of the
// upstream.
func notTheirs(err error) bool {
	return errors.Is(err, errClientLeft) || errors.Is(err, context.Canceled) ||
		errors.Is(err, errRushed) || errors.Is(err, errSlowBody)
}

// errClientLeft marks an answer that broke off on the client's side.
var errClientLeft = errors.New("gateway: the client took no more of the answer")

// copyBody copies every part of an answer as it arrives: one read, one write,
// one flush. Nothing waits for a buffer to fill, so the first token of a
// completion is as fast as without us, and a slow reader slows the upstream
// instead of filling our memory. The error is that of the side that broke.
//
// last is called before the part that completes the answer is written: the one
// that fills its length, or that comes with the upstream's end. A stream's end may
// come later than its last part, which does not wait for it; then the end is
// what the client sees last.
func copyBody(w io.Writer, conn *http.ResponseController, resp *http.Response, dog *watchdog, meter *meter, last func()) error {
	left := resp.ContentLength // below 0: unknown
	var in intake
	defer in.free()
	for n := 0; ; {
		buf := in.next(n)
		dog.pat()
		var err error
		n, err = resp.Body.Read(buf)
		dog.hold() // from here on it is the client that may be slow
		if n > 0 {
			meter.observe(buf[:n])
			if left -= int64(n); left == 0 || err == io.EOF {
				last()
			}
			if _, werr := w.Write(buf[:n]); werr != nil {
				return errors.Join(errClientLeft, werr)
			}
			if ferr := conn.Flush(); ferr != nil && !errors.Is(ferr, http.ErrNotSupported) {
				return errors.Join(errClientLeft, ferr)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// sayBroken ends an event stream with an error event, because SDKs take a
// stream that just ends for a complete one. The blank line in front closes a
// frame that was cut in the middle.
func sayBroken(w http.ResponseWriter, conn *http.ResponseController, r *http.Request, err error) {
	f := upstreamBroke
	switch {
	case errors.Is(err, errSlowBody):
		f = slowBody
	case errors.Is(err, errSilent), errors.Is(err, errTotal):
		f = upstreamTimeout
	}
	f.event(w, conn, r)
}

// event tells the failure inside an event stream that has begun. What follows is
// the end of the connection.
func (f failure) event(w http.ResponseWriter, conn *http.ResponseController, r *http.Request) {
	body := f.body(r, w.Header().Get("X-Request-Id"))
	_, _ = w.Write([]byte("\n\nevent: error\ndata: " + string(body) + "\n"))
	_ = conn.Flush()
}

// ours are the prefixes of headers that only this gateway may set on an
// answer: an upstream's own quota is that of an account all tenants share.
var ours = [...]string{"X-Ratelimit-", "Anthropic-Ratelimit-", "Ratelimit", "X-Fair-Queue-", "X-Headway-"}

// copyAnswerHeaders copies an upstream's headers. Its request id is kept under
// another name, for questions to the provider.
func copyAnswerHeaders(dst, src http.Header) {
	src = endToEnd(src)
	if id := src.Get("X-Request-Id"); id != "" {
		src.Del("X-Request-Id")
		src.Set("X-Upstream-Request-Id", id)
	}
	for name, values := range src {
		if !reserved(name) {
			dst[name] = values
		}
	}
}

// reserved reports whether only this gateway may set a header.
func reserved(name string) bool {
	return slices.ContainsFunc(ours[:], func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// announceTrailer says which fields will follow the body, as far as the upstream
// has said so.
func announceTrailer(h, trailer http.Header) {
	for _, name := range slices.Sorted(maps.Keys(trailer)) {
		if !reserved(name) {
			h.Add("Trailer", name)
		}
	}
}

// setTrailer sends the fields that followed the upstream's body, announced or
// not. Where the answer has a length there is no place for them, and net/http
// leaves them out.
func setTrailer(h, trailer http.Header) {
	for name, values := range trailer {
		if !reserved(name) {
			h[http.TrailerPrefix+name] = values
		}
	}
}

// mediaType is the content type without parameters, in small letters.
func mediaType(h http.Header) string {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind
}
