package limiter

import (
	"context"
	"time"

	"github.com/headway-limiter/headway/limiter/fairq"
)

const (
	// bidsPerCall is how many turns one call may grant. One more bid rides
	// along, so that a head is left to claim the next turn for.
	bidsPerCall = 8
	// pollFloor is the least rest between two calls that found nothing.
	pollFloor = 10 * time.Millisecond
	// maxPatience bounds the rest between two calls beyond what was told: so late
	// may one notice that others have left.
	maxPatience = 200 * time.Millisecond
	// callTime is what a call takes about, besides the rest before it.
	callTime = 2 * time.Millisecond
	// claimGrace is how long a claim outlives the rest of its replica.
	claimGrace = 50 * time.Millisecond
	// paceWindow is over how long virtual time is measured.
	paceWindow = 5 * time.Second
)

// turns is how a line asks in turn with the whole fleet: with one call at a
// time for several waiters at once, of which the store grants those whose turn
// it is (see [Turns]).
type turns struct {
	order   *fairq.Tagged[*waiter]
	rate    Rate
	calling bool
	claimed bool      // the store holds a claim of ours
	busy    time.Time // when somebody was last seen to wait
	next    time.Time // no call before, unless somebody new came
	pace    pace
	bids    []*fairq.TagItem[*waiter] // of the call under way
	// local says that the store is out, and tags are those of gossip's accounts:
	// on another scale than the store's.
	local bool
}

// hear takes over the virtual time of an answer, or that the store is out.
func (t *turns) hear(now time.Time, v TurnsVerdict) {
	if t.local && !v.Local {
		t.order.Forget()
	}
	if t.local = v.Local; v.Local {
		t.pace = pace{}
	} else {
		t.pace.hear(now, v.After)
	}
}

// busyFor is how long a pool is taken for contended after somebody waited.
const busyFor = time.Second

// contended reports whether a newcomer would probably have to wait: then it
// joins the line at once, where one call bids for it, instead of asking first
// and being told so.
func (t *turns) contended() bool { return t != nil && time.Since(t.busy) < busyFor }

// pace is the measured speed of a pool's virtual time.
type pace struct {
	at     [2]time.Time // of an older and a newer anchor
	v      [2]float64
	latest float64
	heard  time.Time
	perSec float64 // 0: unknown
}

// hear records the virtual time told at now.
func (p *pace) hear(now time.Time, v float64) {
	if v < p.latest || now.Sub(p.heard) > paceWindow { // state lost, or idle: begin again
		*p = pace{}
	}
	if p.at[0].IsZero() {
		p.at, p.v = [2]time.Time{now, now}, [2]float64{v, v}
	}
	if now.Sub(p.at[1]) > paceWindow/2 {
		p.at[0], p.v[0] = p.at[1], p.v[1]
		p.at[1], p.v[1] = now, v
	}
	p.latest, p.heard = v, now
	if d := now.Sub(p.at[0]).Seconds(); d > 0.1 {
		p.perSec = (v - p.v[0]) / d
	}
}

// estimate is the wait of w by virtual time: the distance from now to the
// finish of its turn, divided by the measured speed. What this replica's
// earlier waiters of the tenant take counts in proportion to the part of the
// tenant's service that happens here.
func (t *turns) estimate(w *waiter) time.Duration {
	start, before, known := t.order.Tags(&w.bid)
	if !known {
		start = t.pace.latest // as of one that has just come to wait
	}
	distance := max(0, start-t.pace.latest) + (before+w.cost/w.tenant.Weight/2)/t.order.Share(&w.bid)
	return lasting(distance / t.pace.perSec * float64(time.Second))
}

// estimateSlack is what the 90th percentile of real waits exceeds estimates by.
const estimateSlack = 1.5

// inVain reports whether w is not to be expected to have its turn in time.
func (t *turns) inVain(w *waiter, now time.Time) bool {
	return t.pace.perSec > 0 && now.Sub(t.pace.heard) < paceWindow &&
		time.Duration(estimateSlack*float64(t.estimate(w))) > w.deadline.Sub(now)
}

// patience is how long the head would rather sleep than ask again: half of what
// virtual time foresees, at most half the time in which the bucket overflows.
// The wait that a call tells counts one claim per replica, and so is too short
// where many stand behind the claims or bid for the same tenant.
func (t *turns) patience(head *fairq.TagItem[*waiter]) time.Duration {
	if _, _, known := t.order.Tags(head); !known || t.pace.perSec == 0 {
		return 0
	}
	half := lasting(float64(t.rate.Burst) / float64(t.rate.Limit) * float64(t.rate.Per) / 2)
	return min(maxPatience, half, t.estimate(head.Value)/2)
}

// pumpTurnsLocked calls for the waiters of ln if it is time, else arranges to
// be called again.
func (s *lines) pumpTurnsLocked(ln *line, now time.Time) {
	t := ln.turns
	ln.timer.Stop()
	if t.calling || s.closed {
		return
	}
	at, ok := t.order.Ready(now)
	if !ok && !t.claimed {
		return
	}
	if ok && at.Before(t.next) && !t.order.Fresh() {
		at = t.next
	}
	if ok && at.After(now) {
		ln.timer.Reset(at.Sub(now))
		return
	}
	if s.asking >= s.cfg.MaxInFlight {
		s.starveLocked(ln)
		return
	}
	if t.local {
		ln.followAccounts()
	}
	t.bids = t.order.Best(now, bidsPerCall+1, t.bids)
	if s.recastLocked(ln, t.bids) {
		s.pumpTurnsLocked(ln, now)
		return
	}
	t.calling = true
	s.asking++
	call := Turns{
		Pool: ln.bucket, Rate: t.rate, Most: bidsPerCall, Grace: claimGrace, Bids: make([]Bid, len(t.bids)),
		Rest: pollFloor + callTime, More: int64(t.order.Waiting()),
	}
	waiters := make([]*waiter, len(t.bids))
	if len(t.bids) > 0 {
		call.Grace += t.patience(t.bids[0])
	}
	for i, it := range t.bids {
		w := it.Value
		waiters[i] = w
		call.Bids[i] = Bid{
			Tenant: w.tenant.ID, Weight: w.tenant.Weight, Cost: int64(w.cost),
			Since: t.order.Since(it), Rest: w.demand.without(ln.bucket),
		}
		if t.local {
			call.Bids[i].Since = Unknown
		}
		call.More -= call.Bids[i].Cost
	}
	version := s.version
	s.calls.Go(func() { s.call(ln, call, waiters, version) })
}

// call asks the store for turns and tells the waiters. What it is told of waits
// counts as long as the configuration is of that version.
func (s *lines) call(ln *line, call Turns, waiters []*waiter, version uint64) {
	v, err := s.store.Turns(context.Background(), call)
	s.mu.Lock()
	defer s.mu.Unlock()
	now, t := time.Now(), ln.turns
	t.calling, t.claimed = false, err == nil && v.Wait != Never
	s.asking--
	if err != nil {
		t.next = now
		for _, w := range waiters {
			s.tellLocked(w, answer{err: err})
		}
	} else {
		t.hear(now, v)
		t.next = now
		if len(waiters) > 0 {
			ln.restTill = now
		}
		if v.Wait > 0 {
			t.busy = now
		}
		if v.Wait > 0 && version == s.version {
			t.next, ln.restTill = now.Add(max(v.Wait, pollFloor, call.Grace-claimGrace)), now.Add(v.Bucket)
		}
		for i, w := range waiters {
			if !v.Local {
				t.order.Learn(string(w.tenant.ID), v.Bids[i].Finish, v.Bids[i].Since)
			}
			s.bidLocked(ln, w, now, v.Bids[i])
		}
	}
	s.pumpLocked(ln, now)
	s.feedLocked(now)
}

// bidLocked carries out what became of one waiter's bid.
func (s *lines) bidLocked(ln *line, w *waiter, now time.Time, v BidVerdict) {
	if v.Err != nil {
		s.tellLocked(w, answer{err: v.Err})
		return
	}
	if v.State == BidWaits {
		if w.state == queued && ln.restTill.After(w.deadline) {
			s.locateLocked(w, now)
			s.tellLocked(w, answer{reason: ReasonWaitExceedsBudget})
		}
		return
	}
	verdict := w.demand.with(ln.bucket, v.Rest)
	switch {
	case v.State == BidGranted && w.line != ln || w.state != queued:
		if v.State == BidGranted { // it left meanwhile
			s.store.Settle(ln.undo(w, v.Rest.Local))
		}
	case v.State == BidGranted:
		ln.turns.order.Remove(&w.bid, true)
		s.tellLocked(w, answer{verdict: verdict})
	default:
		_, wait, narrower, ok := w.demand.contended(verdict)
		w.notBefore = now.Add(max(wait, narrower))
		if w.demand.version != s.version {
			return // it bids anew, for what it needs now
		}
		if ok && !w.notBefore.After(w.deadline) {
			ln.turns.order.Rest(now, &w.bid, w.notBefore)
			return
		}
		s.tellLocked(w, answer{verdict: verdict})
	}
}

// undo gives back what a turn of w took at ln, and the turn itself. local is as
// in the verdict that granted it.
func (ln *line) undo(w *waiter, local bool) Settlement {
	s := w.demand.undo()
	s.Local = local
	for i := range s.Adjust {
		if a := &s.Adjust[i]; ln.turns != nil && a.Bucket == ln.bucket {
			a.Tenant, a.Weight = w.tenant.ID, w.tenant.Weight
		}
	}
	return s
}

// tellLocked takes w out of its line's order and hands it its answer.
func (s *lines) tellLocked(w *waiter, a answer) {
	if w.state != queued {
		return
	}
	w.line.queue.remove(w)
	w.state, w.line.touched = answered, time.Now() // not counted as a waiter, it may come back
	w.turn <- a
}
