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
func (s *Store) watch(c *client) {
	tick := time.NewTicker(s.opts.ProbeInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-c.quit:
			return
		case <-c.hint:
			if c.breaker.shut.Load() && s.probe(c) == "" {
				c.breaker.probed(time.Now(), "")
			}
			continue
		case <-tick.C:
		}
		if c.breaker.probeDue(time.Now(), s.opts.ProbeInterval) {
			c.breaker.probed(time.Now(), s.probe(c))
		}
	}
}

// hintProbe asks watch for a probe out of turn.
func (c *client) hintProbe() {
	select {
	case c.hint <- struct{}{}:
	default:
	}
}

// probe states presence to a server and returns what went wrong, "" for nothing.
// It waits no longer than an Admit would.
func (s *Store) probe(node *client) string {
	home, keeps := s.router.probeHome(node)
	if !keeps {
		return "" // it keeps no keys: nothing will be asked of it
	}
	// Through the queue and the workers, as a caller's call: stuck workers are
	// trouble too.
	var ids []limiter.SlotID
	if home == "" {
		ids = append(ids, presence)
	}
	seq, sts := s.slots.state(ids)
	if home != "" { // known to nobody but this server: it need not be kept alive
		sts = []statement{{id: limiter.SlotID{Dimension: presence.Dimension, ID: presence.ID, Home: home}, held: 1, want: 1}}
	}
	c := s.calls.Get().(*call)
	c.home, c.node, c.until, c.probe = home, node, time.Now().Add(s.opts.Timeout), true
	c.buildLease(s.inc, seq, s.ttl, sts)
	err := s.exchange(context.Background(), c)
	if err == nil && home == "" {
		s.stated(seq, sts, c.reply[2:])
	}
	if err == nil {
		s.release(c)
		return ""
	}
	if home == "" {
		s.slots.mark(sts)
	}
	var f *failure
	if errors.As(err, &f); f.elsewhere() {
		return ""
	}
	return f.Error()
}

// breakerChanged is called by a breaker, under its lock.
func (s *Store) breakerChanged(node *client, open bool, why string) {
	s.router.changed()
	if open {
		s.log.Warn("store unusable", "address", node.addr, "why", why)
		node.hintProbe()
		s.router.look(node)
		return
	}
	s.log.Info("store usable", "address", node.addr)
	s.slots.markAll() // Redis may have lost or expired everything meanwhile
	s.outbox.poke()   // settlements wait as well
	s.epochs.soon()
}

// looked logs that nobody tells which servers decide, and that somebody does again:
// once each, and not for a look or two that a busy machine missed.
func (r *router) looked(err error) {
	switch {
	case err != nil:
		if r.missed++; r.missed == firstLooks {
			r.store.log.Warn("store servers unknown", "mode", r.store.opts.Mode, "why", err)
		}
		return
	case r.missed >= firstLooks:
		r.store.log.Info("store servers known", "mode", r.store.opts.Mode)
	}
	r.missed = 0
}
