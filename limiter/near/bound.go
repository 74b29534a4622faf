package near

import (
	"math"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// bound is the most that the store's bucket can hold, seen from here: a line
// that rises with the bucket's rate through amount tokens at the instant at.
// What this replica is asking for right now is pending: it may be gone by the
// time another asks. The zero bound knows nothing.
//
// Instants are the time since the Store began, by the monotonic clock.
type bound struct {
	set     bool
	at      time.Duration
	amount  int64 // whole tokens, so that waits told twice agree to the nanosecond
	pending int64
	loose   bool          // the bucket may hold up to a token less
	hold    time.Duration // the floor under a wait: nobody asks before for
	held    int64         // so many tokens, or more
}

// fill is the time in which a bucket of rate r gains n tokens, rounded up;
// negative for negative n. Beyond a century it is a century.
func fill(n int64, r limiter.Rate) time.Duration {
	ns := math.Ceil(float64(n) * float64(r.Per) / float64(r.Limit))
	return time.Duration(max(-century, min(century, ns)))
}

// floor is how long a replica asks no more for what it was refused, at least;
// spread by half of itself up and down, so that replicas part. It bounds what
// N replicas ask of one empty bucket in vain to N / floor calls.
const floor = 10 * time.Millisecond

const century = float64(100 * 365 * 24 * time.Hour)

// level is the most that the bucket holds at now, without what is pending.
func (b *bound) level(now time.Duration, r limiter.Rate) float64 {
	return min(float64(r.Burst), b.line(now, r))
}

// line is where the line is at now, which may be above the burst.
func (b *bound) line(now time.Duration, r limiter.Rate) float64 {
	return float64(b.amount) + float64(now-b.at)*float64(r.Limit)/float64(r.Per)
}

// wait is until cost may be there, or for who minds the floor, until they may
// ask; in whole µs rounded up; 0 if that is now. A loose bound refuses only what
// it can tell a wait for that is enough and not much too long; else doubt is the
// one that is enough.
func (b *bound) wait(now time.Duration, r limiter.Rate, cost int64, mind bool) (w, doubt time.Duration) {
	w = b.at + fill(cost+b.pending-b.amount, r) - now
	if token := fill(1, r); w > 0 && b.loose {
		if w += token; token > floor {
			w, doubt = 0, micros(w)
		}
	}
	if mind && cost >= b.held {
		w = max(w, b.hold-now)
	}
	return micros(max(0, w)), doubt
}

// micros rounds up to whole µs, as the store tells waits.
func micros(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}

// least is the shortest wait that a refusal tells: no replica, whenever it was
// refused, holds anybody back for longer than that beyond the bucket's own wait.
// So who returns in time is asked for wherever it arrives.
func least(t limiter.Take) (d time.Duration) {
	if !t.Waited {
		for _, c := range t.Charges {
			d = max(d, micros(min(floor*3/2, fill(c.Rate.Burst, c.Rate)/2)))
		}
	}
	return d
}

// reserve counts cost as taken until take or cancel says what became of it. The
// line is cut at the burst first: a full bucket has not saved what overflowed.
func (b *bound) reserve(now time.Duration, r limiter.Rate, cost int64) {
	if at := b.at + fill(r.Burst+b.pending-b.amount, r); at < now {
		b.at, b.amount = now, r.Burst+b.pending
	}
	b.pending += cost
}

// take ends a reservation that the store has granted.
func (b *bound) take(cost int64) {
	b.pending -= cost
	b.amount -= cost
}

// cancel ends a reservation that took nothing.
func (b *bound) cancel(cost int64) { b.pending -= cost }

// sight is what a reply says of a bucket: it holds low tokens or more at the
// instant of low, and high or fewer at that of high.
type sight struct {
	low, high     int64
	lowAt, highAt time.Duration
}

// refusedUntil is the sight of a refusal: a reply that came at now said that the
// bucket will hold cost after wait. It was decided a little earlier, so nobody
// is let through too early by it, and nobody held back for longer than the
// caller of that reply was told.
func refusedUntil(now, wait time.Duration, cost int64) sight {
	return sight{low: cost, high: cost, lowAt: now + wait, highAt: now + wait}
}

// leftWith is the sight of a level in whole tokens, rounded down, in a reply to
// a call that was sent and came back at these instants.
func leftWith(sent, now time.Duration, remaining int64) sight {
	return sight{low: remaining, high: remaining + 1, lowAt: now, highAt: sent}
}

// see lets the line follow the store, down and up. Replies come out of order and
// may or may not have counted what is pending, so the line may lie above what
// was seen by all of that. A line is not in accord with what was seen just because
// the burst cuts both: it would tell waits that are too short.
func (b *bound) see(s sight, r limiter.Rate) {
	if b.set {
		low := min(float64(s.low), float64(r.Burst))
		if b.level(s.lowAt, r) >= low && (s.high > r.Burst || b.line(s.highAt, r) <= float64(s.high+b.pending)) {
			b.loose = b.loose && s.high > s.low
			return
		}
	}
	b.set, b.at, b.amount, b.loose = true, s.highAt, s.high+b.pending, s.high > s.low
}

// refuse holds everybody back after a refusal of cost that came at now: for d,
// at most floor·3/2, but never so long that a bucket that had cost would
// overflow.
func (b *bound) refuse(now time.Duration, r limiter.Rate, cost int64, d time.Duration) {
	b.hold, b.held = now+min(d, fill(r.Burst-cost, r)/2), cost
}

// give learns of n tokens that this replica gives back: others need not wait.
func (b *bound) give(n int64) {
	if b.set {
		b.amount += n
		b.hold = 0
	}
}
