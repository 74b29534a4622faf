package gateway

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// Without its store a replica is ready exactly if it serves requests: by the
// policies of the dimensions that have limits, whatever the others would do.
func TestReadyWithoutStore(t *testing.T) {
	const user, anyone = "per_user: {requests: {limit: 9, per: 1s}", "per_client: {requests: {limit: 9, per: 1s}"
	for _, c := range []struct {
		limits, fallback string
		ready            bool
	}{
		{"", "fail_closed", true}, // nothing asks the store
		{user + "}", "fail_closed", false},
		{user + "}", "fail_open", true},
		{user + ", on_outage: fail_open}", "fail_closed", true},
		{user + ", on_outage: fail_closed}", "fail_open", false},
		{user + ", on_outage: fail_open}, " + anyone + "}", "fail_closed", false},
		{"per_user: {overrides: {ann: {requests: {limit: 9, per: 1s}}}}", "fail_closed", false},
		{"per_user: {max_in_flight_requests: 3}", "fail_closed", false},
		{"per_user: {max_in_flight_requests: 3}, inflight_scope: replica", "fail_closed", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, "redis: {on_outage: "+c.fallback+"}\nrate_limiting: {"+c.limits+"}", ok)
			r.memory.SetDown(true)
			got := r.readiness()
			if got.Ready != c.ready || len(got.Reasons) != 1 {
				t.Errorf("%s, {%s}: %+v, want ready: %v", c.fallback, c.limits, got, c.ready)
			}
			if resp, text := r.do("/v1/completions", completion, as("secret-a")); (resp.StatusCode == http.StatusOK) != c.ready {
				t.Errorf("%s, {%s}: a request got %d %s, ready is %v", c.fallback, c.limits, resp.StatusCode, text, got.Ready)
			}
			r.memory.SetDown(false)
			if !r.Ready() {
				t.Errorf("%s, {%s}: not ready with a store", c.fallback, c.limits)
			}
		})
	}
}

// Who is to go on by a share and has none would refuse everything.
func TestReadyWithoutShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "redis: {on_outage: local_share}\nrate_limiting: {per_user: {requests: {limit: 9, per: 1s}}}", ok)
		share := false
		r.opts.Share = func() bool { return share }
		if !r.Ready() {
			t.Error("not ready with a store")
		}
		r.memory.SetDown(true)
		if got := r.readiness(); got.Ready || !strings.Contains(strings.Join(got.Reasons, ";"), "no share of the limits yet") {
			t.Errorf("got %+v without a share", got)
		}
		share = true
		if got := r.readiness(); !got.Ready {
			t.Errorf("got %+v with a share", got)
		}
	})
}
