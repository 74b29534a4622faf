package localshare

import (
	"math"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// token is one whole token, in the micro-tokens that buckets hold.
const token = 1_000_000

// exact is the largest integer up to which doubles have no gaps.
const exact = 1 << 53

// bucket is the share of one bucket, as the level of the whole fleet's bucket if
// all replicas had done as this one. Whole numbers, so that nothing creeps in.
type bucket struct {
	level int64 // micro-tokens at stamp; negative is debt
	stamp int64 // µs on the store's clock
	owed  int64 // micro-tokens granted here during the outage, not yet told
	rate  limiter.Rate
}

// clock is monotonic: a wall clock that jumps refills nothing.
type clock struct{ base time.Time }

func (c clock) at(t time.Time) int64 { return t.Sub(c.base).Microseconds() }

// micro converts whole tokens, n times; it saturates far above any bucket.
func micro(tokens, n int64) int64 {
	if tokens > math.MaxInt64/4/token/max(1, n) {
		return math.MaxInt64 / 4
	}
	return tokens * token * n
}

// flow is what a rate brings in dt µs, rounded down.
func flow(dt int64, r limiter.Rate) int64 {
	x := math.Floor(float64(max(0, dt)) * float64(r.Limit) * token / float64(r.Per.Microseconds()))
	return int64(min(x, exact))
}

// fill is how long a rate takes to bring amount, rounded up.
func fill(amount int64, r limiter.Rate) time.Duration {
	us := int64(min(math.Ceil(float64(amount)*float64(r.Per.Microseconds())/float64(r.Limit)/token), exact))
	if flow(us, r) < amount {
		us++
	}
	return time.Duration(min(us, math.MaxInt64/1000)) * time.Microsecond
}

// advance brings b to an instant under rate r; it holds at most most.
func (b *bucket) advance(now int64, r limiter.Rate, most int64) {
	b.level, b.stamp, b.rate = min(most, b.level+flow(now-b.stamp, r)), max(b.stamp, now), r
}

// full reports whether b says nothing that its absence would not: it lacks
// nothing, so it owes nothing either.
func (b *bucket) full(now int64) bool {
	return b.level+flow(now-b.stamp, b.rate) >= micro(b.rate.Burst, 1)
}

// debt is what the store's bucket is to be charged after an outage, in whole
// tokens: no more than was granted, and no more than this share lacks.
func (b *bucket) debt(n int) int64 {
	lack := (micro(b.rate.Burst, 1) - max(0, b.level) + int64(n) - 1) / int64(n)
	return (min(b.owed, lack) + token - 1) / token
}
