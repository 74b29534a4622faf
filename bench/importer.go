package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ImporterScenario is the name of runs in which one tenant brings very many jobs.
const ImporterScenario = "importer"

// Importer is the report of one such run. Its JSON keys are stable. Everything about
// batch work is read from the provider's ledger.
type Importer struct {
	Scenario string  `json:"scenario"`
	Path     string  `json:"path"` // held or durable
	Replicas int     `json:"replicas"`
	Seed     uint64  `json:"seed"`
	Jobs     int     `json:"jobs"`
	Small    int     `json:"small_tenants"`
	Seconds  float64 `json:"duration_s"` // of the importer's jobs

	// Positions are the places of a small tenant's three jobs among the batch starts
	// after they were there, behind a backlog of another tenant.
	Positions []int `json:"interleave_positions"`
	// SmallWithin is how many batch starts it took until the last job of the small
	// tenants had started, as a multiple of what equal turns would have taken; 0 if
	// all had before everybody's jobs were there.
	SmallWithin float64 `json:"small_within"`
	// TokenRatio is tokens of a tenant of 1,000-token jobs by those of one of
	// 100-token jobs, while both had some left.
	TokenRatio float64 `json:"token_ratio"`
	// WeightRatio is starts of a tenant of weight 3 by those of one of weight 1.
	WeightRatio float64 `json:"weight_ratio"`
	// The 99th percentile of interactive requests, in ms, before the importer came and
	// while its jobs ran.
	InteractiveAlone   float64 `json:"interactive_p99_alone_ms"`
	InteractiveP99     float64 `json:"interactive_p99_ms"`
	InteractiveRatio   float64 `json:"interactive_p99_ratio"`
	InteractiveRefused float64 `json:"interactive_refused_ratio"`
	// LowestLeft is the least of the provider's quota that a batch start left, as a
	// part of the limit; Reserve what it had to leave.
	LowestLeft        float64 `json:"lowest_left"`
	Reserve           float64 `json:"reserve"`
	Provider429PerMin float64 `json:"provider_429_per_min"`
	Utilisation       float64 `json:"utilisation"` // of the quota while the importer's jobs ran
	// Missing and Doubled are jobs without a result, and results too many.
	Missing int `json:"missing"`
	Doubled int `json:"doubled"`
	// NotMeasured are the keys of figures that there was nothing to measure by: what
	// they hold means nothing.
	NotMeasured []string `json:"not_measured,omitempty"`
}

// Work is what one tenant has to do.
type Work struct {
	Tenant string // one of ImporterTenants
	Jobs   int
	Tokens int64 // of each job
	Here   bool  // requests all go to one replica, where there are requests
}

// Names of tenants in such a run; small ones are SmallTenant(i).
const (
	ImporterTenant    = "importer"
	InteractiveTenant = "interactive"
	backlogTenant     = "backlog"
	fewTenant         = "few"
	thousandTenant    = "thousand"
	hundredTenant     = "hundred"
	weightOneTenant   = "weight-1"
	weightThreeTenant = "weight-3"
)

// SmallTenant is the i-th of those beside the importer.
func SmallTenant(i int) string { return fmt.Sprintf("small-%02d", i+1) }

// ImporterTenants are all tenants of a run with so many small ones, by name with
// their weights.
func ImporterTenants(small int) map[string]float64 {
	all := map[string]float64{weightThreeTenant: 3}
	for _, name := range []string{ImporterTenant, InteractiveTenant, backlogTenant, fewTenant, thousandTenant, hundredTenant, weightOneTenant} {
		all[name] = 1
	}
	for i := range small {
		all[SmallTenant(i)] = 1
	}
	return all
}

// ImporterLoad is who asks in such a run, and for how much.
type ImporterLoad struct {
	Path     string
	Replicas int
	Quota    QuotaRate // of requests, refilled continuously
	Reserve  float64   // of it
	Seed     uint64

	Backlog      int           // jobs before the few
	Thousand     int           // jobs of 1,000 tokens; ten times as many of 100
	Weighted     int           // jobs of weight 3; as many of weight 1
	Jobs         int           // of the importer
	Small, Each  int           // small tenants and the jobs of each
	Alone        time.Duration // interactive requests before there is batch work
	JobTokens    int64         // of jobs that are not otherwise given
	SettleWithin time.Duration // for what is left over of a part

	// Submit hands in work and returns when all of it has a result, or ctx ends: how
	// many jobs have one, and how many results there are too many. handed is called
	// once all of it has been handed in.
	Submit func(ctx context.Context, w Work, handed func()) (done, doubled int, err error)
	// Ask sends one interactive request through a replica and returns the status of
	// its answer, or 0 if there was none.
	Ask func(ctx context.Context, replica int) (status int)
}

// Run does the parts one after the other and judges them by the ledger of p.
func (l ImporterLoad) Run(ctx context.Context, p *Provider) (Importer, error) {
	r := Importer{
		Scenario: ImporterScenario, Path: l.Path, Replicas: l.Replicas, Seed: l.Seed, Jobs: l.Jobs, Small: l.Small, Reserve: l.Reserve,
	}
	for _, part := range []func(context.Context, *Provider, *Importer) error{l.interleave, l.tokens, l.weights, l.importer} {
		if err := part(ctx, p, &r); err != nil {
			return r, err
		}
		if err := l.settle(ctx, p); err != nil {
			return r, err
		}
	}
	return r, nil
}

// missing notes the keys of figures that there was nothing to measure by, if so.
func (r *Importer) missing(nothing bool, keys ...string) {
	if nothing {
		r.NotMeasured = append(r.NotMeasured, keys...)
	}
}

// settle waits until the provider has nothing to do, so that parts do not mix.
func (l ImporterLoad) settle(ctx context.Context, p *Provider) error {
	for end := time.Now().Add(l.SettleWithin); p.Ledger().Snapshot().Total.InFlight > 0; {
		if rest(ctx, 10*time.Millisecond); ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(end) {
			return fmt.Errorf("bench: requests still run %v after their part", l.SettleWithin)
		}
	}
	return ctx.Err()
}

// all submits several tenants' work at once and counts what became of it. handed is
// called once all has been handed in.
func (l ImporterLoad) all(ctx context.Context, r *Importer, work []Work, handed func()) error {
	var each sync.WaitGroup
	var mu sync.Mutex
	var failed error
	var in atomic.Int64
	for _, w := range work {
		each.Go(func() {
			done, doubled, err := l.Submit(ctx, w, func() {
				if in.Add(1) == int64(len(work)) {
					handed()
				}
			})
			mu.Lock()
			defer mu.Unlock()
			r.Missing, r.Doubled = r.Missing+w.Jobs-done, r.Doubled+doubled
			if err != nil && failed == nil {
				failed = fmt.Errorf("bench: jobs of %s: %w", w.Tenant, err)
			}
		})
	}
	each.Wait()
	return failed
}

// arrives is how long requests may take until they wait where they are ordered.
const arrives = 500 * time.Millisecond

// now is the ledger's time.
func now(p *Provider) time.Duration { return time.Since(p.Ledger().Snapshot().Since) }

// interleave has three jobs come while many of another tenant wait.
func (l ImporterLoad) interleave(ctx context.Context, p *Provider, r *Importer) error {
	begin := now(p)
	var few sync.WaitGroup
	var first error
	var besides Importer // counts of the few, while r's are of the others
	var came time.Duration
	err := l.all(ctx, r, []Work{{backlogTenant, l.Backlog, l.JobTokens, true}}, func() {
		few.Go(func() {
			rest(ctx, arrives)
			first = l.all(ctx, &besides, []Work{{fewTenant, 3, l.JobTokens, true}}, func() { came = now(p) })
		})
	})
	few.Wait()
	r.Missing, r.Doubled = r.Missing+besides.Missing, r.Doubled+besides.Doubled
	r.Positions = positions(after(p.Ledger().Starts(), begin), came, fewTenant)
	r.missing(len(r.Positions) == 0, keyPositions)
	return cmp.Or(err, first)
}

// side has two tenants work beside one another, and returns how often the second
// started for a number of starts of the first, while both had jobs.
func (l ImporterLoad) side(ctx context.Context, p *Provider, r *Importer, a, b Work) (nA, nB int64, err error) {
	var from time.Duration
	err = l.all(ctx, r, []Work{a, b}, func() { from = now(p) + arrives })
	nA, nB = beside(mostly(after(p.Ledger().Starts(), from), a, b), a.Tenant, b.Tenant)
	return nA, nB, err
}

// tokens has large jobs beside small ones.
func (l ImporterLoad) tokens(ctx context.Context, p *Provider, r *Importer) error {
	large, small, err := l.side(ctx, p, r, Work{thousandTenant, l.Thousand, 1000, false}, Work{hundredTenant, 10 * l.Thousand, 100, false})
	r.TokenRatio = ratioOf(1000*large, 100*small)
	r.missing(small == 0, keyTokens)
	return err
}

// weights has a tenant of weight 3 beside one of weight 1.
func (l ImporterLoad) weights(ctx context.Context, p *Provider, r *Importer) error {
	one, three, err := l.side(ctx, p, r, Work{weightOneTenant, l.Weighted, l.JobTokens, false}, Work{weightThreeTenant, l.Weighted, l.JobTokens, false})
	r.WeightRatio = ratioOf(three, one)
	r.missing(one == 0, keyWeights)
	return err
}

// importer has interactive requests alone, and then the importer and the small
// tenants besides.
func (l ImporterLoad) importer(ctx context.Context, p *Provider, r *Importer) error {
	var alone, beside waits
	if err := l.ask(ctx, l.Alone, &alone); err != nil {
		return err
	}
	before := p.Ledger().Snapshot()
	asking, end := context.WithCancel(ctx)
	defer end()
	var asker sync.WaitGroup
	asker.Go(func() { _ = l.ask(asking, 0, &beside) }) // it ends when it is told to
	work := []Work{{ImporterTenant, l.Jobs, l.JobTokens, false}}
	for i := range l.Small {
		work = append(work, Work{SmallTenant(i), l.Each, l.JobTokens, false})
	}
	var there time.Duration
	err := l.all(ctx, r, work, func() { there = now(p) + arrives })
	end()
	asker.Wait()
	s := p.Ledger().Snapshot()
	took := s.ElapsedS - before.ElapsedS
	starts := after(p.Ledger().Starts(), time.Duration(before.ElapsedS*1e9))
	r.Seconds = round(took, 1)
	r.SmallWithin = round(l.smallWithin(after(slices.Clone(starts), there)), 3)
	r.LowestLeft = round(lowestLeft(p.Ledger().Starts()), 4)
	r.InteractiveAlone, r.InteractiveP99 = round(alone.quantile(0.99), 1), round(beside.quantile(0.99), 1)
	r.InteractiveRatio = round(r.InteractiveP99/math.Max(r.InteractiveAlone, 1e-9), 3)
	r.InteractiveRefused = round(float64(beside.refused)/math.Max(1, float64(beside.asked)), 4)
	r.Provider429PerMin = round(float64(s.Refused)/(s.ElapsedS/60), 2)
	r.Utilisation = round(float64(len(starts))/(took*float64(l.Quota.Limit)/l.Quota.Per.Seconds()), 3)
	r.missing(r.SmallWithin == 0, keySmall)
	r.missing(len(alone.took) == 0 || len(beside.took) == 0, keyInteractive)
	r.missing(beside.asked == 0, keyRefused)
	r.missing(!slices.ContainsFunc(p.Ledger().Starts(), batchStart), keyLeft)
	return err
}

// ask sends interactive requests at random instants to random replicas, for so long,
// or until ctx ends if it is 0. All have ended when it returns.
func (l ImporterLoad) ask(ctx context.Context, long time.Duration, w *waits) error {
	rng := rand.New(rand.NewPCG(l.Seed, uint64(long)))
	gap := l.Quota.Per.Seconds() / float64(l.Quota.Limit) / interactivePart
	begin := time.Now()
	var all sync.WaitGroup
	defer all.Wait()
	for at := time.Duration(0); long == 0 || at < long; {
		at += time.Duration(rng.ExpFloat64() * gap * 1e9)
		replica := rng.IntN(l.Replicas)
		if rest(ctx, time.Until(begin.Add(at))); ctx.Err() != nil {
			return ctx.Err()
		}
		all.Go(func() {
			status := l.Ask(context.WithoutCancel(ctx), replica)
			w.add(status, time.Since(begin.Add(at)))
		})
	}
	return nil
}

// after are the starts from an instant on.
func after(starts []Arrival, from time.Duration) []Arrival {
	return slices.DeleteFunc(starts, func(a Arrival) bool { return a.At < from })
}

// positions are the places, from 1, of a tenant's starts among those after an
// instant.
func positions(starts []Arrival, from time.Duration, tenant string) (at []int) {
	place := 0
	for _, s := range starts {
		if s.At < from && s.Tenant != tenant {
			continue
		}
		if place++; s.Tenant == tenant {
			at = append(at, place)
		}
	}
	return at
}

// mostly cuts starts where one of the tenants has started most of its jobs: some
// replica may be about to run out of them, whose share the others cannot make up.
func mostly(starts []Arrival, work ...Work) []Arrival {
	const most = 0.6
	n := map[string]int{}
	for i, s := range starts {
		n[s.Tenant]++
		for _, w := range work {
			if w.Tenant == s.Tenant && float64(n[s.Tenant]) > most*float64(w.Jobs) {
				return starts[:i]
			}
		}
	}
	return starts
}

// beside counts the starts of a tenant, from its first on to its last while b had jobs,
// less that one, and those of b between them: as many as belong to them.
func beside(starts []Arrival, a, b string) (nA, nB int64) {
	last := -1 // start of b
	for i, s := range starts {
		if s.Tenant == b {
			last = i
		}
	}
	var between int64
	counting := false
	for _, s := range starts[:last+1] {
		switch {
		case s.Tenant == a && !counting:
			counting = true
		case s.Tenant == a:
			nA, nB, between = nA+1, nB+between, 0
		case s.Tenant == b && counting:
			between++
		}
	}
	return nA, nB
}

// ratioOf is a/b, 0 if there is nothing to compare.
func ratioOf(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return round(float64(a)/float64(b), 4)
}

// smallWithin counts the batch starts until the last small tenant's job started, by
// what equal turns of all tenants would have taken.
func (l ImporterLoad) smallWithin(starts []Arrival) float64 {
	batch, last, small := 0, 0, 0
	for _, s := range starts {
		if !batchStart(s) {
			continue
		}
		if batch++; strings.HasPrefix(s.Tenant, "small-") {
			last, small = batch, small+1
		}
	}
	return float64(last*l.Small) / math.Max(1, float64(small*(l.Small+1)))
}

// lowestLeft is the least that a batch start left of the quota; 1 without any.
func lowestLeft(starts []Arrival) float64 {
	least := 1.0
	for _, s := range starts {
		if batchStart(s) {
			least = min(least, s.Left)
		}
	}
	return least
}

func batchStart(s Arrival) bool { return s.Tenant != InteractiveTenant }
