package limiter

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Descriptor is the dimension of limits that a caller of Decide brings along
// with their rates: those of a proxy's descriptors. Requests never have it.
const Descriptor Dimension = "descriptor"

// Ask is one bucket's part of an immediate decision.
type Ask struct {
	// Bucket is named as in a Request. With Config.Homes and an empty Home it is kept
	// with the widest tenant that the asks beside it name: all that is known of one
	// request should be asked together.
	Bucket BucketID
	// Cost is in whole tokens of the bucket, ≥ 0. Zero takes nothing and is
	// refused only by a bucket in debt.
	Cost int64
	// Rate replaces what the configuration says of this bucket; nil: the
	// configured rate, and without one the bucket is unlimited.
	Rate *Rate
}

// Answer is what became of an Ask.
type Answer struct {
	Limited bool // false: nothing limits it; the rest is zero
	Rate    Rate
	Level   Level // after the decision
	// Refused says that this bucket stood in the way, Reason why, and RetryAfter
	// for how long, Never if for ever.
	Refused    bool
	Reason     Reason
	RetryAfter time.Duration
}

// Decision is the outcome of Decide.
type Decision struct {
	OK       bool
	Answers  []Answer // one per Ask
	Degraded string   // as Grant.Degraded
}

// Decide takes from all buckets at once or from none, now: nobody waits, and
// nobody who waits elsewhere is overtaken. It serves proxies that ask about a
// request but never tell its end, so nothing is held and nothing needs to be
// finished; what was taken in vain is given back by Correct. Several asks for
// one bucket are taken together and share their fate.
//
// The error wraps ErrUnavailable if the store cannot decide and a policy says
// so, or is ctx.Err(); any other names an impossible ask.
func (l *Limiter) Decide(ctx context.Context, asks []Ask) (Decision, error) {
	take, at, err := l.takeOf(asks)
	if err != nil {
		return Decision{}, err
	}
	d := Decision{OK: true, Answers: make([]Answer, len(asks))}
	if len(take.Charges) == 0 {
		return d, nil
	}
	v, err := l.store.Admit(ctx, take)
	open, err := l.policed(take.dims(), v, err)
	switch {
	case err != nil:
		return Decision{}, err
	case open:
		d.Degraded = degradedOpen
		return d, nil
	}
	d.OK, d.Degraded = v.OK, v.degraded()
	for i := range asks {
		if at[i] >= 0 {
			d.Answers[i] = take.Charges[at[i]].answer(v.Charges[at[i]])
		}
	}
	return d, nil
}

// Correct gives back (Cost > 0 with give) or charges (without) after the fact,
// into debt if need be. It never waits and never fails; like every settlement,
// what is given back arrives at most once, and a charge at least once.
func (l *Limiter) Correct(asks []Ask, give bool) error {
	take, _, err := l.takeOf(asks)
	if err != nil {
		return err
	}
	var s Settlement
	for _, c := range take.Charges {
		if delta := c.Cost; delta > 0 {
			if !give {
				delta = -delta
			}
			s.Adjust = append(s.Adjust, Adjustment{Bucket: c.Bucket, Rate: c.Rate, Delta: delta})
		}
	}
	if len(s.Adjust) > 0 {
		l.store.Settle(s)
	}
	return nil
}

// takeOf gathers asks, those for one bucket together; at says where each went,
// -1 for one that nothing limits.
func (l *Limiter) takeOf(asks []Ask) (take Take, at []int, err error) {
	at = make([]int, len(asks))
	cfg, whole := l.config(), whose(asks)
	for i, a := range asks {
		a.Bucket.Home = cmp.Or(a.Bucket.Home, cfg.home(a.Bucket.Dimension, whole))
		rate := a.Rate
		if rate == nil {
			rate = l.rateOf(a.Bucket)
		}
		switch {
		case a.Cost < 0 || a.Cost > maxAmount:
			return take, nil, fmt.Errorf("limiter: cost %d of %s is not in 0..%d", a.Cost, a.Bucket.Dimension, int64(maxAmount))
		case rate == nil || a.Bucket.ID == "":
			at[i] = -1
			continue
		}
		if err := rate.validate(string(a.Bucket.Dimension)); err != nil {
			return take, nil, err
		}
		at[i] = take.add(Charge{Bucket: a.Bucket, Rate: *rate, Cost: a.Cost, InTurn: cfg.Fair.inTurn(a.Bucket)})
	}
	return take, at, nil
}

// whose is a request by the tenants that asks name.
func whose(asks []Ask) (r Request) {
	for _, a := range asks {
		switch a.Bucket.Dimension {
		case APIKey:
			r.APIKey = a.Bucket.ID
		case User:
			r.User = a.Bucket.ID
		case Team:
			r.Team = a.Bucket.ID
		}
	}
	return r
}

// rateOf is the configured rate of b, nil if there is none.
func (l *Limiter) rateOf(b BucketID) *Rate {
	return (&rates{l.config()}).of(b)
}

// dims lists the dimensions of t's charges.
func (t Take) dims() []Dimension {
	dims := make([]Dimension, len(t.Charges))
	for i, c := range t.Charges {
		dims[i] = c.Bucket.Dimension
	}
	return dims
}

// add appends c, or its cost to a charge of the same bucket, and returns where.
// Two rates for one bucket make one: the first.
func (t *Take) add(c Charge) int {
	for i := range t.Charges {
		if t.Charges[i].Bucket == c.Bucket {
			t.Charges[i].Cost += c.Cost
			return i
		}
	}
	t.Charges = append(t.Charges, c)
	return len(t.Charges) - 1
}

// answer tells the asker of c what the store said.
func (c Charge) answer(v ChargeVerdict) Answer {
	a := Answer{Limited: true, Rate: c.Rate, Level: c.Rate.level(v.Remaining)}
	if v.Wait != 0 || v.Contended {
		a.Refused, a.Reason, a.RetryAfter = true, c.reason(v.Wait), v.Wait
	}
	return a
}
