package near

import (
	"time"

	"github.com/headway-limiter/headway/limiter"
)

const (
	// belief is how long the store's word on an empty bucket of requests is relied
	// on. Within it, what others give back, or an operator changes, may go
	// unnoticed here.
	belief = time.Second
	// glance is the same where others may take or charge meanwhile: what they have
	// taken in it may be missing from a wait that is told from memory.
	glance = 100 * time.Millisecond
	// scoutEvery is how often one caller asks about a bucket of which the word is
	// older than that, while others go on believing it for as long.
	scoutEvery = 100 * time.Millisecond
	// calmAfter is how long nobody may be seen to wait for a shared bucket before
	// tokens of it are taken in advance.
	calmAfter = time.Second
)

// part is what became of one charge of a Take here.
type part struct {
	entry    *entry
	known    bool          // what the store said of it is fresh
	wait     time.Duration // > 0: refused here for so long
	doubt    time.Duration // it may be so long, which is not known well enough to refuse
	told     int64         // tokens left, as the store last told
	left     int64         // and as a refusal tells
	paid     int64         // out of the lease
	reserved int64         // counted as taken while asking
	extra    int64         // asked for in advance
	may      bool          // prefetch may be used for it
	waits    *flight       // a call under way that takes in advance for it
}

// covered reports whether a charge of cost needs nothing from the store.
func (p *part) covered(cost int64) bool {
	return p.may && p.paid == cost && (cost > 0 || p.known && p.told >= 1)
}

// maxCharges is the most that a Take can have, of two classes in each dimension;
// one that has more is the store's alone.
const maxCharges = 16

// plan is how one Take is to be decided. Between claim and release, settle or
// grant it holds reservations.
type plan struct {
	list    [maxCharges]part
	n       int     // used of list
	denied  bool    // some part refuses, and all are known
	granted bool    // all parts are covered
	flight  *flight // to be waited for; nil if none
	mine    *flight // that this plan has begun
}

// claim works out what can be decided here, and reserves it.
func (s *Store) claim(p *plan, t limiter.Take, now time.Duration) {
	p.n = len(t.Charges)
	p.denied, p.granted, p.flight = false, s.opts.Prefetch && len(t.Slots) == 0, nil
	known, longest, doubt := true, time.Duration(0), time.Duration(0)
	for i, c := range t.Charges {
		q := &p.list[i]
		*q = part{}
		s.claimOne(q, c, now, t.Waited)
		known = known && q.known && q.paid == 0
		longest, doubt = max(longest, q.wait), max(doubt, q.doubt)
		p.denied = p.denied || q.wait > 0
		p.granted = p.granted && q.covered(c.Cost)
		if q.waits != nil {
			p.flight = q.waits
		}
	}
	p.denied = p.denied && known && longest >= doubt
	p.granted = p.granted && !p.denied
	if p.denied || p.granted {
		p.flight = nil
	}
}

// claimOne does so for one charge.
func (s *Store) claimOne(q *part, c limiter.Charge, now time.Duration, waited bool) {
	sh := s.table.shard(c.Bucket)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.entries[c.Bucket]
	if e == nil && s.opts.Prefetch {
		e = sh.makeLocked(now, c.Bucket, c.Rate, s.table.most)
	}
	if e == nil {
		return
	}
	if e.rate != c.Rate { // changed meanwhile: nothing that was learnt holds
		s.metrics.lost.Add(float64(e.lease.tokens))
		e.rate, e.bound, e.lease, e.heard = c.Rate, bound{pending: e.bound.pending}, lease{flight: e.lease.flight}, never
	}
	q.entry, q.told, q.left, e.touched = e, e.told, e.told, now
	if s.opts.Prefetch {
		s.payLocked(q, e, c, now)
	}
	q.known = now >= e.claimed && e.believed(now)
	rest := c.Cost - q.paid
	if !e.bound.set {
		return
	}
	if q.wait, q.doubt = e.bound.wait(now, e.rate, rest, !waited); !q.known {
		q.wait = 0
	}
	q.left = e.remaining(now, rest, q.wait > 0)
	if q.wait == 0 && rest > 0 {
		e.bound.reserve(now, e.rate, rest)
		q.reserved = rest
	}
}

// payLocked pays what it can of c out of the lease.
func (s *Store) payLocked(q *part, e *entry, c limiter.Charge, now time.Duration) {
	if now >= e.lease.until && e.lease.tokens > 0 {
		_, lost := e.lease.drain(now)
		s.metrics.lost.Add(float64(lost))
	}
	q.may = solitary(c) || now >= e.calm
	q.paid = e.lease.pay(c.Cost)
	if q.may && q.paid < c.Cost {
		q.waits = e.lease.flight
	}
}

// solitary reports whether only one tenant draws from the bucket of c, so that
// to take from it in advance is at nobody's expense.
func solitary(c limiter.Charge) bool {
	switch c.Bucket.Dimension {
	case limiter.APIKey, limiter.User, limiter.Team, limiter.Client:
		return !c.InTurn
	}
	return false
}

// release ends a plan that asked for nothing: what it claimed is free again.
func (s *Store) release(p *plan) {
	for i := range p.n {
		q := &p.list[i]
		if q.reserved == 0 && q.paid == 0 {
			continue
		}
		q.entry.home.mu.Lock()
		q.entry.bound.cancel(q.reserved)
		q.entry.putBackLocked(q.paid)
		q.entry.home.mu.Unlock()
	}
}

// refusal is the verdict of a denied plan. Such a plan pays nothing out of a
// lease, which at other replicas would be missing when the wait is over.
func (p *plan) refusal(t limiter.Take) limiter.Verdict {
	v := limiter.Verdict{Charges: make([]limiter.ChargeVerdict, p.n), Full: make([]bool, len(t.Slots))}
	low := least(t)
	for i := range p.n {
		v.Charges[i] = limiter.ChargeVerdict{Remaining: p.list[i].left, Wait: p.list[i].wait}
		if p.list[i].wait > 0 {
			v.Charges[i].Wait = max(low, p.list[i].wait)
		}
	}
	return v
}

// grant ends a plan that is covered by leases.
func (s *Store) grant(p *plan, t limiter.Take, now time.Duration) limiter.Verdict {
	v := limiter.Verdict{OK: true, Charges: make([]limiter.ChargeVerdict, p.n), Full: []bool{}}
	for i := range p.n {
		q := &p.list[i]
		v.Charges[i].Remaining = q.told
		if q.paid > 0 {
			q.entry.home.mu.Lock()
			q.entry.lease.use(now, q.paid)
			q.entry.home.mu.Unlock()
		}
	}
	return v
}
