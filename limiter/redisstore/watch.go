package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// presence is a slot that every replica holds while it lives. Stating it is the
// probe: a call of the usual kind that reads, writes and tells the time. As a
// by-product its counter lists the living replicas.
var presence = limiter.SlotID{Dimension: "replica", ID: limiter.Everyone}

// watch probes when nothing else tells how Redis does, until quit. It probes at
// once when the breaker opens, and when a probe was answered too late: the
// server lives, and may be itself again. So a short hang ends with the hang.
// A server that stays slow answers each probe late, one at a time, and is never
// taken for healthy.
func (s *Store) watch() {
	tick := time.NewTicker(s.opts.ProbeInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-s.hint:
			if s.breaker.shut.Load() && s.probe() == "" {
				s.breaker.probed(time.Now(), "")
			}
			continue
		case <-tick.C:
		}
		if s.breaker.probeDue(time.Now(), s.opts.ProbeInterval) {
			s.breaker.probed(time.Now(), s.probe())
		}
	}
}

// hintProbe asks watch for a probe out of turn.
func (s *Store) hintProbe() {
	select {
	case s.hint <- struct{}{}:
	default:
	}
}

// probe states presence and returns what went wrong, "" for nothing. It waits
// no longer than an Admit would.
func (s *Store) probe() string {
	// Through the queue and the workers, as a caller's call: stuck workers are
	// trouble too.
	seq, sts := s.slots.state([]limiter.SlotID{presence})
	c := s.calls.Get().(*call)
	c.until, c.probe = time.Now().Add(s.opts.Timeout), true
	c.buildLease(s.inc, seq, s.ttl, sts)
	err := s.exchange(context.Background(), c)
	if err != nil {
		s.slots.mark(sts)
		var f *failure
		errors.As(err, &f)
		return f.Error()
	}
	s.stated(seq, sts, c.reply[2:])
	s.release(c)
	return ""
}

// breakerChanged is called by the breaker, under its lock.
func (s *Store) breakerChanged(open bool, why string) {
	s.metrics.breaker(open)
	if open {
		s.log.Warn("store unusable", "address", s.opts.Address, "why", why)
		s.hintProbe()
		return
	}
	s.log.Info("store usable", "address", s.opts.Address)
	s.slots.markAll() // Redis may have lost or expired everything meanwhile
	s.outbox.poke()   // settlements wait as well
}
