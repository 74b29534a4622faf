package bench

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Paced is the report of one run against a provider's quota: saturating batch work,
// and interactive requests of a part of the quota. Its JSON keys are stable.
// Figures are of the measured part, and the provider's own where they can be.
type Paced struct {
	Scenario string  `json:"scenario"`
	Throttle string  `json:"throttle"` // headway or naive
	Replicas int     `json:"replicas"`
	Quota    string  `json:"quota"` // fixed or continuous
	Limit    int64   `json:"limit"`
	PerS     float64 `json:"per_s"`
	Seconds  float64 `json:"duration_s"`

	Provider429PerMin float64 `json:"provider_429_per_min"`
	Interactive       int64   `json:"interactive"`
	// InteractiveRefused is the part of them that was answered 429, whoever said so.
	InteractiveRefused float64 `json:"interactive_refused_ratio"`
	// InteractiveP99 is from the intended start to the end of the answer, of those
	// that were served, in ms.
	InteractiveP99 float64 `json:"interactive_p99_ms"`
	// FirstSecond is the most starts within a second of a reset, as a part of the
	// limit; 0 without fixed windows.
	FirstSecond float64 `json:"first_second_ratio"`
	Utilisation float64 `json:"utilisation"`
}

// PacedLoad is who asks in such a run, and for how long.
type PacedLoad struct {
	Replicas       int
	Quota          QuotaConfig // of requests
	Warm, Measured time.Duration
	Seed           uint64
	// Batchers ask for batch work at once, over all replicas: as many as the quota
	// has, so that all of it goes at once if it is let.
	Batchers int
	// Ask sends one request through a replica and returns the status of its answer,
	// or 0 if there was none. Batch requests may wait for long.
	Ask func(ctx context.Context, replica int, batch bool) (status int)
}

// PacedScenario is the name of such runs.
const PacedScenario = "provider-429"

const (
	interactivePart = 0.15 // of the quota
	// afterRefusal is how long a batcher rests before it tries again.
	afterRefusal = 250 * time.Millisecond
)

// Run offers the load and judges by the provider's ledger.
func (l PacedLoad) Run(ctx context.Context, p *Provider) Paced {
	total := l.Warm + l.Measured
	begin := time.Now()
	load, end := context.WithTimeout(ctx, total)
	defer end()
	var all sync.WaitGroup
	for i := range l.Replicas {
		for range l.Batchers/l.Replicas + 1 {
			all.Go(func() { l.saturate(load, i) })
		}
	}
	var served waits
	all.Go(func() { l.interactive(load, begin, &served) })
	rest(load, l.Warm)
	before := p.Ledger().Snapshot()
	from := time.Since(before.Since)
	<-load.Done()
	after := p.Ledger().Snapshot()
	to := time.Since(after.Since)
	all.Wait()
	rate := float64(l.Quota.Requests.Limit) / l.Quota.Requests.Per.Seconds()
	r := Paced{
		Scenario: PacedScenario, Replicas: l.Replicas, Quota: "continuous", Limit: l.Quota.Requests.Limit, PerS: l.Quota.Requests.Per.Seconds(),
		Seconds: round(l.Measured.Seconds(), 1), Interactive: served.asked,
		Provider429PerMin:  round(float64(after.Refused-before.Refused)/(to-from).Minutes(), 2),
		InteractiveRefused: round(float64(served.refused)/math.Max(1, float64(served.asked)), 4),
		InteractiveP99:     round(served.quantile(0.99), 1),
		Utilisation:        round(float64(after.Total.Starts-before.Total.Starts)/(rate*(to-from).Seconds()), 3),
	}
	if l.Quota.Fixed {
		r.Quota = "fixed"
		r.FirstSecond = round(firstSecond(p.Ledger().Arrivals(), l.Quota.Requests, from, to), 3)
	}
	return r
}

// saturate asks for batch work at one replica, again and again.
func (l PacedLoad) saturate(ctx context.Context, replica int) {
	for ctx.Err() == nil {
		if l.Ask(ctx, replica, true) >= 400 {
			rest(ctx, afterRefusal)
		}
	}
}

// interactive asks at random instants of random replicas, and counts what was asked
// after the warm-up.
func (l PacedLoad) interactive(ctx context.Context, begin time.Time, served *waits) {
	rng := rand.New(rand.NewPCG(l.Seed, 429))
	gap := l.Quota.Requests.Per.Seconds() / float64(l.Quota.Requests.Limit) / interactivePart
	var all sync.WaitGroup
	defer all.Wait()
	for at := time.Duration(0); ; {
		at += time.Duration(rng.ExpFloat64() * gap * 1e9)
		replica := rng.IntN(l.Replicas)
		if rest(ctx, time.Until(begin.Add(at))); ctx.Err() != nil {
			return
		}
		measured := at > l.Warm
		all.Go(func() {
			if status := l.Ask(ctx, replica, false); measured {
				served.add(status, time.Since(begin.Add(at)))
			}
		})
	}
}

// waits are how long interactive requests took. It is safe for concurrent use until it
// is read.
type waits struct {
	mu             sync.Mutex
	asked, refused int64
	took           []time.Duration // of those served
}

// add counts one. Status 0 means that the end of the run cut it off.
func (w *waits) add(status int, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case status == 0:
		return
	case status == 429:
		w.refused++
	case status < 300:
		w.took = append(w.took, took)
	}
	w.asked++
}

// quantile is that of those served, in ms; 0 without any.
func (w *waits) quantile(q float64) float64 {
	if len(w.took) == 0 {
		return 0
	}
	slices.Sort(w.took)
	at := int(math.Ceil(q*float64(len(w.took)))) - 1
	return float64(w.took[max(at, 0)]) / 1e6
}

// firstSecond finds the window that begins between two instants with the most
// arrivals in its first second, as a part of the limit. Windows count from the first
// arrival, as the provider's do.
func firstSecond(arrivals []time.Duration, q QuotaRate, from, to time.Duration) float64 {
	if len(arrivals) == 0 {
		return 0
	}
	starts := map[time.Duration]int64{}
	most := int64(0)
	for _, at := range arrivals {
		since := at - arrivals[0]
		reset := since.Truncate(q.Per)
		if since-reset < time.Second && at >= from && at < to && reset > 0 {
			starts[reset]++
			most = max(most, starts[reset])
		}
	}
	return float64(most) / float64(q.Limit)
}

// rest waits d, or less if ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
