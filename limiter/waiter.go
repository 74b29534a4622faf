package limiter

import (
	"context"
	"time"

	"github.com/headway-limiter/headway/limiter/fairq"
)

// waiterState says where a waiter stands.
type waiterState uint8

const (
	outside  waiterState = iota // in no line
	queued                      // in its line's queue
	asking                      // out of the queue, asking the store
	answered                    // out of the queue, told by a call for turns
)

// answer is what wakes a waiter.
type answer struct {
	ask     bool // it is its turn to ask the store itself
	verdict Verdict
	err     error  // of the call for turns; ErrUnavailable
	reason  Reason // why waiting longer is in vain
}

// waiter is one request in a line. Its own goroutine sleeps on turn.
type waiter struct {
	request  Request
	tenant   Tenant      // its weight changes with the configuration, while it is queued
	since    time.Time   // when it began to wait
	deadline time.Time   // when it stops waiting
	turn     chan answer // of capacity 1
	cost     float64     // of a turn in its line's pool: 1
	size     float64     // what disciplines by cost share: its tokens, at least 1

	lines  *lines        // that it waits in
	came   uint64        // when its request first waited, as a number
	waited time.Duration // in the end, in this set of lines

	// demand follows the configuration while the waiter is queued, guarded by
	// lines.mu; else it stays, and is its goroutine's.
	demand *demand

	// Guarded by lines.mu.
	item      fairq.Item[*waiter]    // in a line of rounds
	bid       fairq.TagItem[*waiter] // in a line of turns
	line      *line
	state     waiterState
	notBefore time.Time // its tenant's own buckets have nothing before
	failing   time.Time // since when the store has not answered it; zero: it has
	passed    bool      // its tenant's lead has been looked at, and was small enough
	ahead     int       // waiters before it in this line, when last looked at
	position  int       // the smallest so far; 0 before the first look
	scope     Scope
	first     struct { // as told when it was queued
		position int
		estimate time.Duration
	}
}

func newWaiter(r Request, d *demand, t Tenant, now, deadline time.Time) *waiter {
	w := &waiter{
		request: r, demand: d, tenant: t, since: now, deadline: deadline, turn: make(chan answer, 1),
		cost: 1, size: float64(max(1, d.tokens)),
	}
	w.item.Value, w.bid.Value = w, w
	return w
}

// sleep blocks until w is woken or there is a reason to give up. Nothing is
// lost when both happen: leaving the line passes a turn on, and gives back what
// a call has taken.
func (s *lines) sleep(ctx context.Context, w *waiter, expired <-chan time.Time) (answer, Reason) {
	select {
	case a := <-w.turn:
		return a, a.reason
	case <-s.drained:
		return answer{}, ReasonDraining
	case <-expired:
		return answer{}, ReasonDeadlineExceeded
	case <-ctx.Done():
		if ctx.Err() == context.DeadlineExceeded {
			return answer{}, ReasonDeadlineExceeded
		}
		return answer{}, ReasonClientGone
	}
}

// readyAt is the earliest instant at which w may ask.
func (w *waiter) readyAt(now time.Time) time.Time {
	at := now
	for _, t := range [...]time.Time{w.line.restTill, w.notBefore} {
		if t.After(at) {
			at = t
		}
	}
	return at
}

// locateLocked works out where w stands: over the fleet when the view is
// fresh, else in this process. Its position never rises.
func (s *lines) locateLocked(w *waiter, now time.Time) {
	if w.state == outside || w.state == answered {
		return // what it was told at the door, or with its answer, stands
	}
	ahead := 0
	if w.state == queued {
		ahead = w.line.queue.ahead(w) + w.line.asking
	}
	spacing, name := w.line.headway.spacing(now), w.line.bucket.pool()
	scope := ScopeReplica
	w.ahead = ahead
	if view := s.fleet.View(); view.Fresh && view.Members > 1 {
		scope = ScopeFleet
		ahead = view.Ahead(name, ahead, spacing)
	}
	if w.position == 0 {
		w.position = ahead + 1
		w.first.position = w.position
		w.first.estimate = s.estimateLocked(w, now)
	}
	w.position = min(w.position, ahead+1)
	w.scope = scope
}

// estimateLocked foresees the wait of w: in a line of turns by virtual time,
// else the limiter's own wait plus, for each waiter ahead of it here, the gap
// that the fleet's view lets expect between grants here, or, at the first, the
// bucket's own.
func (s *lines) estimateLocked(w *waiter, now time.Time) time.Duration {
	least := w.readyAt(now).Sub(now)
	if q, ok := w.line.queue.(*fifo); ok { // the refill that all before it need, and it
		r := w.demand.rate(w.line.bucket)
		if w.ahead == 0 || r.Limit == 0 {
			return least
		}
		return least + lasting(q.before(w, w.line.restTill.After(now))*float64(r.Per)/float64(r.Limit))
	}
	if t := w.line.turns; t != nil && t.pace.perSec > 0 {
		return max(least, t.estimate(w))
	}
	spacing := w.line.headway.spacing(now)
	if view := s.fleet.View(); view.Fresh && view.Members > 1 {
		spacing = view.Expect(w.line.bucket.pool(), spacing)
	}
	if r := w.demand.rate(w.line.bucket); spacing == 0 && r.Limit > 0 { // nothing was granted yet
		spacing = lasting(float64(r.Per) * w.cost / float64(r.Limit))
	}
	return least + lasting(float64(w.ahead)*float64(spacing))
}

// info tells an admitted request what it was told at the start and how long
// it took.
func (w *waiter) info(now time.Time) *LineInfo {
	return &LineInfo{
		TenantDimension: w.tenant.Dimension, Position: w.first.position,
		Waited: now.Sub(w.since), Estimated: w.first.estimate, Scope: w.scope,
	}
}

// refusedInfo tells a refused request where it stood at the end.
func (w *waiter) refusedInfo(now time.Time) *LineInfo {
	info := w.info(now)
	info.Position = w.position
	return info
}

// headway is the smoothed gap between consecutive grants of a line while
// somebody waited: an exponential average over about the last 16 gaps. The
// mean is used and not the median, since gaps are skewed and a median
// promises too little.
type headway struct {
	gap  time.Duration // 0: unknown
	last time.Time     // of the latest grant with waiters behind; zero: none
}

// headwayWeight is the weight of the newest gap.
const headwayWeight = 1.0 / 16

// grant records one grant; more says whether others still wait.
func (h *headway) grant(now time.Time, more bool) {
	if !h.last.IsZero() {
		gap := now.Sub(h.last)
		if h.gap == 0 {
			h.gap = max(gap, 1)
		} else {
			h.gap += time.Duration(headwayWeight * float64(gap-h.gap))
		}
	}
	h.last = time.Time{}
	if more {
		h.last = now
	}
}

// spacing returns the smoothed gap, 0 if unknown. A stall shows at once: a
// gap that is still open counts when it is longer than the average.
func (h *headway) spacing(now time.Time) time.Duration {
	if h.gap > 0 && !h.last.IsZero() {
		return max(h.gap, now.Sub(h.last))
	}
	return h.gap
}

// pool names b for the fleet: the same text on every replica.
func (b BucketID) pool() string { return string(b.Dimension) + ":" + string(b.ID) }
