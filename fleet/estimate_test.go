package fleet

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// race simulates replicas that compete for one bucket: each serves its own line
// first come first served, each grant goes to a random replica that has somebody
// waiting, digests travel every interval with a delay. It is the truth that the
// sums of this package are held against.
type race struct {
	rng      *rand.Rand
	now      time.Time
	replicas []*racer
	rate     float64 // grants per second
	arrived  int
	grants   []int // numbers of arrival, in order of grants
	waits    []wait
}

type racer struct {
	table    *Table
	line     []*wait
	spacing  time.Duration // exponential average over about 16 gaps
	last     time.Time     // grant with somebody behind
	arrivals float64       // per second
	view     *View
}

// wait is one waiter: what it was told and what happened.
type wait struct {
	at               time.Time
	number           int           // of arrival
	ahead, overtook  int           // estimated, and how many of those who waited were served before
	estimate, actual time.Duration // of waiting
	measured         bool
}

func newRace(seed uint64, rate float64, arrivals []float64) *race {
	r := &race{rng: rand.New(rand.NewPCG(seed, 9)), now: epoch, rate: rate}
	for i, a := range arrivals {
		r.replicas = append(r.replicas, &racer{table: NewTable(fmt.Sprint(i)), arrivals: a})
	}
	return r
}

const tick = time.Millisecond

// run simulates for d and measures those who arrive after warmup and are served.
func (r *race) run(d, warmup time.Duration) {
	end, begin := r.now.Add(d), r.now.Add(warmup)
	var mail []hearing
	for tokens, n := 0.0, 0; r.now.Before(end); n++ {
		r.now = r.now.Add(tick)
		mail = r.deliver(mail)
		if n%int(Interval/tick) == 0 {
			mail = append(mail, r.gossip()...)
		}
		for _, p := range r.replicas {
			if r.rng.Float64() < p.arrivals*tick.Seconds() {
				r.arrive(p, r.now.After(begin))
			}
		}
		for tokens += r.rate * tick.Seconds(); tokens >= 1 && r.grant(); tokens-- {
		}
		tokens = min(tokens, 1)
	}
}

func (r *race) gossip() (mail []hearing) {
	for _, p := range r.replicas {
		d := p.table.Announce(Digest{Incarnation: 1, Pools: []Pool{{Name: "p", Spacing: p.spacing, Depth: len(p.line)}}})
		mail = append(mail, hearing{d, r.now.Add(time.Duration(r.rng.Int64N(int64(20 * time.Millisecond))))})
		p.view = p.table.View(r.now)
	}
	return mail
}

// deliver hands out what has arrived by now and returns the rest.
func (r *race) deliver(mail []hearing) (rest []hearing) {
	for _, m := range mail {
		if m.heard.After(r.now) {
			rest = append(rest, m)
			continue
		}
		for _, p := range r.replicas {
			p.table.Merge(m.d, m.heard)
		}
	}
	return rest
}

func (r *race) arrive(p *racer, measured bool) {
	r.arrived++
	w := &wait{at: r.now, number: r.arrived, measured: measured, overtook: -len(r.grants)}
	w.ahead = p.view.Ahead("p", len(p.line), p.spacing)
	w.estimate = time.Duration(len(p.line)+1) * p.view.Expect("p", p.spacing)
	p.line = append(p.line, w)
}

// grant serves somebody, if anybody waits.
func (r *race) grant() bool {
	waiting := slices.DeleteFunc(slices.Clone(r.replicas), func(p *racer) bool { return len(p.line) == 0 })
	if len(waiting) == 0 {
		return false
	}
	p := waiting[r.rng.IntN(len(waiting))]
	w := p.line[0]
	p.line = p.line[1:]
	w.actual = r.now.Sub(w.at)
	since := r.grants[-w.overtook:]
	w.overtook = 0
	for _, number := range since {
		if number < w.number {
			w.overtook++
		}
	}
	r.grants = append(r.grants, w.number)
	if w.measured {
		r.waits = append(r.waits, *w)
	}
	if !p.last.IsZero() {
		gap := r.now.Sub(p.last)
		if p.spacing == 0 {
			p.spacing = gap
		}
		p.spacing += (gap - p.spacing) / 16
	}
	p.last = time.Time{}
	if len(p.line) > 0 {
		p.last = r.now
	}
	return true
}

// score summarises relative errors of the waits long enough to matter.
func (r *race) score(of func(wait) (estimate, actual float64)) (median, within50 float64, n int) {
	var errs []float64
	for _, w := range r.waits {
		if w.actual > 20*time.Millisecond {
			est, act := of(w)
			errs = append(errs, math.Abs(est-act)/max(act, 1))
		}
	}
	slices.Sort(errs)
	good, _ := slices.BinarySearch(errs, 0.5)
	return errs[len(errs)/2], float64(good) / float64(len(errs)), len(errs)
}

// TestEstimateErrorSpec is the accuracy that waiters may rely on (W1): the median
// relative error and the part of estimates within half of the truth, of the wait
// and of the position, for waits above 20 ms. A position is held against those who
// waited already and were served before. The wait's error is the randomness of the
// race itself, which a mean of 16 gaps cannot see through; where lines are about
// one waiter long, one arrival elsewhere is a large part of any of them.
func TestEstimateErrorSpec(t *testing.T) {
	steady := func(n int, each float64) []float64 { return slices.Repeat([]float64{each}, n) }
	tests := []struct {
		name             string
		rate             float64
		arrivals         []float64
		median, within50 float64
	}{
		{"one replica, overloaded", 50, steady(1, 55), 0.05, 0.99},
		{"three, evenly overloaded", 100, steady(3, 36), 0.20, 0.85},
		{"three, one with twice the load", 100, []float64{50, 30, 25}, 0.22, 0.80},
		{"three, one nearly idle", 100, []float64{80, 25, 1}, 0.15, 0.90},
		{"eight, evenly overloaded", 100, steady(8, 13.5), 0.30, 0.75},
		{"eight, just saturated", 100, steady(8, 12.4), 0.40, 0.55},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRace(1, tt.rate, tt.arrivals)
			r.run(40*time.Second, 5*time.Second)
			for what, of := range map[string]func(wait) (float64, float64){
				"wait":     func(w wait) (float64, float64) { return float64(w.estimate), float64(w.actual) },
				"position": func(w wait) (float64, float64) { return float64(w.ahead + 1), float64(w.overtook + 1) },
			} {
				median, within, n := r.score(of)
				t.Logf("%-8s median error %.2f, within half %.2f of %d waits", what, median, within, n)
				if median > tt.median || within < tt.within50 {
					t.Errorf("%s: median error %.2f (at most %.2f), within half %.2f (at least %.2f)", what, median, tt.median, within, tt.within50)
				}
			}
		})
	}
}
