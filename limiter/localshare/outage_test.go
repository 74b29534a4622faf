package localshare_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// The outage that is measured: as in the table of the design, with less traffic.
var (
	thousand = limiter.Rate{Limit: 1000, Per: time.Second, Burst: 200}
	measured = limiter.Rate{Limit: 400, Per: time.Second, Burst: 80}
	lasting  = 30 * time.Second
)

// O1, one run: 8 replicas, 1.5 times the limit, 30 s without a store. Nobody
// admits more than the limit, and an even load gets nearly all of it.
func TestOutageOfThirtySeconds(t *testing.T) {
	for _, c := range []struct {
		name    string
		weights []float64
		least   float64 // of the limit
	}{{"even", even(8), 0.98}, {"zipf", zipf(8), 0.7}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, l := newRig(t, 8), &ledger{}
				rnd := rand.New(rand.NewPCG(1, 2))
				begin := time.Now()
				off := begin.Add(2 * time.Second)
				time.AfterFunc(2*time.Second, func() { r.links((*storetest.Link).Cut) })
				time.AfterFunc(2*time.Second+lasting, func() { r.links((*storetest.Link).Mend) })
				r.offer(l, rnd, 600, c.weights, off.Add(lasting+2*time.Second), func() limiter.Take { return take(measured, 1, 0) })
				during := float64(l.between(off, off.Add(lasting)))
				t.Logf("admitted %.4f of the limit in the outage; %d after it in 0.2 s, %.0f charged as debts; %d failed",
					during/400/lasting.Seconds(), l.between(off.Add(lasting), off.Add(lasting+200*time.Millisecond)), r.debts(), l.failed)
				if most := 80 + 400*lasting.Seconds(); during > most || during < c.least*400*lasting.Seconds() {
					t.Errorf("%.0f admitted in the outage, want %.2f of the limit at least and %.0f at most", during, c.least, most)
				}
				excess := l.excess(measured)
				t.Logf("%.1f above one bucket at the worst", excess)
				if excess > 60 { // what all spend while some have noticed the end and some have not
					t.Errorf("%.1f above one bucket", excess)
				}
				if l.failed > 0 {
					t.Errorf("%d requests failed", l.failed)
				}
			})
		})
	}
}

// O1, tapes: fleets, limits, costs and loads at random; gossip is cut into up to
// four parts at random instants, and the store stays away for longer than
// counts are remembered.
func TestSharesNeverExceedTheLimit(t *testing.T) {
	tapes := storetest.Seeded(t)
	for range 8 {
		seed := tapes.Uint64()
		synctest.Test(t, func(t *testing.T) { outageTape(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func outageTape(t *testing.T, rnd *rand.Rand) {
	n := 2 + rnd.IntN(7)
	rate := limiter.Rate{Limit: 1 + rnd.Int64N(400), Per: time.Second, Burst: 1 + rnd.Int64N(400)}
	most := min(rate.Burst, 1+rnd.Int64N(20)) // of a cost
	r, l := newRig(t, n), &ledger{}
	weights := zipf(n)
	if rnd.IntN(2) == 0 {
		weights = even(n)
	}
	lasting := time.Duration(5+rnd.IntN(20)) * time.Second
	if rnd.IntN(4) == 0 {
		lasting += 6 * time.Minute
	}
	perSec := min(300, 3*float64(rate.Limit)/float64(1+most)*2)
	cost := func() limiter.Take { return take(rate, 1+rnd.Int64N(most), 0) }
	r.offer(l, rnd, perSec, weights, time.Now().Add(3*time.Second), cost)
	begin := time.Now()
	r.links((*storetest.Link).Cut)
	for at := time.Duration(0); at < lasting; at += time.Duration(1+rnd.IntN(4)) * time.Second {
		seed := rnd.Uint64()
		time.AfterFunc(at, func() { r.cutGossip(rand.New(rand.NewPCG(seed, 2))) })
	}
	r.offer(l, rnd, perSec, weights, begin.Add(lasting), cost)
	r.gossip(n)
	admitted := float64(l.between(begin, begin.Add(lasting)))
	allowed := float64(rate.Burst) + float64(rate.Limit)*lasting.Seconds()
	if admitted > allowed {
		t.Errorf("%d replicas, limit %d/s, burst %d, costs to %d, %v: admitted %.0f, allowed %.1f", n, rate.Limit, rate.Burst, most, lasting, admitted, allowed)
	}
	t.Logf("%d replicas, limit %d/s, burst %d, costs to %d, %v: admitted %.3f of what is allowed", n, rate.Limit, rate.Burst, most, lasting, admitted/allowed)
}
