package limiter

import (
	"slices"
	"time"
)

// manner is which refusals may be waited for in a set of lines, and whose turn it is
// there. The waiting itself is the same in all of them.
type manner uint8

const (
	// fair lines are for request counts. Tenants take turns.
	fair manner = iota
	// deferral is for token budgets: first come, first served, by when requests came
	// to this limiter, so that a large one does not starve behind small ones.
	deferral
	// batch lines are for every limit that time will lift. Tenants take turns by
	// cost, and all of them come after whoever is no batch work.
	batch
)

// String is the kind in metrics.
func (m manner) String() string { return [...]string{"fair", "deferred", "batch"}[m] }

const (
	// yieldRest is how long batch work rests that found others waiting for what it
	// needs.
	yieldRest = 50 * time.Millisecond
	// slotRest is how often batch work looks for a slot. That one has become free
	// here, it is told at once.
	slotRest = 250 * time.Millisecond
	// unbounded is the budget of batch work, whose deadline its request tells.
	unbounded = 365 * 24 * time.Hour
)

// widths orders dimensions for lines of other limits than request counts: lines of
// what more tenants share come first.
var widths = map[Dimension]int{APIKey: 1, User: 2, Team: 3, Model: 4, Client: 5, Global: 6}

// width is how wide the line of b is; a waiter only ever moves to a wider one.
func (m manner) width(b BucketID) int {
	if m == fair {
		return breadth[b.Dimension]
	}
	width := 2 * widths[b.Dimension]
	if b.Class == InFlight { // told as soon as one is free
		width++
	}
	return width
}

// buckets calls f with what d may wait for, widest first, until it returns false.
func (m manner) buckets(d *demand, f func(BucketID) bool) {
	if m == fair {
		d.buckets(f)
		return
	}
	var all []BucketID
	for _, c := range d.take.Charges {
		if m == batch || c.Bucket.Class == Tokens && c.Cost > 0 {
			all = append(all, c.Bucket)
		}
	}
	for _, s := range d.take.Slots {
		if m == batch {
			all = append(all, s.Slot.line())
		}
	}
	slices.SortStableFunc(all, func(a, b BucketID) int { return m.width(b) - m.width(a) })
	for _, b := range all {
		if !f(b) {
			return
		}
	}
}

// line names the line of those who wait for a slot.
func (s SlotID) line() BucketID {
	return BucketID{Dimension: s.Dimension, Class: InFlight, ID: s.ID, Home: s.Home}
}

// place is where d may wait after a refusal by v: at the widest limit that refuses,
// if all of them are such as these lines are for.
func (m manner) place(d *demand, v Verdict) (at place, ok bool) {
	if m == fair {
		at.bucket, at.wait, at.tenantWait, ok = d.contended(v)
		return at, ok
	}
	refuses := func(b BucketID, wait time.Duration) {
		switch {
		case !ok, m.width(b) > m.width(at.bucket):
			at.tenantWait = max(at.tenantWait, at.wait)
			at.bucket, at.wait, ok = b, wait, true
		default:
			at.tenantWait = max(at.tenantWait, wait)
		}
	}
	for i, c := range d.take.Charges[:min(len(d.take.Charges), len(v.Charges))] {
		wait := v.Charges[i].Wait
		switch {
		case wait == 0 && !v.Charges[i].Contended:
			continue
		case wait == Never, m == deferral && c.Bucket.Class != Tokens:
			return place{}, false
		case v.Charges[i].Contended:
			wait = max(wait, yieldRest)
		}
		refuses(c.Bucket, wait)
	}
	for i, s := range d.take.Slots {
		if i >= len(v.Full) || !v.Full[i] {
			continue
		}
		if m == deferral {
			return place{}, false
		}
		refuses(s.Slot.line(), slotRest)
	}
	return at, ok
}

// take is what a waiter asks for on its turn.
func (m manner) take(d *demand) Take {
	t := d.take
	t.Waited = m != batch
	if m == deferral { // it has had its turn at request counts, or nobody waited for them
		t.Charges = slices.Clone(t.Charges)
		for i := range t.Charges {
			t.Charges[i].InTurn = false
		}
	}
	return t
}

// config is the part of a configuration that a set of lines follows.
func (m manner) config(c *Config) FairConfig {
	f := c.Fair
	switch m {
	case deferral:
		f.MaxTotalQueued, f.MaxQueueDepthPerTenant, f.MaxTenants = c.Deferral.MaxHeld, c.Deferral.MaxHeld, c.Deferral.MaxHeld
		f.Enabled, f.MaxWait, f.Scope = c.Deferral.Enabled, c.Deferral.MaxWait, FairReplica
	case batch:
		f.MaxTotalQueued, f.MaxQueueDepthPerTenant, f.MaxTenants = maxAmount, c.BatchDepth, maxAmount
		f.MaxWait, f.Scope, f.Discipline = unbounded, FairReplica, DisciplineOfBatch
	}
	return f
}

// queueAt is where a newcomer has to wait because others do: for what these lines
// are for, or, if these come after others, for theirs.
func (s *lines) queueAt(d *demand) (at place, ok bool) {
	if b, ok := s.occupied(d); ok {
		return place{bucket: b}, true
	}
	for _, other := range s.after {
		if b, ok := other.occupied(d); ok {
			return place{bucket: b, wait: yieldRest}, true
		}
	}
	return place{}, false
}

// yield looks whether w, whose turn it is, has to stand back: batch work for others
// who wait for what it needs (next is when to look again), and a request at its turn
// in a fair line for those deferred before it, whose line it then joins.
func (s *lines) yield(w *waiter) (o outcome, next *place, yields bool) {
	for _, other := range s.after {
		if _, ok := other.occupied(w.demand); ok {
			return outcome{}, &place{bucket: w.line.bucket, wait: yieldRest}, true
		}
	}
	if s.past == nil {
		return outcome{}, nil, false
	}
	b, ok := s.past.occupied(w.demand)
	if !ok {
		return outcome{}, nil, false
	}
	r := &Refusal{Dimension: b.Dimension, Class: Tokens, Reason: ReasonTokens, RetryAfter: time.Millisecond}
	r.Line = s.abandon(w)
	v := w.demand.lacking(b)
	return outcome{refusal: r, verdict: &v}, nil, true
}

// place is where d may wait here after a refusal by v. Where token budgets may be
// waited for as well, they do not keep a request from its turn at request counts.
func (s *lines) place(d *demand, v Verdict) (place, bool) {
	if s.past != nil {
		if most, on := s.past.patience(); on {
			v = d.afforded(v, most)
		}
	}
	return s.manner.place(d, v)
}

// patience is how long these lines let wait; false: they let nobody.
func (s *lines) patience() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg.MaxWait, s.cfg.Enabled
}

// afforded is v as if token budgets covered what they will within a time.
func (d *demand) afforded(v Verdict, within time.Duration) Verdict {
	v.Charges = slices.Clone(v.Charges)
	for i := range v.Charges {
		if c := &v.Charges[i]; d.take.Charges[i].Bucket.Class == Tokens && c.Wait != Never && c.Wait <= within {
			c.Wait = 0
		}
	}
	return v
}

// lacking is the verdict on d if bucket b alone refused, for a moment.
func (d *demand) lacking(b BucketID) Verdict {
	v := Verdict{Charges: make([]ChargeVerdict, len(d.take.Charges))}
	for i, c := range d.take.Charges {
		if c.Bucket == b {
			v.Charges[i].Wait = time.Microsecond
		}
	}
	return v
}

// earlierLocked returns a line of another bucket that w needs as well, in which
// somebody waits whom it must not overtake. It then stands there in the order in
// which both came, and is not next at once, so that no two lines send it to and fro.
func (s *lines) earlierLocked(w *waiter, now time.Time) (other *line) {
	s.manner.buckets(w.demand, func(b BucketID) bool {
		ln := s.byBucket[b]
		if ln == nil || ln == w.line {
			return true
		}
		if q, ok := ln.queue.(*fifo); ok && q.blocks(w, now) {
			other = ln
		}
		return other == nil
	})
	return other
}

// members are waiters by tenant. The nil members remember nobody.
type members map[ID]map[*waiter]struct{}

func (m members) add(w *waiter) {
	if m == nil {
		return
	}
	if m[w.tenant.ID] == nil {
		m[w.tenant.ID] = map[*waiter]struct{}{}
	}
	m[w.tenant.ID][w] = struct{}{}
}

func (m members) remove(w *waiter) {
	if delete(m[w.tenant.ID], w); len(m[w.tenant.ID]) == 0 {
		delete(m, w.tenant.ID)
	}
}

// makeRoomLocked has batch work of a tenant leave whose deadline has passed, where its
// queue is full: each does so by itself, but perhaps not yet, and must not refuse
// one that lives.
func (s *lines) makeRoomLocked(tenant ID, now time.Time) {
	if s.members == nil || s.depth[tenant] < s.cfg.MaxQueueDepthPerTenant {
		return
	}
	for w := range s.members[tenant] {
		if w.state == queued && !now.Before(w.deadline) {
			s.leaveLocked(w) // its timer has it say why
			s.pumpLocked(w.line, now)
		}
	}
}

// freed has those look again who wait for slots that have become free here.
func (s *lines) freed(slots []SlotID) {
	if len(slots) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total == 0 {
		return
	}
	now := time.Now()
	for _, slot := range slots {
		if ln := s.byBucket[slot.line()]; ln != nil {
			ln.restTill = now
			ln.queue.hold(now)
			s.pumpLocked(ln, now)
		}
	}
}

// all are the sets of lines.
func (l *Limiter) all() []*lines { return []*lines{l.lines, l.deferred, l.batch} }
