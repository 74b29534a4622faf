package memstore

import "math"

// minSweep is the least number of buckets worth a sweep for full ones.
const minSweep = 1024

// bucket is the stored state of a token bucket.
type bucket struct {
	tokens int64 // micro-tokens at stamp; negative is debt
	stamp  int64 // µs
	gone   int64 // µs; from then on the bucket is full and forgotten
}

// find reads the bucket of a: full when absent, never above the burst (which
// may have been lowered), its stamp at most one period ahead of a clock that
// went back.
func (c *core) find(now int64, a bucketArg) bucket {
	b, ok := c.buckets[a.key]
	if !ok || now >= b.gone {
		return bucket{tokens: a.burst, stamp: now}
	}
	if b.stamp-now > a.period {
		b.stamp = now
	}
	b.tokens = min(b.tokens, a.burst)
	return b
}

// level returns the micro-tokens at now.
func (b bucket) level(now int64, a bucketArg) int64 {
	return min(a.burst, b.tokens+flow(max(0, now-b.stamp), a))
}

// decide tells whether a.cost is covered, else when it will be.
func (b bucket) decide(now int64, a bucketArg) level {
	l := level{remaining: b.level(now, a)}
	need := a.cost
	if over := a.cost - a.burst; over > 0 {
		need = a.burst
		if over > a.maxDebt {
			l.wait = -1
		}
	}
	switch {
	case a.limit == 0:
		return level{wait: -1}
	case l.wait == 0 && l.remaining < need:
		l.wait = b.stamp + fill(need-b.tokens, a) - now
	}
	return l
}

// put stores tokens as of now. A stamp ahead of a clock that went back is
// kept: going back must not refill twice.
func (c *core) put(now int64, a bucketArg, tokens int64) {
	stamp := max(now, c.find(now, a).stamp)
	full := stamp - now + fill(a.burst-tokens, a)
	ttl := min((full+999)/1000+1, maxTTL)
	c.buckets[a.key] = bucket{tokens: tokens, stamp: stamp, gone: now + ttl*1000}
	if len(c.buckets) >= c.sweepAt {
		c.sweep(now)
	}
}

// sweep forgets full buckets, expired counters and idle pools; doubling the trigger keeps
// it O(1) per write.
func (c *core) sweep(now int64) {
	for key, b := range c.buckets {
		if now >= b.gone {
			delete(c.buckets, key)
		}
	}
	for key, l := range c.leases {
		if now >= l.gone {
			delete(c.leases, key)
		}
	}
	for key, p := range c.pools {
		if now >= p.tagsGone && now >= p.claimsGone {
			delete(c.pools, key)
		}
	}
	c.sweepAt = max(minSweep, 2*len(c.buckets))
}

// maxTTL bounds how long a bucket is remembered, in ms: ten years.
const maxTTL = 315_360_000_000

// flow returns the micro-tokens that dt µs bring, rounded down. It computes in
// doubles, as the scripts must: products stay exact enough (1e-16) up to 2^53.
func flow(dt int64, a bucketArg) int64 {
	return clip(math.Floor(float64(dt) * float64(a.limit) / float64(a.period)))
}

// fill returns the least dt with flow(dt) ≥ tokens, the inverse of flow.
func fill(tokens int64, a bucketArg) int64 {
	dt := clip(math.Ceil(float64(tokens) * float64(a.period) / float64(a.limit)))
	if flow(dt, a) < tokens {
		dt++
	}
	return dt
}

// clip keeps x inside the integers that a double holds exactly.
func clip(x float64) int64 { return int64(min(x, 1<<53)) }
