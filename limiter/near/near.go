package near

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter"
)

// DefaultMaxBuckets bounds the memory of a Store: about 0.5 KB for each bucket,
// 32 MB in all.
const DefaultMaxBuckets = 1 << 16

// Options say what a Store may decide without asking. The zero value decides
// nothing and passes everything on.
type Options struct {
	// DenyCache refuses here what the store has just refused, until its instant.
	DenyCache bool
	// Prefetch takes tokens of busy buckets in advance.
	Prefetch bool
	// Budget bounds all calls of one Admit together; it should be the store's
	// own deadline. Zero means that each call has that of the store.
	Budget time.Duration
	// MaxBuckets bounds the buckets remembered; zero means DefaultMaxBuckets.
	// Beyond it further buckets are decided by the store, as without this package.
	MaxBuckets int
	// Registerer takes the metrics; nil keeps them private.
	Registerer prometheus.Registerer
}

// Store decorates a limiter.Store of one replica; it is one itself, and safe for
// concurrent use. With Prefetch it runs one goroutine, which Close ends.
type Store struct {
	inner    limiter.Store
	replicas func() int
	opts     Options
	metrics  *metrics
	table    *table
	start    time.Time // of the clock of all instants
	closed   atomic.Bool
	quit     chan struct{}
	keeper   sync.WaitGroup
	once     sync.Once
}

var _ limiter.Store = (*Store)(nil)

// New returns a Store over inner, which it owns: Close closes it too. replicas
// tells how many replicas draw from the same buckets, this one included; it is
// called often and must be cheap, and anything below 1 counts as 1. Too few
// lets replicas keep more tokens in advance than half a burst together; what is
// spent never exceeds a limit for it. The only error is of Registerer.
func New(inner limiter.Store, replicas func() int, o Options) (*Store, error) {
	if o.MaxBuckets <= 0 {
		o.MaxBuckets = DefaultMaxBuckets
	}
	s := &Store{
		inner: inner, replicas: replicas, opts: o, table: newTable(o.MaxBuckets),
		start: time.Now(), quit: make(chan struct{}),
	}
	var err error
	if s.metrics, err = newMetrics(o.Registerer, s.table); err != nil {
		return nil, fmt.Errorf("near: metrics: %w", err)
	}
	if o.Prefetch {
		s.keeper.Go(s.keep)
	}
	return s, nil
}

// now is the time since the Store began, never zero.
func (s *Store) now() time.Duration { return time.Since(s.start) + 1 }

// Admit implements limiter.Store: from what is known here if that is enough,
// else by the store. Errors are those of the store.
func (s *Store) Admit(ctx context.Context, t limiter.Take) (limiter.Verdict, error) {
	if !s.opts.DenyCache && !s.opts.Prefetch || s.closed.Load() || !plain(t) {
		return s.inner.Admit(ctx, t)
	}
	if err := ctx.Err(); err != nil {
		return limiter.Verdict{}, err
	}
	began := s.now()
	var p plan
	s.claim(&p, t, began)
	joins := p.flight != nil
	if joins {
		if err := s.join(ctx, &p, t); err != nil {
			return limiter.Verdict{}, err
		}
	}
	switch {
	case p.denied:
		v := p.refusal(t)
		s.release(&p)
		s.metrics.denied.Inc()
		return v, nil
	case p.granted:
		s.metrics.granted.Inc()
		return s.grant(&p, t, s.now()), nil
	}
	return s.ask(ctx, &p, t, began, joins)
}

// plain reports whether every charge of t can pass at some time: what cannot is
// the store's to tell.
func plain(t limiter.Take) bool {
	if len(t.Charges) > maxCharges {
		return false
	}
	for _, c := range t.Charges {
		if c.Rate.Limit <= 0 || c.Cost > c.Rate.Burst || c.Cost < 0 {
			return false
		}
	}
	return true
}

// join waits for the call of another that brings what p needs, and claims again.
// Such a call was sent before ours could be. If the store did not answer it, it
// would not have answered ours.
func (s *Store) join(ctx context.Context, p *plan, t limiter.Take) error {
	f := p.flight
	s.release(p)
	select {
	case <-f.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if errors.Is(f.err, limiter.ErrUnavailable) {
		return f.err
	}
	s.claim(p, t, s.now())
	return nil
}

// Settle implements limiter.Store. What it gives back may be asked for at once.
func (s *Store) Settle(f limiter.Settlement) {
	for _, a := range f.Adjust {
		if !f.Local {
			s.with(a.Bucket, func(e *entry) { e.settle(a.Delta) })
		}
	}
	s.inner.Settle(f)
}

// with calls f, under the lock, with the entry of b if there is one.
func (s *Store) with(b limiter.BucketID, f func(*entry)) {
	sh := s.table.shard(b)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.entries[b]; e != nil {
		f(e)
	}
}

// Turns implements limiter.Store. Turns are the store's to give: what is kept
// here in advance of the buckets concerned goes back first.
func (s *Store) Turns(ctx context.Context, t limiter.Turns) (limiter.TurnsVerdict, error) {
	now := s.now()
	if s.opts.Prefetch {
		if t.Slots.ID == "" { // slots are never kept here
			s.yield(t.Pool, t.Rate, now)
		}
		for _, b := range t.Bids {
			for _, c := range b.Rest.Charges {
				s.yield(c.Bucket, c.Rate, now)
			}
		}
	}
	v, err := s.inner.Turns(ctx, t)
	if err == nil {
		s.heed(t, v)
	}
	return v, err
}

// heed lifts bounds that a turn has proved to be too low.
func (s *Store) heed(t limiter.Turns, v limiter.TurnsVerdict) {
	lift := func(b limiter.BucketID, level int64) {
		s.with(b, func(e *entry) {
			if e.bound.level(s.now(), e.rate) < float64(level) {
				e.bound.set = false
			}
		})
	}
	for i, b := range t.Bids {
		switch v.Bids[i].State {
		case limiter.BidGranted:
			if t.Slots.ID == "" {
				lift(t.Pool, b.Cost)
			}
			fallthrough
		case limiter.BidBlocked:
			for j, c := range b.Rest.Charges {
				lift(c.Bucket, v.Bids[i].Rest.Charges[j].Remaining)
			}
		}
	}
}

// Health implements limiter.Store: it is the store's.
func (s *Store) Health() limiter.Health { return s.inner.Health() }

// Close gives back what was taken in advance, ends the goroutine and closes the
// store.
func (s *Store) Close(ctx context.Context) error {
	s.once.Do(func() {
		s.closed.Store(true)
		close(s.quit)
		s.keeper.Wait()
		s.sweep(s.now(), true)
	})
	return s.inner.Close(ctx)
}

// Buckets is how many buckets are remembered here.
func (s *Store) Buckets() int {
	n, _ := s.table.sizes()
	return n
}
