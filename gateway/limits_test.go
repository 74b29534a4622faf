package gateway

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
)

// TestRulesOfSingleIdentities: whose rule holds for whom. Each rule is told by
// how many requests pass.
func TestRulesOfSingleIdentities(t *testing.T) {
	for _, c := range []struct {
		name, limits string
		a, b         int // requests that pass with each key
	}{
		{"a rule for all", "per_user: {requests: {limit: 2, per: 1h}}", 2, 2},
		{"an override replaces it", "per_user: {requests: {limit: 2, per: 1h}, overrides: {ann: {requests: {limit: 3, per: 1h}}}}", 3, 2},
		{"an override of a whole rule", "per_user: {requests: {limit: 2, per: 1h}, overrides: {ann: {max_in_flight_requests: 5}}}", most, 2},
		{"an override alone", "per_user: {overrides: {ann: {requests: {limit: 3, per: 1h}}}}", 3, most},
		{"zero blocks", "per_user: {requests: {limit: 2, per: 1h}, overrides: {ann: {requests: {limit: 0, per: 1h}}}}", 0, 2},
		{"zero blocks all", "per_api_key: {requests: {limit: 0, per: 1s}}", 0, 0},
		{"zero tokens block", "per_user: {overrides: {bob: {tokens: {limit: 0, per: 1s}}}}", most, 0},
		{"burst above limit", "per_user: {requests: {limit: 1, per: 1h, burst: 4}}", 4, 4},
		{"a team's budget is one", "per_team: {requests: {limit: 3, per: 1h}}", 3, 0},
		{"a model's override", "per_model: {requests: {limit: 1, per: 1h}, overrides: {m: {requests: {limit: 4, per: 1h}}}}", 4, 0},
		{"a key's own limits", "per_api_key: {requests: {limit: 2, per: 1h}}", 2, 5},
		{"an upstream's override", "per_backend: {requests: {limit: 1, per: 1h}, overrides: {llm: {requests: {limit: 3, per: 1h}}}}", 3, 0},
		{"an address's override", "per_client: {requests: {limit: 1, per: 1h}, overrides: {192.0.2.7: {requests: {limit: 3, per: 1h}}}}", 3, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := keysAndRoutes + "rate_limiting: {" + c.limits + "}"
				if c.b == 5 {
					text = string(bytes.Replace([]byte(text), []byte("user: bob, team: acme}"), []byte("user: bob, team: acme, rate_limit: {requests: {limit: 5, per: 1h}}}"), 1))
				}
				cfg, err := config.Parse([]byte(text), nil)
				if err != nil {
					t.Fatal(err)
				}
				r := newRigOf(t, cfg, ok)
				pass := func(key string) (n int) {
					for n < most {
						if resp, _ := r.do("/v1/completions", completion, as(key)); resp.StatusCode != http.StatusOK {
							return n
						}
						n++
					}
					return n
				}
				if a, b := pass("secret-a"), pass("secret-b"); a != c.a || b != c.b {
					t.Errorf("%d and %d passed, want %d and %d", a, b, c.a, c.b)
				}
			})
		})
	}
}

// most is how many requests stand for no limit.
const most = 10

// TestSlotsEnd holds the one slot of a user, over the fleet or in this replica,
// and looks that it is free once the request has ended, however it did.
func TestSlotsEnd(t *testing.T) {
	stream := frames(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, word)
	for _, scope := range []string{"fleet", "replica"} {
		for _, c := range []struct {
			name     string
			upstream http.HandlerFunc
			end      func(r *rig, cancel func()) // of the request that holds the slot
		}{
			{"answered", slow(time.Second), func(*rig, func()) { time.Sleep(2 * time.Second) }},
			{"the client leaves before the answer", slow(time.Hour), func(_ *rig, cancel func()) { cancel() }},
			{"the client leaves in the stream", stream, func(_ *rig, cancel func()) { cancel() }},
			{"silence", stream, func(*rig, func()) { time.Sleep(61 * time.Second) }},
			{"cut", func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Second)
				panic(http.ErrAbortHandler)
			}, func(*rig, func()) { time.Sleep(2 * time.Second) }},
			{"panic", slow(time.Second), func(r *rig, cancel func()) {
				cancel()
				synctest.Wait()
				r.swap(func(*http.Request) (*http.Response, error) { panic("inside") })
				r.must(http.StatusInternalServerError, "/v1/completions", completion, as("secret-a"))
			}},
		} {
			t.Run(scope+"/"+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, "rate_limiting: {inflight_scope: "+scope+", per_user: {max_in_flight_requests: 1}}", c.upstream)
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					go func() {
						if resp, err := r.client.Do(r.request(ctx, "/v1/completions", completion, as("secret-a"))); err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
					}()
					synctest.Wait()
					resp, _ := r.must(http.StatusTooManyRequests, "/v1/completions", completion, as("secret-a"))
					if resp.Header.Get("Retry-After") != "1" {
						t.Errorf("Retry-After %q", resp.Header.Get("Retry-After"))
					}
					c.end(r, cancel)
					synctest.Wait()
					r.swap(func(*http.Request) (*http.Response, error) {
						return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
					})
					r.must(http.StatusOK, "/v1/completions", completion, as("secret-a"))
				})
			})
		}
	}
}
