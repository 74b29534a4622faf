package pace

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-limiter/headway/limiter/fairq"
	"github.com/headway-limiter/headway/limiter/quota"
	"github.com/headway-limiter/headway/limiter/throttle"
)

// Pacer is one account and model at one replica. It is safe for concurrent use.
type Pacer struct {
	set *Set

	mu       sync.Mutex
	throttle *throttle.Throttle
	line     []*waiter // interactive, first come first
	backlog  backlog
	verdict  throttle.Verdict // the last wait that somebody was told
	upstream string           // for metrics; empty: known from others alone
	model    string           // that requests named; empty: none, or too many were named
	used     time.Time        // last
	batch    time.Time        // when batch work last started
}

// Want is what a request asks of a Pacer.
type Want struct {
	Cost  throttle.Cost
	Class throttle.Class
	// Until is the latest start. Interactive work that is told to wait beyond it is
	// refused at once; batch work waits for better times until it has passed.
	Until time.Time
	// Now: the request does not wait, and Until does not matter. That it was not
	// started is not counted, for somebody asks around.
	Now bool

	// Tenant is whom batch work is shared with, by cost; those without a name are one.
	Tenant string
	Weight float64 // its share, in (0, 1000]; 0: 1
	Most   int     // of the tenant's that may wait here; 0: no bound
}

// waiter stands in a line.
type waiter struct {
	Want
	since time.Time
	wake  chan struct{} // of capacity 1
	item  fairq.Item[*waiter]
	late  bool // its deadline has passed, and it has left the line
}

// size is what its turn costs: tokens, at least one.
func (w *waiter) size() float64 { return sizeOf(w.Cost) }

func sizeOf(c throttle.Cost) float64 { return float64(max(1, c.Input+c.Output)) }

// Cause is why a start was refused.
type Cause uint8

const (
	TooLong Cause = iota // it would have to wait too long
	Late                 // batch work: its deadline has passed
	Full                 // batch work: too many of its tenant wait
)

// Refused is the error of a start that is not to be waited for any longer. Its
// Verdict is what the last who asked was told.
type Refused struct {
	throttle.Verdict
	Cause Cause
}

// Error implements error.
func (r *Refused) Error() string { return fmt.Sprintf("pace: wait %v: %s", r.Wait, r.Why) }

// Run is one permitted start. Its nil is one that nobody counts.
type Run struct {
	pacer  *Pacer
	start  throttle.Start
	waiter *waiter
	vain   atomic.Bool // the provider refused it
	ended  atomic.Bool
}

// Start waits until a request may start, at most as long as w says. The error is a
// *Refused, ErrDraining, or ctx.Err(). A Run has to be ended by Answered or Failed.
func (p *Pacer) Start(ctx context.Context, want Want) (*Run, error) {
	if want.Weight == 0 {
		want.Weight = 1
	}
	now := time.Now()
	if want.Now {
		want.Until, want.Most = now, 0
	}
	w := &waiter{Want: want, since: now, wake: make(chan struct{}, 1)}
	w.item.Value = w
	p.mu.Lock()
	if refused := p.joinLocked(w, now); refused != nil {
		p.mu.Unlock()
		p.refuse(w, refused)
		return nil, refused
	}
	run, v := p.lookLocked(w, now)
	if w.Now && run == nil {
		p.leaveLocked(w, now)
		p.mu.Unlock()
		return nil, &Refused{Verdict: v}
	}
	p.mu.Unlock()
	switch {
	case run != nil:
		return run, nil
	case v.OK:
		return p.wait(ctx, w, v)
	}
	return nil, p.give(w, v)
}

// joinLocked puts w into its line, if there is room.
func (p *Pacer) joinLocked(w *waiter, now time.Time) *Refused {
	if w.Class == throttle.Interactive {
		p.line = append(p.line, w)
		return nil
	}
	late, ok := p.backlog.push(now, w)
	p.expireLocked(late)
	if !ok {
		return &Refused{Verdict: p.lastLocked(), Cause: Full}
	}
	return nil
}

// wait waits for w's turn, first as long as v says.
func (p *Pacer) wait(ctx context.Context, w *waiter, v throttle.Verdict) (*Run, error) {
	p.count(p.set.metrics.waited, w.Class, v.Why)
	timer := time.NewTimer(v.Wait)
	defer timer.Stop()
	for {
		var err error
		select {
		case <-w.wake:
		case <-timer.C:
		case <-ctx.Done():
			err = ctx.Err()
		case <-p.set.draining:
			err = ErrDraining
		}
		now := time.Now()
		p.mu.Lock()
		if err != nil {
			p.leaveLocked(w, now)
			p.mu.Unlock()
			return nil, err
		}
		run, v := p.lookLocked(w, now)
		p.mu.Unlock()
		switch {
		case run != nil:
			return run, nil
		case !v.OK:
			return nil, p.give(w, v)
		}
		timer.Reset(v.Wait)
	}
}

// give gives up: w has left its line, last told v.
func (p *Pacer) give(w *waiter, v throttle.Verdict) error {
	r := &Refused{Verdict: v}
	p.refuse(w, r)
	if w.Class == throttle.Batch {
		r.Cause = Late
		if f := p.set.expired.Load(); f != nil {
			(*f)(Expired{Upstream: p.name(), Tenant: w.Tenant, Waited: time.Since(w.since)})
		}
	}
	return r
}

// lookLocked is one look of w at its chances: a Run, or a verdict, which is OK if
// it is right to wait that long. Otherwise w is no longer in line.
func (p *Pacer) lookLocked(w *waiter, now time.Time) (*Run, throttle.Verdict) {
	left := w.Until.Sub(now)
	if p.firstLocked(now) != w {
		v := p.lastLocked()
		if v.OK = left > 0 && !w.late; v.OK {
			v.Wait = left
		} else {
			p.dropLocked(w, now)
		}
		return nil, v
	}
	s, v := p.throttle.Ask(now, w.Cost, w.Class)
	if v.OK {
		p.startLocked(w, now)
		return &Run{pacer: p, start: s, waiter: w}, v
	}
	p.verdict = v
	switch {
	case w.Class == throttle.Batch && left > 0:
		v.OK, v.Wait = true, min(v.Wait, left)
	case v.Wait <= left:
		v.OK = true
	default:
		p.dropLocked(w, now)
	}
	return nil, v
}

// lastLocked is what somebody was told last.
func (p *Pacer) lastLocked() throttle.Verdict {
	if p.verdict.Why == "" { // nobody has asked yet
		return throttle.Verdict{Wait: time.Second, Why: throttle.WhyPace}
	}
	return p.verdict
}

// firstLocked is who may ask; nil: nobody waits. Batch work whose deadline has
// passed is dropped when its turn comes.
func (p *Pacer) firstLocked(now time.Time) *waiter {
	if len(p.line) > 0 {
		return p.line[0]
	}
	w, late := p.backlog.first(now)
	p.expireLocked(late)
	return w
}

// startLocked takes w, the first, out of its line. Who is first then has to look.
func (p *Pacer) startLocked(w *waiter, now time.Time) {
	if w.Class == throttle.Interactive {
		p.leaveLocked(w, now)
		return
	}
	p.backlog.take(now, w)
	p.batch = now
	p.wakeLocked(now)
}

// dropLocked takes w out of its line for good: it has waited as long as it may.
func (p *Pacer) dropLocked(w *waiter, now time.Time) {
	if w.Class == throttle.Batch && !w.Now {
		p.backlog.remove(w)
		p.expireLocked([]*waiter{w})
	}
	p.leaveLocked(w, now)
}

// expireLocked tells those that have left the backlog because they are late, each
// once.
func (p *Pacer) expireLocked(late []*waiter) {
	for _, w := range late {
		if w.late {
			continue
		}
		w.late = true
		w.nudge()
		p.set.metrics.expired.WithLabelValues(p.upstream).Inc()
	}
}

// leaveLocked takes w out of its line. Who is first then has to look.
func (p *Pacer) leaveLocked(w *waiter, now time.Time) {
	if w.Class == throttle.Batch {
		p.backlog.remove(w)
	} else if i := slices.Index(p.line, w); i >= 0 {
		p.line = slices.Delete(p.line, i, i+1)
	}
	p.wakeLocked(now)
}

// wakeLocked has the first look again.
func (p *Pacer) wakeLocked(now time.Time) {
	if w := p.firstLocked(now); w != nil {
		w.nudge()
	}
}

// nudge has w look, if it will not do so anyway.
func (w *waiter) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// merge takes what other replicas know.
func (p *Pacer) merge(now time.Time, s throttle.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.throttle.Paused()
	p.throttle.Merge(now, s)
	p.pausedLocked(now, before)
	p.wakeLocked(now)
}

// pausedLocked counts the time by which a pause became longer.
func (p *Pacer) pausedLocked(now, before time.Time) {
	if before.Before(now) {
		before = now
	}
	if d := p.throttle.Paused().Sub(before); d > 0 && p.upstream != "" {
		p.set.metrics.paused.WithLabelValues(p.upstream).Add(d.Seconds())
	}
}

// idle reports whether nobody would miss p.
func (p *Pacer) idle(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.line) == 0 && p.backlog.queue.Len() == 0 && p.throttle.Idle(now) && now.Sub(p.used) > idleAfter
}

// Answered ends r by what a response said. Only the first end of a Run counts.
func (r *Run) Answered(reading quota.Reading, class quota.Class) {
	if r == nil || r.ended.Swap(true) {
		return
	}
	p := r.pacer
	now := time.Now()
	p.mu.Lock()
	before := p.throttle.Paused()
	urgent := p.throttle.Answered(now, r.start, reading, class)
	p.pausedLocked(now, before)
	p.set.metrics.answered(p.upstream, reading, class)
	switch class {
	case quota.ClassQuota, quota.ClassDaily, quota.ClassTerminal, quota.ClassOverload:
		r.vain.Store(true)
		r.settleLocked(0)
	}
	p.wakeLocked(now)
	p.mu.Unlock()
	if f := p.set.urgent.Load(); urgent && f != nil {
		(*f)()
	}
}

// Failed ends r when there was no response. A batch tenant has had its turn: what
// it used of the provider nobody knows.
func (r *Run) Failed() {
	if r == nil || r.ended.Swap(true) {
		return
	}
	r.pacer.mu.Lock()
	defer r.pacer.mu.Unlock()
	r.pacer.throttle.Failed(r.start)
	r.pacer.wakeLocked(time.Now())
}

// Settled tells what a request that was answered has used in the end. A batch
// tenant is charged that instead of the estimate, but for one that the provider
// refused, whose turn was in vain.
func (r *Run) Settled(used throttle.Cost) {
	if r == nil {
		return
	}
	r.pacer.mu.Lock()
	defer r.pacer.mu.Unlock()
	r.pacer.throttle.Settled(r.start, used)
	if !r.vain.Load() {
		r.settleLocked(sizeOf(used))
		r.pacer.set.metrics.serve(r.waiter, sizeOf(used))
	}
}

// settleLocked charges a turn of batch work what it has cost.
func (r *Run) settleLocked(cost float64) {
	if r.waiter.Class == throttle.Batch {
		r.pacer.backlog.settle(r.waiter, cost)
		r.pacer.wakeLocked(time.Now()) // another may be first now
	}
}
