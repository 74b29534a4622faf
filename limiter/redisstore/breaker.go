package redisstore

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

const (
	tripAfter   = 3  // failures of the server in a row
	tripMinimum = 20 // calls in the window before the ratio counts
	windowSlots = 10
	windowStep  = 100 * time.Millisecond // the window is windowSlots steps: 1 s

	// A probe costs one call, so there is no reason to wait long: a store heals
	// within 1 s of its server, probe included. By as much replicas part at the
	// end of an outage, when those that have noticed spend what the others, still
	// by themselves, spend too.
	openFirst = 250 * time.Millisecond
	openMost  = 500 * time.Millisecond
)

// breaker decides whether Redis is worth asking. Closed: yes. Open: no, until a
// single probe succeeds.
type breaker struct {
	shut   atomic.Bool  // the fast path's view: true while open
	lastOK atomic.Int64 // Unix ns of the last success

	mu  sync.Mutex
	row int // failures since the last success
	// counts is a ring of steps: entry step%windowSlots is valid for its step.
	counts   [windowSlots]struct{ step, ok, bad int64 }
	openFor  time.Duration // length of the present or next open phase
	until    time.Time     // when the next probe may go out
	why      string        // "ok", or the failure that opened it
	since    time.Time     // when why began
	err      error         // what callers get while open
	onChange func(open bool, why string)
}

func newBreaker(now time.Time, onChange func(open bool, why string)) *breaker {
	return &breaker{why: "ok", since: now, openFor: openFirst, onChange: onChange}
}

// refusal returns the error for callers while the breaker is open, else nil.
func (b *breaker) refusal() error {
	if !b.shut.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// record counts the outcome of a batch. hard says that the server failed, not a
// single call: a batch that fails so is one event, not many.
func (b *breaker) record(now time.Time, ok, bad int64, hard bool, why string) {
	if ok > 0 {
		b.lastOK.Store(now.UnixNano())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	step := now.UnixNano() / int64(windowStep)
	c := &b.counts[step%windowSlots]
	if c.step != step {
		c.step, c.ok, c.bad = step, 0, 0
	}
	c.ok += ok
	c.bad += bad
	switch {
	case ok > 0:
		b.row = 0
	case hard:
		b.row++
	}
	if bad > 0 && !b.shut.Load() && (b.row >= tripAfter || b.mostlyBadLocked(step)) {
		b.openLocked(now, why)
	}
}

// mostlyBadLocked reports whether at least half of enough calls in the window
// that ends with step failed. The ratio, not a count, decides: at 1000 calls a
// second a few failures mean nothing.
func (b *breaker) mostlyBadLocked(step int64) bool {
	var ok, bad int64
	for _, c := range b.counts {
		if c.step > step-windowSlots {
			ok, bad = ok+c.ok, bad+c.bad
		}
	}
	return ok+bad >= tripMinimum && bad >= ok
}

// probeDue reports whether the one probe may be sent now.
func (b *breaker) probeDue(now time.Time, idle time.Duration) bool {
	if !b.shut.Load() {
		return now.UnixNano()-b.lastOK.Load() >= int64(idle)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return !now.Before(b.until)
}

// probed takes the outcome of a probe; "" is success. A closed breaker has
// counted it already, as any call.
func (b *breaker) probed(now time.Time, why string) {
	if !b.shut.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if why != "" {
		b.openFor = min(2*b.openFor, openMost)
		b.openLocked(now, why)
		return
	}
	b.row, b.openFor = 0, openFirst
	clear(b.counts[:])
	b.why, b.since, b.err = "ok", now, nil
	b.shut.Store(false)
	b.onChange(false, "ok")
}

// openLocked opens, or stays open for another phase. Jitter only shortens, so
// that replicas part but none is later than promised.
func (b *breaker) openLocked(now time.Time, why string) {
	b.until = now.Add(b.openFor - rand.N(b.openFor/5))
	changed := !b.shut.Load()
	if changed || b.why != why {
		b.why = why
		b.err = fmt.Errorf("redisstore: %s: %w", why, limiter.ErrUnavailable)
	}
	if changed {
		b.since = now
		b.shut.Store(true)
		b.onChange(true, why)
	}
}

// health describes the breaker for readiness and debug pages.
func (b *breaker) health() limiter.Health {
	b.mu.Lock()
	defer b.mu.Unlock()
	return limiter.Health{Usable: !b.shut.Load(), State: b.why, Since: b.since}
}

// trip opens at once, when the very first call has failed.
func (b *breaker) trip(now time.Time, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.openLocked(now, why)
}
