package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// chunk is the most that is read from an upstream at once, in bytes.
const chunk = 32 << 10

// chunks holds idle read buffers.
var chunks = sync.Pool{New: func() any { return new([chunk]byte) }}

// respond passes an upstream's answer on, and settles in outcome what it cost
// where it says so. An answer that breaks off is never ended as if it were
// whole: respond panics with http.ErrAbortHandler, which cuts the connection.
func (g *Gateway) respond(ctx context.Context, x *exchange, resp *http.Response, up *upstream, dog *watchdog, outcome *limiter.Outcome, estimate int64) {
	sse := mediaType(resp.Header) == "text/event-stream"
	copyAnswerHeaders(x.Header(), resp.Header)
	if sse {
		x.Header().Set("X-Accel-Buffering", "no") // for a proxy in front of us
	}
	meter := newMeter(resp, up, sse)
	conn := http.NewResponseController(x)
	x.WriteHeader(resp.StatusCode)
	if resp.ContentLength < 0 {
		_ = conn.Flush() // the first byte may be long in coming
	}
	err := copyBody(x, conn, resp.Body, dog, meter)
	outcome.Tokens = meter.settle(err == nil, estimate)
	if err == nil {
		return
	}
	level := slog.LevelWarn
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if errors.Is(err, context.Canceled) {
		level = slog.LevelDebug // clients leave all the time
	}
	g.log.Log(ctx, level, "gateway: answer broke off", "request", x.id, "upstream", up.Name, "error", err)
	if sse {
		sayBroken(x, conn, err)
	}
	panic(http.ErrAbortHandler)
}

// copyBody copies every part of an answer as it arrives: one read, one write,
// one flush. Nothing waits for a buffer to fill, so the first token of a
// completion is as fast as without us, and a slow reader slows the upstream
// instead of filling our memory. The error is that of the side that broke.
func copyBody(w io.Writer, conn *http.ResponseController, r io.Reader, dog *watchdog, meter *meter) error {
	buf := chunks.Get().(*[chunk]byte)
	defer chunks.Put(buf)
	for {
		dog.pat()
		n, err := r.Read(buf[:])
		dog.hold() // from here on it is the client that may be slow
		if n > 0 {
			meter.observe(buf[:n])
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if ferr := conn.Flush(); ferr != nil && !errors.Is(ferr, http.ErrNotSupported) {
				return ferr
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
func sayBroken(w io.Writer, conn *http.ResponseController, err error) {
	f := upstreamBroke
	if errors.Is(err, errSilent) || errors.Is(err, errTotal) {
		f = upstreamTimeout
	}
	_, _ = w.Write([]byte("\n\nevent: error\ndata: " + string(f.body()) + "\n"))
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
next:
	for name, values := range src {
		for _, prefix := range ours {
			if strings.HasPrefix(name, prefix) {
				continue next
			}
		}
		dst[name] = values
	}
}

// mediaType is the content type without parameters, in small letters.
func mediaType(h http.Header) string {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind
}

// meter reads the usage that passes by in an answer. The nil meter reads
// nothing.
type meter struct {
	frames *frameScanner // of an event stream
	object *usageScanner // of a JSON object
}

// newMeter returns a meter for an answer that may tell its usage, else nil: of
// errors nothing is charged, and compressed bytes are not undone.
func newMeter(resp *http.Response, up *upstream, sse bool) *meter {
	plain := resp.Header.Get("Content-Encoding") == "" || resp.Header.Get("Content-Encoding") == "identity"
	switch {
	case up.Kind != config.KindOpenAI || resp.StatusCode >= http.StatusBadRequest || !plain:
		return nil
	case sse:
		return &meter{frames: &frameScanner{}}
	case mediaType(resp.Header) == "application/json":
		return &meter{object: &usageScanner{}}
	}
	return nil
}

// observe looks at a part of the answer; it does not keep it.
func (m *meter) observe(p []byte) {
	switch {
	case m == nil:
	case m.frames != nil:
		m.frames.scan(p)
	default:
		m.object.scan(p)
	}
}

// settle returns the tokens that were used, or unknownTokens where that is not
// known: then the estimate stands. Of an answer that broke off, what it said
// so far counts only if it is more than the estimate: the rest was used, too.
func (m *meter) settle(complete bool, estimate int64) int64 {
	if m == nil {
		return unknownTokens
	}
	u := m.object
	if m.frames != nil {
		u = &m.frames.usageScanner
	}
	used, ok := u.usage.total()
	if !ok || !complete && used < estimate {
		return unknownTokens
	}
	return used
}
