package gateway

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headway-limiter/headway/limiter"
)

// item parses a RateLimit field as draft-10 wants it: a list of one item that is
// a string, whose parameters are whole numbers ≥ 0.
func item(t *testing.T, h http.Header, name string) map[string]int64 {
	t.Helper()
	list, err := httpsfv.UnmarshalList(h.Values(name))
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %q is no list of one: %v", name, h.Values(name), err)
	}
	it, _ := list[0].(httpsfv.Item)
	if it.Value != "requests" {
		t.Fatalf("%s: %q is not named by a string", name, h.Get(name))
	}
	out := map[string]int64{}
	for _, p := range it.Params.Names() {
		v, _ := it.Params.Get(p)
		n, whole := v.(int64)
		if !whole || n < 0 {
			t.Fatalf("%s: %s of %q is no whole number", name, p, h.Get(name))
		}
		out[p] = n
	}
	return out
}

// TestLevelsAreTrue draws levels at random: whatever they are, the fields can be
// parsed, promise no more than the limit, and name no instant that is too early.
func TestLevelsAreTrue(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	periods := []time.Duration{
		time.Microsecond, time.Millisecond, 700 * time.Millisecond, 999_999 * time.Microsecond, time.Second,
		1500 * time.Millisecond, time.Minute, time.Hour, 24 * time.Hour, 365 * 24 * time.Hour,
	}
	for range 5000 {
		rate := limiter.Rate{Limit: 1 + random.Int64N(1<<random.IntN(33)), Per: periods[random.IntN(len(periods))]}
		rate.Limit = min(rate.Limit, 9_000_000_000)
		rate.Burst = 1 + random.Int64N(2*rate.Limit)
		level := limiter.Level{Rate: rate, Remaining: random.Int64N(rate.Burst + 1)}
		if level.Remaining < rate.Burst {
			level.Reset = time.Duration(1 + random.Int64N(int64(time.Hour)))
		}
		retry := int64(0)
		if random.IntN(2) == 0 {
			retry = 1 + random.Int64N(100)
		}
		h := http.Header{}
		setLevels(h, limiter.Levels{Requests: &level, Tokens: &level}, retry)

		policy, now := item(t, h, "RateLimit-Policy"), item(t, h, "RateLimit")
		exact := float64(rate.Limit) / rate.Per.Seconds()
		if w, ok := policy["w"]; ok {
			promised := float64(policy["q"]) / float64(w)
			if w < 1 || promised > exact*(1+1e-9) || rate.Per >= time.Second && promised < exact*(1-1e-9) {
				t.Fatalf("seed %d: %d per %v is told as %v", seed, rate.Limit, rate.Per, h.Get("RateLimit-Policy"))
			}
		} else if rate.Per%time.Second == 0 || rate.Per < time.Second || policy["q"] != rate.Limit {
			t.Fatalf("seed %d: %d per %v is told as %v", seed, rate.Limit, rate.Per, h.Get("RateLimit-Policy"))
		}
		next, told := now["t"]
		full := level.Remaining == rate.Burst
		if told == full || told && (next < 1 || retry > 0 && next > retry) ||
			told && retry == 0 && time.Duration(next)*time.Second < rate.Per/time.Duration(rate.Limit) || now["r"] != level.Remaining {
			t.Fatalf("seed %d: level %+v with Retry-After %d is told as %q", seed, level, retry, h.Get("RateLimit"))
		}
		for _, unit := range []string{"requests", "tokens"} {
			reset, err := time.ParseDuration(h.Get("X-Ratelimit-Reset-" + unit))
			if err != nil || reset < level.Reset || reset >= level.Reset+time.Millisecond ||
				h.Get("X-Ratelimit-Limit-"+unit) != strconv.FormatInt(rate.Burst, 10) ||
				h.Get("X-Ratelimit-Remaining-"+unit) != strconv.FormatInt(level.Remaining, 10) {
				t.Fatalf("seed %d: level %+v is told as %v", seed, level, h)
			}
		}
	}
}

// TestWaitsAreSpread: nobody is told to come back too early, nor much too late,
// and those who are refused together do not come back together.
func TestWaitsAreSpread(t *testing.T) {
	for _, d := range []time.Duration{1, time.Millisecond, 250 * time.Millisecond, time.Second, 1500 * time.Millisecond, 9 * time.Second,
		10 * time.Second, 61500 * time.Millisecond, time.Hour, 24 * time.Hour} {
		secs, millis := map[int64]bool{}, map[int64]bool{}
		for range 500 {
			s, ms := jitter(spread).wait(d)
			secs[s], millis[ms] = true, true
			wait := time.Duration(ms) * time.Millisecond
			if wait < d || s != (ms+999)/1000 || s < 1 {
				t.Fatalf("%v is told as %d s, %d ms", d, s, ms)
			}
			if late := time.Duration(s)*time.Second - d; late > d/10+time.Second+d/100 {
				t.Fatalf("%v is told as %d s", d, s)
			}
		}
		if d >= 20*time.Second && len(secs) < 3 {
			t.Errorf("%v is told in %d ways", d, len(secs))
		}
		if d >= 100*time.Millisecond && d%time.Second != 0 && len(millis) < 10 {
			t.Errorf("%v is told in %d ways in milliseconds", d, len(millis))
		}
	}
}

// TestEarliestTimesAreTrue: who sleeps exactly the t of a refusal's RateLimit
// field is admitted, whatever the limit, and Retry-After is not before it.
func TestEarliestTimesAreTrue(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for range 20 {
		limit, per := 1+random.Int64N(20), time.Duration(1+random.Int64N(40_000))*time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, fmt.Sprintf("rate_limiting: {per_api_key: {requests: {limit: %d, per: %dms, burst: %d}}}",
				limit, per.Milliseconds(), 1+random.Int64N(limit)), ok)
			for range 3 {
				var resp *http.Response
				for {
					if resp, _ = r.do("/v1/completions", completion, as("secret-a")); resp.StatusCode != http.StatusOK {
						break
					}
				}
				next := item(t, resp.Header, "RateLimit")["t"]
				if retry, _ := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 64); next < 1 || next > retry {
					t.Fatalf("seed %d: t is %d, Retry-After %d", seed, next, retry)
				}
				time.Sleep(time.Duration(next) * time.Second)
				if resp, text := r.do("/v1/completions", completion, as("secret-a")); resp.StatusCode != http.StatusOK {
					t.Fatalf("seed %d: %d per %v: refused again after %d s: %s", seed, limit, per, next, text)
				}
			}
		})
	}
}

// TestOnlyOwnLevelsAreTold looks through every header for the levels of buckets
// that callers share.
func TestOnlyOwnLevelsAreTold(t *testing.T) {
	for _, dimension := range []string{"global", "per_client", "per_user", "per_team", "per_model", "per_backend"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, limit(dimension, "requests: {limit: 1, per: 77777s}"), ok)
			for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
				resp, _ := r.must(want, "/v1/completions", completion, as("secret-a"))
				for name := range resp.Header {
					if strings.Contains(strings.ToLower(name), "ratelimit") {
						t.Errorf("%s: %d tells %s: %s", dimension, want, name, resp.Header.Get(name))
					}
				}
			}
		})
	}
}

// TestMethods: a path that is routed for other methods says which.
func TestMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", ok)
		table := r.tables.Load()
		up := table.routes[0].candidates
		table.routes = []route{
			{path: "/v1/x", methods: []string{"POST"}, candidates: up},
			{path: "/v1/", prefix: true, methods: []string{"PUT", "DELETE", "POST"}, candidates: up},
		}
		for _, c := range []struct{ method, path, allow string }{
			{"GET", "/v1/x", "DELETE, POST, PUT"}, {"HEAD", "/v1/y", "DELETE, POST, PUT"}, {"PUT", "/v1/x", ""},
		} {
			req := r.request(context.Background(), c.path, "", as("secret-a"))
			req.Method = c.method
			resp, text := r.send(req)
			want := http.StatusOK
			if c.allow != "" {
				want = http.StatusMethodNotAllowed
			}
			if resp.StatusCode != want || resp.Header.Get("Allow") != c.allow || c.allow != "" && c.method != "HEAD" && !strings.Contains(text, `"code":"method_not_allowed"`) {
				t.Errorf("%s %s: %d, Allow %q: %s", c.method, c.path, resp.StatusCode, resp.Header.Get("Allow"), text)
			}
		}
		r.must(http.StatusNotFound, "/v2", "", as("secret-a"))
	})
}

// TestTrailers: fields that follow a body pass, announced or not, but for those
// that are ours.
func TestTrailers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Checksum, X-Ratelimit-Limit-Requests")
			fmt.Fprint(w, "body")
			_ = http.NewResponseController(w).Flush()
			w.Header().Set("X-Checksum", "abc")
			w.Header().Set("X-Ratelimit-Limit-Requests", "5")
			w.Header().Set(http.TrailerPrefix+"X-Late", "yes")
		})
		resp, err := r.client.Do(r.request(context.Background(), "/plain/x", "", as("secret-a")))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, ok := resp.Trailer["X-Checksum"]; !ok {
			t.Errorf("announced: %v", resp.Trailer)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != "body" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
		if got := resp.Trailer; got.Get("X-Checksum") != "abc" || got.Get("X-Late") != "yes" || len(got) != 2 {
			t.Errorf("trailer %v", got)
		}
	})
}

// TestProbesByHead: load balancers ask with HEAD, too.
func TestProbesByHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", ok)
		side := newWire("127.0.0.1:1")
		stop := serve(side, r.Admin())
		transport := &http.Transport{DialContext: side.dial}
		client := &http.Client{Transport: transport}
		defer func() { transport.CloseIdleConnections(); stop() }()
		ask := func(method, path string) *http.Response {
			req := r.request(context.Background(), path, "")
			req.Method, req.Host = method, "127.0.0.1"
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp
		}
		for _, path := range []string{"/livez", "/readyz", "/metrics", "/debug/headway"} {
			if resp := ask("HEAD", path); resp.StatusCode != http.StatusOK {
				t.Errorf("HEAD %s: %d", path, resp.StatusCode)
			}
		}
		if resp := ask("POST", "/readyz"); resp.StatusCode != http.StatusMethodNotAllowed || !strings.Contains(resp.Header.Get("Allow"), "GET") {
			t.Errorf("POST /readyz: %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
		}
		r.Drain()
		if resp := ask("HEAD", "/readyz"); resp.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("HEAD /readyz while draining: %d", resp.StatusCode)
		}
	})
}

// TestLevelsOnlyFromTheStore: what is decided without it tells no levels.
func TestLevelsOnlyFromTheStore(t *testing.T) {
	const own = "per_api_key: {requests: {limit: 5, per: 1h}}"
	for name, c := range map[string]struct {
		limits, path, body, key string
		status                  int
		levels                  bool
	}{
		"granted":       {own, "/v1/completions", completion, "secret-a", 200, true},
		"refused":       {own + ", per_team: {tokens: {limit: 1000, per: 1h}}", "/v1/completions", completion, "secret-a", 429, true},
		"blocked":       {own + ", per_user: {requests: {limit: 0, per: 1h}}", "/v1/completions", completion, "secret-a", 429, false},
		"exceeds burst": {own + ", per_user: {tokens: {limit: 1, per: 1h}}, default_completion_tokens: 1", "/v1/completions", completion, "secret-a", 429, false},
		"no JSON":       {own, "/v1/completions", "{", "secret-a", 400, false},
		"no key":        {own, "/v1/completions", completion, "secret-x", 401, false},
		"no route":      {own, "/nothing", completion, "secret-a", 404, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, "rate_limiting: {"+c.limits+"}", ok)
			resp, text := r.do(c.path, c.body, as(c.key))
			for range 9 {
				if resp.StatusCode == c.status {
					break
				}
				resp, text = r.do(c.path, c.body, as(c.key))
			}
			if got := resp.Header.Get("X-Ratelimit-Limit-Requests") != ""; resp.StatusCode != c.status || got != c.levels {
				t.Errorf("%s: %d %s, levels %v, want %d, levels %v", name, resp.StatusCode, text, got, c.status, c.levels)
			}
		})
	}
}
