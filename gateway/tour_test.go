package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/limiter"
)

// accounts are three providers for one path. The first two have a throttle, the
// third has not.
const accounts = `
keys:
  - {id: a, key: secret-a, user: ann, team: acme}
  - {id: job, key: secret-job, user: bot, team: acme, batch: true}
upstreams:
  - {name: one, url: "http://one.test", throttle: {enabled: true, max_wait: 0s}}
  - {name: two, url: "http://two.test", throttle: {enabled: true, max_wait: 0s}}
  - {name: three, url: "http://three.test"}
routes:
  - {path: /v1/*, upstreams: [one, two, three]}
  - {path: /pair/*, upstreams: [one, two]}
  - {path: /lone/*, upstreams: [one]}
rate_limiting:
  per_user: {requests: {limit: 100, per: 100000h}, tokens: {limit: 1000, per: 100000h}, max_in_flight_requests: 50}
  per_backend: {requests: {limit: 50, per: 100000h}, tokens: {limit: 500, per: 100000h}}
`

// always answers with a status and a body.
func always(status int, body string, headers ...header) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for _, h := range headers {
			w.Header().Set(h.name, h.value)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// TestRefusedByAProvider: the next candidate is tried with the same body, and what the
// first took is given back. Failures that are no refusals are the caller's.
func TestRefusedByAProvider(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
		moves  bool
	}{
		{"quota", always(429, `{"error":{"type":"requests"}}`, header{"Retry-After", "9"}), true},
		{"no money", always(429, `{"error":{"code":"insufficient_quota"}}`), true},
		{"no money, in words", always(400, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}`), true},
		{"overload", always(529, `{"type":"error","error":{"type":"overloaded_error"}}`), true},
		{"unavailable", always(503, `{}`, header{"Retry-After", "3"}), true},
		{"wrong", always(400, `{"error":{"type":"invalid_request_error"}}`), false},
		{"forbidden", always(403, `{"error":{"type":"permission_error"}}`), false},
		{"broken", always(500, `{}`), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got atomic.Value
			r := newThree(t, accounts, map[string]http.HandlerFunc{"one": tt.answer, "two": func(w http.ResponseWriter, req *http.Request) {
				body, _ := io.ReadAll(req.Body)
				got.Store(string(body))
				ok(w, req)
			}})
			resp, text := r.do("/v1/completions", completion, as("secret-a"))
			if moved := resp.Header.Get("X-Server") == "two"; moved != tt.moves || moved && resp.StatusCode != 200 {
				t.Fatalf("%s: %d by %s: %s", tt.name, resp.StatusCode, resp.Header.Get("X-Server"), text)
			}
			if !tt.moves {
				return
			}
			if got.Load() != completion {
				t.Errorf("%s: the second was sent %v", tt.name, got.Load())
			}
			for name, want := range map[string]int64{"one": 50, "two": 49} {
				if n := r.left(limiter.Backend, limiter.Requests, name, 50); n != want {
					t.Errorf("%s: %d requests of %s are left, want %d", tt.name, n, name, want)
				}
			}
			if n, m := r.left(limiter.Backend, limiter.Tokens, "one", 500), r.left(limiter.User, limiter.Tokens, "ann", 1000); n != 500 || m != 970 {
				t.Errorf("%s: %d tokens of one and %d of ann are left", tt.name, n, m)
			}
			// The account that refused is left alone from now on; of one that said
			// so, with its reason.
			if r.serves("two", completion); testutil.ToFloat64(r.metrics.passed.WithLabelValues("one", "refused")) != 1 ||
				testutil.ToFloat64(r.metrics.passed.WithLabelValues("one", "throttled")) != 1 {
				t.Errorf("%s: one was asked again", tt.name)
			}
		})
	}
}

// TestLastRefusalIsPassedOn: where nobody takes it, the caller is answered as the last
// one that was asked did; and every candidate is asked once.
func TestLastRefusalIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := func(name string) http.HandlerFunc {
			return always(429, `{"error":{"message":"`+name+`"}}`, header{"Retry-After", "9"})
		}
		r := newThree(t, accounts, map[string]http.HandlerFunc{"one": refusal("first"), "two": refusal("second"), "three": refusal("third")})
		resp, text := r.do("/v1/completions", completion, as("secret-a"))
		if resp.StatusCode != 429 || text != `{"error":{"message":"third"}}` || resp.Header.Get("X-Server") != "three" {
			t.Errorf("%d by %s: %s", resp.StatusCode, resp.Header.Get("X-Server"), text)
		}
		if n := r.left(limiter.User, limiter.Tokens, "ann", 1000); n != 1000 {
			t.Errorf("%d tokens are left of a request that nobody served", n)
		}
	})
	// The second cannot be asked, or not be reached: the first one's answer stands.
	for _, second := range []string{"paused", "down", "exhausted"} {
		synctest.Test(t, func(t *testing.T) {
			text := accounts
			if second == "exhausted" {
				text += "    overrides: {two: {requests: {limit: 0, per: 1h}}}\n"
				text = strings.Replace(text, "per_backend: {requests: {limit: 50, per: 100000h}, tokens: {limit: 500, per: 100000h}}\n    overrides: {two: {requests: {limit: 0, per: 1h}}}",
					"per_backend: {overrides: {two: {requests: {limit: 0, per: 1h}}}}", 1)
			}
			r := newThree(t, text, map[string]http.HandlerFunc{"one": always(429, "mine", header{"Retry-After-Ms", "100"}), "two": always(429, "other", header{"Retry-After", "60"})})
			switch second {
			case "paused":
				r.do("/pair/completions", completion, as("secret-a"))
				time.Sleep(time.Second)
			case "down":
				r.dead.Store("two.test:80", true)
			}
			resp, got := r.do("/pair/completions", completion, as("secret-a"))
			if resp.StatusCode != 429 || got != "mine" || resp.Header.Get("X-Server") != "one" {
				t.Errorf("%s: %d by %q: %s", second, resp.StatusCode, resp.Header.Get("X-Server"), got)
			}
		})
	}
}

// TestWhatCannotMoveOn: bodies that were streamed are spent, and errors of any length
// pass unchanged.
func TestWhatCannotMoveOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", 2*maxOverheard)
		r := newThree(t, accounts, map[string]http.HandlerFunc{"one": always(429, long)})
		if resp, text := r.do("/v1/completions", completion, as("secret-a")); resp.StatusCode != 429 || text != long {
			t.Errorf("%d with %d bytes, want the %d of the first", resp.StatusCode, len(text), len(long))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, strings.ReplaceAll(accounts, ".test\"", ".test\", kind: http"), map[string]http.HandlerFunc{"one": always(429, "{}")})
		req := r.request(context.Background(), "/v1/upload", strings.Repeat("x", prefetch+1), as("secret-a"))
		req.Header.Set("Content-Type", "application/octet-stream")
		if resp, _ := r.send(req); resp.StatusCode != 429 || resp.Header.Get("X-Server") != "one" {
			t.Errorf("%d by %s", resp.StatusCode, resp.Header.Get("X-Server"))
		}
	})
	synctest.Test(t, func(t *testing.T) { // the body of a refusal breaks off
		r := newThree(t, accounts, map[string]http.HandlerFunc{"one": func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(429)
			fmt.Fprint(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}})
		resp, err := r.client.Do(r.request(context.Background(), "/v1/completions", completion, as("secret-a")))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(text) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %q, %v", text, err)
		}
		synctest.Wait()
	})
}

// TestBatchGoesBackIntoLine: a provider that refuses batch work is asked again when
// its pause is over; the caller sees only the answer.
func TestBatchGoesBackIntoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, accounts, map[string]http.HandlerFunc{"one": refuses(429, "{}", header{"Retry-After", "20"})})
		begun := time.Now()
		resp, text := r.do("/lone/completions", completion, as("secret-job"))
		if resp.StatusCode != 200 || time.Since(begun) < 20*time.Second || time.Since(begun) > 23*time.Second {
			t.Errorf("%d after %v: %s", resp.StatusCode, time.Since(begun), text)
		}
		if n, m := r.left(limiter.User, limiter.Requests, "bot", 100), r.left(limiter.Backend, limiter.Requests, "one", 50); n != 99 || m != 49 {
			t.Errorf("%d requests of the user and %d of the provider are left: it was one", n, m)
		}
	})
	synctest.Test(t, func(t *testing.T) { // no time helps an account without money
		r := newThree(t, accounts, map[string]http.HandlerFunc{"one": always(429, `{"error":{"code":"insufficient_quota"}}`)})
		if resp, text := r.do("/lone/completions", completion, as("secret-job")); resp.StatusCode != 429 || !strings.Contains(text, "insufficient_quota") {
			t.Errorf("%d: %s", resp.StatusCode, text)
		}
	})
}

// TestBatchLooksAround: with several candidates batch work goes where it can start,
// and where it cannot start anywhere, waits for the one that can be asked first.
func TestBatchLooksAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, accounts, map[string]http.HandlerFunc{
			"one": refuses(429, "{}", header{"Retry-After", "50"}), "two": refuses(429, "{}", header{"Retry-After", "20"}),
		})
		if resp, _ := r.do("/pair/completions", completion, as("secret-a")); resp.StatusCode != 429 {
			t.Fatal(resp.Status)
		}
		begun := time.Now()
		resp, text := r.do("/pair/completions", completion, as("secret-job"))
		if d := time.Since(begun); resp.StatusCode != 200 || resp.Header.Get("X-Server") != "two" || d < 20*time.Second || d > 23*time.Second {
			t.Errorf("%d by %s after %v: %s", resp.StatusCode, resp.Header.Get("X-Server"), d, text)
		}
		if resp, _ := r.do("/v1/completions", completion, as("secret-job")); resp.StatusCode != 200 {
			t.Errorf("%d", resp.StatusCode)
		}
	})
}

// TestBatchSharesAProvider: batch requests of two tenants take turns by cost, within
// the weights of the wait line; their queues are bounded each for itself.
func TestBatchSharesAProvider(t *testing.T) {
	const text = `
keys:
  - {id: many, key: secret-many, user: many, team: acme, batch: true}
  - {id: few, key: secret-few, user: few, team: acme, batch: true}
upstreams: [{name: one, url: "http://one.test", throttle: {enabled: true}}]
routes: [{path: /v1/*, upstream: one}]
batch: {queue_depth_per_tenant: 20}
server: {timeouts: {total: 10m}}
`
	synctest.Test(t, func(t *testing.T) {
		first := refuses(429, "{}", header{"Retry-After", "5"})
		var mu sync.Mutex
		var order []string
		r := newThree(t, text, map[string]http.HandlerFunc{"one": func(w http.ResponseWriter, req *http.Request) {
			if who := req.Header.Get("X-Who"); who != "" {
				mu.Lock()
				order = append(order, who)
				mu.Unlock()
			}
			first(w, req)
		}})
		ask := func(who string) *http.Response {
			req := r.request(context.Background(), "/v1/completions", completion, as("secret-"+who))
			req.Header.Set("X-Who", who)
			resp, err := r.client.Do(req)
			if err != nil {
				t.Error(err)
				return nil
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			return resp
		}
		req := r.request(context.Background(), "/v1/completions", completion, as("secret-many"), header{"x-headway-deadline-ms", "0"})
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		var all sync.WaitGroup
		var full atomic.Int64
		for _, who := range slices.Concat(slices.Repeat([]string{"many"}, 21), slices.Repeat([]string{"few"}, 3)) {
			all.Go(func() {
				if resp := ask(who); resp != nil && resp.StatusCode == 429 {
					full.Add(1)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if n := full.Load(); n != 1 {
			t.Errorf("%d were refused, want the one too many", n)
		}
		if len(order) < 6 || strings.Join(order[:6], " ") != "many few many few many few" {
			t.Errorf("order %v", order)
		}
		synctest.Wait()
	})
}

// TestDeferredAtTheEdge: the headers and details of requests that are held.
func TestDeferredAtTheEdge(t *testing.T) {
	const limits = `
rate_limiting:
  deferred_admission: {enabled: true, max_wait_ms: 5000}
  per_user: {tokens: {limit: 10, per: 1s, burst: 100}}
`
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limits, ok)
		big := `{"model":"m","prompt":"test","max_tokens":99}`
		resp, _ := r.must(200, "/v1/completions", big, as("secret-a"))
		if resp.Header.Get("X-Headway-Held-Ms") != "" {
			t.Error("it was held")
		}
		// 30 were used of 100; after another of 30 there are 40.
		r.must(200, "/v1/completions", completion, as("secret-a"))
		begun := time.Now()
		resp, _ = r.must(200, "/v1/completions", `{"model":"m","prompt":"test","max_tokens":79}`, as("secret-a"))
		if d := time.Since(begun); resp.Header.Get("X-Headway-Held-Ms") != "4000" || d != 4*time.Second {
			t.Errorf("held %s ms, answered after %v", resp.Header.Get("X-Headway-Held-Ms"), d)
		}
		resp, text := r.must(429, "/v1/completions", big, as("secret-a"))
		if resp.Header.Get("Retry-After-Ms") != "5000" || !strings.Contains(text, `"reason":"wait_exceeds_budget"`) {
			t.Errorf("%s: %s", resp.Header.Get("Retry-After-Ms"), text)
		}
		if !strings.Contains(text, `"dimension":"user"`) || !strings.Contains(text, `"held":{"waited_ms":0}`) || !strings.Contains(text, `"limit_type":"tokens"`) {
			t.Errorf("details %s", text)
		}
	})
}
