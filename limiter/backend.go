package limiter

import (
	"context"
	"time"
)

// picked is the backend that a grant has selected, with what its limits took.
type picked struct {
	demand   *demand
	degraded string // as Grant.degraded
}

// Select picks the first of candidates whose Backend limits cover the request,
// and takes from them what the request costs; the empty ID has no limits. It
// returns its index. Done settles the tokens with the rest; a backend that the
// request never reached is given up by Deselect, or by selecting another.
//
// Only when every candidate refuses, or there is none, the error is a *Refusal:
// that of the candidate that would pass first, for that is when to come back.
// It may also wrap ErrUnavailable (the store cannot decide, and the policy of
// Backend says so) or be ctx.Err(). After an error nothing is selected, and what
// admission took is still held: Done gives it back if its Outcome is Void.
//
// Each candidate with limits costs a call to the store, as long as it refuses.
// Select, Deselect and Done of one Grant must not run at the same time.
func (g *Grant) Select(ctx context.Context, candidates []ID) (int, error) {
	g.Deselect()
	cfg := g.limiter.config()
	if _, limited := cfg.Limits[Backend]; !limited && len(candidates) > 0 {
		return 0, nil
	}
	refusal := &Refusal{Dimension: Backend, Reason: ReasonBlocked, RetryAfter: Never}
	for i, id := range candidates {
		d := cfg.backendOf(id, g.demand)
		if d.unlimited() {
			return i, nil
		}
		pick, r, err := g.limiter.pick(ctx, d)
		switch {
		case err != nil:
			return 0, err
		case r == nil:
			g.backend = pick
			return i, nil
		case i == 0 || longer(refusal.RetryAfter, r.RetryAfter):
			refusal = r
		}
	}
	refusal.Line, refusal.Levels, g.told = g.line, g.restored(), refusal.Reason
	return 0, refusal
}

// Deselect gives back in full what the last Select took from its backend,
// because nothing was sent there. Without a selection it does nothing.
func (g *Grant) Deselect() {
	if p := g.backend; p != nil && p.degraded != degradedOpen {
		s := p.demand.undo()
		s.Local = p.degraded == degradedLocal
		g.limiter.store.Settle(s)
	}
	g.backend = nil
}

// Refused gives back what the last Select took, and words the refusal of a backend
// that has room by its limits, but cannot be asked for another reason until wait
// has passed; Never, if no retry can help. Done gives back the rest, if its Outcome
// is Void.
func (g *Grant) Refused(reason Reason, wait time.Duration) *Refusal {
	g.Deselect()
	g.told = reason
	return &Refusal{Dimension: Backend, Reason: reason, RetryAfter: wait, Line: g.line, Levels: g.restored()}
}

// pick asks for one backend. Exactly one of the results is set.
func (l *Limiter) pick(ctx context.Context, d *demand) (*picked, *Refusal, error) {
	if r := d.hopeless(); r != nil {
		return nil, r, nil
	}
	v, err := l.store.Admit(ctx, d.take)
	open, err := l.policed(d.dims, v, err)
	switch {
	case err != nil:
		return nil, nil, err
	case open:
		return &picked{d, degradedOpen}, nil, nil
	case v.OK:
		return &picked{d, v.degraded()}, nil, nil
	}
	r := d.refusal(v)
	r.Degraded = v.degraded()
	return nil, r, nil
}

// backendOf is what a request whose own demand is d asks of backend id.
func (c Config) backendOf(id ID, d *demand) *demand {
	b := &demand{tokens: d.tokens, skip: d.skip}
	if id == "" {
		return b
	}
	rule := c.Limits[Backend].rule(id).without(d.skip)
	if rule.Requests != nil {
		b.charge(BucketID{Dimension: Backend, Class: Requests, ID: id}, *rule.Requests, 1)
	}
	if rule.Tokens != nil {
		b.charge(BucketID{Dimension: Backend, Class: Tokens, ID: id}, *rule.Tokens, d.tokens)
	}
	b.dims = []Dimension{Backend}
	return b
}

// without is r less the classes that a request is exempt from.
func (r Rule) without(skip Skip) Rule {
	if skip&SkipRequests != 0 {
		r.Requests = nil
	}
	if skip&SkipTokens != 0 {
		r.Tokens = nil
	}
	if skip&SkipInFlight != 0 {
		r.MaxInFlight = 0
	}
	return r
}

// restored are the grant's levels once it is given back.
func (g *Grant) restored() Levels {
	l := g.levels
	give := func(level *Level, cost int64) *Level {
		if level == nil {
			return nil
		}
		back := level.Rate.level(min(level.Remaining+cost, level.Rate.Burst))
		return &back
	}
	return Levels{Requests: give(l.Requests, 1), Tokens: give(l.Tokens, g.demand.tokens)}
}
