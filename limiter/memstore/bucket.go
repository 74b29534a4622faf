package memstore

import "math"

// minSweep is the least number of buckets worth a sweep for full ones.
const minSweep = 1024

// bucket is the stored state of a token bucket.
type bucket struct {
	tokens int64 // micro-tokens at stamp; negative is debt
	stamp  int64 // µs
	gone   int64 // µs; from then on the bucket is full and forgotten

	// The limit that stands, and what replicas that disagree with it have said.
	burst, limit int64 // micro-tokens
	period       int64 // µs
	hold         int64 // µs; from then on more may begin; 0: nobody asks for more
	span         int64 // µs; the longest time to fill of any rate seen; 0: the writer's
}

// found is a bucket as one asks for it: what there is, and under which limit.
type found struct {
	tokens, stamp int64
	now           bucketArg // the limit that stands; the asker's unless hold > 0
	hold, span    int64     // as in bucket
	say           bool      // what stands has changed, or is to be confirmed
}

// find reads the bucket of a: full when absent, never above the burst that
// stands, its stamp at most one period ahead of a clock that went back. What
// replicas must tell each other about the limit is written down, even if a
// takes nothing.
func (c *core) find(now int64, a bucketArg) found {
	f := c.look(now, a)
	if f.say {
		c.store(now, a, f, f.tokens)
		f.say = false
	}
	return f
}

// look is find without writing.
func (c *core) look(now int64, a bucketArg) found {
	f := found{now: a, tokens: a.burst, stamp: now}
	b, ok := c.buckets[a.key]
	if !ok || now >= b.gone {
		return f
	}
	f.tokens, f.stamp = b.tokens, b.stamp
	if f.stamp-now > a.period {
		f.stamp = now
	}
	if a.limit > 0 && (b.hold > 0 || b.span > 0 || b.burst != a.burst || b.limit != a.limit || b.period != a.period) {
		f.agree(now, b, a)
	}
	f.tokens = min(f.tokens, f.now.burst)
	if f.say {
		f.tokens, f.stamp = f.level(now), max(now, f.stamp)
	}
	return f
}

// level returns the micro-tokens at now.
func (f found) level(now int64) int64 {
	return min(f.now.burst, f.tokens+flow(max(0, now-f.stamp), f.now))
}

// until returns how long until the level is need, in µs; a is what was asked.
func (f found) until(now, need int64, a bucketArg) int64 {
	if f.hold > 0 {
		if need <= f.now.burst {
			if at := f.stamp + fill(need-f.tokens, f.now); at <= f.hold {
				return at - now
			}
		}
		f.advance(f.hold) // it is not enough until more begins
		if f.tokens >= need {
			return f.stamp - now
		}
	}
	return f.stamp + fill(need-f.tokens, a) - now
}

// decide tells whether a.cost is covered, else when it will be.
func (f found) decide(now int64, a bucketArg) level {
	l := level{remaining: f.level(now)}
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
		l.wait = f.until(now, need, a)
	}
	return l
}

// put stores tokens as of now. A stamp ahead of a clock that went back is
// kept: going back must not refill twice.
func (c *core) put(now int64, a bucketArg, tokens int64) {
	c.store(now, a, c.find(now, a), tokens)
}

// store writes tokens into a bucket as it was found. It lives until it is full
// again under any limit seen, rounded up, and for a hold's length at least.
func (c *core) store(now int64, a bucketArg, f found, tokens int64) {
	stamp := max(now, f.stamp)
	full := max(holdTime, stamp-now+fill(f.now.burst-tokens, f.now)) + f.span
	ttl := min((full+999)/1000+1, maxTTL)
	c.buckets[a.key] = bucket{
		tokens: tokens, stamp: stamp, gone: now + ttl*1000,
		burst: f.now.burst, limit: f.now.limit, period: f.now.period, hold: f.hold, span: f.span,
	}
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

// exact is 2^53, up to which doubles hold every integer.
const exact = 1 << 53

// flow returns the micro-tokens that dt µs bring, rounded down. It computes in
// doubles, as the scripts must: products stay exact enough (1e-16) up to 2^53.
func flow(dt int64, a bucketArg) int64 {
	return clip(math.Floor(float64(dt) * float64(a.limit) / float64(a.period)))
}

// fill returns the least dt with flow(dt) ≥ tokens, the inverse of flow.
func fill(tokens int64, a bucketArg) int64 {
	dt := clip(math.Ceil(float64(tokens) * float64(a.period) / float64(a.limit)))
	if flow(dt, a) < tokens {
		dt = min(dt+1, exact)
	}
	return dt
}

// clip keeps x inside the integers that a double holds exactly.
func clip(x float64) int64 { return int64(min(x, exact)) }
