package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/console"
	"github.com/headway-limiter/headway/limiter"
)

// look sends a GET to the admin listener under a host's name.
func (r *rig) look(host, path, credential string) *httptest.ResponseRecorder {
	r.t.Helper()
	req := httptest.NewRequest(http.MethodGet, "http://"+host+path, nil)
	if credential != "" {
		req.Header.Set("Authorization", "Bearer "+credential)
	}
	w := httptest.NewRecorder()
	r.Admin().ServeHTTP(w, req)
	return w
}

// document reads a page of the API.
func document[T any](r *rig, path string) (v T) {
	r.t.Helper()
	w := r.look("127.0.0.1", "/api/"+path, "")
	if err := json.Unmarshal(w.Body.Bytes(), &v); w.Code != http.StatusOK || err != nil {
		r.t.Fatalf("%s: %d %v: %s", path, w.Code, err, w.Body)
	}
	return v
}

// Who may look at what, with and without an admin token.
func TestWhoMayLook(t *testing.T) {
	const open, closed = "", "server: {admin_token: token}"
	for _, test := range []struct {
		settings, host, path, credential string
		status                           int
		code                             string
	}{
		{open, "127.0.0.1:9090", "/api/overview", "", 200, ""},
		{open, "[::1]:9090", "/api/overview", "", 200, ""},
		{open, "localhost", "/api/session", "", 200, ""},
		{open, "elsewhere.test", "/api/overview", "", 403, "foreign_host"}, // another page's name for this address
		{open, "elsewhere.test", "/api/overview", "secret-a", 403, "foreign_host"},
		{open, "127.0.0.1", "/api/overview", "wrong", 401, "invalid_admin_token"},
		{open, "127.0.0.1", "/api/session", "secret-a", 200, ""},
		{open, "127.0.0.1", "/api/tenants", "secret-a", 403, "operators_only"},
		{open, "127.0.0.1", "/api/events", "secret-a", 403, "operators_only"},
		{open, "elsewhere.test", "/console/", "", 403, "foreign_host"},
		{open, "elsewhere.test", "/debug/headway", "", 403, "foreign_host"},
		{open, "127.0.0.1:9090", "/debug/headway", "", 200, ""},
		{open, "elsewhere.test", "/metrics", "", 200, ""}, // Prometheus asks under the target's name
		{open, "elsewhere.test", "/readyz", "", 200, ""},
		{closed, "elsewhere.test", "/debug/headway", "token", 200, ""},
		{closed, "elsewhere.test", "/api/overview", "", 401, "invalid_admin_token"},
		{closed, "elsewhere.test", "/api/overview", "token", 200, ""},
		{closed, "elsewhere.test", "/api/session", "secret-a", 200, ""},
		{closed, "elsewhere.test", "/api/refusals", "secret-a", 403, "operators_only"},
		{closed, "elsewhere.test", "/api/refusals", "secret-", 401, "invalid_admin_token"},
		{closed, "elsewhere.test", "/console/", "", 200, ""}, // the page that asks who is there
		{"server: {console: false}", "127.0.0.1", "/console/", "", 404, "unknown_url"},
		{"server: {console: false}", "127.0.0.1", "/api/overview", "", 404, "unknown_url"},
		{open, "127.0.0.1", "/console", "", 301, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newRig(t, test.settings, ok).look(test.host, test.path, test.credential)
			var body envelope
			_ = json.Unmarshal(w.Body.Bytes(), &body)
			if w.Code != test.status || body.Error.Code != test.code {
				t.Errorf("%s as %q at %s with %q: %d %s, want %d %s", test.path, test.credential, test.host, test.settings, w.Code, body.Error.Code, test.status, test.code)
			}
			if strings.HasPrefix(test.path, "/api/") && w.Code != http.StatusNotFound && w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s may be cached: %q", test.path, w.Header().Get("Cache-Control"))
			}
		})
	}
}

// Names that the configuration gives are shown, all others are hashes, and keys
// and bodies nowhere.
func TestDocumentsNameWhatIsConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, `
rate_limiting:
  user_header: X-User
  per_user: {requests: {limit: 1, per: 1h, burst: 1}}
`, ok)
		const body = `{"model": "nobodys-model", "messages": [{"role": "user", "content": "a-private-word"}]}`
		r.must(200, "/v1/chat/completions", body, as("secret-a"))
		r.must(429, "/v1/chat/completions", body, as("secret-a"))
		tenants := document[console.Tenants](r, "tenants")
		if len(tenants.List) != 1 || tenants.Counted != 1 {
			t.Fatalf("tenants: %+v", tenants)
		}
		ann := tenants.List[0]
		if ann.Name != "ann" || ann.ID != string(limiter.Hash(limiter.User, "ann")) || ann.Admitted != 1 || ann.Refused != 1 ||
			ann.RefusedBy["requests"] != 1 || ann.Entitled != 1 || ann.Received != 1 {
			t.Errorf("ann: %+v", ann)
		}
		refusals := document[console.Refusals](r, "refusals")
		if len(refusals.List) != 1 || refusals.Total != 1 {
			t.Fatalf("refusals: %+v", refusals)
		}
		e := refusals.List[0]
		if e.Status != 429 || e.Code != "rate_limited" || e.Reason != "requests" || e.LimitType != "user" || e.Dimension != "user" || e.Name != "ann" ||
			e.Model != string(limiter.Hash(limiter.Model, "nobodys-model")) || e.RetryAfterMS < 3_599_000 {
			t.Errorf("the refusal: %+v", e)
		}
		overview := document[console.Overview](r, "overview")
		if overview.Decisions["admitted"] != 1 || overview.Decisions["refused"] != 1 || overview.Replica != "test" || len(overview.Fleet.Replicas) != 1 {
			t.Errorf("overview: %+v", overview)
		}
		for _, path := range []string{"overview", "tenants", "queues", "agents", "refusals"} {
			text := r.look("127.0.0.1", "/api/"+path, "").Body.String()
			for _, secret := range []string{"secret-a", "a-private-word", "nobodys-model", "upstream-secret"} {
				if strings.Contains(text, secret) {
					t.Errorf("/api/%s tells %q: %s", path, secret, text)
				}
			}
		}
	})
}

// The ring keeps the last 200, newest first, and since leaves out what was seen.
func TestRecentKeepsTheLast(t *testing.T) {
	var r recent
	if got := r.since(0); got.Total != 0 || len(got.List) != 0 {
		t.Fatalf("nothing was refused: %+v", got)
	}
	for i := 1; i <= 450; i++ {
		r.add(console.Refusal{Code: fmt.Sprint(i)})
		n := min(i, keptRefusals)
		got := r.since(0)
		if len(got.List) != n || got.List[0].Code != fmt.Sprint(i) || got.List[n-1].Number != uint64(i-n+1) || got.List[n-1].Code != fmt.Sprint(i-n+1) {
			t.Fatalf("after %d: %d kept, from %+v to %+v", i, len(got.List), got.List[0], got.List[n-1])
		}
		if got = r.since(uint64(i - 1)); len(got.List) != 1 || got.List[0].Number != uint64(i) {
			t.Fatalf("after %d, one is new: %+v", i, got)
		}
	}
}

// listener reads live events.
type listener struct {
	t      *testing.T
	stop   context.CancelFunc
	lines  *bufio.Scanner
	status int
}

func (r *rig) listen() *listener {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.t.Context())
	req := r.request(ctx, "/api/events", "")
	req.URL.Host, req.Host = "127.0.0.1", "127.0.0.1"
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { stop(); resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return &listener{r.t, stop, lines, resp.StatusCode}
}

// next returns the next event; an empty name at the end.
func (l *listener) next() (name string, live console.Live) {
	l.t.Helper()
	for l.lines.Scan() {
		line := l.lines.Text()
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if err := json.Unmarshal([]byte(data), &live); err != nil {
				l.t.Fatal(err)
			}
			return name, live
		}
		name = strings.TrimPrefix(line, "event: ")
	}
	return "", live
}

// newAdminRig is a rig whose client talks to the admin listener, and a server of
// the API for requests.
func newAdminRig(t *testing.T, more string) (r *rig, call func(key string) int) {
	r = newRig(t, more, ok)
	side := newWire("192.0.2.9:1")
	stop := serve(side, r.Admin())
	api := r.client
	transport := &http.Transport{DialContext: side.dial}
	r.client = &http.Client{Transport: transport}
	t.Cleanup(func() { transport.CloseIdleConnections(); stop() })
	return r, func(key string) int {
		resp, err := api.Do(r.request(t.Context(), "/v1/chat/completions", `{"model":"m"}`, as(key)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
}

// A listener gets a snapshot at once and one each second, each refusal once, and
// the news that the replica drains as the last word.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, call := newAdminRig(t, "rate_limiting: {per_user: {requests: {limit: 0, per: 1s}}}")
		call("secret-a")
		begin := time.Now()
		l := r.listen()
		name, live := l.next()
		if name != "state" || len(live.Refusals.List) != 1 || live.Overview.Replica != "test" || time.Since(begin) != 0 {
			t.Fatalf("the first event after %v: %s %+v", time.Since(begin), name, live)
		}
		call("secret-b")
		name, live = l.next()
		if name != "state" || len(live.Refusals.List) != 1 || live.Refusals.List[0].Name != "bob" || live.Refusals.Total != 2 || time.Since(begin) != time.Second {
			t.Errorf("the second after %v: %s %+v", time.Since(begin), name, live.Refusals)
		}
		if _, live = l.next(); len(live.Refusals.List) != 0 || live.Refusals.List == nil {
			t.Errorf("nothing is new: %+v", live.Refusals)
		}
		r.Drain()
		if name, _ = l.next(); name != "draining" {
			t.Errorf("when draining begins: %q", name)
		}
		if name, _ = l.next(); name != "" {
			t.Errorf("after the last word: %q", name)
		}
		if again := r.listen(); again.status != http.StatusServiceUnavailable {
			t.Errorf("a listener of a replica that drains: %d", again.status)
		}
	})
}

// There is room for a number of listeners; one who leaves makes room.
func TestEventsAreForAFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newAdminRig(t, "")
		var all []*listener
		for range mostListeners {
			l := r.listen()
			if l.next(); l.status != http.StatusOK {
				t.Fatalf("listener %d: %d", len(all), l.status)
			}
			all = append(all, l)
		}
		if one := r.listen(); one.status != http.StatusServiceUnavailable {
			t.Errorf("one more: %d", one.status)
		}
		all[0].stop()
		synctest.Wait()
		if one := r.listen(); one.status != http.StatusOK {
			t.Errorf("after one left: %d", one.status)
		}
	})
}

// Who may no longer look is no longer sent anything.
func TestEventsFollowTheConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newAdminRig(t, "")
		l := r.listen()
		l.next()
		cfg, err := config.Parse([]byte(keysAndRoutes+"server: {admin_token: new}"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Reload(cfg, cfg.Limiter()); err != nil {
			t.Fatal(err)
		}
		if name, _ := l.next(); name != "" {
			t.Errorf("a listener without the new token gets %q", name)
		}
	})
}
