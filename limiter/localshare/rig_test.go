package localshare_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/localshare"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// Time in these tests is that of testing/synctest bubbles.

// seen is gossip whose count of members a test sets.
type seen struct{ members atomic.Int64 }

func (s *seen) View() *fleet.View                   { return &fleet.View{Members: int(s.members.Load()), At: time.Now()} }
func (s *seen) Publish([]fleet.Pool, int64)         {}
func (s *seen) see(n int)                           { s.members.Store(int64(n)) }
func shares(limiter.Dimension) limiter.OutagePolicy { return limiter.LocalShare }

// replica is a store on Redis and its local share.
type replica struct {
	*localshare.Store
	redis *redisstore.Store
	link  *storetest.Link
	fleet *seen
	reg   *prometheus.Registry
}

// rig is a fleet on one miniredis in the bubble of t.
type rig struct {
	t        *testing.T
	server   *storetest.Bubble
	replicas []*replica
	policy   localshare.Policy
	wrap     func(*redisstore.Store) limiter.Store // what shares wrap; nil: the store
	probe    time.Duration                         // of idle stores; 0: the default
}

// newRig starts n replicas and lets them know each other.
func newRig(t *testing.T, n int) *rig {
	r := &rig{t: t, server: storetest.NewBubble(t), policy: shares}
	r.grow(n)
	return r
}

func (r *rig) grow(n int) {
	for range n {
		r.join()
	}
	r.gossip(len(r.replicas))
	time.Sleep(12 * time.Second)
}

// join adds a replica that sees itself alone.
func (r *rig) join() *replica {
	p := &replica{link: r.server.Link(), fleet: &seen{}, reg: prometheus.NewRegistry()}
	p.fleet.see(1)
	r.start(p)
	r.replicas = append(r.replicas, p)
	return p
}

// start opens the stores of p.
func (r *rig) start(p *replica) {
	r.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	var err error
	p.redis, err = redisstore.New(redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: p.link.Dial, Logger: quiet, ProbeInterval: r.probe})
	if err != nil {
		r.t.Fatal(err)
	}
	o := localshare.Options{Inner: p.redis, Policy: r.policy, Registry: p.redis, Fleet: p.fleet, Logger: quiet, Registerer: p.reg}
	if r.wrap != nil {
		o.Inner = r.wrap(p.redis)
	}
	if p.Store, err = localshare.New(o); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		p.Close(ctx)
	})
}

// gossip tells every replica how many there are.
func (r *rig) gossip(n int) {
	for _, p := range r.replicas {
		p.fleet.see(n)
	}
}

// cutGossip parts the fleet in up to four, each of which sees itself alone.
func (r *rig) cutGossip(rnd *rand.Rand) {
	part, size := make([]int, len(r.replicas)), [4]int{}
	parts := 1 + rnd.IntN(4)
	for i := range part {
		part[i] = rnd.IntN(parts)
		size[part[i]]++
	}
	for i, p := range r.replicas {
		p.fleet.see(size[part[i]])
	}
}

func (r *rig) links(f func(*storetest.Link)) {
	for _, p := range r.replicas {
		f(p.link)
	}
}

// usable waits until every store of the rig is, or is not.
func (r *rig) usable(want bool, within time.Duration) {
	r.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		n := 0
		for _, p := range r.replicas {
			if p.Health().Usable == want {
				n++
			}
		}
		if n == len(r.replicas) {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%v later only %d of %d stores are usable=%v", within, n, len(r.replicas), want)
		}
	}
}

// debts is what all replicas have charged after outages.
func (r *rig) debts() (sum float64) {
	for _, p := range r.replicas {
		families, err := p.reg.Gather()
		if err != nil {
			r.t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "headway_share_debt_tokens_total" {
				sum += f.GetMetric()[0].GetCounter().GetValue()
			}
		}
	}
	return sum
}

var bucketOf = func(user string) limiter.BucketID {
	return limiter.BucketID{Dimension: limiter.User, ID: limiter.Hash(limiter.User, user)}
}

// take asks for cost of a bucket, and a slot if cap > 0.
func take(rate limiter.Rate, cost int64, cap int) limiter.Take {
	t := limiter.Take{Charges: []limiter.Charge{{Bucket: bucketOf("u"), Rate: rate, Cost: cost}}}
	if cap > 0 {
		t.Slots = []limiter.Slot{{Slot: limiter.SlotID{Dimension: limiter.User, ID: limiter.Hash(limiter.User, "u")}, Cap: cap}}
	}
	return t
}

// grant is one admission, at an instant of its answer.
type grant struct {
	at    time.Time
	cost  int64
	local bool
}

// ledger is every grant of a run.
type ledger struct {
	mu     sync.Mutex
	grants []grant
	failed int
}

func (l *ledger) ask(p *replica, t limiter.Take) {
	v, err := p.Admit(context.Background(), t)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, limiter.ErrUnavailable):
		l.failed++
	case err == nil && v.OK:
		l.grants = append(l.grants, grant{time.Now(), t.Charges[0].Cost, v.Local})
	}
}

// between sums the cost of grants in a span.
func (l *ledger) between(from, to time.Time) (sum int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.grants {
		if !g.at.Before(from) && g.at.Before(to) {
			sum += g.cost
		}
	}
	return sum
}

// excess is the most that any span of the run saw admitted above one bucket.
func (l *ledger) excess(rate limiter.Rate) (most float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	level, last := float64(rate.Burst), time.Time{}
	for _, g := range l.grants { // in order of their answers
		if !last.IsZero() {
			level = min(float64(rate.Burst), level+float64(rate.Limit)*g.at.Sub(last).Seconds()/rate.Per.Seconds())
		}
		last = g.at
		level -= float64(g.cost)
		most = max(most, -level)
	}
	return most
}

// offer sends perSec requests a second to replicas, each with its weight, until
// an instant.
func (r *rig) offer(l *ledger, rnd *rand.Rand, perSec float64, weights []float64, until time.Time, next func() limiter.Take) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		time.Sleep(time.Duration(rnd.ExpFloat64() / perSec * float64(time.Second)))
		if !time.Now().Before(until) {
			return
		}
		p, t := r.replicas[pick(rnd, weights)], next()
		calls.Go(func() { l.ask(p, t) })
	}
}

// pick draws an index by weight.
func pick(rnd *rand.Rand, weights []float64) int {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	x := rnd.Float64() * sum
	for i, w := range weights {
		if x -= w; x < 0 {
			return i
		}
	}
	return len(weights) - 1
}

func even(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = 1
	}
	return w
}

func zipf(n int) []float64 {
	w := make([]float64, n)
	for i := range w {
		w[i] = 1 / float64(i+1)
	}
	return w
}
