package config_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/gateway/config"
)

// parse reads a configuration of a fleet replica with more lines at the end.
func parseMore(t *testing.T, base, more string) *config.Config {
	t.Helper()
	c, err := config.Parse([]byte(base+more), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const changeBase = `
keys: [{id: k, key: secret, user: u}]
upstreams: [{name: up, url: "http://127.0.0.1:1"}]
routes: [{path: "/v1/*", upstream: up}]
`

// TestChangeNamesWhatNeedsARestart: everything that a running replica cannot change
// is named and stays; the rest follows.
func TestChangeNamesWhatNeedsARestart(t *testing.T) {
	old := parseMore(t, changeBase, `
redis: {mode: standalone}
server: {admin_token: t}
`)
	next := parseMore(t, strings.Replace(changeBase, "id: k", "id: k2", 1), `
redis: {mode: standalone, address: "127.0.0.1:7000", password: hidden, on_outage: fail_open, deny_cache: false}
server:
  listen: ":81"
  admin_listen: "127.0.0.1:91"
  admin_token: other
  max_body: 1MiB
  max_header: 32KiB
  timeouts: {read_header: 1s, total: 60s, idle: 1s}
fleet: {bind: "127.0.0.1:0", join: ["127.0.0.1:7946"]}
rate_limiting:
  lease_ttl: 5s
  inflight_scope: replica
  per_user: {requests: {limit: 5, per: 1s}, max_in_flight_requests: 1}
  fair_queuing: {enabled: true, tenant_dimension: team, discipline: drr, fairness_scope: replica, max_tenants: 7}
rate_limit_service: {listen: "127.0.0.1:8081"}
batch: {enabled: true, workers: 2, lease: 5s, default_deadline: 1h}
`)
	got, restart, err := old.Change(next)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, p := range restart {
		text.WriteString(p.String() + "\n")
	}
	want, err := os.ReadFile("testdata/restart.txt")
	if err != nil || text.String() != string(want) {
		t.Errorf("restart.txt (%v): got\n%s\nwant\n%s", err, text.String(), want)
	}
	if got.Redis.Address != old.Redis.Address || got.Redis.OnOutage != "fail_open" || got.Server.Listen != old.Server.Listen ||
		got.Server.AdminToken.Reveal() != "other" || got.Server.MaxBody != next.Server.MaxBody || got.Keys[0].ID != "k2" ||
		got.RateLimiting.FairQueuing.FairnessScope != config.ScopeExact || got.RateLimiting.FairQueuing.MaxTenants != 7 ||
		got.Server.Timeouts.Total != next.Server.Timeouts.Total || got.Server.Timeouts.Idle != old.Server.Timeouts.Idle {
		t.Errorf("half of each: %+v", got)
	}
	// Back again, nothing waits for a restart any more.
	back, restart, err := got.Change(old)
	if err != nil || len(restart) != 0 || back.Hash() != old.Hash() {
		t.Errorf("back: %v, %v; hash %s, want %s", restart, err, back.Hash(), old.Hash())
	}
	// The next file by itself was not touched.
	if next.Redis.Address != "127.0.0.1:7000" || reflect.DeepEqual(next, got) {
		t.Error("Change changed its argument")
	}
}

// TestChangeRefusesWhatDoesNotFit: a file that is right by itself may not go with
// what stays until a restart.
func TestChangeRefusesWhatDoesNotFit(t *testing.T) {
	old := parseMore(t, changeBase, "redis: {mode: standalone, layout: tenant}\n")
	next := parseMore(t, strings.Replace(changeBase, "user: u}", "user: u, team: a}, {id: k3, key: s3, user: u, team: b}", 1), "redis: {mode: standalone}\n")
	if _, _, err := old.Change(next); err == nil || !strings.Contains(err.Error(), "keys[1]") {
		t.Fatalf("two homes of a user where tenants' keys are kept together: %v", err)
	}
}
