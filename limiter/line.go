package limiter

import (
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/headway-limiter/headway/limiter/fairq"
)

const (
	// restSpread is the largest part of a rest by which replicas spread their
	// next attempt at a shared bucket, so that the same one does not always win.
	restSpread = 0.125
	// maxSpread bounds that spread: a bucket with a long refill is not left
	// idle for longer.
	maxSpread = 10 * time.Millisecond
	// outagePatience is how long a waiter bears a store that does not answer,
	// asking again each outageRetry; past it the outage policy applies.
	outagePatience = 180 * time.Millisecond
	outageRetry    = 20 * time.Millisecond
	// lineMemory is how long an empty line keeps its spacing.
	lineMemory = 10 * time.Second
)

// lines holds every wait line of this process and their common bounds.
type lines struct {
	manner  manner
	past    *lines   // whose waiters these must not overtake at token budgets; nil: nobody's
	after   []*lines // whose waiters go before these
	store   Store
	fleet   Fleet
	metrics *metrics
	calls   sync.WaitGroup // calls for turns under way
	byCost  bool           // the discipline shares cost, and wants to know the real one

	mu       sync.Mutex
	cfg      FairConfig
	version  uint64                // of the configuration
	demandOf func(Request) *demand // by it
	byBucket map[BucketID]*line
	depth    map[ID]int // waiters by tenant; no entry is zero
	members  members    // the same one by one, of batch work; nil: nobody needs to know
	total    int        // waiters, the sum of depth
	asking   int        // waiters asking the store now, <= cfg.MaxInFlight
	starved  []*line    // lines that had a ready waiter but no room to ask, oldest first
	draining bool
	drained  chan struct{} // closed when draining begins
	closed   bool          // no further call for turns
}

// line is the wait line of one exhausted bucket. The owner's mutex guards it.
type line struct {
	bucket   BucketID
	queue    order       // those who do not ask right now
	turns    *turns      // how it asks in turn with the fleet; nil: each waiter for itself
	leads    *leads      // the queue where gossip orders it, else nil
	accounts *accounts   // who was served what; nil: only one tenant can be
	asking   int         // its waiters asking now, <= window
	window   int         // how many may ask at once, 1..cfg.MaxInFlight
	restTill time.Time   // the bucket has nothing before
	restFor  *waiter     // whose cost it will hold then
	starving bool        // stands in lines.starved
	timer    *time.Timer // pumps when somebody becomes ready
	headway  headway
	touched  time.Time // last join, grant or answer to a waiter
}

// order is whose turn it is inside one line. Taken waiters are not in it.
type order interface {
	push(now time.Time, w *waiter)
	next(now time.Time) *waiter       // takes the one whose turn it is to ask for itself
	requeue(now time.Time, w *waiter) // after a denial: ahead of its tenant's later ones, resting until w.notBefore
	remove(w *waiter)
	hold(until time.Time)
	ready(now time.Time) (time.Time, bool)
	ahead(w *waiter) int
	length() int
	reweigh(Tenant)
	Wake() // nobody rests any more
	loads(n int) []fairq.Load
	Standings(n int) []fairq.Standing[*waiter]
	Dump(io.Writer)
}

// place is where a refused request may wait.
type place struct {
	bucket BucketID
	// wait is until the bucket can admit somebody; 0 means unknown (a newcomer
	// that joined without asking).
	wait time.Duration
	// tenantWait is until narrower buckets of the request's own can.
	tenantWait time.Duration
}

func newLines(kind manner, c *Config, store Store, fl Fleet, m *metrics) *lines {
	cfg := kind.config(c)
	return &lines{
		manner: kind, cfg: cfg, byCost: cfg.Discipline == fairq.DRR || cfg.Discipline == fairq.SFQ, store: store, fleet: fl, metrics: m,
		byBucket: map[BucketID]*line{}, depth: map[ID]int{}, drained: make(chan struct{}),
	}
}

// occupied returns the widest bucket of d that somebody waits for, here or,
// lately, anywhere. A newcomer joins that line instead of asking.
func (s *lines) occupied(d *demand) (found BucketID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total == 0 && s.manner != fair {
		return found, false
	}
	s.manner.buckets(d, func(b BucketID) bool {
		ln := s.byBucket[b]
		found, ok = b, ln.waiters() > 0 || (ln != nil && ln.turns.contended())
		return !ok
	})
	return found, ok
}

// waiters counts those who stand in ln, asking or not; nil has none.
func (ln *line) waiters() int {
	if ln == nil {
		return 0
	}
	return ln.queue.length() + ln.asking
}

// join puts w at the end of its tenant's queue, or says which bound forbids
// it. w knows its position and estimate afterwards in both cases.
func (s *lines) join(w *waiter, at place) Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	at = s.timelyLocked(w, at)
	known := s.byBucket[at.bucket] != nil
	ln := s.lineLocked(at.bucket, w)
	s.enterLocked(ln, w, now, at)
	if ln.turns != nil {
		ln.turns.busy = now
	}
	s.makeRoomLocked(w.tenant.ID, now)
	reason := s.boundLocked(w, now)
	s.members.add(w)
	s.depth[w.tenant.ID]++
	s.total++
	if reason != "" {
		s.leaveLocked(w)
	}
	s.pumpLocked(ln, now)
	if reason != "" && !known && ln.turns == nil { // whoever is turned away has begun no line
		s.forgetLocked(ln)
	}
	s.gaugeLocked()
	return reason
}

// boundLocked names the bound that w would exceed, "" for none.
func (s *lines) boundLocked(w *waiter, now time.Time) Reason {
	depth := s.depth[w.tenant.ID]
	switch {
	case s.draining:
		return ReasonDraining
	case s.total >= s.cfg.MaxTotalQueued:
		return ReasonQueueFull
	case depth >= s.cfg.MaxQueueDepthPerTenant && s.manner == batch:
		return ReasonQueueFull // there is no other bound that it could mean
	case depth >= s.cfg.MaxQueueDepthPerTenant:
		return ReasonTenantQueueFull
	case depth == 0 && len(s.depth) >= s.cfg.MaxTenants:
		return ReasonTenantTableFull
	case s.tooLateLocked(w, now), w.line.turns != nil && w.line.turns.inVain(w, now):
		return ReasonWaitExceedsBudget
	}
	return ""
}

// tooLateLocked reports whether w waits in vain. Batch work may be luckier than it
// looks, and has to wait anyway.
func (s *lines) tooLateLocked(w *waiter, now time.Time) bool {
	switch s.manner {
	case batch:
		return false
	case deferral:
		return s.estimateLocked(w, now) >= w.deadline.Sub(now)
	}
	return w.readyAt(now).After(w.deadline)
}

// lineLocked returns the line of b, made when missing for w to stand in.
func (s *lines) lineLocked(b BucketID, w *waiter) *line {
	ln := s.byBucket[b]
	if ln == nil {
		ln = &line{bucket: b, window: 1}
		if s.manner == fair && s.cfg.shares(b) {
			ln.accounts = newAccounts()
		}
		switch {
		case s.manner == deferral:
			ln.queue = &fifo{}
		case s.cfg.inTurn(b):
			q := fairq.NewTagged[*waiter]()
			ln.queue, ln.turns = tagged{q}, &turns{order: q, rate: w.demand.rate(b)}
		case s.cfg.Scope == FairGossip && ln.accounts != nil:
			ln.leads = newLeads(ln.accounts, w.demand.rate(b))
			ln.queue = ln.leads
		default:
			ln.queue = rounds{fairq.New[*waiter](fairq.Config{Discipline: s.cfg.Discipline})}
		}
		ln.timer = time.AfterFunc(time.Hour, func() { s.pump(ln) })
		ln.timer.Stop()
		s.byBucket[b] = ln
	}
	return ln
}

// forgetLocked drops a line in which nobody stands.
func (s *lines) forgetLocked(ln *line) {
	ln.timer.Stop()
	delete(s.byBucket, ln.bucket)
}

// enterLocked queues w in ln and tells it where it stands.
func (s *lines) enterLocked(ln *line, w *waiter, now time.Time, at place) {
	w.line, w.state, ln.touched, w.passed = ln, queued, now, false
	if ln.accounts != nil {
		ln.accounts.arrive(w.tenant, now)
	}
	ln.queue.push(now, w)
	if t := ln.turns; t != nil && t.order.Len() == 1 && !t.contended() {
		t.pace = pace{} // measured before a pause, over which it would be far too slow
	}
	if at.wait > 0 {
		s.restLocked(ln, now, at.wait)
		ln.restFor = w
	}
	w.notBefore = time.Time{} // a narrower bucket of its own tells on its turn
	s.locateLocked(w, now)
}

// restLocked lets nobody of ln ask before its bucket has refilled. Replicas
// are told the same instant, so each adds a little of its own.
func (s *lines) restLocked(ln *line, now time.Time, wait time.Duration) {
	if s.fleet.View().Members > 1 {
		wait += time.Duration(rand.Float64() * min(restSpread*float64(wait), float64(maxSpread)))
	}
	ln.restTill = now.Add(wait)
	ln.queue.hold(ln.restTill)
}

// feedLocked lets lines that waited for room to ask go on.
func (s *lines) feedLocked(now time.Time) {
	for len(s.starved) > 0 && s.asking < s.cfg.MaxInFlight {
		ln := s.starved[0]
		s.starved[0], s.starved = nil, s.starved[1:]
		ln.starving = false
		s.pumpLocked(ln, now)
	}
}

// starveLocked makes ln wait for room to ask.
func (s *lines) starveLocked(ln *line) {
	if !ln.starving {
		ln.starving = true
		s.starved = append(s.starved, ln)
	}
}

// pump is the timers' way to pumpLocked.
func (s *lines) pump(ln *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pumpLocked(ln, time.Now())
}

// pumpLocked lets as many ready waiters of ln ask as there is room for, and
// arranges to be called again when the next one becomes ready. It is called
// after every change of ln, and restores: no waiter of ln is ready, or ln's
// window is used up, or ln stands in starved.
func (s *lines) pumpLocked(ln *line, now time.Time) {
	if ln.turns != nil {
		s.pumpTurnsLocked(ln, now)
		return
	}
	s.absorbLocked(ln, now)
	for ln.asking < ln.window {
		if s.asking >= s.cfg.MaxInFlight {
			if at, ok := ln.queue.ready(now); ok && !at.After(now) {
				s.starveLocked(ln)
			}
			break
		}
		w := ln.queue.next(now)
		if w == nil {
			break
		}
		s.refreshLocked(w)
		if wide := s.widerLocked(w, now); wide != nil {
			ln.departLocked(w)
			s.enterLocked(wide, w, now, place{bucket: wide.bucket})
			s.pumpLocked(wide, now)
			continue
		}
		w.state = asking
		ln.asking++
		s.asking++
		w.turn <- answer{ask: true} // has room: one turn at a time
	}
	ln.timer.Stop()
	if at, ok := ln.queue.ready(now); ok && at.After(now) {
		ln.timer.Reset(at.Sub(now))
	}
}

// widerLocked returns the occupied line of a wider bucket that w needs as
// well: its turn here does not let it overtake those who wait there.
func (s *lines) widerLocked(w *waiter, now time.Time) (wide *line) {
	if s.manner == deferral {
		return s.earlierLocked(w, now)
	}
	s.manner.buckets(w.demand, func(b BucketID) bool {
		if s.manner.width(b) <= s.manner.width(w.line.bucket) {
			return false
		}
		if ln := s.byBucket[b]; ln.waiters() > 0 {
			wide = ln
		}
		return wide == nil
	})
	return wide
}

// drain refuses everybody who waits or will: waiters watch drained.
func (s *lines) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.draining {
		s.draining = true
		close(s.drained)
	}
}

// close begins no further call for turns, and waits for those under way.
func (s *lines) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.calls.Wait()
}

func (s *lines) waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

func (s *lines) gaugeLocked() {
	s.metrics.depth.Set(float64(s.total))
	s.metrics.tenants.Set(float64(len(s.depth)))
}
