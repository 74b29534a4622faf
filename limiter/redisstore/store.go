package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// Store is one replica's handle on a Redis. It implements limiter.Store and is
// safe for concurrent use.
//
// Its parts, each with its own lock and none calling back into another that
// holds one: router (which server keeps what), of each server a client (who may
// block on it) and a breaker (is it worth asking), slots (what this replica
// holds), outbox (what nobody waits for). Goroutines: the clients' workers, a
// watch of each, the router's scout, the outbox's loop; callers bring their own.
type Store struct {
	opts    Options
	inc     string // this life's name in every counter: 16 hex digits
	ttl     int64  // of leases, ms
	log     *slog.Logger
	metrics *metrics
	router  *router
	slots   *slots
	outbox  *outbox
	// calls is a pool per store, not one of the package: its channels and timers
	// may belong to a test's bubble and must not leave it.
	calls   sync.Pool // of *call
	closed  atomic.Bool
	watched sync.WaitGroup
	registry
	epochs epochs
	quit   chan struct{} // ends watch and keepEpoch
}

var _ limiter.Store = (*Store)(nil)

// New returns a store over the Redis of o. Errors are those of o itself: a
// server that is down only makes the store unusable until it is up. New waits
// for the first answer, at most for the time of connecting and one budget.
func New(o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("redisstore: metrics: %w", err)
	}
	s := &Store{
		opts: o, inc: fmt.Sprintf("%016x", o.Incarnation), ttl: o.LeaseTTL.Milliseconds(), log: o.Logger, metrics: m,
		epochs: epochs{askSoon: make(chan struct{}, 1)}, quit: make(chan struct{}),
	}
	s.calls.New = func() any { return newCall() }
	s.outbox = newOutbox(s)
	s.slots = newSlots(s.outbox.poke)
	s.slots.hold(presence)
	if err := openRouter(s); err != nil {
		return nil, err
	}
	s.askEpoch()
	s.watched.Go(s.keepEpoch)
	s.outbox.start()
	return s, nil
}

// Incarnation returns the name of this process's life in the fleet's leases.
func (s *Store) Incarnation() string { return s.inc }

// Calls returns how many calls were sent so far, background ones included.
func (s *Store) Calls() Calls { return s.metrics.calls.snapshot() }

// Health implements limiter.Store. Of several servers it tells of the one in
// trouble, and says unusable only when nothing can be decided (see doc.go).
func (s *Store) Health() limiter.Health { return s.router.health() }

// resendMost bounds how often one Admit is sent again. Each time a later call
// of this replica has run in between, so more is starvation, not progress.
const resendMost = 16

// Statuses of lua/admit.lua.
const (
	statusRefused = 0
	statusGranted = 1

	leaseFull = 1
)

// Admit implements limiter.Store.
//
// Errors, in the order of their check: ctx is done already (ctx.Err());
// closed, or an open breaker; no room in the queue; no answer within the
// budget; ctx is done meanwhile (ctx.Err()); an answer that is an error. All
// but those of ctx wrap limiter.ErrUnavailable.
func (s *Store) Admit(ctx context.Context, t limiter.Take) (limiter.Verdict, error) {
	start := time.Now()
	until, err := s.begin(ctx, start)
	if err != nil {
		return limiter.Verdict{}, err
	}
	defer since(s.metrics.admitTime, start)
	if s.opts.Layout == LayoutTenant {
		return s.admitParts(ctx, t, until)
	}
	return s.admitPart(ctx, "", t, until)
}

// admitPart is an Admit of keys of one home.
func (s *Store) admitPart(ctx context.Context, home limiter.ID, t limiter.Take, until time.Time) (limiter.Verdict, error) {
	start := time.Now()
	if err := s.router.refusal(home); err != nil {
		return limiter.Verdict{}, err
	}
	for range resendMost {
		// Every attempt is a call of its own: a new sequence, and new wants, for
		// what the replica holds may have changed meanwhile.
		c := s.calls.Get().(*call)
		c.home, c.until = home, until
		c.ask(t, s.inc, s.ttl)
		c.seq, c.counted = s.slots.draw(t.Slots, c.wants)
		if err := s.exchange(ctx, c); err != nil {
			return limiter.Verdict{}, err
		}
		status := s.resolve(c)
		v := verdict(t, c.reply)
		s.release(c)
		if status <= statusGranted {
			return v, nil
		}
		s.metrics.resent.Inc() // overtaken, or the fence was too early: nothing ran
	}
	return limiter.Verdict{}, s.fail(errOvertaken, start)
}

// Peek reports what Admit would find, without taking. Deadline and errors are
// those of Admit.
func (s *Store) Peek(ctx context.Context, t limiter.Take) (limiter.Verdict, error) {
	start := time.Now()
	until, err := s.begin(ctx, start)
	if err != nil {
		return limiter.Verdict{}, err
	}
	defer since(s.metrics.peekTime, start)
	if s.opts.Layout == LayoutTenant {
		return s.peekParts(ctx, t, until)
	}
	return s.peekPart(ctx, "", t, until)
}

// peekPart is a Peek of keys of one home.
func (s *Store) peekPart(ctx context.Context, home limiter.ID, t limiter.Take, until time.Time) (limiter.Verdict, error) {
	if err := s.router.refusal(home); err != nil {
		return limiter.Verdict{}, err
	}
	c := s.calls.Get().(*call)
	c.home, c.until = home, until
	c.buildInspect(t, s.inc)
	if err := s.exchange(ctx, c); err != nil {
		return limiter.Verdict{}, err
	}
	v := peeked(t, c.reply)
	s.release(c)
	return v, nil
}

// begin fixes the deadline of an operation, or refuses it at once.
func (s *Store) begin(ctx context.Context, start time.Time) (time.Time, error) {
	return s.beginWithin(ctx, start, s.opts.Timeout)
}

func (s *Store) beginWithin(ctx context.Context, start time.Time, budget time.Duration) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return start, err
	}
	if s.closed.Load() {
		return start, errClosed
	}
	until := start.Add(budget)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	return until, nil
}

var errClosed = fmt.Errorf("redisstore: closed: %w", limiter.ErrUnavailable)

// exchange queues c and waits for its reply, its deadline or ctx, whichever is
// first. On nil the caller owns c and its reply; otherwise c is dealt with. An
// error reply that proves that nothing ran is followed by another attempt.
func (s *Store) exchange(ctx context.Context, c *call) error {
	start := time.Now()
	for {
		if c.node == nil {
			c.node = s.router.of(c.home)
		}
		if c.node == nil {
			c.err, c.ran = errNowhere, ranNot
			return s.unanswered(ctx, c, start)
		}
		select {
		case c.node.queue <- c:
		default: // all workers are stuck and the queue is full: waiting won't help
			c.err, c.ran = errBusy, ranNot
			s.metrics.failed(kindBusy)
			return s.unanswered(ctx, c, start)
		}
		c.timer.Reset(time.Until(c.until))
		select {
		case <-c.done:
			c.timer.Stop()
		case <-c.timer.C:
			if err, gone := s.abandon(ctx, c, start); gone {
				return err
			}
		case <-ctx.Done():
			c.timer.Stop()
			if err, gone := s.abandon(ctx, c, start); gone {
				return err
			}
		}
		if c.err == nil {
			return nil
		}
		if !s.redo(ctx, c) {
			return s.unanswered(ctx, c, start)
		}
	}
}

// abandon leaves c to the worker, unless the reply has just come.
func (s *Store) abandon(ctx context.Context, c *call, start time.Time) (err error, gone bool) {
	until, node := c.until, c.node // after the swap c belongs to the worker
	if !c.state.CompareAndSwap(waiting, abandoned) {
		<-c.done
		return nil, false
	}
	return s.timedOut(ctx, node, until, start), true
}

// timedOut is the end of a call without an answer by until. When that was the
// caller's own deadline and not ours, the store is not to blame.
func (s *Store) timedOut(ctx context.Context, node *client, until, start time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !d.After(until) {
		return context.DeadlineExceeded
	}
	s.metrics.failed(kindTimeout)
	node.breaker.record(time.Now(), 0, 1, true, fmt.Sprintf("timeout: no answer within %v", s.opts.Timeout))
	return s.fail(errTimeout, start)
}

// unanswered ends a call that failed while its caller waited.
func (s *Store) unanswered(ctx context.Context, c *call, start time.Time) error {
	f, until, node := c.err, c.until, c.node
	if c.bids != nil {
		s.dropBids(c)
	} else {
		s.lost(c)
	}
	s.release(c)
	if f == errNotSent {
		return s.timedOut(ctx, node, until, start)
	}
	return s.fail(f, start)
}

// fail makes an error for callers of f.
func (s *Store) fail(f error, start time.Time) error {
	return fmt.Errorf("redisstore: %w: %w (after %v)", f, limiter.ErrUnavailable, time.Since(start).Round(time.Microsecond))
}

// finish hands a batch back to its callers, and cleans up after those gone.
func (s *Store) finish(node *client, batch []*call) {
	s.count(node, batch)
	for _, c := range batch {
		if c.state.CompareAndSwap(waiting, answered) {
			c.done <- struct{}{} // from here on c belongs to the caller
			continue
		}
		if c.probe && c.err == nil {
			node.hintProbe()
		}
		if c.bids != nil {
			s.dropBids(c)
		} else if c.err != nil {
			s.lost(c)
		} else if !c.document && s.resolve(c) == statusGranted && len(c.take.Charges)+len(c.take.Slots) > 0 {
			s.metrics.late.Inc()
			s.Settle(giveBack(c.take))
		}
		s.release(c)
	}
}

// count tells breaker and metrics the outcome of a batch. Answers to callers who
// have gone count as success if they are late by less than a budget: the server
// lives. Later ones are no comfort. Timeouts were counted when callers gave up.
func (s *Store) count(node *client, batch []*call) {
	var ok, bad int64
	var worst *failure
	late := time.Now().Add(-s.opts.Timeout)
	for _, c := range batch {
		f := c.err
		switch {
		case f == nil && c.until.Before(late) && c.state.Load() == abandoned:
		case f == nil:
			ok++
		case f == errNotSent: // the caller counts its timeout
		case f.elsewhere(): // the server lives; these keys are on the move
			ok++
			s.metrics.failed(f.kind)
		default:
			bad++
			worst = f
			s.metrics.failed(f.kind)
		}
	}
	if worst != nil {
		node.breaker.record(time.Now(), ok, bad, worst.hard(), worst.Error())
		s.router.look(node)
	} else if ok > 0 {
		node.breaker.record(time.Now(), ok, 0, false, "")
	}
}

// resolve settles with the slot table what an answered admit did.
func (s *Store) resolve(c *call) (status int64) {
	status = c.reply[0]
	if len(c.take.Slots) == 0 {
		return status
	}
	if status == statusGranted {
		s.slots.granted(c.take.Slots, c.wants, c.seq, c.counted)
	} else {
		s.slots.dropped(c.take.Slots, c.counted, false)
	}
	return status
}

// lost does the same for a call without an answer. If it may still run, its
// slots stay pending until the fence has passed: what the server may grant must
// stay covered by what this replica states.
func (s *Store) lost(c *call) {
	if !c.counted || len(c.take.Slots) == 0 {
		return
	}
	if c.ran == ranUnknown && time.Now().Before(c.until) {
		s.outbox.doubt(clone(c.take).Slots, c.until)
		return
	}
	s.slots.dropped(c.take.Slots, true, c.ran == ranUnknown)
}

func newCall() *call {
	c := &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	return c
}

// release returns c for reuse. Nobody else may still look at it.
func (s *Store) release(c *call) {
	c.take.Charges, c.take.Slots = c.take.Charges[:0], c.take.Slots[:0]
	c.counted, c.err, c.bids, c.probe, c.alone = false, nil, nil, false, false
	c.home, c.node, c.asking, c.hops = "", nil, false, 0
	if c.document { // which may be large
		c.document, c.keys, c.args, c.values = false, nil, nil, nil
	}
	c.state.Store(waiting)
	s.calls.Put(c)
}

func clone(t limiter.Take) limiter.Take {
	return limiter.Take{
		Charges: append([]limiter.Charge(nil), t.Charges...),
		Slots:   append([]limiter.Slot(nil), t.Slots...),
	}
}

// giveBack is the settlement that undoes a grant.
func giveBack(t limiter.Take) limiter.Settlement {
	var f limiter.Settlement
	for _, ch := range t.Charges {
		f.Adjust = append(f.Adjust, limiter.Adjustment{Bucket: ch.Bucket, Rate: ch.Rate, Delta: ch.Cost})
	}
	for _, sl := range t.Slots {
		f.Free = append(f.Free, sl.Slot)
	}
	return f
}
