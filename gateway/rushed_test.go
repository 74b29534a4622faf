package gateway

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/gateway/agents"
	"github.com/headway-limiter/headway/limiter"
)

// rushedRig is an agent that has response_header to answer in, of a total timeout that
// waits count in.
const rushedRig = `
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams: [{name: one, url: "http://one.test", slots: 1, timeouts: {connect: 30s, response_header: HEADER, idle: 30s}}]
routes: [{path: /v1/*, upstream: one}]
queueing: {queue_timeout: 9s}
server: {timeouts: {total: 10s}}
`

// TestRushedAgentsAreWell: requests that had to wait for a slot are cut off soon after
// they have it. That says nothing of the agent. One that had its time and did not use
// it has failed.
func TestRushedAgentsAreWell(t *testing.T) {
	silent := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or it would not see its caller leave
		<-r.Context().Done()
	}
	slow := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = w.Write([]byte("{"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	for _, c := range []struct {
		name, header string
		agent        http.HandlerFunc
		waits        time.Duration
		well         bool
	}{
		{"silent after a wait", "4s", silent, 8 * time.Second, true},
		{"breaks off after a wait", "4s", slow, 8 * time.Second, true},
		{"silent, had its time", "4s", silent, 5 * time.Second, false},
		{"breaks off, had its time", "4s", slow, 5 * time.Second, false},
		{"may take longer than there is, after a wait", "60s", silent, 5 * time.Second, true},
		{"may take longer than there is, had all of it", "60s", silent, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newThree(t, strings.Replace(rushedRig, "HEADER", c.header, 1), map[string]http.HandlerFunc{"one": c.agent})
				for range 5 { // more than it takes to be taken out
					slot, err := r.agents.Acquire(context.Background(), agents.Want{Agents: []string{"one"}, Tenant: "x", Weight: 1})
					if err != nil {
						break // out already
					}
					time.AfterFunc(c.waits, slot.Cancel)
					start := time.Now()
					r.aside("/v1/completions")
					if took := time.Since(start); took > 11*time.Second {
						t.Errorf("answered after %v", took)
					}
					synctest.Wait()
				}
				if well := r.agents.States()[0].Healthy; well != c.well {
					t.Errorf("the agent is well: %v, want %v", well, c.well)
				}
			})
		})
	}
}

// TestBatchOfTheLastMoment: batch work that could start only when its time is all but
// over is told so, and nothing is sent.
func TestBatchOfTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		r := newThree(t, `
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams: [{name: one, url: "http://one.test"}]
routes: [{path: /v1/*, upstream: one}]
server: {timeouts: {total: 10s}}
rate_limiting: {per_user: {requests: {limit: 1, per: 9950ms}}}
`, map[string]http.HandlerFunc{"one": func(w http.ResponseWriter, req *http.Request) { asked++; ok(w, req) }})
		r.must(http.StatusOK, "/v1/completions", completion, as("secret-a"))
		_, text := r.must(http.StatusTooManyRequests, "/v1/completions", completion, as("secret-a"), header{"x-headway-priority", "batch"})
		if !strings.Contains(text, string(limiter.ReasonDeadlineExceeded)) || asked != 1 {
			t.Errorf("the upstream was asked %d times: %s", asked, text)
		}
		time.Sleep(10 * time.Second)
		r.must(http.StatusOK, "/v1/completions", completion, as("secret-a"), header{"x-headway-priority", "batch"})
	})
}
