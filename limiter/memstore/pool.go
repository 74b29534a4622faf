package memstore

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/headway-limiter/headway/limiter"
)

const (
	patience  = 200_000   // µs; so late may a replica notice that those before it left
	claimEcho = 1_000_000 // µs for which an expired claim still holds V back
	tagStep   = 64        // V is this much further between two purges of old tags
	tagBursts = 4         // tags this many bursts behind V are not kept

	tagMemory = 600_000 // ms after which a pool that could be full forgets its tags
)

// pool is the turn order of one contended bucket or counter, as in lua/pool.lua.
type pool struct {
	tags     map[limiter.ID]float64 // finish tags
	v        float64                // virtual time
	tagsGone int64                  // µs; from then on tags and v are forgotten

	claims     map[string]claim // by incarnation
	claimsGone int64            // µs; from then on there are none
}

// claim is the head that a replica could not serve yet.
type claim struct {
	start  float64
	cost   int64 // micro-tokens
	expiry int64 // µs
	tenant limiter.ID
}

// bid is one bid of a call: the argument, and what became of it.
type bid struct {
	tenant    limiter.ID
	cost      int64 // micro-tokens
	weight    float64
	since     float64 // negative: unknown
	seq       int64
	buckets   []bucketArg
	leases    []leaseArg
	state     limiter.BidState
	overtaken bool
	finish    float64
	behind    float64 // turns of its tenant that others claimed before
	rest      admitReply
}

// start is the tag of its turn, order where it stands among all bids and claims.
func (b *bid) start() float64 { return max(b.finish, b.since) }
func (b *bid) order() float64 { return b.start() + b.behind }

// turnsArg is how a replica asks, besides its bids.
type turnsArg struct {
	grace int64 // µs; how long its claim outlives the wait it is told
	rest  int64 // µs; it does not ask again before, if it must wait
	more  int64 // micro-tokens that it would bid for besides
	most  int   // grants
}

// turnsReply is the reply of pool.
type turnsReply struct {
	late, stale   bool
	wait, alone   int64 // µs; -1 no bid is left
	before, after float64
}

// turns gives turns at pool a to bids.
func (c *core) turns(now int64, k call, o turnsArg, a stock, bids []*bid) turnsReply {
	if now > k.notAfter {
		return turnsReply{late: true}
	}
	if c.overtaken(now, k, a) {
		return turnsReply{stale: true}
	}
	p := c.poolAt(now, a.id())
	r := turnsReply{wait: -1, alone: -1, before: p.v}
	hold := p.expire(now, k.inc)
	p.read(now, k.inc, bids, a.bucket)
	level, full := c.stocked(now, k, a)
	head, granted := c.serve(now, k, p, level, full, hold, bids, o.most)
	if granted > 0 {
		level -= c.takeStock(now, k, a, level, bids)
		p.tagsGone = now + min(maxTTL, tagMemory+fill(a.bucket.burst, a.bucket)/1000)*1000
		p.purge(r.before, a.bucket)
	}
	delete(p.claims, k.inc)
	if head != nil {
		need := head.cost + p.ahead(now, head.order(), k.inc)
		until := func(need int64) int64 { return c.stockWait(now, a, level, need) }
		r.wait = max(until(min(need, full)), min(patience, until(need)))
		r.alone = until(head.cost)
		cost := head.cost + min(flow(max(0, o.rest-r.wait), a.bucket), behind(bids, head)+o.more)
		p.claim(now, k.inc, claim{start: head.order(), cost: cost, expiry: now + r.wait + o.grace, tenant: head.tenant})
	}
	r.after = p.v
	return r
}

// behind sums the micro-tokens of bids that wait behind the head. A claim also
// covers what comes while its replica rests though its turn is there.
func behind(bids []*bid, head *bid) (sum int64) {
	for _, b := range bids {
		if b.state == limiter.BidWaits && b != head {
			sum += b.cost
		}
	}
	return sum
}

// poolAt returns the pool of a bucket or counter, less what is forgotten by now.
func (c *core) poolAt(now int64, key poolID) *pool {
	p := c.pools[key]
	if p == nil {
		p = &pool{}
		c.pools[key] = p
	}
	if p.tags == nil || now >= p.tagsGone {
		p.tags, p.v = map[limiter.ID]float64{}, 0
	}
	if p.claims == nil || now >= p.claimsGone {
		p.claims = map[string]claim{}
	}
	return p
}

// expire drops old claims and returns the least start of others' that holds V
// back: live ones and those expired lately.
func (p *pool) expire(now int64, inc string) float64 {
	hold := math.Inf(1)
	for name, c := range p.claims {
		switch {
		case name == inc:
		case c.expiry+claimEcho < now:
			delete(p.claims, name)
		default:
			hold = min(hold, c.start)
		}
	}
	return hold
}

// claim states the head of inc. Claims are kept until the last is of long ago.
func (p *pool) claim(now int64, inc string, c claim) {
	p.claims[inc] = c
	latest := c.expiry
	for _, other := range p.claims {
		latest = max(latest, other.expiry)
	}
	p.claimsGone = now + min(maxTTL, (latest+claimEcho-now+999)/1000)*1000
}

// claimed reports whether any replica waits for its turn, or did a moment ago.
func (p *pool) claimed(now int64) bool { return len(p.claims) > 0 && now < p.claimsGone }

// floor is the least tag that is kept. What is not there is read as being that
// far behind, so that forgetting never turns into credit.
func (p *pool) floor(a bucketArg) float64 { return p.v - tagBursts*float64(a.burst)/1e6 }

// purge drops old tags each time that V has come a step further.
func (p *pool) purge(before float64, a bucketArg) {
	if math.Floor(p.v/tagStep) <= math.Floor(before/tagStep) {
		return
	}
	for t, f := range p.tags {
		if f < p.floor(a) {
			delete(p.tags, t)
		}
	}
}

// correct lowers a tenant's tag for micro-tokens given back, or raises it for
// those charged (delta < 0). V stays: others' grants are not taken back.
func (p *pool) correct(tenant limiter.ID, weight float64, delta int64, a bucketArg) {
	f, ok := p.tags[tenant]
	if len(p.tags) == 0 || (!ok && delta > 0) {
		return // no turn was given lately
	}
	if !ok {
		f = p.floor(a)
	}
	p.tags[tenant] = max(p.floor(a), f-float64(delta)/1e6/weight)
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

// peers counts live claims of other replicas for a tenant: all, and those that
// come before inc's own claim for it, which are all if it has none.
func (p *pool) peers(now int64, inc string, tenant limiter.ID) (all, before int) {
	own, claims := p.claims[inc]
	for name, c := range p.claims {
		if name == inc || c.expiry < now || c.tenant != tenant {
			continue
		}
		all++
		if !claims || own.tenant != tenant || cmp.Or(cmp.Compare(c.start, own.start), cmp.Compare(name, inc)) < 0 {
			before++
		}
	}
	return all, before
}

// read gives every bid its tags. Of one tenant's claims only the oldest can be
// next: a bid behind others counts as starting a turn later for each.
func (p *pool) read(now int64, inc string, bids []*bid, a bucketArg) {
	first := map[limiter.ID]bool{}
	for _, b := range bids {
		n, before := p.peers(now, inc, b.tenant)
		if !first[b.tenant] { // the claim is that of the first bid
			n = before
		}
		first[b.tenant] = true
		b.behind = float64(n) * float64(b.cost) / 1e6 / b.weight
		if b.since < 0 || b.since > p.v { // unknown, or the store lost its state
			b.since = p.v
		}
		f, ok := p.tags[b.tenant]
		if !ok {
			f = max(b.since, p.floor(a))
		}
		b.finish = f
	}
}

// move gives every bid of b's tenant new tags. One that its own limits block is
// not waiting for the pool: it starts anew at V, and saves up no turns.
func (p *pool) move(bids []*bid, b *bid, finish float64, blocked bool) {
	for _, o := range bids {
		if o.tenant != b.tenant {
			continue
		}
		if blocked {
			o.since = p.v
		}
		o.finish = finish
	}
}

// serve grants in the order of start tags until the pool, which holds level of
// at most full, does not cover the next, and returns that one.
func (c *core) serve(now int64, k call, p *pool, level, full int64, hold float64, bids []*bid, most int) (head *bid, granted int) {
	open := slices.Clone(bids)
	for len(open) > 0 {
		i := 0
		for j, b := range open {
			if b.order() < open[i].order() {
				i = j
			}
		}
		best := open[i]
		if granted == most {
			return best, granted
		}
		k.seq = best.seq
		best.rest = c.check(now, k, best.buckets, best.leases)
		switch {
		case best.rest.status != statusGranted:
			best.state, best.overtaken = limiter.BidBlocked, best.rest.status == statusStale
			if !best.overtaken {
				p.move(bids, best, best.finish, true)
			}
		case level < min(best.cost+p.ahead(now, best.order(), k.inc), full):
			return best, granted
		default:
			c.take(now, k, best.buckets, best.leases, best.rest.buckets)
			level -= best.cost
			p.v = max(p.v, min(best.start(), hold))
			p.tags[best.tenant] = best.start() + float64(best.cost)/1e6/best.weight
			p.move(bids, best, p.tags[best.tenant], false)
			best.state = limiter.BidGranted
			granted++
		}
		open = slices.Delete(open, i, i+1)
	}
	return nil, granted
}

// Turns implements limiter.Store.
func (s *Store) Turns(ctx context.Context, t limiter.Turns) (limiter.TurnsVerdict, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if err := s.usableLocked(ctx); err != nil {
		return limiter.TurnsVerdict{}, err
	}
	bids := s.bidsLocked(t.Bids)
	o := turnsArg{t.Grace.Microseconds(), t.Rest.Microseconds(), micro(t.More), t.Most}
	s.seq++
	a := stock{bucket: bucketOf(t.Pool, t.Rate, 0), slots: t.Slots, held: s.held[t.Slots]}
	r := s.m.core.turns(now(), s.callLocked(), o, a, bids)
	v := limiter.TurnsVerdict{Wait: wait(r.wait), Bucket: wait(r.alone), Before: r.before, After: r.after}
	for _, b := range bids {
		if b.state == limiter.BidGranted && t.Slots.ID != "" {
			s.held[t.Slots] += b.cost / 1e6
		}
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
	s.restateLocked(bids)
	return v, nil
}

// restateLocked makes counts true again: one that was granted counted others as
// pending who got nothing.
func (s *Store) restateLocked(bids []*bid) {
	s.seq++
	for _, b := range bids {
		for _, l := range b.leases {
			held := s.held[l.key]
			s.m.core.sync(now(), s.callLocked(), []leaseArg{{key: l.key, held: held, want: held}})
		}
	}
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
