package replica_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/replica"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// Requests that a token budget in a real Redis refuses are held until it covers them,
// in the order in which they came; one that would have to wait too long is told how
// long that would be.
func TestDeferredOverRedis(t *testing.T) {
	redis := redisproc.Start(t)
	var mu sync.Mutex
	var order []int64
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Max int64 `json:"max_tokens"`
		}
		_ = json.NewDecoder(r.Body).Decode(&asked)
		mu.Lock()
		order = append(order, asked.Max)
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"usage":{"total_tokens":%d}}`, asked.Max+1)
	}))
	defer provider.Close()
	cfg, err := config.Parse(fmt.Appendf(nil, `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
redis: {mode: standalone, address: %q, timeout: 5s}
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams: [{name: up, url: %q}]
routes: [{path: /v1/*, upstream: up}]
rate_limiting:
  deferred_admission: {enabled: true, max_wait_ms: 15000}
  per_user: {tokens: {limit: 100, per: 1s, burst: 2000}}
`, redis.Addr(), provider.URL), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := replica.Start(context.Background(), cfg, replica.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Shutdown(context.Background())
	ask := func(tokens int64) (*http.Response, string) {
		body := fmt.Sprintf(`{"model":"m","prompt":"test","max_tokens":%d}`, tokens-1)
		req, err := http.NewRequest(http.MethodPost, r.URL()+"/v1/completions", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return nil, ""
		}
		req.Header.Set("Authorization", "Bearer secret-a")
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Error(err)
			return nil, ""
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp, string(text)
	}
	if resp, text := ask(2000); resp == nil || resp.StatusCode != http.StatusOK {
		t.Fatal(text)
	}
	var all sync.WaitGroup
	held := func(tokens int64, inLine int) {
		all.Go(func() {
			resp, text := ask(tokens)
			if resp == nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%d tokens: %s", tokens, text)
				return
			}
			if ms, err := strconv.Atoi(resp.Header.Get("x-headway-held-ms")); err != nil || ms < 10 {
				t.Errorf("%d tokens were held for %q ms", tokens, resp.Header.Get("x-headway-held-ms"))
			}
		})
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(20 * time.Second); ; <-tick.C {
			mu.Lock()
			served := len(order) - 1
			mu.Unlock()
			if r.Waiting()+served >= inLine {
				return
			}
			if time.Now().After(end) {
				t.Fatal("it is not held")
			}
		}
	}
	held(400, 1)
	held(5, 2)
	held(40, 3)
	resp, text := ask(2000)
	if resp == nil || resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(text, `"reason":"wait_exceeds_budget"`) {
		t.Fatalf("2000 tokens: %s", text)
	}
	if secs, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || secs < 16 || secs > 27 {
		t.Errorf("Retry-After %s for what takes about 24.5 s", resp.Header.Get("Retry-After"))
	}
	all.Wait()
	if got := fmt.Sprint(order); got != "[1999 399 4 39]" {
		t.Errorf("served in the order %s", got)
	}
}
