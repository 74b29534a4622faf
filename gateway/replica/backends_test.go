package replica_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/replica"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// Two replicas and a real Redis: each upstream gets exactly what its limit
// allows, and what is refused for want of upstreams costs nobody anything.
func TestUpstreamLimitsHoldOverTheFleet(t *testing.T) {
	redis := redisproc.Start(t)
	var reached [2]atomic.Int64
	var servers [2]*httptest.Server
	for i := range servers {
		servers[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			reached[i].Add(1)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"usage":{"total_tokens":5}}`)
		}))
		defer servers[i].Close()
	}
	// The second is bounded by tokens: an estimate of 10 each, of which 5 come
	// back, lets 15 through one after the other, and fewer at once.
	text := fmt.Sprintf(`
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
redis: {mode: standalone, address: %q, timeout: 5s}
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams: [{name: own, url: %q}, {name: rented, url: %q}]
routes: [{path: /v1/*, upstreams: [own, rented]}]
rate_limiting:
  per_api_key: {requests: {limit: 100, per: 100000h}, tokens: {limit: 10000, per: 100000h}, max_in_flight_requests: 50}
  per_backend:
    overrides:
      own: {requests: {limit: 10, per: 100000h}}
      rented: {tokens: {limit: 80, per: 100000h}}
`, redis.Addr(), servers[0].URL, servers[1].URL)
	var replicas []*replica.Replica
	for range 2 {
		cfg, err := config.Parse([]byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := replica.Start(context.Background(), cfg, replica.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Shutdown(context.Background())
		replicas = append(replicas, r)
	}
	ask := func(r *replica.Replica) (int, http.Header, string) {
		req, err := http.NewRequest(http.MethodPost, r.URL()+"/v1/completions", strings.NewReader(`{"model":"m","prompt":"test","max_tokens":9}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer secret-a")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return 0, nil, ""
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, resp.Header, string(body)
	}
	var passed, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			switch status, _, body := ask(replicas[i%2]); {
			case status == http.StatusOK:
				passed.Add(1)
			case status == http.StatusTooManyRequests && strings.Contains(body, "the backend limit"):
				refused.Add(1)
			default:
				t.Errorf("%d: %s", status, body)
			}
		})
	}
	wg.Wait()
	// What comes back after an answer takes a moment to arrive.
	for end := time.Now().Add(30 * time.Second); reached[1].Load() < 15 && time.Now().Before(end); {
		if status, _, _ := ask(replicas[0]); status == http.StatusOK {
			passed.Add(1)
		}
	}
	if status, _, body := ask(replicas[1]); status != http.StatusTooManyRequests {
		t.Errorf("%d beyond all limits: %s", status, body)
	}
	own, rented := reached[0].Load(), reached[1].Load()
	if own != 10 || rented != 15 || passed.Load() != own+rented {
		t.Errorf("%d reached the first, %d the second, %d passed and %d were refused; want 10, 15 and 25", own, rented, passed.Load(), refused.Load())
	}
	var left string
	for end := time.Now().Add(30 * time.Second); left != "75, 9875" && time.Now().Before(end); {
		_, levels, _ := ask(replicas[1])
		left = levels.Get("X-Ratelimit-Remaining-Requests") + ", " + levels.Get("X-Ratelimit-Remaining-Tokens")
	}
	if left != "75, 9875" {
		t.Errorf("of 100 requests and 10000 tokens %s are left; want 75 and 9875", left)
	}
}
