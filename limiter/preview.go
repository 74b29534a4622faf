package limiter

import (
	"context"
	"time"
)

// Met is one limit that a request would meet. Either Rate or Cap is set.
type Met struct {
	Dimension Dimension
	Class     Class
	Rate      Rate  // of a bucket
	Cost      int64 // what the request takes from it
	Cap       int   // of in-flight slots; 0: it is a bucket
	// Never says that the request can never pass, and why: ReasonBlocked or
	// ReasonExceedsBurst. Empty: it can.
	Never Reason
	// Waits says that a request which this limit refuses may wait: in line, or, for
	// its tokens, where admission is deferred.
	Waits bool
	// Level is what the bucket holds now; nil: not asked.
	Level  *Level
	debt   time.Duration // until it holds anything
	bucket BucketID
}

// Missing is how long until the bucket would hold the request's cost if nobody else
// took from it: 0 if it does, or is not known, [Never] if it never will.
func (m Met) Missing() time.Duration {
	switch {
	case m.Never != "":
		return Never
	case m.Level == nil:
		return 0
	}
	missing := float64(max(m.Cost-m.Level.Remaining, 0))
	return m.debt + lasting(missing*float64(m.Rate.Per)/float64(m.Rate.Limit))
}

// Preview lists the limits that r would meet at admission, in the order in which
// they are charged; where a backend is named, those that it would meet there
// instead. It takes nothing and asks nobody.
func (c Config) Preview(r Request, backend ID) []Met {
	d := c.demandOf(r)
	if backend != "" {
		d = c.backendOf(backend, d)
	}
	var all []Met
	for _, charge := range d.take.Charges {
		m := Met{Dimension: charge.Bucket.Dimension, Class: charge.Bucket.Class, Rate: charge.Rate, Cost: charge.Cost, bucket: charge.Bucket}
		switch {
		case charge.Rate.Limit == 0:
			m.Never = ReasonBlocked
		case charge.Cost > charge.Rate.Burst:
			m.Never = ReasonExceedsBurst
		default:
			m.Waits = c.waits(r, m)
		}
		all = append(all, m)
	}
	for _, s := range d.take.Slots {
		all = append(all, Met{Dimension: s.Slot.Dimension, Class: InFlight, Cap: s.Cap})
	}
	return all
}

// waits reports whether a request that m refuses may wait for it.
func (c Config) waits(r Request, m Met) bool {
	_, identified := c.Fair.tenant(r)
	switch {
	case m.Dimension == Backend || r.Anonymous || !identified:
		return false
	case r.Batch:
		return true
	case r.Skip&SkipQueue != 0:
		return false
	case m.Class == Tokens:
		return c.Deferral.Enabled
	}
	return c.Fair.Enabled && m.Dimension.Identifies()
}

// Tenant is the party that r belongs to, with its weight; false: it has none, or
// nobody waits.
func (c Config) Tenant(r Request) (Tenant, bool) {
	if !c.Fair.Enabled || r.Anonymous {
		return Tenant{}, false
	}
	return c.Fair.withDefaults().tenant(r)
}

// Preview is that of the configuration in force, with what the buckets hold now. The
// error is one of Decide's; then the levels are left out.
func (l *Limiter) Preview(ctx context.Context, r Request, backend ID) ([]Met, error) {
	all := l.config().Preview(r, backend)
	var asks []Ask
	var at []int
	for i, m := range all {
		if m.Cap == 0 && m.Rate.Limit > 0 {
			asks, at = append(asks, Ask{Bucket: m.bucket, Rate: &all[i].Rate}), append(at, i)
		}
	}
	d, err := l.Decide(ctx, asks) // of nothing, which takes nothing
	if err != nil || d.Degraded != "" {
		return all, err
	}
	for i, a := range d.Answers {
		all[at[i]].Level, all[at[i]].debt = &a.Level, a.RetryAfter
	}
	return all, nil
}
