package gateway

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

var update = flag.Bool("update", false, "rewrite the expected answers in testdata")

// wire is a listener in memory, so that a client, the gateway and an upstream
// talk HTTP over real connections inside one bubble.
type wire struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
	peer  string // the address clients seem to have
}

func newWire(peer string) *wire {
	return &wire{conns: make(chan net.Conn), done: make(chan struct{}), peer: peer}
}

type addr string

func (a addr) Network() string { return "wire" }
func (a addr) String() string  { return string(a) }

type end struct {
	net.Conn
	peer addr
}

func (e end) RemoteAddr() net.Addr { return e.peer }

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.done:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error   { w.once.Do(func() { close(w.done) }); return nil }
func (w *wire) Addr() net.Addr { return addr("wire") }

// dial is a DialContext.
func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case w.conns <- end{server, addr(w.peer)}:
		return client, nil
	case <-w.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// rig is a gateway between a client and an upstream, all in memory. A bubble
// that uses one ends only when every goroutine has, so each such test is a
// leak test too.
type rig struct {
	*Gateway
	t        *testing.T
	memory   *memstore.Memory
	registry *prometheus.Registry
	log      *bytes.Buffer
	front    *wire
	client   *http.Client
	upstream *wire
	dead     sync.Map // addresses that refuse connections to upstreams
}

// dial connects to an upstream, which all are behind one wire.
func (r *rig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if _, dead := r.dead.Load(address); dead {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
	}
	return r.upstream.dial(ctx, network, address)
}

// keysAndRoutes is the part of a configuration that most tests share. The key
// secret-a has the id a, user ann and team acme; secret-b is another user's.
const keysAndRoutes = `
keys:
  - {id: a, key: secret-a, user: ann, team: acme}
  - {id: b, key: secret-b, user: bob, team: acme}
upstreams:
  - {name: llm, url: "http://upstream.test/base", credential: upstream-secret}
  - {name: plain, url: "http://upstream.test", kind: http}
routes:
  - {path: /v1/*, upstream: llm}
  - {path: /plain/*, upstream: plain}
`

// newRig starts a gateway for keysAndRoutes and more, in front of a handler.
func newRig(t *testing.T, more string, upstream http.HandlerFunc) *rig {
	t.Helper()
	cfg, err := config.Parse([]byte(keysAndRoutes+more), nil)
	if err != nil {
		t.Fatal(err)
	}
	return newRigOf(t, cfg, upstream)
}

func newRigOf(t *testing.T, cfg *config.Config, upstream http.HandlerFunc) *rig {
	t.Helper()
	r := &rig{
		t: t, memory: memstore.New(), registry: prometheus.NewRegistry(), log: &bytes.Buffer{},
		front: newWire("192.0.2.7:4711"), upstream: newWire("192.0.2.1:80"),
	}
	log := slog.New(slog.NewTextHandler(&lockedWriter{w: r.log}, nil))
	store := r.memory.Replica(memstore.Options{})
	limits := cfg.Limiter()
	limits.Registerer, limits.Logger = r.registry, log
	peers := fleet.Solo("test")
	l, err := limiter.New(limits, store, peers)
	if err != nil {
		t.Fatal(err)
	}
	behind := &http.Transport{DialContext: r.dial, DisableCompression: true}
	r.Gateway, err = New(cfg, l, Options{
		Transport: behind, Logger: log, Registerer: r.registry, Gatherer: r.registry,
		Store: store.Health, Slots: store, Fleet: peers, Build: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	r.spread = func(int64) int64 { return 0 }
	back := serve(r.upstream, upstream)
	front := serve(r.front, r.Handler())
	transport := &http.Transport{DialContext: r.front.dial, DisableCompression: true, MaxIdleConnsPerHost: -1}
	r.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		synctest.Wait() // for requests whose client has just left
		transport.CloseIdleConnections()
		front()
		r.CloseIdle()
		back()
		r.Gateway.Close()
		l.Close()
		if err := store.Close(context.Background()); err != nil {
			t.Errorf("close store: %v", err)
		}
		r.mustBeClean(l)
	})
	return r
}

// serve runs a server on w and returns a function that ends it.
func serve(w *wire, h http.Handler) (stop func()) {
	s := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	var done sync.WaitGroup
	done.Go(func() { _ = s.Serve(w) })
	return func() { _ = s.Close(); done.Wait() }
}

// mustBeClean checks that everything taken was given back.
func (r *rig) mustBeClean(l *limiter.Limiter) {
	if n := l.Running(); n != 0 {
		r.t.Errorf("%d grants were never finished", n)
	}
	if n := l.Waiting(); n != 0 {
		r.t.Errorf("%d waiters are left", n)
	}
	if n := r.Running(); n != 0 {
		r.t.Errorf("%d requests are still counted as running", n)
	}
	if n, err := testutil.GatherAndCount(r.registry, "headway_limiter_bugs_total", "rate_limit_inflight_requests"); n != 0 || err != nil {
		r.t.Errorf("bugs or held slots: %d series, %v", n, err)
	}
}

// lockedWriter lets goroutines share a buffer.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// left looks how much of a bucket is left, whose limit is n per 100000h.
func (r *rig) left(d limiter.Dimension, c limiter.Class, raw string, n int64) int64 {
	r.t.Helper()
	eye := r.memory.Replica(memstore.Options{})
	defer eye.Close(context.Background())
	v, err := eye.Peek(context.Background(), limiter.Take{Charges: []limiter.Charge{{
		Bucket: limiter.BucketID{Dimension: d, Class: c, ID: limiter.Hash(d, raw)},
		Rate:   limiter.Rate{Limit: n, Per: 100_000 * time.Hour, Burst: n},
	}}})
	if err != nil {
		r.t.Fatal(err)
	}
	return v.Charges[0].Remaining
}

// header is one name: value pair of a request.
type header struct{ name, value string }

// as names the caller by key.
func as(key string) header { return header{"Authorization", "Bearer " + key} }

// request makes a request; a body makes it a JSON POST.
func (r *rig) request(ctx context.Context, path, body string, headers ...header) *http.Request {
	r.t.Helper()
	method, reader := http.MethodGet, io.Reader(nil)
	if body != "" {
		method, reader = http.MethodPost, strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://gateway.test"+path, reader)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", "test")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		req.Header.Set(h.name, h.value)
	}
	return req
}

// do sends a request and reads the whole answer.
func (r *rig) do(path, body string, headers ...header) (*http.Response, string) {
	r.t.Helper()
	return r.send(r.request(context.Background(), path, body, headers...))
}

func (r *rig) send(req *http.Request) (*http.Response, string) {
	r.t.Helper()
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("body of %d: %v", resp.StatusCode, err)
	}
	synctest.Wait() // the client has the last byte before the gateway settles
	return resp, string(text)
}

// stream sends a request and reads its answer as far as it comes; the error is how
// it ended, nil at a proper end.
func (r *rig) stream(path, body string, headers ...header) (string, error) {
	r.t.Helper()
	resp, err := r.client.Do(r.request(context.Background(), path, body, headers...))
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	synctest.Wait()
	return string(text), err
}

// must sends a request that has to be answered with a status.
func (r *rig) must(status int, path, body string, headers ...header) (*http.Response, string) {
	r.t.Helper()
	resp, text := r.do(path, body, headers...)
	if resp.StatusCode != status {
		r.t.Fatalf("%s: status %d, want %d: %s", path, resp.StatusCode, status, text)
	}
	return resp, text
}

// answer writes a response as text: status, headers by name, body.
func answer(resp *http.Response, body string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d\n", resp.StatusCode)
	var lines []string
	for name, values := range resp.Header {
		if name == "Date" {
			continue
		}
		for _, v := range values {
			lines = append(lines, name+": "+v)
		}
	}
	slices.Sort(lines)
	out.WriteString(strings.Join(lines, "\n") + "\n\n" + body)
	return out.String()
}

// golden compares got with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n--- got\n%s\n--- want\n%s", file, got, want)
	}
}

// ok is an upstream that answers a completion of 30 tokens at once.
func ok(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"choices":[{"text":"hi"}],"usage":{"prompt_tokens":10,"completion_tokens":20,"total_tokens":30}}`)
}

// slow is an upstream that takes its time.
func slow(d time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// Before the body is read, net/http does not look for a client that left.
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-time.After(d):
			ok(w, r)
		case <-r.Context().Done():
		}
	}
}
