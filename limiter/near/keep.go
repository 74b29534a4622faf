package near

import (
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// look is how often unused leases are looked for.
const look = 50 * time.Millisecond

// keep gives unused leases back until Close.
func (s *Store) keep() {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
			s.sweep(s.now(), false)
		}
	}
}

// sweep gives back the leases that are due, or all of them.
func (s *Store) sweep(now time.Duration, all bool) {
	for i := range s.table.shards {
		sh := &s.table.shards[i]
		var back []limiter.Adjustment
		sh.mu.Lock()
		for e := range sh.leased {
			if all || e.lease.due(now) {
				if a := s.drainLocked(e, now); a.Delta > 0 {
					back = append(back, a)
				}
			}
			if e.lease.tokens == 0 {
				delete(sh.leased, e)
			}
		}
		sh.mu.Unlock()
		s.giveBack(back)
	}
}

// drainLocked empties the lease of e and returns what may go back of it.
func (s *Store) drainLocked(e *entry, now time.Duration) limiter.Adjustment {
	back, lost := e.lease.drain(now)
	if lost > 0 {
		s.metrics.lost.Add(float64(lost))
	}
	e.bound.amount += back
	return limiter.Adjustment{Bucket: e.bucket, Rate: e.rate, Delta: back}
}

// giveBack settles leases, once each: a give-back that is lost admits less. They
// go one by one, for their buckets may be kept on different servers.
func (s *Store) giveBack(back []limiter.Adjustment) {
	for _, a := range back {
		s.metrics.returned.Add(float64(a.Delta))
		s.inner.Settle(limiter.Settlement{Adjust: []limiter.Adjustment{a}})
	}
}

// yield gives back what is kept of a bucket that others wait for, and keeps off
// it for a while.
func (s *Store) yield(b limiter.BucketID, r limiter.Rate, now time.Duration) {
	sh := s.table.shard(b)
	sh.mu.Lock()
	e := sh.makeLocked(now, b, r, s.table.most)
	if e == nil {
		sh.mu.Unlock()
		return
	}
	e.calm = now + calmAfter
	a := s.drainLocked(e, now)
	sh.mu.Unlock()
	if a.Delta > 0 {
		s.giveBack([]limiter.Adjustment{a})
	}
}
