package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Defaults of DriverConfig, used where a field is zero.
const (
	DefaultMaxOutstanding = 1000
	DefaultTimeout        = 30 * time.Second
)

// Load is what one tenant asks for.
type Load struct {
	Tenant string  // its name in ledger and report
	Weight float64 // its share, > 0; for the oracle, requests do not carry it
	Rate   float64 // requests per second, > 0
	Key    string  // API key, sent as a bearer token; empty: none
	Model  string
	// Stream asks for a stream of events, MaxTokens bounds the answer; 0 leaves
	// that to the provider.
	Stream    bool
	MaxTokens int64
	// Tokens draws the bound of each answer anew, in place of MaxTokens.
	Tokens Dist
	Path   string // empty: /v1/chat/completions
}

// DriverConfig says what is sent where.
type DriverConfig struct {
	Targets  []string // base addresses of the replicas
	Balance  Balance  // empty: round robin
	Loads    []Load
	Arrivals Arrivals // empty: poisson
	Seed     uint64   // equal seeds send equal requests at equal instants to equal replicas
	// MaxOutstanding bounds the unanswered requests of one tenant. An arrival
	// past it is dropped and counted, never delayed. Zero: 1000.
	MaxOutstanding int
	Timeout        time.Duration // of one request, waiting included; zero: 30 s
	// Grace is how long answers may still come after the last arrival. Zero cuts
	// outstanding requests off at once and counts them as aborted.
	Grace     time.Duration
	Transport http.RoundTripper // nil: one of its own, over real connections
	// Observe is told the end of every request, from the goroutine of each. The
	// driver then keeps no waits of its own: TenantStats.Wait stays zero.
	Observe func(Event)
}

// Event is how one request went.
type Event struct {
	Tenant int       // index of its Load
	Due    time.Time // when it was to be sent
	End    time.Time // when its answer was complete, or given up
	Kind   Kind
	Reason string        // of a refusal or failure
	Wait   time.Duration // of one that was answered, see the package comment
	// Target is the replica that was asked, an index of DriverConfig.Targets.
	Target int
	// Late is how much later than Due it was really sent: the driver's own fault,
	// or that of the machine that it shares. Waits contain it.
	Late time.Duration
	// Degraded is what the answer says of the limits that were skipped or
	// replaced because the store was unusable; empty: nothing.
	Degraded string
	// Told is the wait that was foretold to a request that stood in line; < 0
	// when it did not, or was not told.
	Told time.Duration
	// Fleet reports whether its place in line was one among the whole fleet.
	Fleet bool
}

// validate names every mistake.
func (c DriverConfig) validate() error {
	var errs []error
	if len(c.Targets) == 0 || len(c.Loads) == 0 {
		errs = append(errs, fmt.Errorf("bench: %d targets and %d loads: at least one of each is needed", len(c.Targets), len(c.Loads)))
	}
	for _, l := range c.Loads {
		if !(l.Rate > 0 && l.Weight > 0) {
			errs = append(errs, fmt.Errorf("bench: tenant %q: rate %v and weight %v must be above 0", l.Tenant, l.Rate, l.Weight))
		}
	}
	if _, err := ParseBalance(string(c.Balance)); err != nil {
		errs = append(errs, err)
	}
	if c.Arrivals != Poisson && c.Arrivals != Fixed {
		errs = append(errs, fmt.Errorf("bench: arrivals %q is not poisson or fixed", c.Arrivals))
	}
	return errors.Join(errs...)
}

// Driver sends open-loop load. All methods but Run may be called at any time
// from any goroutine; Run is called once.
type Driver struct {
	cfg      DriverConfig
	balancer *balancer
	tenants  []*tenant
	running  sync.WaitGroup // requests
}

// tenant is one Load under way.
type tenant struct {
	load    Load
	targets []*url.URL // full address on each replica
	header  http.Header
	body    []byte
	sizes   *rand.Rand // of its answers; used by Run alone

	mu    sync.Mutex
	stats tally
}

// NewDriver prepares a driver, or says everything that is wrong with cfg.
func NewDriver(cfg DriverConfig) (*Driver, error) {
	cfg.Balance = cmp.Or(cfg.Balance, RoundRobin)
	cfg.Arrivals = cmp.Or(cfg.Arrivals, Poisson)
	cfg.MaxOutstanding = cmp.Or(cfg.MaxOutstanding, DefaultMaxOutstanding)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Transport == nil {
		cfg.Transport = newTransport()
	}
	d := &Driver{cfg: cfg, balancer: newBalancer(cfg.Balance, len(cfg.Targets), cfg.Seed)}
	for i, l := range cfg.Loads {
		t, err := newTenant(l, cfg.Targets)
		if err != nil {
			return nil, err
		}
		t.sizes = rand.New(rand.NewPCG(cfg.Seed, sizesStream|uint64(i)))
		if cfg.Observe == nil {
			t.stats.waits, t.stats.late = newWaits(), newWaits()
		}
		d.tenants = append(d.tenants, t)
	}
	return d, nil
}

// sizesStream keeps the sequences that sizes are drawn from apart from those
// of arrivals.
const sizesStream = 1 << 62

// SetUp says whether target (an index of Targets) takes requests. Its share
// goes to the others as long as it does not. At least one must.
//
// As a balancer does with a server that it takes out, it closes connections
// that nothing runs on: the server would wait 5 s for one that was opened and
// never used.
func (d *Driver) SetUp(target int, up bool) {
	d.balancer.down[target].Store(!up)
	if own, ok := d.cfg.Transport.(*http.Transport); ok && !up {
		own.CloseIdleConnections()
	}
}

// newTransport keeps connections open, as a balancer does: a new one per
// request would measure the handshake.
func newTransport() *http.Transport {
	return &http.Transport{MaxIdleConns: 0, MaxIdleConnsPerHost: 4096, IdleConnTimeout: time.Minute, DisableCompression: true}
}

func newTenant(l Load, targets []string) (*tenant, error) {
	t := &tenant{load: l, stats: newTally(), header: http.Header{
		"Content-Type": {"application/json"}, HeaderTenant: {l.Tenant}, "User-Agent": {"headway-bench"},
	}}
	if l.Key != "" {
		t.header.Set("Authorization", "Bearer "+l.Key)
	}
	for _, target := range targets {
		u, err := url.Parse(target)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("bench: target %q is not a base address like http://127.0.0.1:8080", target)
		}
		u.Path = cmp.Or(u.Path, "/") // JoinPath would return a path without the slash
		t.targets = append(t.targets, u.JoinPath(cmp.Or(l.Path, "/v1/chat/completions")))
	}
	body := map[string]any{
		"model": l.Model, "stream": l.Stream,
		"messages": []map[string]string{{"role": "user", "content": "Say something."}},
	}
	if l.MaxTokens > 0 {
		body["max_tokens"] = l.MaxTokens
	}
	var err error
	t.body, err = json.Marshal(body)
	return t, err
}

// next is the body of the tenant's next request.
func (t *tenant) next() []byte {
	if t.load.Tokens == (Dist{}) {
		return t.body
	}
	bound := min(max(int64(t.load.Tokens.Sample(t.sizes)), 1), maxTokens)
	// The same object with one more member in front: its brace is the first byte.
	return append(fmt.Appendf(nil, `{"max_tokens":%d,`, bound), t.body[1:]...)
}

// Run sends requests until ctx ends, gives outstanding ones the grace, and
// returns when all of them have ended.
func (d *Driver) Run(ctx context.Context) {
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	begin := time.Now()
	plan := newSchedule(d.cfg.Loads, d.cfg.Arrivals, d.cfg.Seed)
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		at, who := plan.next()
		intended := begin.Add(at)
		// A driver that is late sends at once: the instants are the load's, not
		// the driver's.
		if wait := time.Until(intended); wait > 0 {
			timer.Reset(wait)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		}
		if ctx.Err() != nil {
			break
		}
		d.launch(requests, who, intended)
	}
	if d.cfg.Grace > 0 {
		defer time.AfterFunc(d.cfg.Grace, cut).Stop()
	} else {
		cut()
	}
	d.running.Wait()
	if own, ok := d.cfg.Transport.(*http.Transport); ok {
		own.CloseIdleConnections()
	}
}

// launch sends one request in a goroutine of its own.
func (d *Driver) launch(ctx context.Context, who int, intended time.Time) {
	t := d.tenants[who]
	body := t.next()
	if !t.offer(d.cfg.MaxOutstanding) {
		d.observe(who, intended, result{kind: Dropped})
		return
	}
	target := d.balancer.pick(who)
	d.balancer.outstanding[target].Add(1)
	d.running.Go(func() {
		defer d.balancer.outstanding[target].Add(-1)
		limited, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
		defer cancel()
		late := time.Since(intended)
		r := d.send(limited, t, body, target, intended)
		r.target, r.late = target, max(late, 0)
		if r.kind == Failed && ctx.Err() != nil {
			r.kind = Aborted // by the driver itself
		}
		t.record(r)
		d.observe(who, intended, r)
	})
}

func (d *Driver) observe(who int, due time.Time, r result) {
	if d.cfg.Observe != nil {
		d.cfg.Observe(Event{
			Tenant: who, Due: due, End: time.Now(), Kind: r.kind, Reason: r.reason,
			Wait: r.wait, Told: r.told, Fleet: r.fleet, Target: r.target, Late: r.late, Degraded: r.degraded,
		})
	}
}

// Stats returns what each tenant has met so far, in the order of the loads.
func (d *Driver) Stats() []TenantStats {
	out := make([]TenantStats, len(d.tenants))
	for i, t := range d.tenants {
		out[i] = t.snapshot()
	}
	return out
}
