package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

// seen is an upstream that counts, and keeps the last request's headers.
type seen struct {
	next    http.HandlerFunc
	count   atomic.Int64
	running atomic.Int64
	mu      sync.Mutex
	last    *http.Request
	body    string
}

func (s *seen) handle(w http.ResponseWriter, r *http.Request) {
	s.count.Add(1)
	s.running.Add(1)
	defer s.running.Add(-1)
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.last, s.body = r, string(body)
	s.mu.Unlock()
	s.next(w, r)
}

func TestPassesRequestsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &seen{next: ok}
		r := newRig(t, "", up.handle)
		r.must(http.StatusOK, "/v1/completions?a=b%20c", completion, as("secret-a"),
			header{"Connection", "keep-alive, X-Mine"}, header{"X-Mine", "1"}, header{"Te", "trailers"},
			header{"Proxy-Authorization", "x"}, header{"Expect", "100-continue"}, header{"Upgrade", "h2c"}, header{"Keep-Alive", "5"},
			header{"X-Api-Key", "secret-a"}, header{"X-Forwarded-For", "1.2.3.4"}, header{"Forwarded", "for=1.2.3.4"},
			header{"Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, header{"X-Custom", "kept"})
		got := up.last
		if got.URL.Path != "/base/v1/completions" || got.URL.RawQuery != "a=b%20c" || got.Host != "upstream.test" || up.body != completion {
			t.Errorf("upstream got %s %s?%s %s", got.Host, got.URL.Path, got.URL.RawQuery, up.body)
		}
		for name, want := range map[string]string{
			"Authorization": "Bearer upstream-secret", "X-Custom": "kept", "X-Request-Id": "test",
			"Traceparent":     "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Host": "gateway.test", "X-Forwarded-Proto": "http",
			"Accept-Encoding": "identity", "Content-Type": "application/json",
			"X-Mine": "", "Te": "", "Expect": "", "Proxy-Authorization": "", "Upgrade": "", "Keep-Alive": "", "X-Api-Key": "", "Forwarded": "",
			"Connection": "",
		} {
			if v := strings.Join(got.Header.Values(name), "|"); v != want {
				t.Errorf("%s: %q, want %q", name, v, want)
			}
		}
	})
}

func TestAnswersLoseConnectionHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", func(w http.ResponseWriter, _ *http.Request) {
			h := w.Header()
			h.Set("Connection", "X-Theirs")
			for _, name := range []string{"X-Theirs", "Keep-Alive", "Proxy-Authenticate", "X-Fair-Queue-Position", "X-Headway-Degraded", "RateLimit"} {
				h.Set(name, "1")
			}
			h.Set("X-Kept", "1")
			w.WriteHeader(http.StatusTeapot)
		})
		resp, _ := r.must(http.StatusTeapot, "/v1/completions", completion, as("secret-a"))
		for name := range resp.Header {
			switch name {
			case "X-Kept", "X-Request-Id", "Date", "Content-Length":
			default:
				t.Errorf("%s came through", name)
			}
		}
	})
}

// TestCompressionIsLeftAlone: of an opaque upstream, bytes and encodings pass
// in both directions.
func TestCompressionIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &seen{next: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(w, "not really gzip")
		}}
		r := newRig(t, "", up.handle)
		resp, body := r.must(http.StatusOK, "/plain/x", "compressed", as("secret-a"), header{"Content-Encoding", "zstd"}, header{"Accept-Encoding", "br"})
		if up.last.Header.Get("Accept-Encoding") != "br" || up.last.Header.Get("Content-Encoding") != "zstd" || up.body != "compressed" ||
			resp.Header.Get("Content-Encoding") != "gzip" || body != "not really gzip" {
			t.Errorf("upstream got %v %q, client got %v %q", up.last.Header, up.body, resp.Header, body)
		}
	})
}

// TestStreamIsNotDelayed measures when each event arrives, to the nanosecond.
func TestStreamIsNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limit("per_api_key", "tokens: {limit: 1000, per: 1000h}, max_in_flight_requests: 1"), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			flush := http.NewResponseController(w).Flush
			_ = flush() // headers first
			for i := range 5 {
				time.Sleep(time.Second)
				fmt.Fprintf(w, "data: {\"choices\":[%d]}\n\n", i)
				_ = flush()
			}
			time.Sleep(time.Second)
			fmt.Fprint(w, "data: {\"choices\":[],\"usage\":{\"total_tokens\":400}}\n\ndata: [DONE]\n\n")
		})
		start := time.Now()
		resp, err := r.client.Do(r.request(context.Background(), "/v1/completions", completion, as("secret-a")))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if took := time.Since(start); took != 0 {
			t.Errorf("headers came after %v", took)
		}
		buf := make([]byte, 1024)
		for i := range 5 {
			n, err := resp.Body.Read(buf)
			want := fmt.Sprintf("data: {\"choices\":[%d]}\n\n", i)
			if took := time.Since(start); took != time.Duration(i+1)*time.Second || string(buf[:n]) != want || err != nil {
				t.Errorf("event %d came after %v: %q, %v", i, took, buf[:n], err)
			}
		}
		rest, err := io.ReadAll(resp.Body)
		if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
			t.Errorf("the end is %q, %v", rest, err)
		}
		if resp.Header.Get("X-Accel-Buffering") != "no" {
			t.Error("a proxy in front may buffer the stream")
		}
		synctest.Wait()
		next, _ := r.must(http.StatusOK, "/v1/completions", completion, as("secret-a"))
		if left := next.Header.Get("X-Ratelimit-Remaining-Tokens"); left != "590" { // 1000 - 400 - 10
			t.Errorf("%s tokens left", left)
		}
	})
}

// TestSlowStreamLives: neither an upstream that is quiet for a little less than
// it may, over and over, nor a client that reads late, ends a stream.
func TestSlowStreamLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "server: {timeouts: {total: 20m}}", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 5 {
				time.Sleep(59 * time.Second)
				fmt.Fprint(w, "data: 1\n\n")
				_ = http.NewResponseController(w).Flush()
			}
		})
		resp, err := r.client.Do(r.request(context.Background(), "/v1/completions", completion, as("secret-a")))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		time.Sleep(10 * time.Minute)
		if text, err := io.ReadAll(resp.Body); err != nil || len(text) != 5*len("data: 1\n\n") {
			t.Errorf("got %q, %v", text, err)
		}
	})
}

// TestSettle follows a token budget of 1000 that hardly refills through one
// request with an estimate of 10.
func TestSettle(t *testing.T) {
	plain := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	for _, test := range []struct {
		name     string
		upstream http.HandlerFunc
		spent    int
	}{
		{"above the estimate", plain(200, "application/json; charset=utf-8", `{"usage":{"total_tokens":70}}`), 70},
		{"below the estimate", plain(200, "application/json", `{"usage":{"total_tokens":3}}`), 3},
		{"parts only", plain(200, "application/json", `{"usage":{"input_tokens":3,"output_tokens":40}}`), 43},
		{"in a response event", plain(200, "text/event-stream", "event: response.completed\ndata: {\"type\":\"x\",\"response\":{\"output\":[{\"usage\":{\"total_tokens\":9}}],\"usage\":{\"total_tokens\":55}}}\n\n"), 55},
		{"none told", plain(200, "application/json", `{"choices":[]}`), 10},
		{"null", plain(200, "application/json", `{"usage":null}`), 10},
		{"nonsense", plain(200, "application/json", `{"usage":{"total_tokens":-5}}`), 10},
		{"not JSON", plain(200, "text/plain", `{"usage":{"total_tokens":70}}`), 10},
		{"caller's mistake", plain(400, "application/json", `{"error":{}}`), 0},
		{"provider's limit", plain(429, "application/json", `{"error":{}}`), 0},
		{"provider's fault", plain(500, "application/json", `{"usage":{"total_tokens":70}}`), 0},
		{"no headers", slow(time.Hour), 0},
		{"unreachable", nil, 0},
		{"broke off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"usage\":{\"total_tokens\":2}}\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 10},
		{"broke off late", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"usage\":{\"total_tokens\":200}}\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				r := newRig(t, limit("per_api_key", "tokens: {limit: 1000, per: 100000h}"), func(w http.ResponseWriter, req *http.Request) {
					if first {
						first = false
						test.upstream(w, req)
						return
					}
					plain(500, "text/plain", "")(w, req)
				})
				if test.upstream == nil {
					r.upstream.Close()
				}
				if resp, err := r.client.Do(r.request(context.Background(), "/v1/completions", completion, as("secret-a"))); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				synctest.Wait()
				resp, _ := r.do("/v1/completions", completion, as("secret-a"))
				want := fmt.Sprint(1000 - test.spent - 10)
				if left := resp.Header.Get("X-Ratelimit-Remaining-Tokens"); left != want {
					t.Errorf("%s tokens left, want %s", left, want)
				}
			})
		})
	}
}

// TestClientLeaves cuts the client's connection inside a stream: the upstream
// must notice, and the slot must be free.
func TestClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &seen{next: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}}
		r := newRig(t, limit("per_user", "max_in_flight_requests: 1"), up.handle)
		ctx, cancel := context.WithCancel(context.Background())
		resp, err := r.client.Do(r.request(ctx, "/v1/completions", completion, as("secret-a")))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, make([]byte, 9)); err != nil {
			t.Fatal(err)
		}
		r.must(http.StatusTooManyRequests, "/v1/completions", completion, as("secret-a"))
		cancel()
		resp.Body.Close()
		synctest.Wait()
		if n := up.running.Load(); n != 0 {
			t.Errorf("%d upstream calls go on", n)
		}
		up.next = ok
		r.must(http.StatusOK, "/v1/completions", completion, as("secret-a"))
	})
}

// TestWaitersLeave: of 50 waiters 49 close their connections; the upstream
// sees exactly one request.
func TestWaitersLeave(t *testing.T) {
	for _, scope := range []string{"replica", "exact"} {
		t.Run(scope, func(t *testing.T) { waitersLeave(t, scope) })
	}
}

func waitersLeave(t *testing.T, scope string) {
	synctest.Test(t, func(t *testing.T) {
		up := &seen{next: ok}
		r := newRig(t, lineOf(scope, ", max_queue_depth_per_tenant: 64, max_wait_ms: 60000"), up.handle)
		spend(t, r)
		up.count.Store(0)
		var wg sync.WaitGroup
		var served atomic.Int64
		var leave []context.CancelFunc
		for range 50 {
			ctx, cancel := context.WithCancel(context.Background())
			leave = append(leave, cancel)
			wg.Go(func() {
				if resp, err := r.client.Do(r.request(ctx, "/v1/completions", completion, as("secret-a"))); err == nil {
					if resp.StatusCode == http.StatusOK {
						served.Add(1)
					}
					resp.Body.Close()
				}
			})
		}
		synctest.Wait()
		if n := r.limiter.Waiting(); n != 50 {
			t.Fatalf("%d wait, want 50", n)
		}
		stays := rand.IntN(50)
		for i, cancel := range leave {
			if i != stays {
				cancel()
			}
		}
		synctest.Wait()
		if n := r.limiter.Waiting(); n != 1 {
			t.Errorf("%d still hold a place, want 1 (number %d stayed)", n, stays)
		}
		wg.Wait()
		leave[stays]()
		time.Sleep(2 * time.Minute)
		if n := up.count.Load(); n != 1 || served.Load() != 1 {
			t.Errorf("the upstream saw %d requests, %d were served, want 1 (number %d stayed)", n, served.Load(), stays)
		}
	})
}

// transportFunc is a RoundTripper.
type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// readerFunc is a body.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
func (f readerFunc) Close() error               { return nil }

// swap replaces the transport of every upstream.
func (r *rig) swap(f transportFunc) {
	for _, rt := range r.tables.Load().routes {
		for _, up := range rt.candidates {
			up.transport = f
		}
	}
}

func TestPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limit("per_user", "max_in_flight_requests: 1"), ok)
		r.swap(func(*http.Request) (*http.Response, error) { panic("before headers") })
		resp, body := r.do("/v1/completions", completion, as("secret-a"))
		golden(t, "answers/panic", answer(resp, body))

		r.swap(func(*http.Request) (*http.Response, error) {
			first := true
			return &http.Response{StatusCode: 200, ContentLength: -1, Header: http.Header{}, Body: readerFunc(func(p []byte) (int, error) {
				if first {
					first = false
					return copy(p, "half an ans"), nil
				}
				panic("inside the body")
			})}, nil
		})
		resp, err := r.client.Do(r.request(context.Background(), "/v1/completions", completion, as("secret-a")))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("half an answer was ended as if it were whole: %q", text)
		}
		resp.Body.Close()
		synctest.Wait()
		if n := testutil.ToFloat64(r.metrics.panics); n != 2 {
			t.Errorf("%v panics counted", n)
		}
		for _, want := range []string{"before headers", "inside the body", "request=test"} {
			if !strings.Contains(r.log.String(), want) {
				t.Errorf("the log does not say %q", want)
			}
		}
	})
}

// TestStreamBreaks: whatever stops an answer, the client can tell.
func TestStreamBreaks(t *testing.T) {
	silence := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	abort := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for _, test := range []struct {
		name, kind string
		then       http.HandlerFunc
		took       time.Duration
		code       string // of the error event
	}{
		{"event stream cut", "text/event-stream", abort, 0, "upstream_broke"},
		{"event stream silent", "text/event-stream", silence, 60 * time.Second, "upstream_timeout"},
		{"text cut", "text/plain", abort, 0, ""},
		{"text silent", "text/plain", silence, 60 * time.Second, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, limit("per_user", "max_in_flight_requests: 1"), func(w http.ResponseWriter, req *http.Request) {
					_, _ = io.Copy(io.Discard, req.Body)
					w.Header().Set("Content-Type", test.kind)
					fmt.Fprint(w, "data: 1\n\n")
					_ = http.NewResponseController(w).Flush()
					test.then(w, req)
				})
				start := time.Now()
				resp, err := r.client.Do(r.request(context.Background(), "/v1/completions", completion, as("secret-a")))
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("the body ends with %v, want an unexpected end", err)
				}
				if took := time.Since(start); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
				event := strings.TrimPrefix(string(text), "data: 1\n\n")
				if test.code == "" && event != "" {
					t.Errorf("text %q was added", event)
				}
				if test.code != "" && (!strings.Contains(event, "\n\nevent: error\ndata: {\"error\":{") || !strings.Contains(event, test.code) || !strings.HasSuffix(event, "}}\n\n")) {
					t.Errorf("no error event: %q", event)
				}
			})
		})
	}
}

// TestTotalTimeoutInsideStream: a stream that never ends is cut, and says so.
func TestTotalTimeoutInsideStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "server: {timeouts: {total: 10s}}", func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for req.Context().Err() == nil {
				fmt.Fprint(w, "data: 1\n\n")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Second)
			}
		})
		start := time.Now()
		resp, err := r.client.Do(r.request(context.Background(), "/v1/completions", completion, as("secret-a")))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if took := time.Since(start); took != 10*time.Second || err == nil || !strings.Contains(string(text), "upstream_timeout") {
			t.Errorf("after %v: %v, %q", took, err, text)
		}
		time.Sleep(time.Second) // the upstream's own loop
	})
}

// TestRetryAfterIsTrue: whoever sleeps exactly Retry-After and retries alone is
// admitted, whatever the limit; and so is who sleeps retry-after-ms.
func TestRetryAfterIsTrue(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for range 30 {
		limit := 1 + random.Int64N(20)
		per := time.Duration(1+random.Int64N(30_000)) * time.Millisecond
		fine := random.IntN(2) == 0
		jitter := random.Int64N(11)
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, fmt.Sprintf("rate_limiting: {per_user: {requests: {limit: %d, per: %dms, burst: %d}}}",
				limit, per.Milliseconds(), 1+random.Int64N(limit)), ok)
			r.spread = func(n int64) int64 { return n * jitter / 100 }
			for range 3 {
				var resp *http.Response
				for {
					if resp, _ = r.do("/v1/completions", completion, as("secret-a")); resp.StatusCode != http.StatusOK {
						break
					}
				}
				secs, ms := resp.Header.Get("Retry-After"), resp.Header.Get("Retry-After-Ms")
				wait, err := time.ParseDuration(secs + "s")
				if fine {
					wait, err = time.ParseDuration(ms + "ms")
				}
				if err != nil || wait <= 0 || secs == "0" {
					t.Fatalf("limit %d per %v: Retry-After %q, retry-after-ms %q", limit, per, secs, ms)
				}
				time.Sleep(wait)
				if resp, text := r.do("/v1/completions", completion, as("secret-a")); resp.StatusCode != http.StatusOK {
					t.Fatalf("limit %d per %v: refused again after %v: %s", limit, per, wait, text)
				}
			}
		})
	}
}

func TestWaitRoundsUp(t *testing.T) {
	g := &Gateway{spread: func(int64) int64 { return 0 }}
	for _, test := range []struct {
		wait     time.Duration
		secs, ms int64
	}{
		{0, 1, 1}, {1, 1, 1}, {time.Microsecond, 1, 1}, {time.Second, 1, 1000}, {time.Second + 1, 2, 1001},
		{1240 * time.Millisecond, 2, 1240}, {time.Hour, 3600, 3600000},
	} {
		if secs, ms := g.spread.wait(test.wait); secs != test.secs || ms != test.ms {
			t.Errorf("wait(%v) = %d s, %d ms; want %d, %d", test.wait, secs, ms, test.secs, test.ms)
		}
	}
}

// TestEveryReasonIsExplained looks at the refusals that the rig cannot bring
// about, too.
func TestEveryReasonIsExplained(t *testing.T) {
	for _, reason := range limiter.Reasons {
		if reason == limiter.ReasonClientGone {
			continue // nobody is there to read it
		}
		text := explain(&limiter.Refusal{Dimension: limiter.User, Reason: reason})
		if text == "" || strings.Contains(text, "%") {
			t.Errorf("%s is explained by %q", reason, text)
		}
	}
}

func TestAnonymous(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := config.Parse([]byte(`
keys: [{id: a, key: secret-a, user: ann}]
anonymous: true
upstreams: [{name: plain, url: "http://upstream.test", kind: http}, {name: llm, url: "http://upstream.test"}]
routes: [{path: /*, upstream: plain}, {path: /v1/*, upstream: llm}]
rate_limiting:
  per_client: {requests: {limit: 4, per: 1h}}
  per_user: {requests: {limit: 1, per: 1h}}
  per_model: {requests: {limit: 1, per: 1h}}
`), nil)
		if err != nil {
			t.Fatal(err)
		}
		up := &seen{next: ok}
		r := newRigOf(t, cfg, up.handle)
		r.must(http.StatusOK, "/x", "", as("theirs"))
		if got := up.last.Header.Get("Authorization"); got != "Bearer theirs" {
			t.Errorf("a credential that is between caller and upstream became %q", got)
		}
		r.must(http.StatusOK, "/x", "", as("secret-a"))
		if got := up.last.Header.Get("Authorization"); got != "" {
			t.Errorf("our key went upstream: %q", got)
		}
		// Nobody without a key is charged to a model.
		r.must(http.StatusOK, "/v1/completions", completion)
		r.must(http.StatusOK, "/v1/completions", completion)
		r.must(http.StatusTooManyRequests, "/x", "")
	})
}

func TestModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := config.Parse([]byte(strings.Replace(keysAndRoutes, "credential: upstream-secret", "models: [m, m2]", 1)), nil)
		if err != nil {
			t.Fatal(err)
		}
		r := newRigOf(t, cfg, ok)
		r.must(http.StatusOK, "/v1/completions", completion, as("secret-a"))
		r.must(http.StatusOK, "/v1/models", "", as("secret-a"))
		resp, body := r.do("/v1/completions", `{"model":"m","mod\u0065l":"other"}`, as("secret-a"))
		golden(t, "answers/model_unknown", answer(resp, body))
	})
}

// TestUploads streams what is no JSON, and bounds it.
func TestUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, last time.Duration
		var start time.Time
		r := newRig(t, "server: {max_upload: 100KiB}", func(w http.ResponseWriter, req *http.Request) {
			if _, err := io.ReadFull(req.Body, make([]byte, 5)); err == nil {
				first = time.Since(start)
			}
			n, err := io.Copy(io.Discard, req.Body)
			last = time.Since(start)
			fmt.Fprintln(w, n, err)
		})
		upload := func(size int) *http.Response {
			start = time.Now()
			in, out := io.Pipe()
			go func() {
				_, _ = out.Write([]byte("first"))
				time.Sleep(time.Second)
				_, _ = out.Write(make([]byte, size-5))
				out.Close()
			}()
			req := r.request(context.Background(), "/v1/files", "", as("secret-a"), header{"Content-Type", "audio/wav"})
			req.Method, req.Body = http.MethodPost, in
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			in.Close()
			resp.Body.Close()
			return resp
		}
		if resp := upload(100 << 10); resp.StatusCode != http.StatusOK || first != 0 || last != time.Second {
			t.Errorf("status %d; first byte after %v, last after %v", resp.StatusCode, first, last)
		}
		if resp := upload(100<<10 + 1); resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a larger one: status %d", resp.StatusCode)
		}
	})
}

// TestBodyOfUnknownLength is bounded while it is read.
func TestBodyOfUnknownLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := &seen{next: ok}
		r := newRig(t, "server: {max_body: 1KiB}", up.handle)
		for size, want := range map[int]int{500: http.StatusOK, 1100: http.StatusRequestEntityTooLarge} {
			req := r.request(context.Background(), "/v1/completions", completion, as("secret-a"))
			req.Body = io.NopCloser(strings.NewReader(`{"model":"m","prompt":"` + strings.Repeat("x", size) + `"}`))
			req.ContentLength = -1
			if resp, body := r.send(req); resp.StatusCode != want {
				t.Errorf("%d bytes: %d %s", size, resp.StatusCode, body)
			}
		}
		if n := up.count.Load(); n != 1 {
			t.Errorf("the upstream saw %d requests", n)
		}
	})
}

func TestDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", ok)
		r.Drain()
		resp, _ := r.must(http.StatusOK, "/v1/completions", completion, as("secret-a"))
		if !resp.Close {
			t.Error("the connection stays open")
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limit("per_user", "requests: {limit: 1, per: 1h}"), ok)
		spend(t, r)
		r.must(http.StatusTooManyRequests, "/v1/completions", completion, as("secret-a"))
		r.must(http.StatusUnauthorized, "/v1/completions", completion, as("wrong"))
		r.must(http.StatusNotFound, "/elsewhere", "", as("secret-a"))
		synctest.Wait()
		err := testutil.GatherAndCompare(r.registry, strings.NewReader(`
# HELP rate_limit_requests_total Requests decided, by decision and, for refusals, by the limit that refused.
# TYPE rate_limit_requests_total counter
rate_limit_requests_total{decision="admitted",limit_type="none"} 1
rate_limit_requests_total{decision="refused",limit_type="user"} 1
rate_limit_requests_total{decision="unauthenticated",limit_type="none"} 1
# HELP rate_limit_exceeded_total Requests answered 429, by the limit that refused.
# TYPE rate_limit_exceeded_total counter
rate_limit_exceeded_total{limit_type="user"} 1
`), "rate_limit_requests_total", "rate_limit_exceeded_total")
		if err != nil {
			t.Error(err)
		}
		if n, err := testutil.GatherAndCount(r.registry, "headway_gateway_request_duration_seconds"); n != 3 || err != nil {
			t.Errorf("%d series of durations, %v", n, err)
		}
		if problems, err := testutil.GatherAndLint(r.registry); len(problems) > 0 || err != nil {
			t.Errorf("lint: %v, %v", problems, err)
		}
	})
}

func TestAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "server: {admin_token: admin-secret}\n"+limit("per_user", "requests: {limit: 10, per: 1s}"), ok)
		side := newWire("127.0.0.1:1")
		stop := serve(side, r.Admin())
		transport := &http.Transport{DialContext: side.dial}
		client := &http.Client{Transport: transport}
		defer func() { transport.CloseIdleConnections(); stop() }()
		get := func(path, token string) (int, string) {
			t.Helper()
			req := r.request(context.Background(), path, "")
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, string(text)
		}
		expect := func(path, token string, status int, contains string) {
			t.Helper()
			if got, text := get(path, token); got != status || !strings.Contains(text, contains) {
				t.Errorf("%s: %d %s; want %d and %q", path, got, text, status, contains)
			}
		}
		expect("/livez", "", 200, "ok")
		expect("/readyz", "", 200, "{\"ready\":true}\n")
		expect("/readyz", "admin-secret", 200, `{"ready":true,"reasons":[],"draining":false,"store":{"usable":true`)
		expect("/metrics", "", 401, "invalid_admin_token")
		expect("/metrics", "wrong", 401, "invalid_admin_token")
		expect("/debug/headway", "wrong", 401, "invalid_admin_token")
		expect("/metrics", "admin-secret", 200, "headway_build_info")
		expect("/debug/headway", "admin-secret", 200, "headway test\nserving 0, draining false\n")
		expect("/nothing", "admin-secret", 404, "unknown_url")
		r.memory.SetDown(true)
		expect("/readyz", "", 503, "{\"ready\":false}\n")
		expect("/readyz", "admin-secret", 503, `"reasons":["store: `)
		r.memory.SetDown(false)
		expect("/readyz", "", 200, "")
		r.Drain()
		expect("/readyz", "admin-secret", 503, `"reasons":["draining"]`)
		expect("/livez", "", 200, "ok")
	})
}

func TestNewNamesEveryMistake(t *testing.T) {
	cfg := config.Default()
	cfg.Keys = []config.Key{{ID: "a", Digest: "x"}}
	cfg.Server.TrustedProxies = []string{"proxy"}
	cfg.Routes = []config.Route{{Path: "/", Upstream: "none"}}
	_, err := New(cfg, nil, Options{})
	for _, want := range []string{`key "a"`, "proxy", `no upstream "none"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}
