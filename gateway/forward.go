package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
)

// newTransport returns a connection pool for one upstream. It neither asks for
// compression nor undoes it: bytes pass as they are. Connections are kept in
// numbers that suit one busy upstream (the standard library keeps two, and
// would open a new one for almost every request); how many are open at once is
// bounded by the requests that are served at once.
func newTransport(t config.UpstreamTimeouts) *http.Transport {
	dialer := &net.Dialer{Timeout: t.Connect, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   t.Connect,
		ResponseHeaderTimeout: t.ResponseHeader,
		MaxIdleConns:          1024,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		DisableCompression:    true,
	}
}

// Causes of an upstream call's end, as context causes.
var (
	errNoHeader = errors.New("gateway: the upstream sent no headers in time")
	errSilent   = errors.New("gateway: the upstream fell silent")
)

// errUpload is the error of a streamed body that is larger than it may be.
var errUpload = errors.New("gateway: the request body is too large")

// errRushed is errTotal where an upstream was asked too late to be blamed for it.
var errRushed = fmt.Errorf("%w, and the upstream had too little of it", errTotal)

// errSlowBody ends a call whose upstream waits for a body that does not come.
var errSlowBody = errors.New("gateway: the request body did not arrive in time")

// causeOf tells what has ended a call of an upstream, which dog has watched; nil:
// nothing of ours. Most of a request's total timeout may have gone by in wait lines,
// or until its body was there. The upstream has failed only if it had the time in
// which it has to answer, or where that is longer than a request may live, almost all
// that there is.
func (x *exchange) causeOf(ctx context.Context, up *upstream, dog *watchdog) error {
	cause := context.Cause(ctx)
	if !errors.Is(cause, errTotal) {
		return cause
	}
	fair := min(up.Timeouts.ResponseHeader, x.deadline.Sub(x.start)*9/10)
	switch had, waits := dog.had(); {
	case waits:
		return errSlowBody
	case had < fair:
		return errRushed
	}
	return cause
}

// broken tells what to answer when an upstream call ended in err before its headers,
// and whether the provider is to blame. cause is that of causeOf.
func broken(cause, err error, most config.Size) (failure, bool) {
	var timeout net.Error
	var stray *strayModel
	switch {
	case errors.Is(cause, errRushed):
		return upstreamTimeout, false
	case errors.Is(cause, errSlowBody):
		return slowBody, false
	case errors.Is(cause, errNoHeader), errors.Is(cause, errTotal):
		return upstreamTimeout, true
	case cause != nil:
		return canceled, false // the client is gone
	case errors.Is(err, errUpload):
		return bodyTooLarge(most), false
	case errors.As(err, &stray):
		return unknownModel(stray.model), false
	case errors.Is(err, errClientBody):
		return badBody, false
	case errors.As(err, &timeout) && timeout.Timeout():
		return upstreamTimeout, true
	}
	return unreachable, true
}

// outbound makes the upstream's request: the caller's, without what belongs to
// the caller's connection and credential, and with what the upstream should
// know of us.
func outbound(ctx context.Context, x *exchange, r *http.Request, up *upstream, b body, dog *watchdog) *http.Request {
	base := up.base
	out := (&http.Request{
		Method: r.Method,
		URL: &url.URL{
			Scheme: base.Scheme, Host: base.Host, RawQuery: r.URL.RawQuery,
			Path: base.Path + r.URL.Path, RawPath: base.EscapedPath() + r.URL.EscapedPath(),
		},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: endToEnd(r.Header),
		Host:   base.Host,
	}).WithContext(ctx)
	if b.form != nil {
		b.form.up = up
	}
	setBody(out, x, b, dog)
	h := out.Header
	x.setCredential(h, up)
	x.setForwarded(h, r)
	h.Set("X-Request-Id", x.id)
	h.Del(priorityHeader)
	h.Del(deadlineHeader)
	h.Del("Expect") // the body is here, or its sender was told to go on
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // keep net/http from naming itself
	}
	if up.Kind == config.KindOpenAI {
		// Compressed, the usage at the end of an answer could not be read.
		h.Set("Accept-Encoding", "identity")
	}
	return out
}

// setBody attaches the body. Its length is kept as the caller gave it, so that
// the upstream sees a Content-Length where there was one. One held in memory can be sent again, so that the
// transport may retry when a kept connection turns out to be dead before
// anything was written.
func setBody(out *http.Request, w http.ResponseWriter, b body, dog *watchdog) {
	switch {
	case b.stream != nil:
		out.ContentLength = b.length
		out.Body = &upload{r: b.stream, left: int64(b.most), dog: dog, conn: http.NewResponseController(w)}
	case len(b.held) > 0:
		out.ContentLength = int64(len(b.held))
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.held)), nil }
		out.Body, _ = out.GetBody()
	}
}

// setCredential replaces the caller's credential by the upstream's. Where the
// upstream has none and callers need none here, what is no key of ours stays:
// it is between the caller and the upstream.
func (t *tables) setCredential(h http.Header, up *upstream) {
	for _, name := range keyHeaders {
		_, ours := t.principal(h.Get(name))
		if ours || up.Credential != "" || !t.cfg.Anonymous {
			h.Del(name)
		}
	}
	switch {
	case up.Credential == "":
	case strings.EqualFold(up.base.Hostname(), anthropicHost):
		h.Set("X-Api-Key", up.Credential.Reveal())
	default:
		h.Set("Authorization", "Bearer "+up.Credential.Reveal())
	}
}

// setForwarded says who the caller is, in the headers that servers commonly
// read. What a peer that is no trusted proxy
// claims about that is replaced, not extended.
func (t *tables) setForwarded(h http.Header, r *http.Request) {
	peer := peerAddr(r)
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	if !contains(t.trusted, peer) {
		for _, name := range [...]string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"} {
			h.Del(name)
		}
	}
	if peer.IsValid() {
		hops := append(h.Values("X-Forwarded-For"), peer.String())
		h.Set("X-Forwarded-For", strings.Join(hops, ", "))
	}
	if h.Get("X-Forwarded-Host") == "" {
		h.Set("X-Forwarded-Host", r.Host)
	}
	if h.Get("X-Forwarded-Proto") == "" {
		h.Set("X-Forwarded-Proto", proto)
	}
}

// hopByHop are the headers of one connection (RFC 9110 §7.6.1), which never
// pass a proxy; those that Connection names do not either.
var hopByHop = [...]string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// endToEnd copies the headers that pass a proxy.
func endToEnd(h http.Header) http.Header {
	out := h.Clone()
	for _, list := range h["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			out.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	return out
}

// errClientBody wraps an error of reading the caller's body.
var errClientBody = errors.New("gateway: the request body broke off")

// upload is a streamed request body with an upper bound. Each part that
// arrives proves that the call is alive, and while none does, the caller is slow and
// not the upstream.
type upload struct {
	r      io.Reader
	left   int64
	dog    *watchdog
	conn   *http.ResponseController // to the caller
	closed atomic.Bool
}

// Read implements io.Reader. Running over the bound is an error rather than an
// end, so that the upstream never takes a cut body for a whole one.
func (u *upload) Read(p []byte) (int, error) {
	if u.closed.Load() {
		return 0, errClientBody
	}
	u.dog.waits(true)
	var n int
	err := io.ErrClosedPipe
	if !u.closed.Load() { // once more, for Close looks at these two the other way round
		n, err = u.r.Read(p)
	}
	if !u.closed.Load() { // else nothing came, and the dog goes on saying so
		u.dog.waits(false)
		u.dog.pat()
	}
	if u.left -= int64(n); u.left < 0 {
		return 0, errUpload
	}
	if err != nil && err != io.EOF {
		err = errors.Join(errClientBody, err)
	}
	return n, err
}

// lastPart is for how long a body may still come in of which nothing is wanted any
// more: a client that is about to send reads no answer before it has.
const lastPart = 200 * time.Millisecond

// Close implements io.Closer. A read that waits for the caller ends soon: net/http
// would let no answer pass before.
func (u *upload) Close() error {
	if u.closed.Swap(true) {
		return nil
	}
	if _, waits := u.dog.had(); waits {
		_ = u.conn.SetReadDeadline(time.Now().Add(lastPart))
	}
	return nil
}

// watchdog ends an upstream call that shows no sign of life: no headers soon
// after the request was sent, or silence inside the answer. It works for any
// RoundTripper, and is a single timer.
type watchdog struct {
	timer  *time.Timer
	limits config.UpstreamTimeouts
	inside atomic.Bool // the answer has begun

	mu   sync.Mutex
	from time.Time // since when the upstream has had what it needs, less what it waited before
	body time.Time // since when it waits for more of the request; zero: it does not
}

// watch starts a watchdog that cancels with errNoHeader, errSilent, or where the
// upstream cannot go on, errSlowBody.
func watch(cancel context.CancelCauseFunc, t config.UpstreamTimeouts) *watchdog {
	d := &watchdog{limits: t, from: time.Now()}
	d.timer = time.AfterFunc(t.Connect+t.ResponseHeader, func() {
		switch _, waits := d.had(); {
		case waits:
			cancel(errSlowBody)
		case d.inside.Load():
			cancel(errSilent)
		default:
			cancel(errNoHeader)
		}
	})
	return d
}

// waits notes that the upstream begins, or ceases, to wait for more of the request.
func (d *watchdog) waits(begins bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if begins {
		d.body = time.Now()
		return
	}
	d.from, d.body = d.from.Add(time.Since(d.body)), time.Time{}
}

// had is how much time the upstream has had in which nothing was missing of the
// request, and whether it waits for more of that now.
func (d *watchdog) had() (had time.Duration, waits bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.body.IsZero() {
		return d.body.Sub(d.from), true
	}
	return time.Since(d.from), false
}

// pat restarts the time in which the next sign of life must come. It is called
// for each part of a body in either direction, and costs one timer reset.
func (d *watchdog) pat() {
	if d.inside.Load() {
		d.timer.Reset(d.limits.Idle)
		return
	}
	d.timer.Reset(d.limits.Connect + d.limits.ResponseHeader)
}

// answered is called when the answer's headers are there.
func (d *watchdog) answered() {
	d.inside.Store(true)
	d.pat()
}

// hold stops the time until the next pat, while nothing is expected of the
// upstream.
func (d *watchdog) hold() { d.timer.Stop() }
