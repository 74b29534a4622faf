package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// heldWriter notes how many grants run at each part of an answer that the client
// gets.
type heldWriter struct {
	*httptest.ResponseRecorder
	running func() int64
	parts   []string // "running: part", and "running: flush"
}

func (w *heldWriter) Write(p []byte) (int, error) {
	w.parts = append(w.parts, fmt.Sprintf("%d: %s", w.running(), p))
	return w.ResponseRecorder.Write(p)
}

func (w *heldWriter) Flush() {
	if len(w.parts) == 0 {
		w.parts = append(w.parts, fmt.Sprintf("%d: flush", w.running()))
	}
	w.ResponseRecorder.Flush()
}

// parts is a body that comes in these parts; err follows the last one.
func parts(err error, texts ...string) io.Reader {
	var all []io.Reader
	for _, text := range texts {
		all = append(all, strings.NewReader(text))
	}
	return io.MultiReader(append(all, iotest.ErrReader(err))...)
}

// TestSlotsAreFreeBeforeTheEnd looks that nothing is held any more when a client
// has its whole answer, and that the parts before are held and not delayed.
func TestSlotsAreFreeBeforeTheEnd(t *testing.T) {
	stream := http.Header{"Content-Type": {"text/event-stream"}}
	for _, c := range []struct {
		name   string
		method string
		header http.Header
		length int64
		body   io.Reader
		want   []string
	}{
		{"of known length", "GET", http.Header{}, 4, parts(io.EOF, "ab", "cd"), []string{"1: ab", "0: cd"}},
		{"the end comes with the last part", "GET", stream, -1, iotest.DataErrReader(parts(io.EOF, "ab", "cd")), []string{"1: flush", "1: ab", "0: cd"}},
		{"the end comes later", "GET", stream, -1, parts(io.EOF, "ab", "cd"), []string{"1: flush", "1: ab", "1: cd"}},
		{"cut short", "GET", http.Header{}, 6, parts(errors.New("cut"), "ab", "cd"), []string{"1: ab", "1: cd"}},
		{"a stream that is cut", "GET", stream, -1, parts(errors.New("cut"), "ab"), []string{"1: flush", "1: ab", "0: \n\nevent: error\ndata: "}},
		{"of HEAD", "HEAD", http.Header{}, -1, parts(io.EOF), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, limit("per_user", "max_in_flight_requests: 1"), ok)
				r.swap(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 200, Header: c.header.Clone(), ContentLength: c.length, Body: io.NopCloser(c.body)}, nil
				})
				req := httptest.NewRequest(c.method, "/v1/models", nil)
				req.Header.Set("Authorization", "Bearer secret-a")
				w := &heldWriter{ResponseRecorder: httptest.NewRecorder(), running: r.limiter.Running}
				func() {
					defer func() { _ = recover() }() // of an answer that is cut
					r.Handler().ServeHTTP(w, req)
				}()
				for i, want := range c.want {
					if i >= len(w.parts) || !strings.HasPrefix(w.parts[i], want) {
						t.Fatalf("got %q, want %q", w.parts, c.want)
					}
				}
				if len(w.parts) != len(c.want) {
					t.Errorf("got %q, want %q", w.parts, c.want)
				}
			})
		})
	}
}

// TestOneAfterTheOther sends requests of a caller that may have one at a time,
// each over a connection of its own as soon as the one before has its answer.
func TestOneAfterTheOther(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "ok")
		if r.URL.Path == "/chunked" {
			_ = http.NewResponseController(w).Flush()
		}
	}))
	defer upstream.Close()
	for _, scope := range []string{"fleet", "replica"} {
		cfg, err := config.Parse([]byte(fmt.Sprintf(`
keys: [{id: a, key: secret-a}]
upstreams: [{name: plain, kind: http, url: %q}]
routes: [{path: /*, upstream: plain}]
rate_limiting: {inflight_scope: %s, per_api_key: {max_in_flight_requests: 1}}
`, upstream.URL, scope)), nil)
		if err != nil {
			t.Fatal(err)
		}
		store := memstore.New().Replica(memstore.Options{})
		l, err := limiter.New(cfg.Limiter(), store, fleet.Solo("test"))
		if err != nil {
			t.Fatal(err)
		}
		g, err := New(cfg, l, Options{})
		if err != nil {
			t.Fatal(err)
		}
		front := httptest.NewServer(g.Handler())
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
		refused := 0
		for i := range 200 {
			req, _ := http.NewRequest("GET", front.URL+[]string{"/known", "/chunked"}[i%2], nil)
			req.Header.Set("Authorization", "Bearer secret-a")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				refused++
			}
		}
		if refused > 0 {
			t.Errorf("%s: %d of 200 were refused", scope, refused)
		}
		front.Close()
		g.CloseIdle()
		l.Close()
		store.Close(context.Background())
	}
}
