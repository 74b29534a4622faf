package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// completion is a request body of 1 prompt token and 9 completion tokens.
const completion = `{"model":"m","prompt":"test","max_tokens":9}`

// answerCase is one situation and the request whose answer is looked at.
type answerCase struct {
	name   string
	config string
	// before brings the situation about.
	before func(t *testing.T, r *rig)
	// upstream is ok unless set.
	upstream http.HandlerFunc
	path     string // /v1/completions unless set
	body     string // completion unless set
	headers  []header
}

// spend makes one request go through first.
func spend(_ *testing.T, r *rig) {
	r.must(http.StatusOK, "/v1/completions", completion, as("secret-a"))
}

// busy leaves n requests running.
func busy(n int, key string) func(t *testing.T, r *rig) {
	return func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		for range n {
			go func() {
				if resp, err := r.client.Do(r.request(ctx, "/v1/completions", completion, as(key))); err == nil {
					resp.Body.Close()
				}
			}()
		}
		synctest.Wait()
	}
}

// both runs several preparations.
func both(fs ...func(t *testing.T, r *rig)) func(t *testing.T, r *rig) {
	return func(t *testing.T, r *rig) {
		for _, f := range fs {
			f(t, r)
		}
	}
}

func limit(dimension, rule string) string {
	return "rate_limiting: {" + dimension + ": {" + rule + "}}"
}

// line enables the wait line in front of one model at one request per second,
// each replica for itself.
func line(settings string) string { return lineOf("replica", settings) }

func lineOf(scope, settings string) string {
	return "rate_limiting: {per_model: {requests: {limit: 1, per: 1s}}, fair_queuing: {enabled: true, fairness_scope: " + scope + settings + "}}"
}

var answerCases = []answerCase{
	{name: "admitted"},
	{name: "admitted_levels", config: limit("per_api_key", "requests: {limit: 10, per: 2s, burst: 20}, tokens: {limit: 600, per: 1m}")},
	{name: "admitted_shared_levels_withheld", config: limit("per_user", "requests: {limit: 10, per: 1s}")},
	{name: "admitted_after_waiting", config: line(""), before: spend},
	{name: "admitted_after_waiting_in_fleet", config: lineOf("exact", ""), before: spend},
	{name: "line_exact_draining", config: lineOf("exact", ""), before: both(spend, func(_ *testing.T, r *rig) { r.Drain() })},
	{name: "admitted_degraded", config: "redis: {on_outage: fail_open}\n" + limit("per_user", "requests: {limit: 10, per: 1s}"), before: storeDown},
	{name: "refused_global", config: limit("global", "requests: {limit: 1, per: 1m}"), before: spend},
	{name: "refused_client", config: limit("per_client", "requests: {limit: 1, per: 1500ms}"), before: spend},
	{name: "refused_api_key", config: limit("per_api_key", "requests: {limit: 1, per: 1s}"), before: spend},
	{name: "refused_user", config: limit("per_user", "requests: {limit: 1, per: 1s}"), before: spend},
	{name: "refused_team", config: limit("per_team", "requests: {limit: 1, per: 1s}"), before: spend},
	{name: "refused_model", config: limit("per_model", "requests: {limit: 1, per: 1s}"), before: spend},
	{name: "refused_tokens", config: limit("per_user", "tokens: {limit: 30, per: 1m}"), before: spend},
	{name: "refused_inflight", config: limit("per_user", "max_in_flight_requests: 1"), upstream: slow(time.Hour), before: busy(1, "secret-a")},
	{name: "refused_client_inflight", config: limit("per_client", "max_in_flight_requests: 1"), upstream: slow(time.Hour), before: busy(1, "secret-a")},
	{name: "refused_exceeds_burst", config: limit("per_api_key", "tokens: {limit: 9, per: 1s}")},
	{name: "refused_backend", config: limit("per_backend", "requests: {limit: 1, per: 1s}, overrides: {plain: {}}"), before: spend},
	{name: "refused_backend_tokens", config: limit("per_backend", "tokens: {limit: 30, per: 1m}, overrides: {plain: {}}"), before: spend},
	{name: "refused_backend_blocked", config: limit("per_backend", "requests: {limit: 0, per: 1s}, overrides: {plain: {}}")},
	{name: "refused_inflight_here", config: "rate_limiting: {inflight_scope: replica, per_team: {max_in_flight_requests: 1}}", upstream: slow(time.Hour), before: busy(1, "secret-a")},
	{name: "refused_blocked", config: limit("per_team", "requests: {limit: 0, per: 1s}")},
	{name: "refused_before_key", config: limit("per_client", "requests: {limit: 1, per: 1s}"), before: spend, headers: []header{as("wrong")}},
	{name: "line_wait_exceeds_budget", config: line(", max_wait_ms: 500"), before: spend},
	{name: "line_turn_too_late", config: line(", max_wait_ms: 1500"), before: both(spend, busy(3, "secret-b"))},
	{name: "line_tenant_queue_full", config: line(", max_queue_depth_per_tenant: 2"), before: both(spend, busy(2, "secret-a"))},
	{name: "line_queue_full", config: line(", max_total_queued: 2"), before: both(spend, busy(2, "secret-b"))},
	{name: "line_tenant_table_full", config: line(", max_tenants: 1"), before: both(spend, busy(1, "secret-b"))},
	{name: "line_draining", config: line(""), before: both(spend, func(_ *testing.T, r *rig) { r.Drain() })},
	{name: "limiter_unavailable", config: limit("per_user", "requests: {limit: 10, per: 1s}"), before: storeDown},
	{name: "overloaded", config: "server: {max_concurrent_requests: 1}", upstream: slow(time.Hour), before: busy(1, "secret-a")},
	{name: "key_missing", headers: []header{{"Authorization", ""}}},
	{name: "key_unknown", headers: []header{as("wrong")}},
	{name: "json_malformed", body: `{"model":`},
	{name: "json_not_object", body: `[1]`},
	{name: "json_model_not_text", body: `{"model":7}`},
	{name: "body_too_large", config: "server: {max_body: 1KiB}", body: `{"x":"` + strings.Repeat("y", 1024) + `"}`},
	{name: "body_encoded", headers: []header{{"Content-Encoding", "gzip"}}},
	{name: "url_unknown", path: "/v2/completions"},
	{name: "url_dot_segments", path: "/v1/%2e%2e/secret"},
	{name: "upstream_unreachable", before: func(_ *testing.T, r *rig) { r.upstream.Close() }},
	{name: "upstream_no_headers", upstream: slow(time.Hour)},
	{name: "upstream_total_timeout", config: "server: {timeouts: {total: 5s}}", upstream: slow(time.Hour)},
	{name: "upstream_error", upstream: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.Header().Set("X-Ratelimit-Remaining-Requests", "3")
		w.Header().Set("X-Request-Id", "theirs")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"error":{"message":"slow down"}}`))
	}},
}

func storeDown(_ *testing.T, r *rig) { r.memory.SetDown(true) }

// TestAnswers compares whole answers with testdata/answers, byte for byte.
func TestAnswers(t *testing.T) {
	for _, c := range answerCases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { golden(t, "answers/"+c.name, c.run(t)) })
		})
	}
}

// TestAnswersWithLineOff repeats the situations without a wait line with one
// configured and off: nothing may change.
func TestAnswersWithLineOff(t *testing.T) {
	for _, c := range answerCases {
		if strings.Contains(c.config, "fair_queuing") {
			continue
		}
		const off = "fair_queuing: {enabled: false, max_wait_ms: 10}"
		if strings.Contains(c.config, "rate_limiting: {") {
			c.config = strings.Replace(c.config, "rate_limiting: {", "rate_limiting: {"+off+", ", 1)
		} else {
			c.config += "\nrate_limiting: {" + off + "}"
		}
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { golden(t, "answers/"+c.name, c.run(t)) })
		})
	}
}

func (c answerCase) run(t *testing.T) string {
	if c.upstream == nil {
		c.upstream = ok
	}
	if c.path == "" {
		c.path = "/v1/completions"
	}
	if c.body == "" {
		c.body = completion
	}
	r := newRig(t, c.config, c.upstream)
	if c.before != nil {
		c.before(t, r)
	}
	resp, body := r.do(c.path, c.body, append([]header{as("secret-a")}, c.headers...)...)
	return answer(resp, body)
}
