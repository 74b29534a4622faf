package localshare

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter"
)

const (
	// sampleEvery is how often the fleet is counted, and a recovery looked for
	// that no request has noticed.
	sampleEvery = 100 * time.Millisecond
	// calm is how long after its last local decision an outage may be over for a
	// replica whose store was never called unusable.
	calm = 250 * time.Millisecond
	// restating is how long after a recovery other replicas may take to state
	// their slots: the longest pause of a store's probes.
	restating = time.Second
	// minSweep is the least number of buckets worth a sweep for full ones.
	minSweep = 1024
)

// Policy tells the outage policy of a dimension.
type Policy func(limiter.Dimension) limiter.OutagePolicy

// Registry is what a store knows of the fleet, and can be told without asking.
type Registry interface {
	// Replicas is how many replicas the store counted last, 0 before the first
	// answer. It may include some that have died within the ttl of slots.
	Replicas() int
	// Forgotten counts how often the store had lost what this replica holds: by
	// expiry, or with all its data.
	Forgotten() int64
	// Hold adds a slot to those held, to be stated with the next word to the
	// store, even above its cap. Settle ends it.
	Hold(limiter.SlotID)
}

// Options describe a Store.
type Options struct {
	// Inner is the store of the fleet. The caller does not use it any more.
	Inner  limiter.Store
	Policy Policy // safe for concurrent use, fast
	// Registry is Inner's knowledge of the fleet; nil: it has none.
	Registry Registry
	// Fleet counts replicas by gossip; nil: there is no gossip.
	Fleet      limiter.Fleet
	Logger     *slog.Logger          // nil: slog.Default()
	Registerer prometheus.Registerer // nil: metrics stay private
}

// Store is a limiter.Store that decides by itself while the one it wraps is
// unavailable, as far as policies allow. It is safe for concurrent use.
type Store struct {
	inner    limiter.Store
	registry Registry
	fleet    limiter.Fleet
	policy   atomic.Pointer[Policy]
	clock    clock
	log      *slog.Logger
	metrics  *metrics

	quit    chan struct{}
	watched sync.WaitGroup
	closing sync.Once
	closed  atomic.Bool

	mu      sync.Mutex
	count   counter
	buckets map[limiter.BucketID]*bucket
	sweepAt int                    // number of buckets that triggers a sweep
	held    map[limiter.SlotID]int // slots that run here; no entry is zero
	missed  map[limiter.SlotID]int // of pools: calls in a row that a usable store failed
	outage  outage
	out     atomic.Bool // outage is one; for a look without the lock
}

// outage is the present one. The zero value: there is none.
type outage struct {
	since     time.Time // of its first local decision; zero: none
	last      time.Time // of its latest
	broken    bool      // the store called itself unusable meanwhile
	forgotten int64     // Registry.Forgotten when it began
	until     time.Time // takes with slots are decided here until then; zero: it is not over
}

var _ limiter.Store = (*Store)(nil)

// New returns a Store over o.Inner, and starts one goroutine that Close ends.
func New(o Options) (*Store, error) {
	s := &Store{
		inner: o.Inner, registry: o.Registry, fleet: o.Fleet, log: o.Logger, clock: clock{time.Now()},
		quit: make(chan struct{}), buckets: map[limiter.BucketID]*bucket{}, sweepAt: minSweep, held: map[limiter.SlotID]int{}, missed: map[limiter.SlotID]int{},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	var err error
	if s.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("localshare: metrics: %w", err)
	}
	s.SetPolicy(o.Policy)
	s.look(time.Now())
	s.watched.Go(s.watch)
	return s, nil
}

// SetPolicy replaces the outage policies.
func (s *Store) SetPolicy(p Policy) { s.policy.Store(&p) }

// Divisor is by how many this replica divides limits now.
func (s *Store) Divisor() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count.divisor()
}

// Admit implements limiter.Store.
func (s *Store) Admit(ctx context.Context, t limiter.Take) (limiter.Verdict, error) {
	policy, some := s.share(t)
	if policy == limiter.LocalShare && s.before(len(t.Slots) > 0) {
		return s.decide(t), nil
	}
	v, err := s.inner.Admit(ctx, t)
	switch {
	case err == nil:
		if some || len(t.Slots) > 0 {
			s.follow(t, v)
		}
		return v, nil
	case policy != limiter.LocalShare || !errors.Is(err, limiter.ErrUnavailable) || ctx.Err() != nil || !s.Informed():
		return v, err
	}
	return s.decide(t), nil
}

// Settle implements limiter.Store. What was granted by a share is corrected
// there while the outage lasts. Afterwards it has been charged as a debt: more
// is charged too, less is not given back, for nobody knows how much of it was.
func (s *Store) Settle(f limiter.Settlement) {
	s.mu.Lock()
	for _, id := range f.Free {
		if s.held[id]--; s.held[id] <= 0 {
			delete(s.held, id)
		}
	}
	if !f.Local {
		now := s.clock.at(time.Now())
		for _, a := range f.Adjust {
			if s.policyOf(a.Bucket.Dimension) == limiter.LocalShare {
				s.correctLocked(now, a, 1)
			}
		}
		s.mu.Unlock()
		s.inner.Settle(f)
		return
	}
	rest := limiter.Settlement{Free: f.Free}
	if s.registry == nil {
		rest.Free = nil // the store never heard of them
	}
	rest.Adjust = s.settleLocalLocked(f.Adjust)
	s.mu.Unlock()
	if len(rest.Adjust) > 0 || len(rest.Free) > 0 {
		s.inner.Settle(rest)
	}
}

// settleLocalLocked corrects shares and returns what the store is to be charged.
func (s *Store) settleLocalLocked(list []limiter.Adjustment) (charges []limiter.Adjustment) {
	now, n := s.clock.at(time.Now()), int64(s.count.divisor())
	for _, a := range list {
		switch {
		case s.policyOf(a.Bucket.Dimension) != limiter.LocalShare:
		case !s.outage.since.IsZero():
			if b := s.correctLocked(now, a, n); b != nil {
				b.owed = max(0, b.owed-token*a.Delta)
			}
		case a.Delta < 0:
			a.Tenant = ""
			charges = append(charges, a)
		}
	}
	return charges
}

// correctLocked changes the share of a bucket by an adjustment n times, and
// returns it, nil if it is full and stays so.
func (s *Store) correctLocked(now int64, a limiter.Adjustment, n int64) *bucket {
	b := s.buckets[a.Bucket]
	if b == nil && a.Delta >= 0 {
		return nil
	}
	if b == nil {
		b = &bucket{level: micro(a.Rate.Burst, 1), stamp: now, rate: a.Rate}
		s.addLocked(now, a.Bucket, b)
	}
	most := max(b.level, micro(a.Rate.Burst, 1))
	b.advance(now, a.Rate, most)
	if a.Delta < 0 {
		b.level -= micro(-a.Delta, n)
	} else {
		b.level = min(most, b.level+micro(a.Delta, n))
	}
	return b
}

// Health implements limiter.Store: the store's own, for shares are no health.
func (s *Store) Health() limiter.Health { return s.inner.Health() }

// healthy reports whether nothing ails the store. One of several servers may be
// usable while another is out: the outage lasts until all are back, for what a
// bucket owes can only be told to the server that keeps it.
func (s *Store) healthy() bool {
	h := s.inner.Health()
	return h.Usable && h.State == "ok"
}

// Close implements limiter.Store and closes the store behind.
func (s *Store) Close(ctx context.Context) error {
	s.closing.Do(func() {
		s.closed.Store(true)
		close(s.quit)
		s.watched.Wait()
		s.finish(time.Now())
		s.metrics.close()
	})
	return s.inner.Close(ctx)
}

// watch counts the fleet and looks for the end of an outage, until Close.
func (s *Store) watch() {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case now := <-tick.C:
			s.look(now)
			s.recover(now, false)
		}
	}
}

// look counts the fleet.
func (s *Store) look(now time.Time) {
	usable, n := s.healthy(), 0
	if s.fleet != nil {
		n = s.fleet.View().Members
	}
	if usable && s.registry != nil {
		n = max(n, s.registry.Replicas())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !usable && n == 0 {
		n = s.count.now // nobody to ask: as it was
	}
	if !usable && !s.outage.since.IsZero() {
		s.outage.broken, s.outage.until = true, time.Time{}
	}
	s.count.sample(now, n, !usable)
	s.metrics.divisor.Set(float64(s.count.divisor()))
}
