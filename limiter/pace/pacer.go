package pace

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-limiter/headway/limiter/quota"
	"github.com/headway-limiter/headway/limiter/throttle"
)

// Pacer is one account and model at one replica. It is safe for concurrent use.
type Pacer struct {
	set *Set

	mu       sync.Mutex
	throttle *throttle.Throttle
	lines    [2][]*waiter     // by throttle.Class, first come first
	verdict  throttle.Verdict // the last wait that somebody was told
	upstream string           // for metrics; empty: known from others alone
	used     time.Time        // last
}

// waiter stands in a line.
type waiter struct {
	cost  throttle.Cost
	class throttle.Class
	until time.Time
	wake  chan struct{} // of capacity 1
}

// Refused is the error of a start that would have to wait longer than it may.
type Refused struct{ throttle.Verdict }

// Error implements error.
func (r *Refused) Error() string { return fmt.Sprintf("pace: wait %v: %s", r.Wait, r.Why) }

// Run is one permitted start. Its nil is one that nobody counts.
type Run struct {
	pacer *Pacer
	start throttle.Start
	ended atomic.Bool
}

// Start waits until a request may start, at most until then. The error is a
// *Refused, ErrDraining, or ctx.Err(). A Run has to be ended by Answered or Failed.
func (p *Pacer) Start(ctx context.Context, cost throttle.Cost, class throttle.Class, until time.Time) (*Run, error) {
	w := &waiter{cost: cost, class: class, until: until, wake: make(chan struct{}, 1)}
	p.mu.Lock()
	p.lines[class] = append(p.lines[class], w)
	run, v := p.lookLocked(w, time.Now())
	p.mu.Unlock()
	switch {
	case run != nil:
		return run, nil
	case v.OK:
		return p.wait(ctx, w, v)
	}
	p.count(p.set.metrics.refused, class, v.Why)
	return nil, &Refused{v}
}

// wait waits for w's turn, first as long as v says.
func (p *Pacer) wait(ctx context.Context, w *waiter, v throttle.Verdict) (*Run, error) {
	p.count(p.set.metrics.waited, w.class, v.Why)
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
		p.mu.Lock()
		if err != nil {
			p.leaveLocked(w)
			p.mu.Unlock()
			return nil, err
		}
		run, v := p.lookLocked(w, time.Now())
		p.mu.Unlock()
		switch {
		case run != nil:
			return run, nil
		case !v.OK:
			p.count(p.set.metrics.refused, w.class, v.Why)
			return nil, &Refused{v}
		}
		timer.Reset(v.Wait)
	}
}

// lookLocked is one look of w at its chances: a Run, or a verdict, which is OK if
// it is right to wait that long. Otherwise w is no longer in line.
func (p *Pacer) lookLocked(w *waiter, now time.Time) (*Run, throttle.Verdict) {
	left := w.until.Sub(now)
	if p.firstLocked() != w {
		v := p.verdict
		if v.Why == "" { // the one before has not asked yet
			v = throttle.Verdict{Wait: time.Second, Why: throttle.WhyPace}
		}
		if v.OK = left > 0; v.OK {
			v.Wait = left
		} else {
			p.leaveLocked(w)
		}
		return nil, v
	}
	s, v := p.throttle.Ask(now, w.cost, w.class)
	if v.OK {
		p.leaveLocked(w)
		return &Run{pacer: p, start: s}, v
	}
	p.verdict = v
	if v.OK = v.Wait <= left; !v.OK {
		p.leaveLocked(w)
	}
	return nil, v
}

// firstLocked is who may ask; nil: nobody waits.
func (p *Pacer) firstLocked() *waiter {
	for _, line := range p.lines {
		if len(line) > 0 {
			return line[0]
		}
	}
	return nil
}

// leaveLocked takes w out of its line. Who is first then has to look.
func (p *Pacer) leaveLocked(w *waiter) {
	line := p.lines[w.class]
	if i := slices.Index(line, w); i >= 0 {
		p.lines[w.class] = slices.Delete(line, i, i+1)
	}
	p.wakeLocked()
}

// wakeLocked has the first look again.
func (p *Pacer) wakeLocked() {
	if w := p.firstLocked(); w != nil {
		select {
		case w.wake <- struct{}{}:
		default: // it will look anyway
		}
	}
}

// merge takes what other replicas know.
func (p *Pacer) merge(now time.Time, s throttle.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.throttle.Paused()
	p.throttle.Merge(now, s)
	p.pausedLocked(now, before)
	p.wakeLocked()
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
	return p.firstLocked() == nil && p.throttle.Idle(now) && now.Sub(p.used) > idleAfter
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
	p.wakeLocked()
	p.mu.Unlock()
	if f := p.set.urgent.Load(); urgent && f != nil {
		(*f)()
	}
}

// Failed ends r when there was no response.
func (r *Run) Failed() {
	if r == nil || r.ended.Swap(true) {
		return
	}
	r.pacer.mu.Lock()
	defer r.pacer.mu.Unlock()
	r.pacer.throttle.Failed(r.start)
	r.pacer.wakeLocked()
}

// Settled tells what a request that was answered has used in the end.
func (r *Run) Settled(used throttle.Cost) {
	if r == nil {
		return
	}
	r.pacer.mu.Lock()
	defer r.pacer.mu.Unlock()
	r.pacer.throttle.Settled(r.start, used)
}
