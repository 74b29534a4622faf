package agents

import (
	"context"
	"slices"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/fairq"
)

const (
	// bidsPerCall is how many slots one call may take. One more bid rides along, so
	// that a head is left to claim the next turn for.
	bidsPerCall = 8
	// pollFloor is the least rest between two calls that found nothing.
	pollFloor = 5 * time.Millisecond
	// pollCeiling is the longest rest, below what the store tells at most: so late is a
	// slot noticed that came free elsewhere.
	pollCeiling = 20 * time.Millisecond
	// callTime is about what a call takes besides.
	callTime = 2 * time.Millisecond
	// claimGrace is how long a claim outlives the rest of its replica.
	claimGrace = 50 * time.Millisecond
	// retryStore is the rest after a call that failed.
	retryStore = 40 * time.Millisecond
	// missesMost is how many calls may fail in a row before those who may not wait are
	// told: single ones fail while the machine of the store stands still.
	missesMost = 3
)

// wake is called by an agent's timer.
func (s *Set) wake(a *agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turnLocked(a, time.Now())
}

// turnLocked calls for slots of a if it is time, and moves on the newcomers for whom
// there is nothing to hear of here.
func (s *Set) turnLocked(a *agent, now time.Time) {
	s.pumpLocked(a, now)
	for _, w := range slices.Clone(a.fresh) {
		if !w.done && !a.calling && w.bidding == nil && !a.unsure() {
			w.down = a.failing
			s.moveOnLocked(a, w, now)
		}
	}
	s.forgetLocked(a.Name, a)
}

// moveOnLocked has w, which a has no slot for, ask the next agent.
func (s *Set) moveOnLocked(a *agent, w *waiter, now time.Time) {
	a.fresh = slices.DeleteFunc(a.fresh, func(o *waiter) bool { return o == w })
	w.at++
	s.askLocked(w, now)
}

// pumpLocked calls for slots of a if it is time, else arranges to be called again.
func (s *Set) pumpLocked(a *agent, now time.Time) {
	if a.calling || s.closed {
		return
	}
	a.timer.Stop()
	some := a.order.Len() > 0
	if !a.health.open(now) {
		if some && !a.health.trial && !a.health.probe {
			a.timer.Reset(max(a.health.until.Sub(now), pollFloor))
		}
		return // a claim lapses by itself
	}
	if !some && !a.claimed {
		return
	}
	idle := a.failing != nil || s.roomLocked(a, now) == 0 || !a.order.Fresh() && !a.pressed()
	if some && a.next.After(now) && idle {
		a.timer.Reset(a.next.Sub(now))
		return
	}
	bids := s.bidsLocked(a, now)
	if some && len(bids) == 0 && a.alone == nil {
		return // they all bid elsewhere, and are heard of soon
	}
	a.calling = true
	a.calls++
	call := s.callOf(a, bids)
	trial := a.health.out()
	s.running.Go(func() { s.call(a, call, bids, trial) })
}

// unsure reports whether a call has failed that may fare better at once.
func (a *agent) unsure() bool { return a.failing != nil && a.misses < missesMost }

// pressed reports whether somebody asks who may not wait: it has to know now.
func (a *agent) pressed() bool {
	return slices.ContainsFunc(a.fresh, func(w *waiter) bool { return !w.Queue })
}

// bidsLocked picks whom to bid for at a: the best by its tags that do not bid
// elsewhere at this moment, for nobody may be granted two slots.
func (s *Set) bidsLocked(a *agent, now time.Time) []*waiter {
	most, busy := bidsPerCall+1, 0
	if a.health.out() {
		most = 1
	}
	most = min(most, s.roomLocked(a, now))
	for _, o := range s.agents {
		if o.calling {
			busy += bidsPerCall + 1
		}
	}
	var bids []*waiter
	for _, it := range a.order.Best(now, most+busy, nil) {
		if w := it.Value; w.bidding == nil && len(bids) < most {
			w.bidding = a
			bids = append(bids, w)
		}
	}
	return bids
}

// callOf words a call for bids at a.
func (s *Set) callOf(a *agent, bids []*waiter) limiter.Turns {
	call := limiter.Turns{
		Slots: a.slots, Most: bidsPerCall, Rest: pollFloor + callTime, Grace: claimGrace,
		Rate: limiter.Rate{Limit: int64(a.Slots), Per: a.hold, Burst: int64(a.Slots)},
		More: int64(a.order.Len() - len(bids)), Bids: make([]limiter.Bid, len(bids)),
	}
	if a.health.out() { // one request shows whether it is well again
		call.Most = 1
	}
	for i, w := range bids {
		call.Bids[i] = limiter.Bid{Tenant: w.Tenant, Weight: w.Weight, Cost: 1, Since: a.order.Since(w.itemAt(a))}
		if a.alone != nil && !a.alone.fleet { // tags of here mean nothing there
			call.Bids[i].Since = limiter.Unknown
		}
	}
	return call
}

// itemAt is w's in the order of a.
func (w *waiter) itemAt(a *agent) *fairq.TagItem[*waiter] {
	for i := range w.places {
		if w.places[i].agent == a {
			return &w.places[i].item
		}
	}
	return nil
}

// call asks the store for slots of a and tells the waiters. trial: what is granted shows
// whether a is well again.
func (s *Set) call(a *agent, call limiter.Turns, bids []*waiter, trial bool) {
	v, err := s.store.Turns(context.WithoutCancel(s.ctx), call)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	a.calling, a.claimed = false, err == nil && v.Wait != limiter.Never
	for _, w := range bids {
		w.bidding = nil
	}
	a.next, a.failing = now, err
	if a.misses++; err == nil {
		a.misses = 0
	}
	switch {
	case err != nil:
		a.next = now.Add(retryStore)
	case v.Wait > 0 && v.Wait != limiter.Never && !a.freed:
		a.next = now.Add(min(max(v.Wait, pollFloor), pollCeiling))
	case len(bids) == 0 && a.alone != nil: // it only looks whether the store is back
		a.next = now.Add(retryStore)
	}
	a.freed = false
	if err == nil {
		s.orderBy(a, v.Local, len(bids) > 0, now)
		for i, w := range bids {
			s.bidLocked(a, w, v, i, trial)
		}
	}
	s.heardLocked(a, bids, now)
}

// bidLocked carries out what became of the i-th bid, that of w.
func (s *Set) bidLocked(a *agent, w *waiter, v limiter.TurnsVerdict, i int, trial bool) {
	b := v.Bids[i]
	if b.State == limiter.BidGranted && s.roomLocked(a, time.Now()) == 0 { // it was not known yet
		s.store.Settle(limiter.Settlement{Free: []limiter.SlotID{a.slots}, Local: v.Local})
		b.State, a.next = limiter.BidWaits, time.Now().Add(retryStore)
	}
	if v.Local {
		b.Finish, b.Since = a.alone.turn(w.Tenant, w.Weight, b.State == limiter.BidGranted)
	}
	a.order.Learn(string(w.Tenant), b.Finish, b.Since)
	if b.State != limiter.BidGranted {
		return
	}
	if w.done { // it has left meanwhile
		s.store.Settle(limiter.Settlement{Free: []limiter.SlotID{a.slots}, Local: v.Local})
		a.next = time.Time{}
		return
	}
	a.held++
	trial = trial && a.health.begin(time.Now())
	a.order.Remove(w.itemAt(a), true)
	s.tellLocked(w, answer{slot: &Slot{set: s, agent: a, local: v.Local, since: time.Now(), trial: trial}})
}

// heardLocked goes on after a call of a: those who bid in vain may be bid for
// elsewhere, and newcomers who were told to wait ask elsewhere.
func (s *Set) heardLocked(a *agent, bids []*waiter, now time.Time) {
	if a.next.After(now) && !a.unsure() {
		for _, w := range slices.Clone(a.fresh) {
			if !w.done && w.since < a.calls {
				w.down = a.failing
				s.moveOnLocked(a, w, now)
			}
		}
	}
	s.turnLocked(a, now)
	for _, w := range bids {
		for i := range w.places {
			if o := w.places[i].agent; o != a && (o.claimed || o.order.Len() > 0) {
				s.turnLocked(o, now)
			}
		}
	}
}
