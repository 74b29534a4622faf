package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/gateway/config"
)

// Bounds of a demo on the embedded store. It serves a few hundred calls a
// second beside the load on two cores; beyond that the demo would show the
// store and not the limiter.
const (
	maxEmbeddedLimit = 100 // requests per second
	maxEmbeddedRate  = 400
)

// maxDemoReplicas is how many replicas one process may reasonably hold.
const maxDemoReplicas = 16

// demoOptions are the settings of a demo as they are typed.
type demoOptions struct {
	replicas  int
	duration  time.Duration // of the load; 0: until interrupted
	scenario  string
	redis     string // host:port; empty: embedded
	limit     int64  // requests per second, shared by all tenants
	burst     int64
	tenantCap int64   // in-flight cap of each tenant
	rate      float64 // offered, all tenants together; 0: the scenario's own
	latency   string
	balance   string
	scope     string // of fairness: config.ScopeReplica, ScopeGossip or ScopeExact
	seed      uint64
	json      bool
}

func demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a whole fleet on loopback, with load and a judge",
		Long: `Run a whole fleet on loopback: an embedded Redis, replicas with listeners and
gossip of their own, a simulated provider, and open-loop load of four tenants
spread round robin over the replicas. All tenants share one limit. The load
begins when every replica sees every other one, and ends after --duration or
with Ctrl-C.

On a terminal a live table shows what each tenant is entitled to and what it
receives; without one, or with --json, a line every two seconds goes to stderr.
At the end one report goes to stdout, as one JSON object. Its "judge" figures
come from the provider's ledger: what really arrived there, never what a replica
believes. The exit code is 1 if the judge saw more than the limit allows.

` + scenarioHelp() + `
Arrivals are independent of each other (Poisson) and of the answers. The wait of
a request counts from the instant it was due to the head of its answer, without
the time the provider took.

With --redis the fleet uses a Redis server. The demo's tenants and model have
new names in every run, so that it neither meets nor removes anything there;
what it leaves expires by itself.`,
		Example: `  headway demo                                   until Ctrl-C
  headway demo --duration 20s --json
  headway demo --redis 127.0.0.1:6379 --limit 200 --rate 700
  headway demo --replicas 5 --balance sticky --scope exact --duration 1m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return UsageError{fmt.Errorf("headway: demo: %w\nSee '%s --help'", err, cmd.CommandPath())}
			}
			return runDemo(cmd, o)
		},
	}
	o.register(cmd.Flags())
	return cmd
}

func (o *demoOptions) register(flags *pflag.FlagSet) {
	flags.IntVar(&o.replicas, "replicas", 3, fmt.Sprintf("replicas in the fleet, up to %d", maxDemoReplicas))
	flags.DurationVar(&o.duration, "duration", 0, "how long load is offered; 0: until interrupted")
	flags.StringVar(&o.scenario, "scenario", "heavy-tenant", "who asks for how much, see above")
	flags.StringVar(&o.redis, "redis", "", "host:port of a Redis server; empty: embedded")
	flags.Int64Var(&o.limit, "limit", 60, "requests per second that all tenants share; up to 100 embedded")
	flags.Int64Var(&o.burst, "burst", 15, "most requests of that limit at once")
	flags.Int64Var(&o.tenantCap, "tenant-cap", 32, "requests of one tenant that may run at once")
	flags.Float64Var(&o.rate, "rate", 0, "requests per second offered by all tenants together; up to 400 embedded; 0: the scenario's own")
	flags.StringVar(&o.latency, "latency", "uniform:30ms,70ms", "distribution of the provider's time to answer: 50ms, uniform:LOW,HIGH, exp:MEAN or lognormal:MEDIAN,SIGMA")
	flags.StringVar(&o.balance, "balance", string(bench.RoundRobin), "how requests are spread: round_robin, random, least_connections, sticky or skewed")
	flags.StringVar(&o.scope, "scope", config.Default().RateLimiting.FairQueuing.FairnessScope, "how far fairness reaches: replica, gossip or exact")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of arrivals and latencies")
	flags.BoolVar(&o.json, "json", false, "no live table: plain lines to stderr, one report object to stdout")
}

// validate reports every mistake at once and fills in the scenario's rate.
func (o *demoOptions) validate() error {
	var errs []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	s, known := scenarios[o.scenario]
	wrong(!known, "--scenario %q is not one of %s", o.scenario, scenarioNames())
	if o.rate == 0 {
		o.rate = s.rate
	}
	wrong(o.replicas < 1 || o.replicas > maxDemoReplicas, "--replicas %d is not in 1..%d", o.replicas, maxDemoReplicas)
	wrong(o.duration < 0, "--duration %v is negative", o.duration)
	wrong(o.limit < 1 || o.burst < 1 || o.tenantCap < 1, "--limit %d, --burst %d and --tenant-cap %d must be 1 or more", o.limit, o.burst, o.tenantCap)
	wrong(known && !(o.rate > 0 && o.rate < 1e6), "--rate %v is not in 0..1000000", o.rate)
	wrong(o.redis == "" && o.limit > maxEmbeddedLimit, "--limit %d is above %d, more than the embedded store can show: give --redis", o.limit, maxEmbeddedLimit)
	wrong(o.redis == "" && o.rate > maxEmbeddedRate, "--rate %v is above %d, more than the embedded store can show: give --redis", o.rate, maxEmbeddedRate)
	scopes := []string{config.ScopeReplica, config.ScopeGossip, config.ScopeExact}
	wrong(!slices.Contains(scopes, o.scope), "--scope %q is not replica, gossip or exact", o.scope)
	_, err := bench.ParseLatency(o.latency)
	wrong(err != nil, "--latency: %w", err)
	_, err = bench.ParseBalance(o.balance)
	wrong(err != nil, "--balance: %w", err)
	return errors.Join(errs...)
}

// runDemo starts everything, offers load, and reports.
func runDemo(cmd *cobra.Command, o demoOptions) error {
	d, err := startDemo(cmd.Context(), o, cmd.ErrOrStderr())
	defer func() {
		if err := d.close(); err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "headway: demo: end:", err)
		}
	}()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	show := newView(d, cmd.ErrOrStderr())
	load, end := cmd.Context(), context.CancelFunc(func() {})
	if o.duration > 0 {
		load, end = context.WithTimeout(load, o.duration)
	}
	defer end()
	d.begin = time.Now() // before the first request: what the judge's time runs from
	over := make(chan struct{})
	go func() {
		defer close(over)
		d.driver.Run(load)
	}()
	show.until(over, load.Done())
	report := d.report()
	if text := report.Warning(); text != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "headway: demo:", text)
	}
	if !o.json && !show.live { // a live table says it already
		if err := report.WriteText(cmd.ErrOrStderr()); err != nil {
			return err
		}
	}
	if err := report.WriteJSON(cmd.OutOrStdout()); err != nil {
		return err
	}
	if !report.Judge.OK() {
		return fmt.Errorf("demo: the provider saw more than the limit allows: %+v", report.Judge)
	}
	return nil
}

// report is the result of the run up to now.
func (d *demo) report() *bench.Report {
	seen, stats := d.provider.Ledger().Snapshot(), d.driver.Stats()
	r := &bench.Report{
		Replicas: d.options.replicas, Members: d.members(), Redis: d.redisName(),
		DurationS: float64(d.elapsed().Milliseconds()) / 1000,
		Limit:     bench.LimitReport{Dimension: "model", Requests: d.options.limit, PerS: 1, Burst: d.options.burst},
	}
	r.Judge = bench.Judge(seen, r.Limit, d.begin, d.options.tenantCap)
	r.Share(stats, seen)
	// Calls that ask for admission. Slots given back and kept alive travel
	// together, many in one call, and are shown apart.
	r.RedisCallsPerGrant = math.Round(d.callsPerGrant(seen.Total.Starts).admit*1e4) / 1e4
	r.StoreTimeouts = int64(d.calls().timeouts - d.idle.timeouts)
	r.DriverLateP99MS, r.DriverLateMaxMS = d.driver.Lateness()
	return r
}
