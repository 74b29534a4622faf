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

// settlement is one Settle under way to Redis, or the part of it whose keys are
// of one home.
type settlement struct {
	home   limiter.ID
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

// outbox delivers what nobody waits for: settlements, releases and renewals,
// to each server over a lane of its own.
type outbox struct {
	store *Store
	wake  chan struct{} // buffered: a poke is remembered
	done  chan struct{}
	final chan context.Context // Close asks for the last flush

	sending sync.WaitGroup // pipelines under way

	mu     sync.Mutex
	queue  []*settlement
	doubts []doubt
	lanes  map[*client]*lane
}

func newOutbox(s *Store) *outbox {
	return &outbox{
		store: s, wake: make(chan struct{}, 1), done: make(chan struct{}), final: make(chan context.Context, 1),
		lanes: map[*client]*lane{},
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
	if s.opts.Layout == LayoutTenant {
		for _, part := range partsOfSettlement(f) {
			s.settlePart(part.home, part.settlement)
		}
	} else {
		s.settlePart("", f)
	}
	s.outbox.poke()
}

// settlePart begins what of a settlement is about keys of one home.
func (s *Store) settlePart(home limiter.ID, f limiter.Settlement) {
	p := &settlement{home: home, slots: append([]limiter.SlotID(nil), f.Free...), born: time.Now()}
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

// loop sends whenever there is something to send and its server is usable. It
// wakes for a poke, a renewal, the end of a doubt and the time of a retry.
func (o *outbox) loop() {
	defer close(o.done)
	renew := time.Duration(o.store.ttl) * time.Millisecond * 3 / 10
	renewAt := time.Now().Add(renew)
	timer := time.NewTimer(renew)
	defer timer.Stop()
	for {
		select {
		case ctx := <-o.final:
			o.drain(ctx)
			return
		case <-o.wake:
		case <-timer.C:
		}
		now := time.Now()
		if !now.Before(renewAt) {
			o.store.slots.markAll()
			renewAt = now.Add(renew)
		}
		o.expireDoubts(now)
		o.flush(now, false)
		timer.Reset(max(0, time.Until(o.earliest(now, renewAt))))
	}
}

// drain is the last flush: it tries until all is told, ctx ends, or everything
// has expired anyway.
func (o *outbox) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, o.store.opts.LeaseTTL)
	defer cancel()
	tick := time.NewTicker(retryFirst)
	defer tick.Stop()
	for {
		now := time.Now()
		o.expireDoubts(now)
		o.flush(now, true)
		if o.empty() {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		case <-tick.C:
		}
	}
}

// empty reports whether Redis has been told everything.
func (o *outbox) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.lanes {
		if l.busy {
			return false
		}
	}
	_, due := o.store.slots.counts()
	return due == 0 && len(o.queue) == 0 && len(o.doubts) == 0
}

// earliest returns the first instant after now at which something becomes due, at
// most next. What waits for a busy lane, or for a server to recover, is not
// counted: both poke.
func (o *outbox) earliest(now, next time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, d := range o.doubts {
		next = earlier(next, d.until)
	}
	for _, p := range o.queue {
		if p.after.After(now) {
			next = earlier(next, p.after)
		}
	}
	for _, l := range o.lanes {
		if l.rest.After(now) {
			next = earlier(next, l.rest)
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

// prepare draws what an attempt states about the settlement's slots. All
// attempts share the first one's sequence: it is how the script knows them.
func (o *outbox) prepare(p *settlement, now time.Time) []statement {
	seq, sts := o.store.slots.state(p.slots)
	if p.seq == 0 {
		p.seq = seq
	}
	// A retry must not meet its predecessor. Whoever gives admissions longer, on a
	// slow machine, gives refunds longer too.
	p.after = now.Add(min(max(settleFence, o.store.opts.Timeout), carryMost))
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
		if st.id == presence {
			s.counted(before, reply[3*i+2])
		}
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
	// Order matters: no more servers and probes, then the last words, then the
	// connections.
	s.router.stop()
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
	s.router.close()
	<-s.outbox.done
	s.outbox.sending.Wait()
	return err
}
