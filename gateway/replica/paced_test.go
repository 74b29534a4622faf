package replica_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/replica"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// What a provider tells one replica holds at all of them: the others are told by
// gossip alone, for whoever asks the provider again is served.
func TestProviderPausesTheFleet(t *testing.T) {
	redis := redisproc.Start(t)
	var asked atomic.Int64
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusTooManyRequests)
		}
		fmt.Fprint(w, `{}`)
	}))
	defer provider.Close()
	text := fmt.Sprintf(`
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
redis: {mode: standalone, address: %q, timeout: 5s}
fleet: {bind: "127.0.0.1:0"}
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams: [{name: up, url: %q, throttle: {enabled: true}}]
routes: [{path: /v1/*, upstream: up}]
`, redis.Addr(), provider.URL)
	var replicas []*replica.Replica
	for range 3 {
		cfg, err := config.Parse([]byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := replica.Start(context.Background(), cfg, replica.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Shutdown(context.Background())
		for _, other := range replicas {
			if _, err := r.Join(other.GossipAddr()); err != nil {
				t.Fatal(err)
			}
		}
		replicas = append(replicas, r)
	}
	within := func(what string, ok func() bool) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	for _, r := range replicas {
		within("the replicas do not see each other", func() bool { return r.Members() == 3 })
	}
	ask := func(r *replica.Replica) (*http.Response, string) {
		req, err := http.NewRequest(http.MethodPost, r.URL()+"/v1/completions", strings.NewReader(`{"model":"m","max_tokens":1}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer secret-a")
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	if resp, body := ask(replicas[2]); resp.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("%d: %s", resp.StatusCode, body)
	}
	for i, r := range replicas {
		var resp *http.Response
		var body string
		within("a replica never hears of the pause", func() bool {
			resp, body = ask(r)
			return resp.StatusCode == http.StatusTooManyRequests && strings.Contains(body, "provider_paused")
		})
		if secs, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || secs < 500 {
			t.Errorf("replica %d says Retry-After %q", i, resp.Header.Get("Retry-After"))
		}
	}
}
