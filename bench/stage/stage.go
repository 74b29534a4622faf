package stage

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/gateway/replica"
)

// Options say how a scenario is run.
type Options struct {
	Scenario bench.Scenario
	Scope    string // one of Scopes
	Replicas int    // > 0
	Tenants  int    // > 0; scenarios that name their tenants ignore it
	Seed     uint64
	Limit    int64 // the shared limit in requests per second, > 0
	// Warm is how long load is offered before figures are taken, Measured how
	// long they are. Both in whole seconds.
	Warm, Measured time.Duration
	// Redis is the host:port of a server, or empty for an embedded one.
	Redis string
	// OnOutage is the policy for an unusable store, in place of the scenario's;
	// empty: the scenario's.
	OnOutage string
	// Headway is the program to start replicas with; empty: replicas in this
	// process.
	Headway string
	Version string    // of this program, for the report
	Logs    io.Writer // errors of replicas in this process
	// Progress is told how far the run is, several times a second; it may be nil.
	Progress func(Progress)
}

// Progress is how far a run is.
type Progress struct {
	Scope          string
	Elapsed, Total time.Duration
	Starts         int64 // that the provider has seen
}

// burstPart is the burst as a part of a second's limit. It covers what refills
// between two calls for turns (10 ms apart, and as long again under way), so
// that nothing is lost; and it is small, so that it decides nobody's share.
const burstPart = 0.1

// show is one run under way.
type show struct {
	Options
	setting
	dir      string // of this run's files
	provider *bench.Upstream
	embedded *replica.Embedded
	server   *redisServer // of this run's own, in scenarios that do things to it
	line     *relay       // before it, in scenarios that make it slow
	trio     *trio        // in its place, in scenarios that fail over
	fleet    *fleet
	driver   *bench.Driver
	began    time.Time

	mu     sync.Mutex
	events []bench.Event
}

// Run runs a scenario once. Its error says what could not be started or went
// wrong meanwhile; a cancelled ctx is one, for half a run proves nothing.
func Run(ctx context.Context, o Options) (run *bench.Run, err error) {
	s := &show{Options: o}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	return s.play(ctx)
}

// open starts everything but the load.
func (s *show) open(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "headway-bench-"); err != nil {
		return err
	}
	if s.provider, err = bench.StartUpstream("127.0.0.1:0", bench.ProviderConfig{
		Seed: s.Seed, Latency: bench.Uniform(0.02, 0.04), Tokens: bench.Constant(1e5), // each request's bound cuts it
		TokenGap: s.Scenario.TokenGap,
	}); err != nil {
		return err
	}
	redis, err := s.openRedis(ctx)
	if err != nil {
		return err
	}
	tenants := s.Scenario.Plan(s.Tenants, s.Replicas, float64(s.Limit), s.Seed)
	s.setting = setting{
		run: strings.ToLower(rand.Text()[:8]), scope: s.Scope, redis: redis, provider: s.provider.URL,
		limit:  bench.LimitReport{Dimension: "model", Requests: s.Limit, PerS: 1, Burst: max(int64(burstPart*float64(s.Limit)), 2)},
		places: s.Scenario.Places, tenants: tenants,
		immediate: s.Scenario.Immediate, onOutage: cmp.Or(s.OnOutage, s.Scenario.OnOutage),
		timeout: cmp.Or(s.Scenario.StoreTimeout, storeTimeout), slots: s.Scenario.Slots, ttl: s.Scenario.LeaseTTL,
	}
	if s.trio != nil {
		s.sentinels = s.trio.addresses()
	}
	launch := launchLocal(s.Logs)
	if s.Headway != "" {
		launch = launchProcess(s.Headway, s.dir)
	}
	if s.fleet, err = newFleet(s.setting, launch, s.Replicas, s.Scenario.Has(bench.GossipCut)); err != nil {
		return err
	}
	if err := s.fleet.start(ctx); err != nil {
		return err
	}
	s.driver, err = bench.NewDriver(bench.DriverConfig{
		Targets: s.fleet.targets(), Balance: s.Scenario.Balance, Loads: s.loads(), Seed: s.Seed,
		MaxOutstanding: 1 << 20, Timeout: 2 * maxWait, Observe: s.observe,
	})
	return err
}

// openRedis returns the address of the Redis to use.
func (s *show) openRedis(ctx context.Context) (addr string, err error) {
	switch {
	case s.Scenario.Has(bench.RedisFailover):
		if s.trio, err = startTrio(ctx, s.dir); err != nil {
			return "", err
		}
		s.Options.Redis = s.trio.master.addr
		return s.trio.master.addr, nil
	case s.Scenario.OwnsRedis():
		if s.server, err = startRedis(s.dir); err != nil {
			return "", err
		}
		s.Options.Redis = s.server.addr
		if s.Scenario.Has(bench.RedisSlow) {
			return s.slowLine()
		}
		return s.server.addr, nil
	case s.Options.Redis != "":
		if !ping(s.Options.Redis) {
			return "", fmt.Errorf("stage: no Redis answers at %s", s.Options.Redis)
		}
		return s.Options.Redis, nil
	}
	if s.embedded, err = replica.StartEmbedded(); err != nil {
		return "", err
	}
	s.Options.Redis = "embedded"
	return s.embedded.Addr(), nil
}

// observe keeps every event: figures are worked out once, at the end, when
// nothing depends on how fast that is.
func (s *show) observe(e bench.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// play offers the load and returns the figures.
func (s *show) play(ctx context.Context) (*bench.Run, error) {
	begin := time.Now()
	s.began = begin
	// A little longer than the last figure, so that none is of a fleet without
	// load.
	load, end := context.WithTimeout(ctx, s.Warm+s.Measured+200*time.Millisecond)
	defer end()
	var over sync.WaitGroup
	over.Go(func() { s.driver.Run(load) })
	over.Go(func() { s.report(load) })
	faults := make(chan []bench.FaultReport, 1)
	troubles := make(chan error, 1)
	over.Go(func() {
		reports, err := s.troubles(ctx, load)
		faults <- reports
		troubles <- err
	})
	pause(load, s.Warm)
	// Counters are read while load runs, ledger and replicas within some
	// milliseconds of each other: less than one grant in a thousand.
	before, callsBefore := s.fleet.gauges(ctx)
	cpuBefore := readCPU()
	costBefore := s.provider.Ledger().Snapshot()
	pause(load, time.Until(begin.Add(s.Warm+s.Measured)))
	cpuAfter := readCPU()
	after, callsAfter := s.fleet.gauges(ctx)
	costAfter := s.provider.Ledger().Snapshot()
	over.Wait()
	if err := errors.Join(ctx.Err(), <-troubles); err != nil {
		return nil, err
	}
	t := &bench.Trial{
		Scenario: s.Scenario.Name, Scope: s.Scope, Replicas: s.Replicas, Seed: s.Seed, Redis: s.Options.Redis,
		Machine: machine(), Version: s.Version, Tenants: s.tenants, Limit: s.limit,
		Begin: begin, Warm: s.Warm, Measured: s.Measured, Events: s.events,
		Since: costAfter.Since, Starts: s.provider.Ledger().Starts(), Refused: costAfter.Refused,
		Cost: map[string]int64{}, Faults: <-faults,
		Calls: bench.Calls{
			Admit: callsAfter.Admit - callsBefore.Admit, Pool: callsAfter.Pool - callsBefore.Pool, Total: callsAfter.Total - callsBefore.Total,
		},
		Used: s.used(before, after), Load: loadBetween(cpuBefore, cpuAfter),
		OnOutage: s.onOutage, StoreTimeout: s.timeout, SlotCap: s.slots, LeaseTTL: s.ttl, Peaks: map[string]int64{},
	}
	if s.server != nil || s.trio != nil {
		t.RedisVersion = redisVersion()
	}
	for name, a := range costAfter.Tenants {
		t.Peaks[name] = a.Peak
		t.Cost[name] = a.Cost - costBefore.Tenants[name].Cost
	}
	return t.Run(), nil
}

// used is what processes used. Replicas in this process cannot be told apart,
// nor from provider and load.
func (s *show) used(before, after []gauges) (out []bench.Usage) {
	name := func(i int) string { return fmt.Sprintf("replica %d", i+1) }
	if s.Headway == "" {
		name = func(int) string { return "everything" }
		before, after = before[:min(1, len(before))], after[:min(1, len(after))]
	}
	for i, g := range after {
		u := bench.Usage{Process: name(i), CPUS: round2(g.cpu), RSSMB: round2(g.rss / (1 << 20))}
		if i < len(before) && g.cpu >= before[i].cpu { // not one that started anew
			u.CPUS = round2(g.cpu - before[i].cpu)
		}
		out = append(out, u)
	}
	return out
}

func round2(v float64) float64 { return float64(int64(v*100+0.5)) / 100 }

// reportEvery is how often progress is told.
const reportEvery = 200 * time.Millisecond

// report tells progress until ctx ends.
func (s *show) report(ctx context.Context) {
	if s.Progress == nil {
		return
	}
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		s.Progress(Progress{
			Scope: s.Scope, Elapsed: time.Since(s.began), Total: s.Warm + s.Measured,
			Starts: s.provider.Ledger().Total(),
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// close ends everything that was started.
func (s *show) close() error {
	if s.fleet != nil {
		s.fleet.close()
	}
	if s.embedded != nil {
		s.embedded.Close()
	}
	if s.line != nil {
		s.line.close()
	}
	if s.server != nil {
		s.server.close()
	}
	if s.trio != nil {
		s.trio.close()
	}
	if s.provider != nil {
		s.provider.Close()
	}
	return os.RemoveAll(s.dir)
}

// pause waits d, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
