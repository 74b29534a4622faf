package replica

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/headway-limiter/headway/gateway/certtest"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// encrypted is a replica whose listeners have certificates of one authority, each its
// own. API and rate limit service ask for those of clients if they are told to.
type encrypted struct {
	*Replica
	t         *testing.T
	authority *certtest.Authority
	log       safeBuffer

	wait chan struct{} // lets /v1/stream go on
	left chan struct{} // the caller of /v1/stream has left
}

// startEncrypted starts one, from a file that is watched.
func startEncrypted(t *testing.T, clientCA string) *encrypted {
	t.Helper()
	e := &encrypted{t: t, authority: certtest.New(t, "authority"), wait: make(chan struct{}, 1), left: make(chan struct{}, 1)}
	for _, name := range []string{"api", "admin", "grpc"} {
		e.authority.Issue(name)
	}
	upstream := httptest.NewServer(e)
	t.Cleanup(upstream.Close)
	dir := filepath.Dir(e.authority.Path("api.pem"))
	file := e.authority.Path("headway.yaml")
	text := strings.NewReplacer("DIR", dir, "CA", clientCA, "UPSTREAM", upstream.URL).Replace(`
server:
  listen: "127.0.0.1:0"
  tls: {cert: DIR/api.pem, key: DIR/api.key, client_ca: "CA"}
  admin_listen: "127.0.0.1:0"
  admin_tls: {cert: DIR/admin.pem, key: DIR/admin.key}
  drain: {delay: 0s}
redis: {timeout: 5s}
keys: [{id: a, key: key-a, user: ann}]
upstreams: [{name: u, url: "UPSTREAM", slots: 4}]
routes: [{path: "/v1/*", upstream: u}]
rate_limit_service: {listen: "127.0.0.1:0", tls: {cert: DIR/grpc.pem, key: DIR/grpc.key, client_ca: "CA"}}
`)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func() (*config.Config, error) { return config.Load(file) }
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	e.Replica, err = Start(t.Context(), cfg, Options{File: file, Load: load, Logger: slog.New(slog.NewTextHandler(&e.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Shutdown(context.Background()) })
	return e
}

// ServeHTTP is the upstream: an echo, a stream of two parts, one that breaks off, and a
// session.
func (e *encrypted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/v1/stream":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: one\n\n")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-e.wait:
			_, _ = io.WriteString(w, "data: two\n\n")
		case <-r.Context().Done():
			e.left <- struct{}{}
		}
	case "/v1/broken":
		_, _ = io.WriteString(w, "half")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case "/v1/realtime":
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		_ = conn.Write(r.Context(), websocket.MessageText, []byte(`{"type":"session.created"}`))
		_, _, _ = conn.Read(r.Context()) // until it is closed
	default:
		w.Header().Set("X-Proto", r.Header.Get("X-Forwarded-Proto"))
		_, _ = io.Copy(w, r.Body)
	}
}

// client speaks HTTP/2 or HTTP/1.1 alone, with the certificate of that name; empty:
// none.
func (e *encrypted) client(h2 bool, cert string) *http.Client {
	tr := &http.Transport{TLSClientConfig: e.authority.Client(cert), Protocols: new(http.Protocols), ExpectContinueTimeout: patience}
	tr.Protocols.SetHTTP2(h2)
	tr.Protocols.SetHTTP1(!h2)
	e.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// request is one to the API.
func (e *encrypted) request(ctx context.Context, path, body string) *http.Request {
	e.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL()+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer key-a")
	r.Header.Set("Content-Type", "application/json")
	return r
}

// do sends a request that has to be answered.
func (e *encrypted) do(c *http.Client, r *http.Request) *http.Response {
	e.t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// TestTLS: everything works over both versions of HTTP as it does without TLS.
func TestTLS(t *testing.T) {
	e := startEncrypted(t, "")
	for name, h2 := range map[string]bool{"HTTP/2.0": true, "HTTP/1.1": false} {
		t.Run(name, func(t *testing.T) {
			c := e.client(h2, "")
			const body = `{"model":"m","messages":[]}`
			var went atomic.Bool
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(int, textproto.MIMEHeader) error { return nil },
				Got100Continue: func() { went.Store(true) },
			})
			r := e.request(ctx, "/v1/chat/completions", body)
			r.Header.Set("Expect", "100-continue")
			resp := e.do(c, r)
			got, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK || string(got) != body || resp.Proto != name ||
				resp.TLS.Version != tls.VersionTLS13 || resp.Header.Get("X-Proto") != "https" || !went.Load() {
				t.Errorf("%s over %s (TLS %x, said to go on: %v), forwarded as %s: %s, %v",
					resp.Status, resp.Proto, resp.TLS.Version, went.Load(), resp.Header.Get("X-Proto"), got, err)
			}
			stream := e.do(c, e.request(t.Context(), "/v1/stream", "{}"))
			lines := bufio.NewReader(stream.Body)
			if line, err := lines.ReadString('\n'); line != "data: one\n" {
				t.Fatalf("the first part before the second: %q, %v", line, err)
			}
			e.wait <- struct{}{}
			if rest, err := io.ReadAll(lines); err != nil || string(rest) != "\ndata: two\n\n" {
				t.Errorf("the rest: %q, %v", rest, err)
			}
			broken := e.do(c, e.request(t.Context(), "/v1/broken", "{}"))
			if part, err := io.ReadAll(broken.Body); err == nil || string(part) != "half" {
				t.Errorf("an answer that breaks off ends as if it were whole: %q, %v", part, err)
			}
			ctx, leave := context.WithCancel(t.Context())
			stream = e.do(c, e.request(ctx, "/v1/stream", "{}"))
			leave()
			select {
			case <-e.left:
			case <-time.After(patience):
				t.Error("the upstream works on for a client that has left")
			}
			stream.Body.Close()
			for path, want := range map[string]string{"/livez": "ok", "/readyz": `"ready":true`, "/metrics": "headway_config_last_reload_successful 1"} {
				resp, err := c.Get(e.AdminURL() + path)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.Proto != name || !strings.Contains(string(text), want) {
					t.Errorf("%s over %s: %v, %s", path, resp.Proto, err, text)
				}
			}
		})
	}
	if !strings.HasPrefix(e.ConsoleURL(), "https://") {
		t.Errorf("the console is said to be at %s", e.ConsoleURL())
	}
}

// TestTLSRealtime: a session is opened by HTTP/1.1, though the listener prefers HTTP/2.
func TestTLSRealtime(t *testing.T) {
	e := startEncrypted(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	both := &http.Transport{TLSClientConfig: e.authority.Client(""), ForceAttemptHTTP2: true}
	defer both.CloseIdleConnections()
	conn, _, err := websocket.Dial(ctx, e.URL()+"/v1/realtime?intent=transcription&model=m", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: both}, HTTPHeader: http.Header{"Authorization": {"Bearer key-a"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	if _, event, err := conn.Read(ctx); err != nil || string(event) != `{"type":"session.created"}` {
		t.Errorf("got %s, %v", event, err)
	}
}

// TestTLSRefusesThePlain: a client that speaks HTTP is told what to do, and one below
// TLS 1.2 is refused.
func TestTLSRefusesThePlain(t *testing.T) {
	e := startEncrypted(t, "")
	for _, url := range []string{e.URL(), e.AdminURL()} {
		resp, err := http.Get(strings.Replace(url, "https", "http", 1) + "/livez")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "HTTP request to an HTTPS server") {
			t.Errorf("%s: %s: %s", url, resp.Status, text)
		}
	}
	for version, works := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true} {
		conf := e.authority.Client("")
		conf.MinVersion, conf.MaxVersion = version, version
		conn, err := tls.Dial("tcp", strings.TrimPrefix(e.URL(), "https://"), conf)
		if err == nil {
			conn.Close()
		}
		if (err == nil) != works {
			t.Errorf("%s: %v, want success: %v", tls.VersionName(version), err, works)
		}
	}
}

// TestTLSOfClients: with client_ca, who has no certificate of that authority is
// refused in the handshake, at the API and at the rate limit service.
func TestTLSOfClients(t *testing.T) {
	clients := certtest.New(t, "clients")
	clients.Issue("known")
	e := startEncrypted(t, clients.Path("clients.pem"))
	e.authority.Issue("stranger")
	for name, c := range map[string]struct {
		conf  *tls.Config
		works bool
	}{
		"no certificate":          {clients.Client(""), false},
		"of another authority":    {e.authority.Client("stranger"), false},
		"of the right authority":  {clients.Client("known"), true},
		"the same, in plain text": {nil, false},
	} {
		transport := insecure.NewCredentials()
		if c.conf != nil {
			c.conf.RootCAs = e.authority.Client("").RootCAs
			transport = credentials.NewTLS(c.conf)
			tr := &http.Transport{TLSClientConfig: c.conf}
			resp, err := (&http.Client{Transport: tr}).Do(e.request(t.Context(), "/v1/chat/completions", "{}"))
			if err == nil {
				resp.Body.Close()
			}
			if (err == nil) != c.works {
				t.Errorf("%s: API: %v, want success: %v", name, err, c.works)
			}
			tr.CloseIdleConnections()
		}
		err := e.askService(transport)
		if (err == nil) != c.works || err != nil && status.Code(err) != codes.Unavailable {
			t.Errorf("%s: rate limit service: %v, want success: %v", name, err, c.works)
		}
	}
}

// TestTLSForgetsAnAuthority: once it is taken out of client_ca, its clients are
// refused, also those that come back with a session that they had before.
func TestTLSForgetsAnAuthority(t *testing.T) {
	clients, next := certtest.New(t, "clients"), certtest.New(t, "clients")
	clients.Issue("known")
	e := startEncrypted(t, clients.Path("clients.pem"))
	conf := clients.Client("known")
	conf.RootCAs, conf.ClientSessionCache = e.authority.Client("").RootCAs, tls.NewLRUClientSessionCache(0)
	ask := func() (resumed bool, err error) {
		tr := &http.Transport{TLSClientConfig: conf}
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr}).Do(e.request(t.Context(), "/v1/chat/completions", "{}"))
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body) // behind the ticket for the next connection
		return resp.TLS.DidResume, err
	}
	for i := range 2 {
		if resumed, err := ask(); err != nil || resumed != (i > 0) {
			t.Fatalf("connection %d: resumed %v, %v", i+1, resumed, err)
		}
	}
	if err := os.Rename(next.Path("clients.pem"), clients.Path("clients.pem")); err != nil {
		t.Fatal(err)
	}
	if err := e.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(); err == nil {
		t.Error("a client of an authority that is gone is served")
	}
}

// askService asks the rate limit service something.
func (e *encrypted) askService(transport credentials.TransportCredentials) error {
	e.t.Helper()
	conn, err := grpc.NewClient(e.ServiceAddr(), grpc.WithTransportCredentials(transport))
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	_, err = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &pb.RateLimitRequest{
		Domain: "edge", Descriptors: []*common.RateLimitDescriptor{{Entries: []*common.RateLimitDescriptor_Entry{{Key: "k", Value: "v"}}}},
	})
	return err
}

// serial tells the certificate that a new connection to a listener gets.
func (e *encrypted) serial(address string) string {
	e.t.Helper()
	conf := e.authority.Client("")
	conf.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(address, "https://"), conf)
	if err != nil {
		e.t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// TestTLSRotates: new files are in force for new connections, those that are open go
// on; files that do not go together change nothing, and are told.
func TestTLSRotates(t *testing.T) {
	e := startEncrypted(t, "")
	c := e.client(true, "")
	stream := e.do(c, e.request(t.Context(), "/v1/stream", "{}"))
	lines := bufio.NewReader(stream.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	successful := func() bool { return testutil.ToFloat64(e.reloads.metrics.successful) == 1 }
	for name, address := range map[string]string{"api": e.URL(), "admin": e.AdminURL(), "grpc": e.ServiceAddr()} {
		before := e.serial(address)
		e.authority.Issue(name)
		storetest.Eventually(t, patience, name+": the new certificate", func() bool { return e.serial(address) != before })
		storetest.Eventually(t, patience, name+": the reload is told", successful)
	}
	before := e.serial(e.URL())
	e.authority.Issue("other")
	if err := os.Rename(e.authority.Path("other.key"), e.authority.Path("api.key")); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, patience, "the failed reload is told", func() bool { return !successful() })
	if now := e.serial(e.URL()); now != before {
		t.Errorf("a key without its certificate: serial %s, was %s", now, before)
	}
	if err := e.Reload(); err == nil || !strings.Contains(err.Error(), "server.tls.key") ||
		!strings.Contains(e.log.String(), "private key does not match public key") {
		t.Errorf("SIGHUP: got %v, want the field; log:\n%s", err, e.log.String())
	}
	if err := os.Rename(e.authority.Path("other.pem"), e.authority.Path("api.pem")); err != nil {
		t.Fatal(err)
	}
	if err := e.Reload(); err != nil || !successful() || e.serial(e.URL()) == before {
		t.Errorf("SIGHUP with the certificate of the new key: %v, told: %v", err, successful())
	}
	e.wait <- struct{}{}
	if rest, err := io.ReadAll(lines); err != nil || string(rest) != "\ndata: two\n\n" || stream.ProtoMajor != 2 {
		t.Errorf("the stream that was open: %q, %v, HTTP/%d", rest, err, stream.ProtoMajor)
	}
}

// TestTLSAtStart: files that went since they were checked are named, and listeners
// that are open already are closed.
func TestTLSAtStart(t *testing.T) {
	a := certtest.New(t, "authority")
	a.Issue("api")
	cfg, err := config.Parse(fmt.Appendf(nil, `
server: {admin_listen: "127.0.0.1:0", tls: {cert: %q, key: %q}}
anonymous: true
upstreams: [{name: u, url: "http://127.0.0.1:1"}]
routes: [{path: "/*", upstream: u}]
`, a.Path("api.pem"), a.Path("api.key")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(a.Path("api.key")); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Start(t.Context(), cfg, Options{Listener: ln})
	if err == nil {
		_ = r.Shutdown(context.Background())
	}
	if err == nil || !strings.Contains(err.Error(), "server.tls.key: there is no file") {
		t.Errorf("got %v, want the field and what is wrong", err)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is still open: %v", err)
	}
}
