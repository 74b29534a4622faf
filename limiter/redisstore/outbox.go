package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

const (
	// A refund may be late: it takes nothing. But a retry is only sent when its
	// predecessor cannot give back any more, so the fence is also the pause
	// between attempts. Shorter than the breaker's first phase, it lets retries
	// go out before the statements that follow a recovery overtake them.
	settleFence  = 250 * time.Millisecond
	carryMost    = time.Second      // how long a settlement may keep its slots from being stated
	settleMaxAge = 30 * time.Second // then a settlement is left to expiry
	settleMost   = 1 << 16          // settlements kept; more are dropped
	flushSettles = batchMost        // settlements sent in one go
	flushSlots   = 256              // slots stated in one call: about 1 ms of Redis
	// After a failure that leaves the breaker closed, e.g. of one broken key.
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
)

// settlement is one Settle under way to Redis.
type settlement struct {
	adjust []limiter.Adjustment
	slots  []limiter.SlotID
	born   time.Time

	carries bool // its slots are left to it alone, for the first retry at most

	seq   int64     // of the first attempt; 0 before it
	retry int64     // 1 once an attempt may have run
	after time.Time // no further attempt before
}

// doubt is an admit that was sent and never answered: its slots stay pending
// until it cannot run any more.
type doubt struct {
	slots []limiter.Slot
	until time.Time
}

// outbox delivers what nobody waits for: settlements, releases and renewals.
// One goroutine sends one pipeline at a time, so statements never overtake each
// other, and what comes meanwhile is coalesced into the next.
type outbox struct {
	store *Store
	wake  chan struct{} // buffered: a poke is remembered
	done  chan struct{}
	final chan context.Context // Close asks for the last flush
	calls []*call              // reused

	mu     sync.Mutex
	queue  []*settlement
	doubts []doubt
}

func newOutbox(s *Store) *outbox {
	return &outbox{
		store: s, wake: make(chan struct{}, 1), done: make(chan struct{}), final: make(chan context.Context, 1),
	}
}

func (o *outbox) start() { go o.loop() }

// poke lets the loop look for work.
func (o *outbox) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// add queues a settlement; it reports false when there is no room.
func (o *outbox) add(p *settlement) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) >= settleMost {
		return false
	}
	o.queue = append(o.queue, p)
	return true
}

func (o *outbox) doubt(slots []limiter.Slot, until time.Time) {
	o.mu.Lock()
	o.doubts = append(o.doubts, doubt{slots, until})
	o.mu.Unlock()
	o.poke()
}

// Settle implements limiter.Store.
func (s *Store) Settle(f limiter.Settlement) {
	if s.closed.Load() {
		return // Close gives back every slot; refunds end with the process
	}
	// The replica's own table changes now, so that its next Admit may use the
	// slots; Redis hears of it with the settlement, or with a statement.
	p := &settlement{slots: append([]limiter.SlotID(nil), f.Free...), born: time.Now()}
	for _, a := range f.Adjust {
		if a.Delta != 0 {
			p.adjust = append(p.adjust, a)
		}
	}
	p.carries = len(p.adjust) > 0
	s.slots.release(p.slots, p.carries)
	if p.carries && !s.outbox.add(p) {
		s.outbox.drop(p)
	}
	s.outbox.poke()
}

// drop gives up a settlement. Its slots are stated like any others.
func (o *outbox) drop(p *settlement) {
	o.store.metrics.dropped.Inc()
	o.letGo(p)
}

// letGo leaves the slots of p to ordinary statements, unsure of what it did.
func (o *outbox) letGo(p *settlement) {
	if p.carries {
		p.carries = false
		o.store.slots.dropCarried(p.slots, true)
	}
}

// loop sends whenever there is something to send and Redis is usable. It wakes
// for a poke, a renewal, the end of a doubt and the time of a retry.
func (o *outbox) loop() {
	defer close(o.done)
	renew := time.Duration(o.store.ttl) * time.Millisecond * 3 / 10
	renewAt := time.Now().Add(renew)
	timer := time.NewTimer(renew)
	defer timer.Stop()
	backoff, rest := retryFirst, time.Time{}
	for {
		select {
		case ctx := <-o.final:
			o.drain(ctx)
			return
		case <-o.wake:
			if time.Now().Before(rest) {
				continue // after a failure; timer ends the rest
			}
		case <-timer.C:
		}
		now := time.Now()
		if !now.Before(renewAt) {
			o.store.slots.markAll()
			renewAt = now.Add(renew)
		}
		o.expireDoubts(now)
		next := renewAt
		if o.store.breaker.shut.Load() { // recovery pokes
			timer.Reset(max(0, time.Until(renewAt)))
			continue
		}
		switch more, ok := o.flush(now); {
		case !ok:
			rest = time.Now().Add(backoff)
			next, backoff = rest, min(2*backoff, retryMost)
		case more:
			o.poke()
			fallthrough
		default:
			backoff = retryFirst
		}
		timer.Reset(max(0, time.Until(o.earliest(next))))
	}
}

// drain is the last flush: it tries until all is told, ctx ends, or everything
// has expired anyway. It doesn't ask the breaker, which nobody probes any more.
func (o *outbox) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, o.store.opts.LeaseTTL)
	defer cancel()
	tick := time.NewTicker(retryFirst)
	defer tick.Stop()
	for {
		now := time.Now()
		o.expireDoubts(now)
		if _, ok := o.flush(now); ok && o.empty() {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// empty reports whether Redis has been told everything.
func (o *outbox) empty() bool {
	_, due := o.store.slots.counts()
	o.mu.Lock()
	defer o.mu.Unlock()
	return due == 0 && len(o.queue) == 0 && len(o.doubts) == 0
}

// earliest returns the first instant at which something becomes due, at most next.
func (o *outbox) earliest(next time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.doubts {
		next = earlier(next, d.until)
	}
	for _, p := range o.queue {
		if !p.after.IsZero() {
			next = earlier(next, p.after)
		}
	}
	return next
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// expireDoubts ends doubts whose call cannot run any more: what it did is
// corrected by stating the truth.
func (o *outbox) expireDoubts(now time.Time) {
	o.mu.Lock()
	var over []doubt
	kept := o.doubts[:0]
	for _, d := range o.doubts {
		if now.Before(d.until) {
			kept = append(kept, d)
		} else {
			over = append(over, d)
		}
	}
	o.doubts = kept
	o.mu.Unlock()
	for _, d := range over {
		o.store.slots.dropped(d.slots, true, true)
	}
}

// flush sends one pipeline of settlements and statements. more: it left some
// for the next; ok: nothing failed.
func (o *outbox) flush(now time.Time) (more, ok bool) {
	s := o.store
	batch, more := o.take(now)
	seq, sts := s.slots.due(flushSlots)
	if len(batch)+len(sts) == 0 {
		return false, true
	}
	defer since(s.metrics.settleTime, now)
	calls := o.calls[:0]
	statements := make([][]statement, len(batch))
	for i, p := range batch {
		statements[i] = o.prepare(p, now)
		c := s.calls.Get().(*call)
		c.until = now.Add(settleFence)
		c.buildSettle(p, s.inc, s.ttl, statements[i])
		calls = append(calls, c)
	}
	if len(sts) > 0 {
		c := s.calls.Get().(*call)
		c.until = now.Add(settleFence)
		c.buildLease(s.inc, seq, s.ttl, sts)
		calls = append(calls, c)
	}
	// On this goroutine, not through the queue: a flood of callers must not keep
	// slots from being freed.
	s.client.run(calls)
	s.count(calls)
	ok = true
	for i, p := range batch {
		if !o.settled(p, calls[i], statements[i]) {
			ok = false
		}
	}
	if len(sts) > 0 {
		c := calls[len(batch)]
		if c.err != nil {
			s.slots.mark(sts)
			ok = false
		} else {
			s.stated(seq, sts, c.reply[2:])
		}
	}
	for _, c := range calls {
		s.release(c)
	}
	clear(calls)
	o.calls = calls
	return more || len(sts) == flushSlots, ok
}

// take removes the settlements that may be sent now, up to a batch.
func (o *outbox) take(now time.Time) (batch []*settlement, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := o.queue[:0]
	for _, p := range o.queue {
		switch {
		case now.Before(p.after):
			kept = append(kept, p)
		case len(batch) < flushSettles:
			batch = append(batch, p)
		default:
			kept, more = append(kept, p), true
		}
	}
	clear(o.queue[len(kept):])
	o.queue = kept
	return batch, more
}

// prepare draws what an attempt states about the settlement's slots. All
// attempts share the first one's sequence: it is how the script knows them.
func (o *outbox) prepare(p *settlement, now time.Time) []statement {
	seq, sts := o.store.slots.state(p.slots)
	if p.seq == 0 {
		p.seq = seq
	}
	p.after = now.Add(settleFence) // a retry must not meet its predecessor
	return sts
}

// settled takes the outcome of an attempt and keeps p for another if it failed.
func (o *outbox) settled(p *settlement, c *call, sts []statement) bool {
	s := o.store
	if c.err == nil {
		s.stated(p.seq, sts, c.reply[2+len(p.adjust):])
		if p.carries {
			// Under its old sequence a retry may have changed nothing.
			s.slots.dropCarried(p.slots, p.retry == 1)
		}
		return true
	}
	switch {
	case p.retry == 1:
		o.letGo(p) // a slot must be renewed, whatever ails its settlement
	case c.ran == ranUnknown:
		p.retry = 1
	default:
		p.seq, p.after = 0, time.Time{} // nothing ran: the next is the first
	}
	age := time.Since(p.born)
	if age > carryMost {
		o.letGo(p)
	}
	if age > settleMaxAge || !o.add(p) {
		o.drop(p)
	}
	return false
}

// stated takes the counters' part of a reply: before, now and total of each.
func (s *Store) stated(seq int64, sts []statement, reply []int64) {
	counts := make([]int64, len(sts))
	for i, st := range sts {
		if len(reply) < 3*i+3 {
			return
		}
		before, count := reply[3*i], reply[3*i+1]
		counts[i] = count
		// A sync raises a count only when Redis had lost it: to expiry, while this
		// replica slept or was cut off, or with all its data.
		if st.id != presence && count == st.held && before < count {
			s.metrics.restated.Add(float64(count - before))
			s.log.Warn("slots restated", "dimension", st.id.Dimension, "id", st.id.ID,
				"stored", before, "held", count, "total", reply[3*i+2])
		}
	}
	s.slots.stated(sts, seq, counts)
}

// Close implements limiter.Store. It returns ctx.Err() when not everything
// could be given back in time; expiry does the rest.
func (s *Store) Close(ctx context.Context) error {
	if s.closed.Swap(true) {
		<-s.outbox.done
		return nil
	}
	// Order matters: no more probes, then the last words, then the connections.
	close(s.quit)
	s.watched.Wait()
	s.slots.releaseAll()
	s.outbox.final <- ctx
	var err error
	select {
	case <-s.outbox.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.client.close()
	<-s.outbox.done
	return err
}
