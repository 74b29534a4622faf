package limiter

import (
	"cmp"
	"slices"
	"time"
)

// demand is what one request asks of the store.
type demand struct {
	take   Take
	dims   []Dimension // that limit this request, each once
	tokens int64       // estimated
	skip   Skip

	version uint64 // of the configuration
}

// breadth orders dimensions by how many tenants share one bucket of them.
var breadth = map[Dimension]int{APIKey: 1, User: 2, Team: 3, Model: 4}

// demandOf lists every limit that applies to r, in the order of Dimensions,
// request counts before token budgets before in-flight slots.
func (c Config) demandOf(r Request) *demand {
	d := &demand{tokens: r.Tokens, skip: r.Skip, version: c.version}
	var rules [len(Dimensions)]Rule // the zero Rule where none applies
	for i, dim := range Dimensions {
		id := r.Of(dim)
		limit, limited := c.Limits[dim]
		if !limited || id == "" || (r.Anonymous && dim.Identifies()) || (r.Step && dim != Model) {
			continue
		}
		rules[i] = limit.rule(id).without(r.Skip)
		if rules[i] != (Rule{}) {
			d.dims = append(d.dims, dim)
		}
	}
	for i, dim := range Dimensions {
		if rate := rules[i].Requests; rate != nil {
			d.charge(BucketID{dim, Requests, r.Of(dim), c.home(dim, r)}, *rate, 1)
		}
	}
	for i, dim := range Dimensions {
		if rate := rules[i].Tokens; rate != nil {
			d.charge(BucketID{dim, Tokens, r.Of(dim), c.home(dim, r)}, *rate, r.Tokens)
		}
	}
	for i := range d.take.Charges {
		charge := &d.take.Charges[i]
		charge.InTurn = c.Fair.inTurn(charge.Bucket) && !r.Anonymous && (r.Batch || r.Skip&SkipQueue == 0)
	}
	for i, dim := range Dimensions {
		if n := rules[i].MaxInFlight; n > 0 {
			d.take.Slots = append(d.take.Slots, Slot{SlotID{dim, r.Of(dim), c.home(dim, r), c.LocalSlots}, n})
		}
	}
	return d
}

// home is where the keys of r in dimension dim are kept: with its widest tenant,
// which every key, user and team of r belongs to.
func (c Config) home(dim Dimension, r Request) ID {
	if !c.Homes || !dim.Tenant() {
		return ""
	}
	return cmp.Or(r.Team, r.User, r.APIKey)
}

func (d *demand) charge(b BucketID, rate Rate, cost int64) {
	d.take.Charges = append(d.take.Charges, Charge{Bucket: b, Rate: rate, Cost: cost})
}

// rate is the rate of bucket b in d.
func (d *demand) rate(b BucketID) Rate {
	for _, c := range d.take.Charges {
		if c.Bucket == b {
			return c.Rate
		}
	}
	return Rate{}
}

// without is d's take less bucket b.
func (d *demand) without(b BucketID) Take {
	t := Take{Slots: d.take.Slots}
	for _, c := range d.take.Charges {
		if c.Bucket != b {
			t.Charges = append(t.Charges, c)
		}
	}
	return t
}

// with puts bucket b, covered, back into a verdict on without(b).
func (d *demand) with(b BucketID, v Verdict) Verdict {
	for i, c := range d.take.Charges {
		if c.Bucket == b {
			v.Charges = slices.Insert(v.Charges, i, ChargeVerdict{})
		}
	}
	return v
}

// undo gives everything back that d took.
func (d *demand) undo() Settlement {
	var s Settlement
	for _, c := range d.take.Charges {
		if c.Cost > 0 {
			s.Adjust = append(s.Adjust, Adjustment{Bucket: c.Bucket, Rate: c.Rate, Delta: c.Cost})
		}
	}
	for _, slot := range d.take.Slots {
		s.Free = append(s.Free, slot.Slot)
	}
	return s
}

// unlimited reports whether there is nothing to ask the store.
func (d *demand) unlimited() bool { return len(d.take.Charges) == 0 && len(d.take.Slots) == 0 }

// hopeless returns the refusal of a request that can never pass, which needs
// no store to tell; nil if there is hope.
func (d *demand) hopeless() *Refusal {
	for _, c := range d.take.Charges {
		if c.Rate.Limit == 0 || c.Cost > c.Rate.Burst {
			return &Refusal{Dimension: c.Bucket.Dimension, Class: c.Bucket.Class, Reason: c.reason(Never), RetryAfter: Never}
		}
	}
	return nil
}

// reason names why this charge is refused with that wait.
func (c Charge) reason(wait time.Duration) Reason {
	switch {
	case c.Rate.Limit == 0:
		return ReasonBlocked
	case wait == Never:
		return ReasonExceedsBurst
	case c.Bucket.Class == Tokens:
		return ReasonTokens
	}
	return ReasonRequests
}

// reasons names a refusal by class.
var reasons = map[Class]Reason{Requests: ReasonRequests, Tokens: ReasonTokens, InFlight: ReasonInFlight}

// slotRetry is the wait told for an in-flight refusal: nobody knows when a
// running request ends.
const slotRetry = time.Second

// refusal names the limit that v says is exhausted; v is not OK.
func (d *demand) refusal(v Verdict) *Refusal {
	var best *Refusal
	longest := time.Duration(0)
	consider := func(r Refusal) {
		if longer(r.RetryAfter, longest) {
			longest = r.RetryAfter
		}
		if best == nil || r.namedBefore(best) {
			best = &r
		}
	}
	for i, c := range d.take.Charges[:min(len(d.take.Charges), len(v.Charges))] {
		if wait := v.Charges[i].Wait; wait != 0 || v.Charges[i].Contended {
			consider(Refusal{Dimension: c.Bucket.Dimension, Class: c.Bucket.Class, Reason: c.reason(wait), RetryAfter: wait})
		}
	}
	for i, s := range d.take.Slots {
		if v.Full[i] {
			consider(Refusal{Dimension: s.Slot.Dimension, Class: InFlight, Reason: ReasonInFlight, RetryAfter: slotRetry})
		}
	}
	best.RetryAfter, best.Levels = longest, d.levels(v)
	return best
}

// namedBefore orders refusals: before authentication first, then by class,
// then by the longest wait, then in the order of Dimensions.
func (r *Refusal) namedBefore(o *Refusal) bool {
	switch {
	case r.Dimension.Identifies() != o.Dimension.Identifies():
		return o.Dimension.Identifies()
	case r.Class != o.Class:
		return r.Class < o.Class
	}
	return longer(r.RetryAfter, o.RetryAfter)
}

// longer compares waits, of which Never is the longest.
func longer(a, b time.Duration) bool { return b != Never && (a == Never || a > b) }

// contended returns the widest bucket that refuses with its wait, and the
// longest wait of any narrower one, if v is a refusal that a request may wait
// for: by request counts alone, of dimensions that identify somebody.
func (d *demand) contended(v Verdict) (b BucketID, wait, narrower time.Duration, ok bool) {
	for _, full := range v.Full {
		if full {
			return b, 0, 0, false
		}
	}
	for i, c := range d.take.Charges {
		w := v.Charges[i].Wait
		if w == 0 && !v.Charges[i].Contended {
			continue
		}
		if w == Never || c.Bucket.Class != Requests || !c.Bucket.Dimension.Identifies() {
			return b, 0, 0, false
		}
		if !ok || breadth[c.Bucket.Dimension] > breadth[b.Dimension] {
			narrower = max(narrower, wait)
			b, wait, ok = c.Bucket, w, true
		} else {
			narrower = max(narrower, w)
		}
	}
	return b, wait, narrower, ok
}

// buckets calls f with each bucket that a line may form at, widest first,
// until it returns false.
func (d *demand) buckets(f func(BucketID) bool) {
	for i := len(d.take.Charges) - 1; i >= 0; i-- {
		b := d.take.Charges[i].Bucket
		if b.Class == Requests && b.Dimension.Identifies() && !f(b) {
			return
		}
	}
}

// levels returns what the caller may know: its own API-key buckets.
func (d *demand) levels(v Verdict) Levels {
	var l Levels
	for i, c := range d.take.Charges {
		if c.Bucket.Dimension != APIKey || i >= len(v.Charges) {
			continue
		}
		level := c.Rate.level(v.Charges[i].Remaining)
		if c.Bucket.Class == Requests {
			l.Requests = &level
		} else {
			l.Tokens = &level
		}
	}
	return l
}

// longest is told of waits that are longer: a century.
const longest = 100 * 365 * 24 * time.Hour

// lasting is a wait of so many ns. A Duration holds three centuries, less than some
// limits take to fill their buckets.
func lasting(ns float64) time.Duration { return time.Duration(min(ns, float64(longest))) }

// level describes a bucket of this rate that holds remaining tokens.
func (r Rate) level(remaining int64) Level {
	l := Level{Rate: r, Remaining: max(remaining, 0)}
	if r.Limit > 0 && remaining < r.Burst {
		missing := float64(r.Burst - remaining)
		l.Reset = lasting(missing * float64(r.Per) / float64(r.Limit))
	}
	return l
}

// settlement ends a granted demand: slots are freed, and token budgets are
// corrected from the estimate to what was really used.
func (d *demand) settlement(o Outcome) Settlement {
	var s Settlement
	for _, c := range d.take.Charges {
		if c.Bucket.Class != Tokens {
			continue
		}
		if delta := o.correction(c.Cost); delta != 0 {
			s.Adjust = append(s.Adjust, Adjustment{Bucket: c.Bucket, Rate: c.Rate, Delta: delta})
		}
	}
	for _, slot := range d.take.Slots {
		s.Free = append(s.Free, slot.Slot)
	}
	return s
}
