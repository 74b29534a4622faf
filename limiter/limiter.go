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

	"github.com/headway-limiter/headway/fleet"
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
	lines    *lines       // for who is refused by request counts
	deferred *lines       // for who is refused by token budgets
	batch    *lines       // for batch work
	running  atomic.Int64 // granted and not done
	came     atomic.Uint64

	stop    chan struct{}
	stopped sync.WaitGroup
	once    sync.Once
}

// New returns a Limiter over store, not nil, that advises itself from fl; nil is a
// fleet of this replica alone. It starts one goroutine, which Close ends. The error
// lists every mistake of cfg. The caller keeps owning store and fl and closes them after
// the limiter.
func New(cfg Config, store Store, fl Fleet) (*Limiter, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if store == nil {
		return nil, errors.New("limiter: the store is nil: open one, of package memstore for a single process or redisstore for a fleet")
	}
	cfg = cfg.withDefaults()
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if fl == nil {
		fl = fleet.Solo("")
	}
	l := &Limiter{store: newHere(store), fleet: fl, log: cfg.Logger, stop: make(chan struct{})}
	var err error
	if l.metrics, err = newMetrics(cfg.Registerer); err != nil {
		return nil, fmt.Errorf("limiter: metrics: %w", err)
	}
	l.lines = newLines(fair, &cfg, l.store, fl, l.metrics)
	l.deferred = newLines(deferral, &cfg, l.store, fleet.Solo(""), l.metrics.held.of(deferral))
	l.batch = newLines(batch, &cfg, l.store, fleet.Solo(""), l.metrics.held.of(batch))
	l.lines.past, l.batch.after = l.deferred, []*lines{l.lines, l.deferred}
	l.batch.members = members{}
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
			l.deferred.share(now) // forgets empty lines
			l.batch.share(now)
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
//     deadline passes while waiting gives a *Refusal with
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
	return l.seek(ctx, r, d)
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

// Drain refuses every waiter, and everyone who would begin to wait, with
// ReasonDraining. Requests that need not wait are still admitted. It cannot be
// undone.
func (l *Limiter) Drain() {
	for _, s := range l.all() {
		s.drain()
	}
}

// Close drains and ends the limiter's goroutine. Grants given out stay valid
// and must still be finished before the store is closed.
func (l *Limiter) Close() {
	l.once.Do(func() {
		l.Drain()
		close(l.stop)
		l.stopped.Wait()
		l.lines.close()
	})
}

// Running returns the number of requests granted and not yet done.
func (l *Limiter) Running() int64 { return l.running.Load() }

// Waiting returns the number of requests in lines.
func (l *Limiter) Waiting() (n int) {
	for _, s := range l.all() {
		n += s.waiting()
	}
	return n
}

// Dump writes the live state in text for people: requests running, and every
// line with its tenants.
func (l *Limiter) Dump(w io.Writer) {
	fmt.Fprintf(w, "running %d\n", l.Running())
	for _, s := range l.all() {
		s.dump(w)
	}
}
