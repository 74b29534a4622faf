package limiter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// publishEvery is how often the lines are described to the fleet: half a gossip
// interval, so that what is sent is never older than that.
const publishEvery = 100 * time.Millisecond

// Limiter admits requests. It is safe for concurrent use.
type Limiter struct {
	cfg      atomic.Pointer[Config] // replaced as a whole
	changing sync.Mutex             // held by Reconfigure
	store    *here
	fleet    Fleet
	log      *slog.Logger
	metrics  *metrics
	lines    *lines
	running  atomic.Int64 // granted and not done

	stop    chan struct{}
	stopped sync.WaitGroup
	once    sync.Once
}

// New returns a Limiter over store that advises itself from fl. It starts one
// goroutine, which Close ends. The error lists every mistake of cfg. The
// caller keeps owning store and fl and closes them after the limiter.
func New(cfg Config, store Store, fl Fleet) (*Limiter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Fair = cfg.Fair.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	l := &Limiter{store: newHere(store), fleet: fl, log: cfg.Logger, stop: make(chan struct{})}
	var err error
	if l.metrics, err = newMetrics(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("limiter: metrics: %w", err)
	}
	l.lines = newLines(cfg.Fair, l.store, fl, l.metrics)
	l.adopt(&cfg)
	l.stopped.Go(l.publish)
	return l, nil
}

// publish tells the fleet about the lines until Close.
func (l *Limiter) publish() {
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case now := <-tick.C:
			l.metrics.timeOutage(*l.config(), l.store.Health().Usable, publishEvery)
			l.fleet.Publish(l.lines.share(now), l.running.Load())
		}
	}
}

// Admit asks to start r now, and where that is allowed waits for its turn. It
// returns a Grant, or one of these errors, looked for in this order:
//
//   - a *Refusal, if r can never pass, is refused without waiting, or waited
//     in vain;
//   - an error that wraps ErrUnavailable, if the store cannot decide and a
//     policy says FailClosed;
//   - ctx.Err(), if ctx was cancelled while asking or waiting. A ctx whose
//     deadline passes in the wait line gives a *Refusal with
//     ReasonDeadlineExceeded instead.
//
// In every case but the Grant, r has taken nothing.
func (l *Limiter) Admit(ctx context.Context, r Request) (*Grant, error) {
	tenant, ok := l.config().Fair.tenant(r)
	if !ok || r.Anonymous {
		return l.admit(ctx, r)
	}
	l.metrics.ledger.arrive(tenant, time.Now())
	grant, err := l.admit(ctx, r)
	l.tally(tenant, grant, err)
	return grant, err
}

func (l *Limiter) admit(ctx context.Context, r Request) (*Grant, error) {
	if r.Tokens < 0 {
		return nil, fmt.Errorf("limiter: token estimate %d is negative", r.Tokens)
	}
	d := l.config().demandOf(r)
	if d.unlimited() {
		return l.grant(d, Verdict{}), nil
	}
	if refusal := d.hopeless(); refusal != nil {
		return nil, refusal
	}
	w := l.waiter(r, d)
	if w != nil {
		if b, ok := l.lines.occupied(d); ok {
			return l.wait(ctx, w, place{bucket: b}, nil)
		}
	}
	grant, refusal, at, err := l.ask(ctx, d)
	if refusal == nil {
		if w != nil && grant != nil {
			l.lines.book(d, w.tenant)
		}
		return grant, err
	}
	if w == nil || at == nil {
		return nil, refusal
	}
	return l.wait(ctx, w, *at, refusal)
}

// ask puts one demand to the store. Exactly one of grant, refusal and err is
// set; at says where a refused request may wait, nil if it may not.
func (l *Limiter) ask(ctx context.Context, d *demand) (grant *Grant, refusal *Refusal, at *place, err error) {
	v, err := l.store.Admit(ctx, d.take)
	return l.decide(d, v, err)
}

// decide turns the store's answer on d into a grant, a refusal or an error.
func (l *Limiter) decide(d *demand, v Verdict, err error) (grant *Grant, refusal *Refusal, at *place, _ error) {
	switch {
	case errors.Is(err, ErrUnavailable):
		if l.config().outage(d.dims) == FailOpen {
			l.metrics.outage.WithLabelValues(string(FailOpen)).Inc()
			grant, refusal = l.open(d)
			return grant, refusal, nil, nil
		}
		l.metrics.outage.WithLabelValues(string(FailClosed)).Inc()
		return nil, nil, nil, err
	case err != nil:
		return nil, nil, nil, err
	}
	if v.Local {
		l.metrics.outage.WithLabelValues(string(LocalShare)).Inc()
	}
	if v.OK {
		return l.grant(d, v), nil, nil, nil
	}
	refusal = d.refusal(v)
	refusal.Degraded = v.degraded()
	l.metrics.refuseSlots(d.take.Slots, v.Full)
	if b, wait, narrower, ok := d.contended(v); ok {
		at = &place{bucket: b, wait: wait, tenantWait: narrower}
	}
	return nil, refusal, at, nil
}

// open starts a demand without the store's word. Slots that are counted here
// do not need it.
func (l *Limiter) open(d *demand) (*Grant, *Refusal) {
	if ours(d.take) {
		full, ok := l.store.take(d.take.Slots)
		if !ok {
			l.metrics.refuseSlots(d.take.Slots, full)
			return nil, d.refusal(Verdict{Full: full})
		}
		d = &demand{take: Take{Slots: d.take.Slots}, tokens: d.tokens, skip: d.skip}
	} else {
		d = &demand{tokens: d.tokens, skip: d.skip}
	}
	grant := l.grant(d, Verdict{})
	grant.degraded = degradedOpen
	return grant, nil
}

// grant starts a demand that the store has taken.
func (l *Limiter) grant(d *demand, v Verdict) *Grant {
	l.running.Add(1)
	for _, s := range d.take.Slots {
		l.metrics.slots.add(s.Slot, 1)
	}
	return &Grant{limiter: l, demand: d, levels: d.levels(v), degraded: v.degraded()}
}

// waiter returns r as somebody who may stand in a line, nil if it may not.
func (l *Limiter) waiter(r Request, d *demand) *waiter {
	if !l.config().Fair.Enabled || r.Anonymous || r.Skip&SkipQueue != 0 {
		return nil
	}
	tenant, ok := l.config().Fair.tenant(r)
	if !ok {
		return nil
	}
	now := time.Now()
	deadline := now.Add(l.config().Fair.MaxWait)
	if !r.Deadline.IsZero() && r.Deadline.Before(deadline) {
		deadline = r.Deadline
	}
	return newWaiter(r, d, tenant, now, deadline)
}

// wait holds w in a line until the store admits it, its budget is over, its
// caller leaves or the replica drains. last is the refusal that sent it here,
// nil for a newcomer who joined without asking.
func (l *Limiter) wait(ctx context.Context, w *waiter, at place, last *Refusal) (*Grant, error) {
	if last == nil {
		last = &Refusal{Dimension: at.bucket.Dimension, Class: Requests, Reason: ReasonRequests}
	}
	if reason := l.lines.join(w, at); reason != "" {
		return nil, l.lines.refuse(w, reason, last)
	}
	expiry := time.NewTimer(time.Until(w.deadline))
	defer expiry.Stop()
	for {
		a, reason := l.lines.sleep(ctx, w, expiry.C)
		if reason != "" {
			refusal := l.lines.refuse(w, reason, last)
			if reason == ReasonClientGone {
				return nil, ctx.Err()
			}
			return nil, refusal
		}
		if a.ask {
			if w.demand.unlimited() { // since a change of limits
				return l.served(l.grant(w.demand, Verdict{}), w), nil
			}
			take := w.demand.take
			take.Waited = true
			a.verdict, a.err = l.store.Admit(ctx, take)
		}
		if errors.Is(a.err, ErrUnavailable) && l.lines.bear(w) {
			continue
		}
		grant, refusal, next, err := l.decide(w.demand, a.verdict, a.err)
		switch {
		case errors.Is(err, ErrUnavailable):
			l.lines.abandon(w)
			return nil, err
		case err != nil:
			return nil, l.lines.fail(ctx, w, err, last)
		case grant != nil:
			return l.served(grant, w), nil
		}
		last = refusal
		if next == nil {
			last.Line = l.lines.abandon(w)
			return nil, last
		}
		if reason := l.lines.again(w, *next); reason != "" {
			return nil, l.lines.refuse(w, reason, last)
		}
	}
}

// served ends the wait of w with its grant.
func (l *Limiter) served(grant *Grant, w *waiter) *Grant {
	grant.line, grant.waited = l.lines.granted(w), w
	return grant
}

// Drain refuses every waiter, and everyone who would begin to wait, with
// ReasonDraining. Requests that need not wait are still admitted. It cannot be
// undone.
func (l *Limiter) Drain() { l.lines.drain() }

// Close drains and ends the limiter's goroutine. Grants given out stay valid
// and must still be finished before the store is closed.
func (l *Limiter) Close() {
	l.once.Do(func() {
		l.Drain()
		close(l.stop)
		l.stopped.Wait()
		l.lines.calls.Wait()
	})
}

// Running returns the number of requests granted and not yet done.
func (l *Limiter) Running() int64 { return l.running.Load() }

// Waiting returns the number of requests in lines.
func (l *Limiter) Waiting() int { return l.lines.waiting() }

// Dump writes the live state in text for people: requests running, and every
// line with its tenants.
func (l *Limiter) Dump(w io.Writer) {
	fmt.Fprintf(w, "running %d\n", l.Running())
	l.lines.dump(w)
}
