package localshare

import (
	"context"
	"errors"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// Turns implements limiter.Store.
func (s *Store) Turns(ctx context.Context, t limiter.Turns) (limiter.TurnsVerdict, error) {
	mine, slots := s.shareOfTurns(t)
	if mine && s.before(slots) {
		return s.serve(t, nil), nil
	}
	v, err := s.inner.Turns(ctx, t)
	switch miss := slots && s.miss(t, err); {
	case err == nil:
		s.followTurns(t, v)
		return v, nil
	case miss:
		return v, err
	case !mine || !errors.Is(err, limiter.ErrUnavailable) || ctx.Err() != nil || !s.Informed():
		return v, err
	}
	return s.serve(t, err), nil
}

// missesMost is how many calls in a row for slots of a pool may fail before it goes
// by shares, though the store calls itself usable: as many as open its breaker.
const missesMost = 3

// miss counts what became of a call for slots of a pool, and reports whether it is a
// single failure, after which to ask again is better than a share: after a share of
// slots, replicas have to wait for each other.
func (s *Store) miss(t limiter.Turns, err error) bool {
	if t.Slots.ID == "" {
		return false
	}
	single := err != nil && s.healthy() && !errors.Is(err, limiter.ErrForgotten)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !single {
		delete(s.missed, t.Slots)
		return false
	}
	s.missed[t.Slots]++
	return s.missed[t.Slots] < missesMost
}

// shareOfTurns reports whether this store decides any bid of t in an outage, and
// whether it decides all of them and some need slots.
func (s *Store) shareOfTurns(t limiter.Turns) (mine, slots bool) {
	pool := s.policyOf(dimension(t))
	mine, slots = pool == limiter.LocalShare, t.Slots.ID != "" && len(t.Bids) > 0
	closed := false
	for _, b := range t.Bids {
		rest, _ := s.share(b.Rest)
		switch stricter(pool, rest) {
		case limiter.LocalShare:
			mine, slots = true, slots || len(b.Rest.Slots) > 0
		case limiter.FailClosed:
			closed = true
		}
	}
	return mine && pool != limiter.FailClosed, slots && !closed
}

// dimension is that of the pool, a bucket or slots.
func dimension(t limiter.Turns) limiter.Dimension {
	if t.Slots.ID != "" {
		return t.Slots.Dimension
	}
	return t.Pool.Dimension
}

// ofPool is what b takes from the pool.
func ofPool(t limiter.Turns, b limiter.Bid) (take limiter.Take) {
	if t.Slots.ID == "" {
		take.Charges = []limiter.Charge{{Bucket: t.Pool, Rate: t.Rate, Cost: b.Cost}}
		return take
	}
	for range b.Cost {
		take.Slots = append(take.Slots, limiter.Slot{Slot: t.Slots, Cap: int(t.Rate.Burst)})
	}
	return take
}

// slotRest is when to ask again for slots of the pool: nobody knows when one comes
// free, but this replica hears of its own at once.
const slotRest = 40 * time.Millisecond

// followTurns takes over what the store has decided on t. It tells the pool's
// level only by what the first bid left still lacks.
func (s *Store) followTurns(t limiter.Turns, v limiter.TurnsVerdict) {
	granted, head := int64(0), int64(-1)
	for i, b := range t.Bids {
		switch v.Bids[i].State {
		case limiter.BidGranted:
			granted += b.Cost
			if t.Slots.ID != "" {
				s.follow(ofPool(t, b), limiter.Verdict{OK: true})
			}
		case limiter.BidWaits:
			if head < 0 {
				head = b.Cost
			}
		}
		if v.Bids[i].State != limiter.BidWaits {
			rest := v.Bids[i].Rest
			rest.OK = v.Bids[i].State == limiter.BidGranted
			s.follow(b.Rest, rest)
		}
	}
	s.recover(time.Now(), true)
	if s.policyOf(t.Pool.Dimension) != limiter.LocalShare || t.Rate.Limit == 0 || t.Slots.ID != "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, burst := s.clock.at(time.Now()), micro(t.Rate.Burst, 1)
	level := burst
	if b := s.buckets[t.Pool]; b != nil {
		b.advance(now, t.Rate, burst)
		level = b.level
	}
	level -= micro(granted, 1)
	if head >= 0 && v.Bucket > 0 {
		level = min(level, micro(head, 1)-flow(v.Bucket.Microseconds(), t.Rate))
	}
	s.levelLocked(now, limiter.Charge{Bucket: t.Pool, Rate: t.Rate}, level)
}

// serve gives turns by the share of the pool, in the order of the bids, until it
// does not cover the next. err is the store's, for bids that must not be decided
// without it.
func (s *Store) serve(t limiter.Turns, err error) limiter.TurnsVerdict {
	now, broken := time.Now(), !s.healthy()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginLocked(now, broken)
	v := limiter.TurnsVerdict{Local: true, Wait: limiter.Never, Bucket: limiter.Never, Bids: make([]limiter.BidVerdict, len(t.Bids))}
	pool := s.policyOf(dimension(t))
	granted := 0
	for i, b := range t.Bids {
		out := &v.Bids[i]
		out.Since, out.Rest.Local = limiter.Unknown, true
		policy, _ := s.share(b.Rest)
		switch {
		case stricter(pool, policy) == limiter.FailClosed:
			out.Err = err
			continue
		case v.Wait != limiter.Never:
			continue // behind the one that waits for the pool
		case granted == t.Most:
			v.Wait, v.Bucket = 0, 0
			continue
		}
		rest := s.checkLocked(now, b.Rest)
		if !rest.OK {
			out.State, out.Rest = limiter.BidBlocked, rest
			continue
		}
		if verdict := s.decideLocked(now, ofPool(t, b)); !verdict.OK {
			v.Wait = slotRest
			if t.Slots.ID == "" {
				v.Wait = verdict.Charges[0].Wait
			}
			v.Bucket = v.Wait
			continue
		}
		out.State, out.Rest = limiter.BidGranted, s.decideLocked(now, b.Rest)
		granted++
	}
	return v
}
