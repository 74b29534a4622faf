package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// TestRealSockets runs the gateway's own connection pool against servers that
// answer, refuse, and say nothing.
func TestRealSockets(t *testing.T) {
	good := httptest.NewServer(http.HandlerFunc(ok))
	defer good.Close()
	released := make(chan struct{})
	mute := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-released }))
	defer mute.Close()
	defer close(released)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()

	cfg, err := config.Parse([]byte(fmt.Sprintf(`
keys: [{id: a, key: secret-a}]
upstreams:
  - {name: good, url: %q}
  - {name: mute, url: %q, timeouts: {response_header: 50ms}}
  - {name: closed, url: %q}
routes: [{path: /good, upstream: good}, {path: /mute, upstream: mute}, {path: /closed, upstream: closed}]
`, good.URL, mute.URL, "http://"+closed.Addr().String())), nil)
	if err != nil {
		t.Fatal(err)
	}
	store := memstore.New().Replica(memstore.Options{})
	defer store.Close(context.Background())
	l, err := limiter.New(cfg.Limiter(), store, fleet.Solo("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g, err := New(cfg, l, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.CloseIdle()
	front := httptest.NewServer(g.Handler())
	defer front.Close()
	for path, want := range map[string]int{"/good": 200, "/mute": 504, "/closed": 502} {
		req, err := http.NewRequest(http.MethodPost, front.URL+path, strings.NewReader(completion))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer secret-a")
		start := time.Now()
		resp, err := front.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want || time.Since(start) > 10*time.Second {
			t.Errorf("%s: %d after %v: %s; want %d", path, resp.StatusCode, time.Since(start), text, want)
		}
	}
}
