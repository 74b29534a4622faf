package agents

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/fairq"
)

// Want says who wants a slot, and where.
type Want struct {
	// Agents are able to serve, best first where they are equally loaded. Names
	// that are not configured are left out.
	Agents []string
	Tenant limiter.ID // whom fairness is between; not empty
	Weight float64    // its share, in (0, 1000]
	Queue  bool       // false: it may not wait
	Batch  bool       // it goes behind whoever is waited for now (see the package)
	// Waited is how much of the longest wait is used up already, by earlier waits
	// of the same turn. Zero or less: nothing.
	Waited time.Duration
	// Until is when it is not worth to wait any longer; zero: as long as may be.
	Until time.Time
}

// Saturated is the error of a request that got no slot.
type Saturated struct {
	Reason limiter.Reason // ReasonCapacity, ReasonQueueTimeout or limiter.ReasonQueueFull
	// RetryAfter is when a slot may be expected to be free, 1 s to 60 s.
	RetryAfter time.Duration
	Waited     time.Duration // earlier waits of the turn included
	// Down says that no agent that could serve it is well. The reason is then
	// ReasonCapacity, whether it may wait or not.
	Down bool
}

// Error implements error.
func (e *Saturated) Error() string {
	return fmt.Sprintf("agents: no slot: %s after %v, retry after %v", e.Reason, e.Waited, e.RetryAfter)
}

// waiter is one request that wants a slot. It is guarded by Set.mu.
type waiter struct {
	Want
	start   time.Time
	places  []place // of the agents that can serve it, in the order it asks them
	at      int     // whom it asks now; len(places): it has asked everywhere
	since   uint64  // calls that agent had begun before
	bidding *agent  // whose call under way has its bid; nil: none
	line    *agent  // in whose line it is counted; nil: in none
	late    bool    // it has used up all of its wait before
	down    error   // why an agent could not be asked
	done    bool    // answered, or gone
	turn    chan answer
}

// place is a waiter's at one agent.
type place struct {
	agent *agent
	item  fairq.TagItem[*waiter]
}

// answer is a slot or an error.
type answer struct {
	slot *Slot
	err  error
}

// settled reports whether w has asked everywhere and stands in line.
func (w *waiter) settled() bool { return w.at == len(w.places) }

// Acquire waits for a slot of one of w's agents, at most as long as Config says,
// counted from when the request first began to wait. The error is a *Saturated,
// ErrDraining, ctx.Err(), or wraps limiter.ErrUnavailable where the store was out of
// reach and the request may not wait. The Slot has to be freed.
func (s *Set) Acquire(ctx context.Context, want Want) (*Slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &waiter{Want: want, start: time.Now(), turn: make(chan answer, 1)}
	if w.Batch {
		w.Tenant, w.Weight = limiter.Hash(batchOf, string(w.Tenant)), w.Weight/batchBehind
	}
	s.mu.Lock()
	timeout := s.timeout - max(0, w.Waited)
	if !w.Until.IsZero() {
		timeout = min(timeout, w.Until.Sub(w.start))
	}
	w.late = w.Queue && timeout <= 0
	w.Queue = w.Queue && !w.late
	s.joinLocked(w)
	s.mu.Unlock()
	var over <-chan time.Time // nobody but those who wait is in a hurry of ours
	if w.Queue {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		over = timer.C
	}
	var out answer
	select {
	case a := <-w.turn:
		return s.leave(w, a)
	case <-over:
		out.err = &Saturated{Reason: ReasonQueueTimeout}
	case <-ctx.Done():
		out.err = ctx.Err()
	}
	s.mu.Lock()
	select {
	case a := <-w.turn: // at the same instant
		if a.slot != nil && ctx.Err() == nil {
			out = a
		} else if a.slot != nil {
			defer a.slot.Cancel()
		}
	default:
		s.dropLocked(w)
		s.withdrawLocked(time.Now())
	}
	s.mu.Unlock()
	return s.leave(w, out)
}

// leave words the answer of w, and counts it.
func (s *Set) leave(w *waiter, a answer) (*Slot, error) {
	waited := max(0, w.Waited) + time.Since(w.start)
	if a.slot != nil {
		a.slot.waited = waited
		s.metrics.granted(a.slot.agent.Name, time.Since(w.start))
		return a.slot, nil
	}
	if sat, ok := a.err.(*Saturated); ok {
		sat.Waited, sat.RetryAfter = waited, s.retry(w)
	}
	s.metrics.refuse(a.err)
	return nil, a.err
}

const (
	// batchOf is the dimension of tenants that stand for others' batch work.
	batchOf limiter.Dimension = "batch"
	// batchBehind is how many requests of a tenant that are waited for go before one of
	// its batch work, where both wait.
	batchBehind = 64
)

// joinLocked has a newcomer ask the agents that can serve it, one after the other.
func (s *Set) joinLocked(w *waiter) {
	if s.closed {
		s.tellLocked(w, answer{err: errClosed})
		return
	}
	for _, name := range w.Agents {
		if a := s.agents[name]; a != nil {
			w.places = append(w.places, place{agent: a})
		}
	}
	open := func(p place) bool { return p.agent.health.open(w.start) }
	if !slices.ContainsFunc(w.places, open) {
		s.tellLocked(w, answer{err: &Saturated{Reason: ReasonCapacity, Down: true}})
		return
	}
	load := make(map[*agent]float64, len(w.places))
	for _, p := range w.places {
		load[p.agent] = s.loadLocked(p.agent, w.start)
	}
	slices.SortStableFunc(w.places, func(p, q place) int { return cmp.Compare(load[p.agent], load[q.agent]) })
	for i := range w.places {
		w.places[i].item.Value = w // they do not move any more
	}
	s.waiters[w] = struct{}{}
	s.askLocked(w, w.start)
}

// unwell is the load of an agent that is out: more than that of any other.
const unwell = 1e6

// loadLocked is how much of a is in use, 1 when all of it, as far as is known. One
// that had to be waited for a moment ago is full whatever the sum says.
func (s *Set) loadLocked(a *agent, now time.Time) float64 {
	others, waiting := s.othersLocked(a)
	load := float64(a.held+others) / float64(max(1, a.Slots))
	if a.next.After(now) {
		load = max(load, 1)
	}
	if a.health.out() {
		load += unwell
	}
	return load + float64(a.line+waiting)/float64(max(1, a.Slots))
}

// askLocked moves w on to the first agent that has to be asked whether a slot is
// free. At one where others wait, whose turn comes before, it only takes its place.
func (s *Set) askLocked(w *waiter, now time.Time) {
	for ; w.at < len(w.places); w.at++ {
		p := &w.places[w.at]
		a := p.agent
		a.order.Push(&p.item, string(w.Tenant), w.Weight, 1)
		if !a.health.open(now) {
			continue
		}
		a.fresh, w.since = append(a.fresh, w), a.calls
		s.pumpLocked(a, now)
		if a.calling || w.bidding != nil || a.unsure() {
			return // to be heard of
		}
		a.fresh = slices.DeleteFunc(a.fresh, func(o *waiter) bool { return o == w })
	}
	s.standLocked(w, now)
}

// standLocked has w, which found no slot, wait in the shortest line, or go.
func (s *Set) standLocked(w *waiter, now time.Time) {
	switch {
	case !w.Queue && w.down != nil:
		s.tellLocked(w, answer{err: w.down})
		return
	case w.late:
		s.tellLocked(w, answer{err: &Saturated{Reason: ReasonQueueTimeout}})
		return
	case !w.Queue:
		s.tellLocked(w, answer{err: &Saturated{Reason: ReasonCapacity}})
		return
	case s.draining:
		s.tellLocked(w, answer{err: ErrDraining})
		return
	}
	room := 0
	for _, p := range w.places {
		_, others := s.othersLocked(p.agent)
		left := p.agent.Depth - p.agent.line - others
		if w.Batch {
			left -= p.agent.Depth / 4 // which is for callers who wait
		}
		if left > room {
			room, w.line = left, p.agent
		}
	}
	if w.line == nil {
		s.tellLocked(w, answer{err: &Saturated{Reason: limiter.ReasonQueueFull}})
		return
	}
	w.line.line++
	for _, p := range w.places {
		s.pumpLocked(p.agent, now)
	}
}

// tellLocked gives w its answer, the only one it gets.
func (s *Set) tellLocked(w *waiter, a answer) {
	if !w.done {
		s.dropLocked(w)
		w.turn <- a
	}
}

// dropLocked takes w out of everything.
func (s *Set) dropLocked(w *waiter) {
	w.done = true
	delete(s.waiters, w)
	if w.line != nil {
		w.line.line--
		w.line = nil
	}
	for i := range w.places {
		p := &w.places[i]
		p.agent.order.Remove(&p.item, false)
		if i == w.at {
			p.agent.fresh = slices.DeleteFunc(p.agent.fresh, func(o *waiter) bool { return o == w })
		}
	}
}

// withdrawLocked gives up claims for nobody.
func (s *Set) withdrawLocked(now time.Time) {
	for _, a := range s.agents {
		if a.claimed && a.order.Len() == 0 {
			s.pumpLocked(a, now)
		}
	}
}

// Bounds of what one is told to wait. Below a second there is no Retry-After, and
// above a minute official SDKs use their own idea.
const (
	minRetry = time.Second
	maxRetry = time.Minute
)

// retry is when the first of w's agents can be expected to have a slot for one who
// comes then: those before it have to be served, at the pace at which slots come
// free when all are held.
func (s *Set) retry(w *waiter) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, least := time.Now(), maxRetry
	for _, p := range w.places {
		a := p.agent
		_, others := s.othersLocked(a)
		wait := a.hold * time.Duration(a.line+others+1) / time.Duration(max(1, a.Slots))
		least = min(least, max(wait, a.health.until.Sub(now)))
	}
	return max(least, minRetry)
}
