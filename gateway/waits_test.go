package gateway

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// brief is an agent of one slot whose callers have less time than the queue is
// patient, and a turn that has less again.
const brief = `
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams: [{name: one, url: "http://one.test", slots: 1, models: [m]}]
routes: [{path: /v1/*, upstream: one}]
queueing: {queue_timeout: 1m}
server: {timeouts: {total: 10s}}
turns: [{name: once, path: /v1/turns/once, timeout: 5s, steps: [{name: only, model: m}]}]
`

// TestWaitsLeaveTimeForAnAnswer: who waits for a slot until its time is all but over is
// told so, rather than that it was canceled.
func TestWaitsLeaveTimeForAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newThree(t, brief, nil)
		free := r.hold("one")
		defer free()
		for _, c := range []struct {
			path, body string
			after      time.Duration
		}{
			{"/v1/completions", toAgent, 9900 * time.Millisecond},
			{"/v1/turns/once", ask1, 4950 * time.Millisecond},
			{"/v1/turns/once", streamed, 4950 * time.Millisecond},
		} {
			start := time.Now()
			resp, text := r.must(503, c.path, c.body, as("secret-a"))
			if d := time.Since(start); d != c.after || !strings.Contains(text, `"code":"queue_timeout"`) || resp.Header.Get("Retry-After") == "" {
				t.Errorf("%s: after %v, Retry-After %q: %s", c.path, d, resp.Header.Get("Retry-After"), text)
			}
		}
	})
}

// TestTurnOutOfTime: a turn whose time is over between two steps says so.
func TestTurnOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // or it would not see its caller leave
			select {
			case <-time.After(time.Minute):
			case <-r.Context().Done():
			}
		}
		text := strings.Replace(brief, "{name: only, model: m}", "{name: only, model: m, tools: [clock]}", 1) +
			`tools: [{name: clock, url: "http://tools.test/", timeout: 8s}]`
		r := newThree(t, text, map[string]http.HandlerFunc{"one": says(calls("clock", "{}")), "tools": late})
		start := time.Now()
		_, said := r.must(503, "/v1/turns/once", ask1, as("secret-a"))
		if d := time.Since(start); d != 5*time.Second || !strings.Contains(said, `"code":"timeout"`) {
			t.Errorf("after %v: %s", d, said)
		}
	})
}

// TestTurnsOfBatchWork: the steps of a turn that is batch work leave the reserve of a
// provider alone, as its other requests do. One that has begun is not too late by the
// deadline of its start.
func TestTurnsOfBatchWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, left, asked := time.Now(), 20, 0
		r := newThree(t, `
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams: [{name: one, url: "http://one.test", models: [m], throttle: {enabled: true}}]
routes: [{path: /v1/*, upstream: one}]
turns: [{name: two, path: /v1/turns/two, steps: [{name: draft, model: m, next: final}, {name: final, model: m}]}]
`, map[string]http.HandlerFunc{"one": func(w http.ResponseWriter, req *http.Request) {
			asked++
			if time.Since(begun) > 30*time.Second {
				left = 100
				time.Sleep(3 * time.Second)
			}
			w.Header().Set("X-Ratelimit-Limit", "100")
			w.Header().Set("X-Ratelimit-Remaining", fmt.Sprint(left))
			w.Header().Set("X-Ratelimit-Reset", fmt.Sprint(30-int(time.Since(begun).Seconds())%30))
			says("well")(w, req)
		}})
		batch, soon := header{"x-headway-priority", "batch"}, header{"x-headway-deadline-ms", "2000"}
		r.must(200, "/v1/turns/two", ask1, as("secret-a"))
		_, text := r.must(429, "/v1/turns/two", ask1, as("secret-a"), batch, soon)
		if d := time.Since(begun); d != 2*time.Second || asked != 2 || !strings.Contains(text, `"reason":"deadline_exceeded"`) {
			t.Errorf("after %v, with %d calls: %s", d, asked, text)
		}
		time.Sleep(40 * time.Second)
		r.must(200, "/v1/completions", toAgent, as("secret-a")) // tells what is left now
		r.must(200, "/v1/turns/two", ask1, as("secret-a"), batch, soon)
	})
}
