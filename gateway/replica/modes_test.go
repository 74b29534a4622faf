package replica

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// TestReplicaOnCluster: two replicas on a Redis Cluster in layout tenant share
// the limits of a user and of a model, whose keys lie in different slots.
func TestReplicaOnCluster(t *testing.T) {
	node := redisproc.StartLone(t)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"id": "x", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}`)
	}))
	defer upstream.Close()
	text := fmt.Sprintf(`
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
redis: {mode: cluster, addresses: [%q], layout: tenant, timeout: 5s, deny_cache: false}
keys:
  - {id: ann, key: secret-ann, user: ann, team: acme}
  - {id: bob, key: secret-bob, user: bob, team: umbrella}
upstreams: [{name: up, url: %q, kind: openai}]
routes: [{path: "/v1/*", upstream: up}]
rate_limiting:
  per_user: {requests: {limit: 3, per: 1h}, max_in_flight_requests: 2}
  per_model: {requests: {limit: 5, per: 1h}}
`, node.Addr(), upstream.URL)
	var replicas []*Replica
	for range 2 {
		cfg, err := config.Parse([]byte(text), os.LookupEnv)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Start(t.Context(), cfg, Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Shutdown(t.Context())
		storetest.Eventually(t, 10*time.Second, "usable", func() bool { return r.Health().Usable })
		replicas = append(replicas, r)
	}
	ask := func(i int, key string) int {
		req, err := http.NewRequest("POST", replicas[i%2].URL()+"/v1/chat/completions", strings.NewReader(`{"model": "m", "messages": []}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	for i, want := range []int{200, 200, 200, 429} {
		if got := ask(i, "secret-ann"); got != want {
			t.Errorf("ann's request %d: got %d, want %d", i+1, got, want)
		}
	}
	// Two are left of the model. The third, refused there, costs bob nothing.
	for i, want := range []int{200, 200, 429, 429} {
		if got := ask(i, "secret-bob"); got != want {
			t.Errorf("bob's request %d: got %d, want %d", i+1, got, want)
		}
	}
	user := "hw:{" + string(limiter.Hash(limiter.Team, "umbrella")) + "}:b:user:" + string(limiter.Hash(limiter.User, "bob"))
	storetest.Eventually(t, 10*time.Second, "bob has one request left, at the home of his team", func() bool {
		level, _ := node.Do("GET", user).(string)
		return strings.HasPrefix(level, "1000") // micro-tokens, a few have come back
	})
	if keys := node.Do("KEYS", "hw:{hw}:b:model:*").([]any); len(keys) != 1 {
		t.Errorf("the model's bucket lies with the shared keys: got %v", keys)
	}
}
