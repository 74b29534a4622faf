// Package consoletest looks at the console as people do: with a browser, at real
// replicas under load. It drives Debian's chromium through its own protocol, and
// each tab keeps what it asked the network for, what it wrote to its console and
// which policy it broke, so that every test is also a test of those.
//
// Accessibility is judged by axe-core, which `make test` installs beside this
// file, in both themes. HEADWAY_SHOTS=dir keeps a picture of every page in both
// themes, 1280 and 390 pixels wide.
package consoletest

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/replica"
)

// patience bounds everything that a test waits for.
const patience = time.Minute

// adminToken is what the closed replica asks for.
const adminToken = "token-of-the-operators"

// settings are those of both replicas. 40 requests a second are offered to a limit
// of 20, so that some wait and some are refused.
const settings = `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0", admin_token: "%s", drain: {grace: 1s}}
redis: {mode: standalone, address: %q, timeout: 500ms}
fleet: {bind: "127.0.0.1:0", name: %q}
workspaces: [{id: acme, name: Acme research}, {id: beta, name: Beta}]
keys:
  - {id: web, key: key-of-web, user: web-app, workspaces: [{id: acme, role: owner}]}
  - {id: nightly, key: key-of-nightly, user: nightly-import, workspaces: [{id: acme, role: member}]}
  - {id: mobile, key: key-of-mobile, user: mobile-app}
upstreams:
  - {name: provider, url: %q, models: [sim-large], throttle: {enabled: true}}
  - {name: gpu-1, url: %q, models: [sim-small], slots: 4}
routes:
  - {path: "/v1/chat/*", upstream: provider}
  - {path: "/v1/completions", upstream: gpu-1}
rate_limiting:
  per_model: {requests: {limit: 20, per: 1s, burst: 5}}
  fair_queuing:
    enabled: true
    max_queue_depth_per_tenant: 8
    weights: [{identity: web-app, weight: 3}]
`

// fleet is two replicas that share a limit, and load on both.
type fleet struct {
	open   *replica.Replica // asks for no admin token
	closed *replica.Replica // asks for one
	end    func()
}

// startFleet starts replicas, waits until they know each other, and begins to send.
func startFleet() (f *fleet, err error) {
	var ends []func()
	f = &fleet{end: func() {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i]()
		}
	}}
	defer func() {
		if err != nil {
			f.end()
		}
	}()
	provider, err := bench.StartUpstream("127.0.0.1:0", bench.ProviderConfig{
		Latency: bench.Constant(0.08), Tokens: bench.Constant(8), Models: []string{"sim-large", "sim-small"},
		Quota: bench.QuotaConfig{Requests: bench.QuotaRate{Limit: 3000, Per: time.Minute}, Tokens: bench.QuotaRate{Limit: 90_000, Per: time.Minute}},
	})
	if err != nil {
		return f, err
	}
	ends = append(ends, provider.Close)
	redis, err := replica.StartEmbedded()
	if err != nil {
		return f, err
	}
	ends = append(ends, redis.Close)
	for _, r := range []struct {
		name, token string
		into        **replica.Replica
	}{{"gateway-a", "", &f.open}, {"gateway-b", adminToken, &f.closed}} {
		cfg, err := config.Parse(fmt.Appendf(nil, settings, r.token, redis.Addr(), r.name, provider.URL, provider.URL), nil)
		if err != nil {
			return f, err
		}
		if *r.into, err = replica.Start(context.Background(), cfg, replica.Options{Logger: slog.New(slog.DiscardHandler), Build: "test"}); err != nil {
			return f, err
		}
		ends = append(ends, func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_ = (*r.into).Shutdown(ctx)
		})
	}
	if _, err := f.open.Join(f.closed.GossipAddr()); err != nil {
		return f, err
	}
	stop, err := load(f.open.URL(), f.closed.URL())
	ends = append(ends, stop)
	return f, err
}

// load sends from three tenants until it is stopped.
func load(targets ...string) (stop func(), err error) {
	driver, err := bench.NewDriver(bench.DriverConfig{Targets: targets, Seed: 1, Loads: []bench.Load{
		{Tenant: "web", Weight: 3, Rate: 14, Key: "key-of-web", Model: "sim-large"},
		{Tenant: "nightly", Weight: 1, Rate: 22, Key: "key-of-nightly", Model: "sim-large"},
		{Tenant: "mobile", Weight: 1, Rate: 4, Key: "key-of-mobile", Model: "sim-large"},
		{Tenant: "mobile on the agent", Weight: 1, Rate: 16, Key: "key-of-mobile", Model: "sim-small", Path: "/v1/completions"},
	}})
	if err != nil {
		return func() {}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		driver.Run(ctx)
	}()
	return func() { cancel(); <-done }, nil
}
