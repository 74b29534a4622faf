package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// three upstreams for one path, each with limits of its own, and a budget of the
// user whose level shows what was given back.
const three = `
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams:
  - {name: one, url: "http://one.test"}
  - {name: two, url: "http://two.test", models: [m, big]}
  - {name: three, url: "http://three.test"}
routes: [{path: /v1/*, upstreams: [one, two, three]}]
rate_limiting:
  per_user: {requests: {limit: 100, per: 100000h}, tokens: {limit: 1000, per: 100000h}, max_in_flight_requests: 3}
  per_backend:
    overrides:
      one: {requests: {limit: 2, per: 100000h}}
      two: {tokens: {limit: 25, per: 100000h}}
      three: {requests: {limit: 1, per: 10s}, tokens: {limit: 100, per: 1s}}
`

// newThree starts a gateway in front of three upstreams that answer with their
// names, or as answers say.
func newThree(t *testing.T, text string, answers map[string]http.HandlerFunc) *rig {
	t.Helper()
	cfg, err := config.Parse([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return newRigOf(t, cfg, func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimSuffix(r.Host, ".test")
		w.Header().Set("X-Server", name)
		if h := answers[name]; h != nil {
			h(w, r)
			return
		}
		ok(w, r)
	})
}

// serves expects the answer of one upstream.
func (r *rig) serves(server, body string) {
	r.t.Helper()
	resp, text := r.do("/v1/completions", body, as("secret-a"))
	if got := resp.Header.Get("X-Server"); got != server || resp.StatusCode != http.StatusOK {
		r.t.Errorf("%d by %q, want %q: %s", resp.StatusCode, got, server, text)
	}
}

func TestExhaustedUpstreamsArePassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, three, map[string]http.HandlerFunc{"two": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"usage":{"total_tokens":15}}`) // the estimate is 10
		}})
		for _, server := range []string{"one", "one", "two", "two", "three"} { // two is at -5 then
			r.serves(server, completion)
		}
		before := r.left(limiter.User, limiter.Tokens, "ann", 1000)
		resp, text := r.must(http.StatusTooManyRequests, "/v1/completions", completion, as("secret-a"))
		if secs := resp.Header.Get("Retry-After"); secs != "10" || !strings.Contains(text, `"limit_type":"backend"`) {
			t.Errorf("Retry-After %s, want the earliest of all, 10: %s", secs, text)
		}
		// Nothing was started, and nothing was taken.
		if n := r.left(limiter.User, limiter.Requests, "ann", 100); n != 95 {
			t.Errorf("%d of 100 requests are left after 5", n)
		}
		if n := r.left(limiter.User, limiter.Tokens, "ann", 1000); n != before {
			t.Errorf("%d tokens are left, %d before the refusal", n, before)
		}
		time.Sleep(10 * time.Second)
		r.serves("three", completion)
		for reason, want := range map[string]float64{"exhausted": 4, "unreachable": 0} {
			if n := testutil.ToFloat64(r.metrics.passed.WithLabelValues("one", reason)); n != want {
				t.Errorf("one was %s %v times, want %v", reason, n, want)
			}
		}
		if n := testutil.ToFloat64(r.metrics.requests.WithLabelValues("refused", "backend")); n != 1 {
			t.Errorf("%v refusals of backends are counted", n)
		}
	})
}

// What an upstream's own budget is charged follows the answer, as any budget.
func TestUpstreamBudgetIsSettled(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		left   int64 // of 25
	}{
		{"usage", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"usage":{"total_tokens":7}}`)
		}, 18},
		{"debt", ok, -5},
		{"no usage", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }, 15},
		{"error", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, 25},
		{"no answer", slow(time.Hour), 25},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newThree(t, strings.Replace(three, "[one, two, three]", "[two]", 1), map[string]http.HandlerFunc{"two": c.answer})
			if resp, err := r.client.Do(r.request(context.Background(), "/v1/completions", completion, as("secret-a"))); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			synctest.Wait()
			if n := r.left(limiter.Backend, limiter.Tokens, "two", 25); n != c.left {
				t.Errorf("%s: %d of 25 are left, want %d", c.name, n, c.left)
			}
		})
	}
}

func TestUnreachableUpstreamsArePassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, three, nil)
		r.dead.Store("one.test:80", true)
		r.serves("two", completion) // two has -5 then
		if n := r.left(limiter.Backend, limiter.Requests, "one", 2); n != 2 {
			t.Errorf("one, which was never reached, has %d of 2 left", n)
		}
		r.dead.Store("three.test:80", true)
		// One is down, two exhausted, three down: not all are exhausted.
		resp, text := r.must(http.StatusBadGateway, "/v1/completions", completion, as("secret-a"))
		if !strings.Contains(text, "upstream_unreachable") || resp.Header.Get("Retry-After") != "" {
			t.Errorf("%v %s", resp.Header, text)
		}
		if n := r.left(limiter.User, limiter.Requests, "ann", 100); n != 98 {
			t.Errorf("%d of 100 requests are left: one that fails counts", n)
		}
		if n := r.left(limiter.User, limiter.Tokens, "ann", 1000); n != 970 {
			t.Errorf("%d of 1000 tokens are left, want 970", n)
		}
		if n := r.left(limiter.Backend, limiter.Tokens, "three", 100); n != 100 {
			t.Errorf("three, which was never reached either, has %d of 100 tokens left", n)
		}
		r.dead.Delete("three.test:80")
		r.serves("three", completion)
		// One is down, the others are exhausted: still not all of them.
		r.must(http.StatusBadGateway, "/v1/completions", completion, as("secret-a"))
		r.dead.Delete("one.test:80")
		r.serves("one", completion)
		time.Sleep(10 * time.Second)
		r.dead.Store("one.test:80", true)
		r.serves("one", completion) // over the connection that is open
		r.serves("three", completion)
	})
}

// Once a byte may have been sent, the request goes nowhere else.
func TestSentRequestsAreNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls sync.Map
		cut := func(w http.ResponseWriter, r *http.Request) {
			calls.Store(r.Host, true)
			panic(http.ErrAbortHandler)
		}
		r := newThree(t, three, map[string]http.HandlerFunc{"one": cut, "two": cut, "three": cut})
		r.must(http.StatusBadGateway, "/v1/completions", completion, as("secret-a"))
		if _, twice := calls.Load("two.test"); twice {
			t.Error("a request that was cut went to another upstream")
		}
		if n := r.left(limiter.Backend, limiter.Requests, "one", 2); n != 1 {
			t.Errorf("one has %d of 2 left", n)
		}
	})
}

// errDial is what net.Dial returns where nobody listens.
var errDial error = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// Transports that tell nothing of their connections are believed an error of
// dialing, and nothing else.
func TestReachIsKnown(t *testing.T) {
	refused := func(*http.Request) (*http.Response, error) {
		return nil, fmt.Errorf("through a proxy: %w", errDial)
	}
	silent := func(*http.Request) (*http.Response, error) { return nil, errors.New("odd") }
	for _, c := range []struct {
		transport transportFunc
		server    string
	}{{refused, "two"}, {silent, ""}} {
		synctest.Test(t, func(t *testing.T) {
			r := newThree(t, three, nil)
			r.tables.Load().routes[0].candidates[0].transport = c.transport
			resp, text := r.do("/v1/completions", completion, as("secret-a"))
			if got := resp.Header.Get("X-Server"); got != c.server {
				t.Errorf("%d by %q, want %q: %s", resp.StatusCode, got, c.server, text)
			}
		})
	}
}

// A model goes to those that serve it, and uploads, whose model is not known, to
// any.
func TestModelsChooseUpstreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, strings.Replace(three, `"http://one.test"`, `"http://one.test", models: [small]`, 1), nil)
		r.serves("two", `{"model":"big","max_tokens":9}`)
		r.serves("one", `{"model":"small","max_tokens":9}`)
		r.serves("three", `{"model":"other","max_tokens":9}`)
		resp, _ := r.do("/v1/audio", "RIFF", as("secret-a"), header{"Content-Type", "audio/wav"})
		if got := resp.Header.Get("X-Server"); got != "one" {
			t.Errorf("an upload went to %q", got)
		}
	})
}

// A body that streams is not lost when the first upstream cannot be reached.
func TestUploadsReachTheNextUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got int64
		r := newThree(t, three, map[string]http.HandlerFunc{"two": func(w http.ResponseWriter, r *http.Request) {
			got, _ = io.Copy(io.Discard, r.Body)
		}})
		r.dead.Store("one.test:80", true)
		const size = 1 << 20
		req := r.request(context.Background(), "/v1/files", strings.Repeat("x", size), as("secret-a"), header{"Content-Type", "audio/wav"})
		if resp, text := r.send(req); resp.StatusCode != http.StatusOK || got != size {
			t.Errorf("%d, %d bytes arrived: %s", resp.StatusCode, got, text)
		}
	})
}

// While the store is out, the policy of per_backend decides.
func TestUpstreamsWithoutStore(t *testing.T) {
	for policy, want := range map[string]int{"fail_open": http.StatusOK, "fail_closed": http.StatusServiceUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			text := strings.Replace(three, "  per_backend:\n", "  per_backend:\n    on_outage: "+policy+"\n", 1)
			text = strings.Replace(text, "max_in_flight_requests: 3", "on_outage: fail_open", 1)
			r := newThree(t, text, nil)
			r.memory.SetDown(true)
			resp, _ := r.must(want, "/v1/completions", completion, as("secret-a"))
			if got := resp.Header.Get("X-Headway-Degraded"); (got == "open") != (want == http.StatusOK) {
				t.Errorf("%s: degraded %q", policy, got)
			}
			r.memory.SetDown(false)
			if n := r.left(limiter.User, limiter.Requests, "ann", 100); n != 100 {
				t.Errorf("%s: %d of 100 are left of what nobody took", policy, n)
			}
		})
	}
}

// What an upstream grants is used up by whoever asks, with a key or without.
func TestAnonymousRequestsCountForUpstreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, strings.Replace(three, "keys:", "anonymous: true\nkeys:", 1), nil)
		for _, server := range []string{"one", "one", "two"} {
			if resp, _ := r.do("/v1/completions", completion); resp.Header.Get("X-Server") != server {
				t.Errorf("%d by %q, want %q", resp.StatusCode, resp.Header.Get("X-Server"), server)
			}
		}
	})
}
