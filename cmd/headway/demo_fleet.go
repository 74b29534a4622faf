package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/replica"
)

const (
	// joinTimeout is how long replicas may take to find each other, storeTimeout
	// how long to reach Redis.
	joinTimeout  = 30 * time.Second
	storeTimeout = 3 * time.Second
	// rejoinEvery is how often the addresses are tried again until then.
	rejoinEvery = time.Second
	// lookEvery is how often conditions of the start are looked at.
	lookEvery = 20 * time.Millisecond
	// closeTimeout bounds the end of everything.
	closeTimeout = 10 * time.Second
)

// demo is a fleet with its load.
type demo struct {
	options  demoOptions
	embedded *replica.Embedded // nil with a Redis server
	provider *bench.Upstream
	replicas []*replica.Replica
	driver   *bench.Driver
	begin    time.Time // of the load
	idle     calls     // before it
}

// startDemo starts everything but the load. What was started is returned even
// with an error, to be closed.
func startDemo(ctx context.Context, o demoOptions, logs io.Writer) (d *demo, err error) {
	d = &demo{options: o, begin: time.Now()}
	run := strings.ToLower(rand.Text()[:8])
	latency, err := bench.ParseLatency(o.latency)
	if err != nil {
		return d, err
	}
	d.provider, err = bench.StartUpstream("127.0.0.1:0", bench.ProviderConfig{
		Seed: o.seed, Latency: latency, Tokens: bench.Constant(8), Models: []string{demoModel(run)},
	})
	if err != nil {
		return d, err
	}
	redis := o.redis
	if redis == "" {
		if d.embedded, err = replica.StartEmbedded(); err != nil {
			return d, err
		}
		redis = d.embedded.Addr()
	}
	if err := reachable(redis); err != nil {
		return d, err
	}
	if err := d.startReplicas(ctx, run, redis, demoLogger(logs)); err != nil {
		return d, err
	}
	if err := d.gather(ctx); err != nil {
		return d, err
	}
	d.driver, err = bench.NewDriver(bench.DriverConfig{
		Targets: d.urls(), Balance: bench.Balance(o.balance), Loads: scenarios[o.scenario].loads(o, run), Seed: o.seed,
	})
	d.idle = d.calls()
	return d, err
}

// reachable tells at once that nobody listens at a Redis address. Replicas
// themselves would start and wait for it.
func reachable(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, storeTimeout)
	if err != nil {
		return fmt.Errorf("redis at %s: %w", addr, err)
	}
	return conn.Close()
}

// demoLogger keeps the screen for the table: only errors are shown.
func demoLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelError}))
}

// demoConfig is the configuration of every replica, as its operator would
// write it. The store's time budget alone is generous: fleet, store, provider
// and load share the cores of one machine, and one that is busy with something
// else should look slow, not broken.
func demoConfig(o demoOptions, run, redis, provider string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0", drain: {grace: 2s}}
redis: {mode: standalone, address: %q, timeout: 500ms}
fleet: {bind: "127.0.0.1:0"}
upstreams: [{name: simulated, url: %q, models: [%s]}]
routes: [{path: "/v1/*", upstream: simulated}]
rate_limiting:
  per_model: {requests: {limit: %d, per: 1s, burst: %d}}
  per_user: {max_in_flight_requests: %d}
  fair_queuing:
    enabled: true
    tenant_dimension: user
    fairness_scope: %s
    max_queue_depth_per_tenant: 16
    weights:
`, redis, provider, demoModel(run), o.limit, o.burst, o.tenantCap, o.scope)
	tenants := scenarios[o.scenario].tenants
	for _, t := range tenants {
		fmt.Fprintf(&b, "      - {identity: %s, weight: %g}\n", demoUser(t, run), t.weight)
	}
	b.WriteString("keys:\n")
	for _, t := range tenants {
		fmt.Fprintf(&b, "  - {id: %s, key: %s, user: %s}\n", demoUser(t, run), demoKey(t, run), demoUser(t, run))
	}
	return b.String()
}

func (d *demo) startReplicas(ctx context.Context, run, redis string, log *slog.Logger) error {
	text := demoConfig(d.options, run, redis, d.provider.URL)
	for i := range d.options.replicas {
		cfg, err := config.Parse([]byte(text), os.LookupEnv)
		if err != nil {
			return fmt.Errorf("configuration: %w", err)
		}
		cfg.Fleet.Name = fmt.Sprintf("demo-%s-%d", run, i)
		r, err := replica.Start(ctx, cfg, replica.Options{Logger: log, Build: version()})
		if err != nil {
			return err
		}
		d.replicas = append(d.replicas, r)
	}
	return nil
}

// gather waits until every replica can decide and sees every other one.
func (d *demo) gather(ctx context.Context) error {
	if err := await(ctx, storeTimeout, d.storesUsable); err != nil {
		return fmt.Errorf("redis at %s is not usable after %v (%s)", d.redisName(), storeTimeout, d.storeState())
	}
	rejoin := time.NewTicker(rejoinEvery)
	defer rejoin.Stop()
	d.join()
	err := await(ctx, joinTimeout, func() bool {
		select {
		case <-rejoin.C:
			d.join()
		default:
		}
		return d.complete()
	})
	if err != nil {
		return fmt.Errorf("replicas see %v of %d members: %w", d.members(), d.options.replicas, err)
	}
	return nil
}

// join makes all addresses known to all replicas. Whoever is not there yet is
// found at the next try.
func (d *demo) join() {
	for _, r := range d.replicas {
		var others []string
		for _, other := range d.replicas {
			if other != r {
				others = append(others, other.GossipAddr())
			}
		}
		if len(others) > 0 {
			_, _ = r.Join(others...)
		}
	}
}

// await looks at done until it holds, ctx ends or too much time has passed.
func await(ctx context.Context, limit time.Duration, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (d *demo) complete() bool {
	for _, n := range d.members() {
		if n != d.options.replicas {
			return false
		}
	}
	return true
}

// members is how many replicas each one sees.
func (d *demo) members() []int {
	out := make([]int, len(d.replicas))
	for i, r := range d.replicas {
		out[i] = r.Members()
	}
	return out
}

func (d *demo) storesUsable() bool { return d.storeState() == "ok" }

// storeState is "ok", or the trouble of the first replica that has some.
func (d *demo) storeState() string {
	for _, r := range d.replicas {
		if h := r.Health(); !h.Usable {
			return h.State
		}
	}
	return "ok"
}

// calls counts script calls of all replicas: those that ask for admission, all
// of them, and those without an answer in time.
type calls struct{ admit, total, timeouts float64 }

func (d *demo) calls() (n calls) {
	for _, r := range d.replicas {
		n.admit += float64(r.AdmissionCalls())
		n.total += float64(r.StoreCalls())
		n.timeouts += float64(r.StoreTimeouts())
	}
	return n
}

// callsPerGrant relates the calls since the load began to what the provider
// saw.
func (d *demo) callsPerGrant(grants int64) calls {
	now, per := d.calls(), max(float64(grants), 1)
	return calls{admit: (now.admit - d.idle.admit) / per, total: (now.total - d.idle.total) / per}
}

func (d *demo) urls() []string {
	out := make([]string, len(d.replicas))
	for i, r := range d.replicas {
		out[i] = r.URL()
	}
	return out
}

func (d *demo) redisName() string {
	if d.options.redis == "" {
		return "embedded"
	}
	return d.options.redis
}

// elapsed is how long load has been offered, at most the whole duration.
func (d *demo) elapsed() time.Duration {
	t := time.Since(d.begin)
	if d.options.duration > 0 {
		t = min(t, d.options.duration)
	}
	return t
}

// close ends everything, replicas one after the other: those that remain hear
// each one's goodbye.
func (d *demo) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	for _, r := range d.replicas {
		errs = append(errs, r.Shutdown(ctx))
	}
	if d.embedded != nil {
		d.embedded.Close()
	}
	if d.provider != nil {
		d.provider.Close()
	}
	return errors.Join(errs...)
}

// startProvider starts the simulated provider of a replica that was given no
// configuration.
func startProvider() (*bench.Upstream, error) {
	return bench.StartUpstream("127.0.0.1:0", bench.ProviderConfig{
		Latency: bench.LogNormal(0.2, 0.4), TokenGap: bench.Constant(0.02), Models: []string{"simulated-model"},
	})
}
