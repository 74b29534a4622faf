package localshare

import (
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// recover ends the outage, if it is over: the store is usable, and it has
// answered, or called itself unusable meanwhile, or was not missed for a while.
func (s *Store) recover(now time.Time, answered bool) {
	if !s.out.Load() || !s.healthy() {
		return
	}
	s.mu.Lock()
	o := &s.outage
	if o.since.IsZero() || !answered && !o.broken && now.Sub(o.last) < calm {
		s.mu.Unlock()
		return
	}
	if o.until.IsZero() {
		o.until = now
		if s.registry != nil && s.registry.Forgotten() != o.forgotten {
			o.until = now.Add(restating)
		}
	}
	debts, lasted := s.debtsLocked(now), now.Sub(o.since)
	over := !now.Before(o.until)
	if over {
		*o = outage{}
		s.out.Store(false)
	}
	s.mu.Unlock()
	s.report(debts, lasted)
}

// finish reports what is left to report at the end of this process.
func (s *Store) finish(now time.Time) {
	s.mu.Lock()
	debts := s.debtsLocked(now)
	s.mu.Unlock()
	s.report(debts, 0)
}

// debtsLocked takes what every bucket owes.
func (s *Store) debtsLocked(now time.Time) (list []limiter.Adjustment) {
	at, n := s.clock.at(now), s.count.divisor()
	for id, b := range s.buckets {
		if b.owed == 0 {
			continue
		}
		b.advance(at, b.rate, max(b.level, micro(b.rate.Burst, 1)))
		if d := b.debt(n); d > 0 {
			list = append(list, limiter.Adjustment{Bucket: id, Rate: b.rate, Delta: -d})
		}
		b.owed = 0
	}
	return list
}

// debtsAtOnce is how many debts ride in one settlement.
const debtsAtOnce = 16

// report charges the store with debts.
func (s *Store) report(debts []limiter.Adjustment, outage time.Duration) {
	if len(debts) > 0 && outage > sampleEvery {
		s.log.Info("outage over", "lasted", outage.Round(time.Millisecond).String(), "buckets_charged", len(debts))
	}
	for len(debts) > 0 {
		n := min(debtsAtOnce, len(debts))
		for _, d := range debts[:n] {
			s.metrics.debts.Add(float64(-d.Delta))
		}
		s.inner.Settle(limiter.Settlement{Adjust: debts[:n:n]})
		debts = debts[n:]
	}
}
