package limiter

import (
	"cmp"
	"sync/atomic"
	"time"
)

// Outcome says how a granted request ended.
type Outcome struct {
	// Tokens is what the provider reports as used. Negative means unknown: the
	// estimate stands.
	Tokens int64
	// Failed says that the provider did not serve the request (an error status,
	// a timeout, no connection): its token estimate is given back, the request
	// count is not.
	Failed bool
	// Void says that nothing was started at all: everything that admission took
	// is given back. The rest does not matter then.
	Void bool
}

// correction is what a budget is given (> 0) or charged (< 0) on top of an
// estimate that was taken at admission.
func (o Outcome) correction(estimate int64) int64 {
	switch {
	case o.Failed:
		return estimate
	case o.Tokens < 0:
		return 0
	}
	return estimate - o.Tokens
}

// Grant is permission to start. It holds the request's in-flight slots and
// must be finished exactly once, by Done. A Grant is safe for concurrent use.
type Grant struct {
	limiter  *Limiter
	demand   *demand
	levels   Levels
	line     *LineInfo
	held     *HeldInfo
	waited   *waiter // nil if never queued
	backend  *picked // nil if none is selected, or it has no limits
	degraded string  // see Degraded
	tenant   ID      // whom it is counted for; empty: nobody
	told     Reason  // why the last backend was refused; empty: none was
	finished atomic.Bool
}

// Levels returns the caller's own API-key buckets after this request was
// charged.
func (g *Grant) Levels() Levels { return g.levels }

// Line describes the wait, nil if the request started at once.
func (g *Grant) Line() *LineInfo { return g.line }

// Held describes how long the request was held for its budgets, nil if it was not.
func (g *Grant) Held() *HeldInfo { return g.held }

// Degraded is empty for a normal grant. While the store was out it is "open"
// for one given without anybody's word (see FailOpen), and "local" for one by
// this replica's share of the limits (see LocalShare).
func (g *Grant) Degraded() string {
	if p := g.backend; p != nil {
		return cmp.Or(g.degraded, p.degraded)
	}
	return g.degraded
}

// Values of Degraded.
const (
	degradedOpen  = "open"
	degradedLocal = "local"
)

// degraded names what is special about v.
func (v Verdict) degraded() string {
	if v.Local {
		return degradedLocal
	}
	return ""
}

// Done ends the request: its slots are free at once, its token budgets are
// corrected. It never blocks. Only the first call has an effect; another is a
// bug of the caller, which is logged and counted.
func (g *Grant) Done(o Outcome) {
	if g.finished.Swap(true) {
		g.limiter.metrics.bugs.WithLabelValues("done_twice").Inc()
		g.limiter.log.Error("limiter: Done called twice for one grant")
		return
	}
	g.limiter.running.Add(-1)
	s := g.ended(o)
	s.Local = g.degraded == degradedLocal
	for _, slot := range s.Free {
		g.limiter.metrics.slots.add(slot, -1)
	}
	if len(s.Adjust) > 0 || len(s.Free) > 0 {
		g.limiter.store.Settle(s)
	}
	g.limiter.batch.freed(s.Free)
}

// ended is how a request that ended so is settled, its backend included as far
// as one settlement can hold both.
func (g *Grant) ended(o Outcome) Settlement {
	waited := g.waited
	if g.degraded == degradedOpen {
		waited = nil // its turn took nothing
	}
	if o.Void {
		g.limiter.metrics.ledger.void(g.tenant, g.told, time.Now())
		g.Deselect()
		if waited != nil {
			return waited.lines.undo(waited, g.degraded == degradedLocal)
		}
		return g.demand.undo()
	}
	if waited != nil {
		waited.lines.settle(waited, o)
	}
	s := g.demand.settlement(o)
	switch p := g.backend; {
	case p == nil || p.degraded == degradedOpen:
	case p.degraded == g.degraded:
		s.Adjust = append(s.Adjust, p.demand.settlement(o).Adjust...)
	default:
		b := p.demand.settlement(o)
		b.Local = p.degraded == degradedLocal
		if len(b.Adjust) > 0 {
			g.limiter.store.Settle(b)
		}
	}
	return s
}
