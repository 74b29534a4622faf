package near

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// ask puts to the store what p does not cover, and learns from the reply.
func (s *Store) ask(ctx context.Context, p *plan, t limiter.Take, began time.Duration, late bool) (limiter.Verdict, error) {
	sent := s.now()
	s.topUp(p, t, sent)
	v, err := s.call(ctx, p.take(t), began, late)
	if err == nil && !v.OK && p.mine != nil {
		// Refused with what was asked for in advance; now for what is needed.
		s.metrics.again.Inc()
		for i := range p.n {
			p.list[i].extra = 0
		}
		sent = s.now()
		v, err = s.call(ctx, p.take(t), began, true)
	}
	v = s.learn(p, t, v, err, sent)
	return v, err
}

// call is an Admit of the store; a late one has only what is left of the budget.
func (s *Store) call(ctx context.Context, t limiter.Take, began time.Duration, late bool) (limiter.Verdict, error) {
	if s.opts.Budget <= 0 || !late {
		return s.inner.Admit(ctx, t)
	}
	rest, cancel := context.WithTimeout(ctx, s.opts.Budget-(s.now()-began))
	defer cancel()
	v, err := s.inner.Admit(rest, t)
	if err != nil && rest.Err() != nil && ctx.Err() == nil {
		return v, fmt.Errorf("near: no answer within %v: %w", s.opts.Budget, limiter.ErrUnavailable)
	}
	return v, err
}

// topUp lets the call of p take in advance, where that can make later Takes like
// t need no call at all. One call at a time does so for a bucket.
func (s *Store) topUp(p *plan, t limiter.Take, now time.Duration) {
	if !s.opts.Prefetch || len(t.Slots) > 0 || s.closed.Load() {
		return
	}
	for i := range p.n {
		if !p.list[i].may {
			return
		}
	}
	n := int64(max(1, s.replicas()))
	for i, c := range t.Charges {
		q := &p.list[i]
		q.entry.home.mu.Lock()
		q.extra = q.entry.lease.lack(now, n, c.Rate.Burst, c.Cost-q.paid)
		if q.extra > 0 {
			if p.mine == nil {
				p.mine = &flight{done: make(chan struct{})}
			}
			q.entry.lease.flight = p.mine
		}
		q.entry.home.mu.Unlock()
	}
}

// asked is what the call asks for one charge of cost; -1 for a charge that is
// paid and left out.
func (q *part) asked(cost int64) int64 {
	if q.paid > 0 && q.paid == cost && q.extra == 0 {
		return -1
	}
	return cost - q.paid + q.extra
}

// take is t as the store is asked for it.
func (p *plan) take(t limiter.Take) limiter.Take {
	same := true
	for i, c := range t.Charges {
		same = same && p.list[i].asked(c.Cost) == c.Cost
	}
	if same {
		return t
	}
	out := limiter.Take{Slots: t.Slots, Waited: t.Waited}
	for i, c := range t.Charges {
		if n := p.list[i].asked(c.Cost); n >= 0 {
			c.Cost = n
			out.Charges = append(out.Charges, c)
		}
	}
	return out
}

// learn books the outcome of a call that was sent at sent, and returns its
// verdict as one on all of t.
func (s *Store) learn(p *plan, t limiter.Take, v limiter.Verdict, err error, sent time.Duration) limiter.Verdict {
	r := reply{ok: v.OK, err: err, alone: v.Local, sent: sent, now: s.now(), mine: p.mine}
	out := limiter.Verdict{OK: v.OK, Full: v.Full, Local: v.Local}
	if err == nil {
		out.Charges = make([]limiter.ChargeVerdict, len(t.Charges))
	}
	var back []limiter.Adjustment
	j := 0
	for i, c := range t.Charges {
		q := &p.list[i]
		r.asked, r.told = q.asked(c.Cost), limiter.ChargeVerdict{Remaining: q.told}
		if err == nil && r.asked >= 0 {
			r.told = v.Charges[j]
			j++
		}
		a := s.learnOne(q, c, r)
		if err == nil {
			out.Charges[i] = r.told
		}
		switch {
		case v.OK && v.Local && q.extra > 0: // a share of an outage is not to be kept
			s.inner.Settle(limiter.Settlement{Local: true, Adjust: []limiter.Adjustment{{Bucket: c.Bucket, Rate: c.Rate, Delta: q.extra}}})
		case a.Delta > 0:
			back = append(back, a)
		}
	}
	if p.mine != nil {
		p.mine.err = err
		close(p.mine.done)
	}
	s.giveBack(back)
	if s.opts.DenyCache && err == nil && !v.OK && !v.Local {
		floorWaits(out.Charges, least(t))
	}
	return out
}

// floorWaits raises the waits of a refusal to least, also those of buckets that
// found no room here: other replicas may remember a refusal of theirs.
func floorWaits(told []limiter.ChargeVerdict, least time.Duration) {
	for i := range told {
		if told[i].Wait > 0 { // Never is below 0
			told[i].Wait = max(told[i].Wait, least)
		}
	}
}

// reply is what a call came to for one charge.
type reply struct {
	ok        bool
	alone     bool // not the store's, but a share of this replica while it is out
	err       error
	sent, now time.Duration
	asked     int64 // -1: not at all
	told      limiter.ChargeVerdict
	mine      *flight
}

// learnOne does so for one charge. It returns what is to be given back because
// others may need it.
func (s *Store) learnOne(q *part, c limiter.Charge, r reply) limiter.Adjustment {
	e := q.entry
	if e == nil {
		if r.ok || r.err != nil || !s.opts.DenyCache {
			return limiter.Adjustment{}
		}
		sh := s.table.shard(c.Bucket)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if e = sh.makeLocked(r.now, c.Bucket, c.Rate, s.table.most); e == nil {
			return limiter.Adjustment{}
		}
	} else {
		e.home.mu.Lock()
		defer e.home.mu.Unlock()
	}
	s.bookLocked(e, q, c, r)
	switch {
	case e.rate != c.Rate: // changed while we asked
	case (r.err != nil || r.alone) && e.stale(r.now): // nobody can tell: ask, and let the outage policy decide
		e.bound.set = false
	case r.err == nil && !r.alone && r.asked >= 0:
		s.hearLocked(e, c, r)
	}
	// Who is refused may come back elsewhere, where the store is all there is.
	if refused := r.err == nil && !r.ok && !r.alone; s.opts.Prefetch && (refused || s.closed.Load()) {
		return s.drainLocked(e, r.now)
	}
	return limiter.Adjustment{}
}

// bookLocked turns the reservation and payment of one charge into what they
// came to.
func (s *Store) bookLocked(e *entry, q *part, c limiter.Charge, r reply) {
	if e.lease.flight == r.mine {
		e.lease.flight = nil
	}
	if !r.ok || r.err != nil {
		e.bound.cancel(q.reserved)
		e.putBackLocked(q.paid)
		return
	}
	e.bound.take(q.reserved)
	if !s.opts.Prefetch {
		return
	}
	e.lease.use(r.now, c.Cost)
	if q.extra > 0 && !r.alone {
		e.lease.fill(r.sent, r.now, q.extra)
		e.home.leased[e] = struct{}{}
		s.metrics.prefetched.Add(float64(q.extra))
	}
}

// hearLocked learns the store's word on e.
func (s *Store) hearLocked(e *entry, c limiter.Charge, r reply) {
	told := r.told
	e.heard, e.told, e.owed = r.now, told.Remaining, 0
	e.lease.left, e.lease.found = told.Remaining, told.Remaining
	if r.ok {
		e.lease.found += r.asked
	}
	refused := !r.ok && told.Wait > 0 // Never is below 0
	if told.Contended {
		e.claimed = r.now + belief
	}
	if told.Contended || refused && !solitary(c) {
		e.calm = r.now + calmAfter
	}
	switch {
	case !s.opts.DenyCache:
	case refused:
		e.bound.see(refusedUntil(r.now, told.Wait, r.asked), e.rate)
		e.bound.refuse(r.now, e.rate, r.asked, floor/2+rand.N(floor))
	case e.bound.set || !r.ok:
		e.bound.see(leftWith(r.sent, r.now, told.Remaining), e.rate)
	}
}
