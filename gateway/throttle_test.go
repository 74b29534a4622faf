package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// paced are two providers for one path, of which the first has a throttle, and a
// third that both models may go to.
const paced = `
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams:
  - {name: one, url: "http://one.test", models: [m, n], throttle: {enabled: true}}
  - {name: two, url: "http://two.test", models: [n], throttle: {enabled: true, max_wait: 0s}}
routes: [{path: /v1/*, upstreams: [one, two]}]
rate_limiting:
  per_user: {requests: {limit: 100, per: 100000h}, tokens: {limit: 1000, per: 100000h}, max_in_flight_requests: 50}
  per_backend: {requests: {limit: 50, per: 100000h}}
`

const completionN = `{"model":"n","prompt":"test","max_tokens":9}`

// refuses is a provider that refuses once, and what it then says in headers.
func refuses(status int, body string, headers ...header) http.HandlerFunc {
	var asked atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) {
		if asked.Swap(true) {
			ok(w, r)
			return
		}
		for _, h := range headers {
			w.Header().Set(h.name, h.value)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}
}

// TestProviderPauses: after a 429 nothing is sent to the provider until it says so,
// not even by others' keys; the refusal is true, and takes nothing.
func TestProviderPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		first := refuses(429, `{"error":{"type":"requests"}}`, header{"Retry-After", "7"})
		r := newThree(t, paced, map[string]http.HandlerFunc{"one": func(w http.ResponseWriter, req *http.Request) {
			calls.Add(1)
			first(w, req)
		}})
		if resp, _ := r.do("/v1/completions", completion, as("secret-a")); resp.StatusCode != 429 || resp.Header.Get("X-Server") != "one" {
			t.Fatalf("%d: the provider's own refusal is the caller's answer", resp.StatusCode)
		}
		time.Sleep(500 * time.Millisecond)
		resp, text := r.must(429, "/v1/completions", completion, as("secret-a"))
		if resp.Header.Get("Retry-After") != "7" || resp.Header.Get("Retry-After-Ms") != "6500" || resp.Header.Get("X-Should-Retry") != "" {
			t.Errorf("Retry-After %s, %s ms", resp.Header.Get("Retry-After"), resp.Header.Get("Retry-After-Ms"))
		}
		if !strings.Contains(text, `"limit_type":"backend","reason":"provider_paused"`) {
			t.Errorf("answer %s", text)
		}
		if n := calls.Load(); n != 1 {
			t.Errorf("the provider was asked %d times", n)
		}
		if n, m := r.left(limiter.User, limiter.Requests, "ann", 100), r.left(limiter.Backend, limiter.Requests, "one", 50); n != 99 || m != 49 {
			t.Errorf("%d of 100 requests and %d of 50 are left", n, m)
		}
		// Of another model nothing is known.
		r.serves("one", completionN)
		time.Sleep(6500 * time.Millisecond)
		r.serves("one", completion)
		if n := testutil.ToFloat64(r.metrics.requests.WithLabelValues("refused", "backend")); n != 1 {
			t.Errorf("%v refusals are counted", n)
		}
	})
}

// TestWaitsForTheProvider: what max_wait covers is waited for; with several
// upstreams the next one is asked after that, and the caller is told when the first
// of them can be asked.
func TestWaitsForTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := func(ms string) http.HandlerFunc { return refuses(429, "{}", header{"Retry-After-Ms", ms}) }
		r := newThree(t, paced, map[string]http.HandlerFunc{"one": again("900"), "two": again("60000")})
		r.do("/v1/completions", completion, as("secret-a"))
		begun := time.Now()
		r.serves("one", completion)
		if d := time.Since(begun); d != 900*time.Millisecond {
			t.Errorf("waited %v", d)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		again := func(ms string) http.HandlerFunc { return refuses(429, "{}", header{"Retry-After-Ms", ms}) }
		r := newThree(t, paced, map[string]http.HandlerFunc{"one": again("30000"), "two": again("20000")})
		// The first refuses, and so does the second, which is tried at once.
		if resp, _ := r.do("/v1/completions", completionN, as("secret-a")); resp.StatusCode != 429 || resp.Header.Get("X-Server") != "two" {
			t.Errorf("%d by %s, want the second", resp.StatusCode, resp.Header.Get("X-Server"))
		}
		if resp, text := r.must(429, "/v1/completions", completionN, as("secret-a")); resp.Header.Get("Retry-After") != "20" {
			t.Errorf("Retry-After %s, want the earlier: %s", resp.Header.Get("Retry-After"), text)
		}
		if n := testutil.ToFloat64(r.metrics.passed.WithLabelValues("one", "throttled")); n != 1 {
			t.Errorf("one was passed over %v times", n)
		}
		time.Sleep(20 * time.Second)
		r.serves("two", completionN)
	})
}

// TestStoppedAccount: no retry helps, as the body alone tells.
func TestStoppedAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broke := refuses(429, `{"error":{"type":"insufficient_quota","code":"insufficient_quota"}}`, header{"Retry-After", "1"})
		r := newThree(t, paced, map[string]http.HandlerFunc{"one": broke})
		r.do("/v1/completions", completion, as("secret-a"))
		time.Sleep(10 * time.Second)
		resp, text := r.must(429, "/v1/completions", completion, as("secret-a"))
		if resp.Header.Get("Retry-After") != "" || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(text, "provider_stopped") {
			t.Errorf("Retry-After %q: %s", resp.Header.Get("Retry-After"), text)
		}
		time.Sleep(50 * time.Second)
		r.serves("one", completion) // a try, which ends it
		r.serves("one", completion)
	})
}

// TestHeadersAreHeededWhileAStreamRuns: what the first bytes of an answer say holds
// at once, though its end is far.
func TestHeadersAreHeededWhileAStreamRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, paced, map[string]http.HandlerFunc{"one": func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			w.Header().Set("X-Ratelimit-Limit", "100")
			w.Header().Set("X-Ratelimit-Remaining", "0")
			w.Header().Set("X-Ratelimit-Reset", "30")
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {}\n\n")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(20 * time.Second)
			fmt.Fprint(w, "data: [DONE]\n\n")
		}})
		resp, err := r.client.Do(r.request(context.Background(), "/v1/completions", completion, as("secret-a")))
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		buf := make([]byte, 64)
		if _, err := resp.Body.Read(buf); err != nil || time.Since(begun) != 0 {
			t.Errorf("the first frame took %v: %v", time.Since(begun), err)
		}
		time.Sleep(10 * time.Second)
		answer, text := r.must(429, "/v1/completions", completion, as("secret-a"))
		if answer.Header.Get("Retry-After") != "20" || !strings.Contains(text, "provider_quota") {
			t.Errorf("Retry-After %s: %s", answer.Header.Get("Retry-After"), text)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	})
}

// TestErrorsPassUnchanged: an error's body is overheard, never held back or cut.
func TestErrorsPassUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", 3*maxOverheard+7)
		r := newThree(t, paced, map[string]http.HandlerFunc{"one": func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, long[:100])
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
			fmt.Fprint(w, long[100:])
		}})
		resp, err := r.client.Do(r.request(context.Background(), "/v1/completions", completion, as("secret-a")))
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		head := make([]byte, 100)
		if _, err := io.ReadFull(resp.Body, head); err != nil || time.Since(begun) != 0 {
			t.Errorf("the first bytes took %v: %v", time.Since(begun), err)
		}
		rest, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(head)+string(rest) != long {
			t.Errorf("%d bytes came, want %d: %v", len(head)+len(rest), len(long), err)
		}
		r.must(429, "/v1/completions", completion, as("secret-a"))
	})
}

// TestBatchWaits: batch requests wait as long as they say, and leave the reserve
// alone; their headers are nobody else's business.
func TestBatchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var told sync.Map
		r := newThree(t, paced, map[string]http.HandlerFunc{"one": func(w http.ResponseWriter, req *http.Request) {
			told.Store(req.Header.Get("X-Headway-Priority")+req.Header.Get("X-Headway-Deadline-Ms"), true)
			left := 20
			if time.Since(begun) > 30*time.Second {
				left = 100
			}
			w.Header().Set("X-Ratelimit-Limit", "100")
			w.Header().Set("X-Ratelimit-Remaining", fmt.Sprint(left))
			w.Header().Set("X-Ratelimit-Reset", fmt.Sprint(30-int(time.Since(begun).Seconds())%30))
			ok(w, req)
		}})
		batch := header{"x-headway-priority", "batch"}
		r.serves("one", completion)
		soon := header{"x-headway-deadline-ms", "2000"}
		resp, text := r.must(429, "/v1/completions", completion, as("secret-a"), batch, soon)
		if resp.Header.Get("Retry-After") != "28" || !strings.Contains(text, `"reason":"deadline_exceeded"`) {
			t.Errorf("batch work at the reserve, Retry-After %s: %s", resp.Header.Get("Retry-After"), text)
		}
		if d := time.Since(begun); d != 2*time.Second {
			t.Errorf("it was refused after %v", d)
		}
		if n := r.left(limiter.User, limiter.Requests, "ann", 100); n != 99 {
			t.Errorf("%d requests are left: what expires takes nothing", n)
		}
		r.serves("one", completion)
		r.must(200, "/v1/completions", completion, as("secret-a"), batch, header{"x-headway-deadline-ms", "40000"})
		if d := time.Since(begun); d < 30*time.Second || d > 33*time.Second {
			t.Errorf("batch work started after %v", d)
		}
		told.Range(func(name, _ any) bool {
			if name != "" {
				t.Errorf("the provider was told %v", name)
			}
			return true
		})
	})
}

// TestDrainEndsBatchWaits: a replica that leaves keeps nobody waiting.
func TestDrainEndsBatchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, paced, map[string]http.HandlerFunc{"one": refuses(429, "{}", header{"Retry-After", "20"})})
		r.do("/v1/completions", completion, as("secret-a"))
		var wait sync.WaitGroup
		wait.Go(func() {
			resp, text := r.do("/v1/completions", completion, as("secret-a"), header{"x-headway-priority", "batch"}, header{"x-headway-deadline-ms", "60000"})
			if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "draining") {
				t.Errorf("%d: %s", resp.StatusCode, text)
			}
		})
		time.Sleep(time.Second)
		r.Drain()
		wait.Wait()
		if n := r.left(limiter.User, limiter.Requests, "ann", 100); n != 99 {
			t.Errorf("%d requests are left", n)
		}
	})
}

// TestReloadSwitchesThrottles: off, nothing waits; on, what was known holds.
func TestReloadSwitchesThrottles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, paced, map[string]http.HandlerFunc{"one": refuses(429, "{}", header{"Retry-After", "20"})})
		reload := func(text string) {
			cfg, err := config.Parse([]byte(text), nil)
			if err != nil {
				t.Fatal(err)
			}
			if kept, err := r.Reload(cfg, cfg.Limiter()); err != nil || len(kept) > 0 {
				t.Fatal(kept, err)
			}
		}
		r.do("/v1/completions", completion, as("secret-a"))
		r.must(429, "/v1/completions", completion, as("secret-a"))
		reload(strings.ReplaceAll(paced, "enabled: true", "enabled: false"))
		r.serves("one", completion)
		reload(paced)
		r.must(429, "/v1/completions", completion, as("secret-a"))
	})
}

func TestProviderOf(t *testing.T) {
	for host, want := range map[string]string{
		"api.openai.com": "openai", "mine.openai.azure.com": "azure", "API.Groq.com": "groq", "127.0.0.1": "", "openai.com.evil.test": "",
	} {
		if got := providerOf(host); got != want {
			t.Errorf("%s is %q, want %q", host, got, want)
		}
	}
}
