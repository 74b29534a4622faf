package memstore

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/headway-limiter/headway/limiter"
)

const (
	claimEcho = 1_000_000 // µs for which an expired claim still holds V back
	tagStep   = 64        // V is this much further between two purges of old tags

	poolMemory = 600_000_000 // µs after which an unused pool forgets its tags
)

// pool is the turn order of one contended bucket, as in lua/pool.lua.
type pool struct {
	tags   map[limiter.ID]float64 // finish tags
	claims map[string]claim       // by incarnation
	v      float64                // virtual time
	used   int64                  // µs; of the latest call
}

// claim is the head that a replica could not serve yet.
type claim struct {
	start  float64
	cost   int64 // micro-tokens
	expiry int64 // µs
}

// bid is one bid of a call: the argument, and what became of it.
type bid struct {
	tenant        limiter.ID
	cost          int64 // micro-tokens
	weight        float64
	since         float64 // negative: unknown
	seq           int64
	buckets       []bucketArg
	leases        []leaseArg
	state         limiter.BidState
	overtaken     bool
	start, finish float64
	rest          admitReply
}

// turnsReply is the reply of pool.
type turnsReply struct {
	late          bool
	wait, alone   int64 // µs; -1 no bid is left
	before, after float64
}

// turns gives turns at bucket a (its cost is ignored) to bids.
func (c *core) turns(now int64, k call, grace int64, a bucketArg, bids []*bid, most int) turnsReply {
	if now > k.notAfter {
		return turnsReply{late: true}
	}
	p := c.pools[a.key]
	if p == nil || now-p.used > poolMemory {
		p = &pool{tags: map[limiter.ID]float64{}, claims: map[string]claim{}}
		c.pools[a.key] = p
	}
	p.used = now
	r := turnsReply{wait: -1, alone: -1, before: p.v}
	hold := p.expire(now, k.inc)
	p.read(bids)
	head := c.serve(now, k, p, a, hold, bids, most)
	if math.Floor(p.v/tagStep) > math.Floor(r.before/tagStep) {
		for t, f := range p.tags {
			if f < p.v-4*float64(a.burst)/1e6 {
				delete(p.tags, t)
			}
		}
	}
	delete(p.claims, k.inc)
	if head != nil {
		b := c.find(now, a)
		until := func(need int64) int64 { return max(0, b.stamp+fill(need-b.tokens, a)-now) }
		r.wait = until(min(head.cost+p.ahead(now, head.start, k.inc), a.burst))
		r.alone = until(head.cost)
		p.claims[k.inc] = claim{start: head.start, cost: head.cost, expiry: now + r.wait + grace}
	}
	r.after = p.v
	return r
}

// expire drops old claims and returns the least start of others' that holds V
// back: live ones and those expired lately.
func (p *pool) expire(now int64, inc string) float64 {
	hold := math.Inf(1)
	for name, c := range p.claims {
		if c.expiry+claimEcho < now {
			delete(p.claims, name)
		} else if name != inc {
			hold = min(hold, c.start)
		}
	}
	return hold
}

// claimed reports whether any replica waits for its turn, or did a moment ago.
func (p *pool) claimed(now int64) bool {
	for _, c := range p.claims {
		if c.expiry+claimEcho >= now {
			return true
		}
	}
	return false
}

// ahead sums the micro-tokens that others' live claims before (s, inc) want.
func (p *pool) ahead(now int64, s float64, inc string) (sum int64) {
	for name, c := range p.claims {
		if name != inc && c.expiry >= now && cmp.Or(cmp.Compare(c.start, s), cmp.Compare(name, inc)) < 0 {
			sum += c.cost
		}
	}
	return sum
}

// read gives every bid its tags.
func (p *pool) read(bids []*bid) {
	for _, b := range bids {
		if b.since = min(b.since, p.v); b.since < 0 {
			b.since = p.v
		}
		f, ok := p.tags[b.tenant]
		if !ok {
			f = b.since
		}
		b.finish, b.start = f, max(f, b.since)
	}
}

// serve grants in the order of start tags until the pool does not cover the
// next, and returns that one.
func (c *core) serve(now int64, k call, p *pool, a bucketArg, hold float64, bids []*bid, most int) *bid {
	open := slices.Clone(bids)
	for granted := 0; len(open) > 0; {
		i := 0
		for j, b := range open {
			if b.start < open[i].start {
				i = j
			}
		}
		best := open[i]
		if granted == most {
			return best
		}
		k.seq = best.seq
		best.rest = c.check(now, k, best.buckets, best.leases)
		if best.rest.status != statusGranted {
			best.state, best.overtaken = limiter.BidBlocked, best.rest.status == statusStale
			open = slices.Delete(open, i, i+1)
			continue
		}
		level := c.find(now, a).level(now, a)
		if level < min(best.cost+p.ahead(now, best.start, k.inc), a.burst) {
			return best
		}
		c.take(now, k, best.buckets, best.leases, best.rest.buckets)
		c.put(now, a, level-best.cost)
		p.v = max(p.v, min(best.start, hold))
		p.tags[best.tenant] = best.start + float64(best.cost)/1e6/best.weight
		granted++
		best.state = limiter.BidGranted
		open = slices.Delete(open, i, i+1)
		for _, b := range bids {
			if b.tenant == best.tenant {
				b.finish = p.tags[b.tenant]
				b.start = max(b.finish, b.since)
			}
		}
	}
	return nil
}

// claimGrace is how long a claim outlives the wait it was told, in µs.
const claimGrace = 50_000

// Turns implements limiter.Store.
func (s *Store) Turns(ctx context.Context, t limiter.Turns) (limiter.TurnsVerdict, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if err := s.usableLocked(ctx); err != nil {
		return limiter.TurnsVerdict{}, err
	}
	bids := s.bidsLocked(t.Bids)
	r := s.m.core.turns(now(), s.callLocked(), claimGrace, bucketOf(t.Pool, t.Rate, 0), bids, t.Most)
	v := limiter.TurnsVerdict{Wait: wait(r.wait), Bucket: wait(r.alone), Before: r.before, After: r.after}
	for _, b := range bids {
		bv := limiter.BidVerdict{State: b.state, Finish: b.finish, Since: b.since}
		if b.state != limiter.BidWaits {
			bv.Rest = verdict(b.rest.buckets, b.state == limiter.BidGranted)
			bv.Rest.Full = make([]bool, len(b.leases))
		}
		for i, l := range b.leases {
			switch b.state {
			case limiter.BidGranted:
				s.held[l.key]++
			case limiter.BidBlocked:
				bv.Rest.Full[i] = b.rest.leases[i] != leaseFits
			}
		}
		v.Bids = append(v.Bids, bv)
	}
	return v, nil
}

// bidsLocked numbers the bids; of several that want a slot of one counter, each
// counts those before it as pending.
func (s *Store) bidsLocked(list []limiter.Bid) []*bid {
	pending := map[limiter.SlotID]int64{}
	bids := make([]*bid, len(list))
	for i, b := range list {
		s.seq++
		bids[i] = &bid{
			tenant: b.Tenant, cost: micro(b.Cost), weight: b.Weight, since: b.Since, seq: s.seq,
			buckets: charges(b.Rest), leases: s.leasesLocked(b.Rest),
		}
		for j := range bids[i].leases {
			l := &bids[i].leases[j]
			l.want += pending[l.key]
			pending[l.key]++
		}
	}
	return bids
}
