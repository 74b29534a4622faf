package localshare

import (
	"time"

	"github.com/headway-limiter/headway/limiter"
)

func (s *Store) policyOf(d limiter.Dimension) limiter.OutagePolicy { return (*s.policy.Load())(d) }

// stricter returns the policy of a take with dimensions of both.
func stricter(p, q limiter.OutagePolicy) limiter.OutagePolicy {
	switch {
	case p == limiter.FailClosed || q == limiter.FailClosed:
		return limiter.FailClosed
	case p == limiter.LocalShare || q == limiter.LocalShare:
		return limiter.LocalShare
	}
	return limiter.FailOpen
}

// share says who decides t in an outage: this store if it is LocalShare. some
// tells whether any of its dimensions is.
func (s *Store) share(t limiter.Take) (p limiter.OutagePolicy, some bool) {
	p = limiter.FailOpen
	add := func(d limiter.Dimension) {
		q := s.policyOf(d)
		p, some = stricter(p, q), some || q == limiter.LocalShare
	}
	for _, c := range t.Charges {
		add(c.Bucket.Dimension)
	}
	for _, sl := range t.Slots {
		add(sl.Slot.Dimension)
	}
	return p, some
}

// Informed reports whether this replica has a share: it can know how many there
// are, by gossip or because the store has told once, and that was the same for
// long enough. Until then it decides nothing, and errors of the store are passed
// on: no limit is to blame. A closed one has none.
func (s *Store) Informed() bool {
	if s.closed.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count.settled
}

// before is called ahead of a call to the store. It ends an outage that is over,
// so that its debts are on their way first. True: this take is still to be
// decided here, because of its slots.
func (s *Store) before(slots bool) bool {
	if !s.out.Load() || s.closed.Load() {
		return false
	}
	now := time.Now()
	s.recover(now, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	return slots && now.Before(s.outage.until)
}

// follow takes over what the store has decided on t.
func (s *Store) follow(t limiter.Take, v limiter.Verdict) {
	now := time.Now()
	s.recover(now, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.clock.at(now)
	for i, c := range t.Charges {
		if c.Rate.Limit > 0 && i < len(v.Charges) && s.policyOf(c.Bucket.Dimension) == limiter.LocalShare {
			s.levelLocked(at, c, token*v.Charges[i].Remaining)
		}
	}
	if v.OK {
		for _, sl := range t.Slots {
			s.held[sl.Slot]++
		}
	}
}

// levelLocked sets the level of the fleet's bucket, as the store has told it. A
// full bucket needs no record.
func (s *Store) levelLocked(now int64, c limiter.Charge, level int64) {
	b := s.buckets[c.Bucket]
	if b == nil {
		if level >= micro(c.Rate.Burst, 1) {
			return
		}
		b = &bucket{}
		s.addLocked(now, c.Bucket, b)
	}
	b.level, b.stamp, b.rate = level, now, c.Rate
}

// addLocked keeps a new bucket. Full ones are swept each time their number has
// doubled, so that a write stays O(1).
func (s *Store) addLocked(now int64, id limiter.BucketID, b *bucket) {
	s.buckets[id] = b
	if len(s.buckets) < s.sweepAt {
		return
	}
	for id, o := range s.buckets {
		if o != b && o.full(now) {
			delete(s.buckets, id)
		}
	}
	s.sweepAt = max(minSweep, 2*len(s.buckets))
}

// decide decides t by the shares of this replica, all or nothing.
func (s *Store) decide(t limiter.Take) limiter.Verdict {
	now := time.Now()
	broken := !s.healthy()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked(now, broken)
	return s.decideLocked(now, t)
}

// beginLocked notes a local decision, the first of an outage or one more.
func (s *Store) beginLocked(now time.Time, broken bool) {
	o := &s.outage
	if o.since.IsZero() {
		*o = outage{since: now}
		if s.registry != nil {
			o.forgotten = s.registry.Forgotten()
		}
	}
	o.last, o.broken = now, o.broken || broken
	s.out.Store(true)
}

func (s *Store) decideLocked(now time.Time, t limiter.Take) limiter.Verdict {
	v := s.checkLocked(now, t)
	if !v.OK {
		return v
	}
	n := int64(s.count.divisor())
	for i, c := range t.Charges {
		if c.Cost == 0 || s.policyOf(c.Bucket.Dimension) != limiter.LocalShare {
			continue
		}
		b := s.buckets[c.Bucket]
		if b == nil { // checked as a full one
			b = &bucket{level: micro(c.Rate.Burst, 1), stamp: s.clock.at(now), rate: c.Rate}
			s.addLocked(b.stamp, c.Bucket, b)
		}
		b.level -= micro(c.Cost, n)
		b.owed += micro(c.Cost, 1)
		v.Charges[i].Remaining -= c.Cost
	}
	for _, sl := range t.Slots {
		// Also of dimensions that are open: their requests run, and end as any.
		s.held[sl.Slot]++
		if s.registry != nil {
			s.registry.Hold(sl.Slot)
		}
	}
	return v
}

// checkLocked looks whether the shares of this replica cover t.
func (s *Store) checkLocked(now time.Time, t limiter.Take) limiter.Verdict {
	v := limiter.Verdict{OK: true, Local: true, Charges: make([]limiter.ChargeVerdict, len(t.Charges)), Full: make([]bool, len(t.Slots))}
	for i, c := range t.Charges {
		v.Charges[i].Remaining = c.Rate.Burst
		if s.policyOf(c.Bucket.Dimension) == limiter.LocalShare {
			v.Charges[i] = s.chargeLocked(now, c)
		}
		v.OK = v.OK && v.Charges[i].Wait == 0
	}
	n := s.count.divisor()
	for i, sl := range t.Slots {
		if s.policyOf(sl.Slot.Dimension) == limiter.LocalShare {
			v.Full[i] = s.held[sl.Slot]+earlier(t.Slots[:i], sl) >= sl.Cap/n
		}
		v.OK = v.OK && !v.Full[i]
	}
	return v
}

// earlier counts the slots of one counter that a take lists before.
func earlier(list []limiter.Slot, sl limiter.Slot) (n int) {
	for _, o := range list {
		if o.Slot == sl.Slot {
			n++
		}
	}
	return n
}

// chargeLocked looks whether a share covers c, else when it will.
func (s *Store) chargeLocked(now time.Time, c limiter.Charge) limiter.ChargeVerdict {
	if c.Rate.Limit == 0 || c.Cost > c.Rate.Burst {
		return limiter.ChargeVerdict{Wait: limiter.Never}
	}
	at, n, burst := s.clock.at(now), int64(s.count.divisor()), micro(c.Rate.Burst, 1)
	need := micro(c.Cost, n)
	b := s.buckets[c.Bucket]
	if b == nil {
		b = &bucket{level: burst, stamp: at, rate: c.Rate}
		if need > burst {
			s.addLocked(at, c.Bucket, b)
		}
	}
	if began := s.clock.at(s.outage.since); b.stamp < began {
		b.advance(began, c.Rate, burst) // what it may hold beyond comes later
	}
	b.advance(at, c.Rate, max(burst, need))
	v := limiter.ChargeVerdict{Remaining: floorDiv(b.level, token*n)}
	if b.level < need {
		v.Wait = fill(need-b.level, c.Rate)
	}
	return v
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
