package memstore

import "github.com/headway-limiter/headway/limiter"

// Statuses of an admit reply, as in lua/admit.lua.
const (
	statusRefused = 0 // nothing changed
	statusGranted = 1
	statusStale   = 2 // overtaken on a lease: nothing changed, send again
	statusLate    = 3 // after the fence: nothing changed
)

// Statuses of a settle reply, as in lua/settle.lua.
const (
	settledBefore  = 0 // the first attempt ran: nothing to adjust
	settledAll     = 1
	settledCharges = 2 // refunds were left out: too late, or in doubt
)

// Answers about one lease.
const (
	leaseFits  = 0
	leaseFull  = 1
	leaseStale = 2
)

// call is what every script call of a replica carries.
type call struct {
	notAfter int64 // µs; the last instant at which it may take or refund
	inc      string
	seq      int64
	ttl      int64 // ms
}

// bucketArg is one bucket of a call. Amounts are micro-tokens, period is µs.
type bucketArg struct {
	key                  limiter.BucketID
	limit, period, burst int64
	cost                 int64 // settle: the signed delta instead
	maxDebt              int64

	inTurn bool       // admit: claims on turns there refuse it
	tenant limiter.ID // settle: whose turn in the bucket's pool is corrected; or empty
	weight float64    // of that tenant, > 0
}

// leaseArg is one in-flight counter of a call.
type leaseArg struct {
	key        limiter.SlotID
	cap        int64 // admit and inspect
	held, want int64 // held: sync and settle alone
}

// level is a bucket's part of a reply.
type level struct {
	remaining int64 // micro-tokens
	wait      int64 // µs; 0 covered, -1 never
}

// admitReply is the reply of admit.
type admitReply struct {
	status  int64
	buckets []level
	leases  []int64 // leaseFits, leaseFull or leaseStale
	claimed []bool  // per bucket: inTurn, and somebody waits for a turn there
}

// leaseState is the reply about one counter after a sync.
type leaseState struct {
	before int64 // own count stored before
	count  int64 // own count stored now
	total  int64 // all replicas
}

// core is the state of the scripts' keys. Its methods are pure functions of
// the state, the arguments and now (µs); the caller holds the lock.
type core struct {
	buckets map[limiter.BucketID]bucket
	leases  map[limiter.SlotID]*lease
	pools   map[poolID]*pool
	sweepAt int // bucket count that triggers the next sweep
}

func newCore() *core {
	return &core{
		buckets: map[limiter.BucketID]bucket{},
		leases:  map[limiter.SlotID]*lease{},
		pools:   map[poolID]*pool{},
		sweepAt: minSweep,
	}
}

// admit takes everything or nothing.
func (c *core) admit(now int64, k call, buckets []bucketArg, leases []leaseArg) admitReply {
	if now > k.notAfter {
		return admitReply{status: statusLate, buckets: make([]level, len(buckets)), leases: make([]int64, len(leases))}
	}
	r := c.check(now, k, buckets, leases)
	r.claimed = make([]bool, len(buckets))
	for i, a := range buckets {
		if p := c.pools[poolID{bucket: a.key}]; a.inTurn && p != nil && p.claimed(now) {
			r.claimed[i], r.status = true, statusRefused
		}
	}
	if r.status == statusGranted {
		c.take(now, k, buckets, leases, r.buckets)
	}
	return r
}

// check looks whether everything is there; statusGranted means that it is.
func (c *core) check(now int64, k call, buckets []bucketArg, leases []leaseArg) admitReply {
	r := admitReply{status: statusGranted, buckets: make([]level, len(buckets)), leases: make([]int64, len(leases))}
	for i, a := range buckets {
		r.buckets[i] = c.find(now, a).decide(now, a)
		if r.buckets[i].wait != 0 {
			r.status = statusRefused
		}
	}
	for i, a := range leases {
		r.leases[i] = c.leaseAt(now, a.key, k.inc).decide(k, a)
		switch {
		case r.leases[i] == leaseFull:
			r.status = statusRefused
		case r.leases[i] == leaseStale && r.status == statusGranted:
			r.status = statusStale
		}
	}
	return r
}

// take writes what admit decided, and lowers the levels it reports.
func (c *core) take(now int64, k call, buckets []bucketArg, leases []leaseArg, levels []level) {
	for i, a := range buckets {
		if a.cost > 0 {
			levels[i].remaining -= a.cost
			c.put(now, a, levels[i].remaining)
		}
	}
	for _, a := range leases {
		if l := c.leaseAt(now, a.key, k.inc); l.seq < k.seq {
			c.writeLease(now, k, a.key, l, a.want)
		}
	}
}

// settle applies deltas and restates leases. A retry applies what the sequence
// proves undone; in doubt it charges again and refunds nothing.
func (c *core) settle(now int64, k call, retry bool, buckets []bucketArg, leases []leaseArg) (int64, []int64, []leaseState) {
	charges, refunds := true, now <= k.notAfter
	if retry {
		ran, undone := c.ran(now, k, leases)
		charges, refunds = !ran, refunds && undone && !ran
	}
	remaining := make([]int64, len(buckets))
	for i, a := range buckets {
		b := c.find(now, a)
		remaining[i] = b.level(now)
		if a.limit == 0 || a.cost == 0 || (a.cost < 0 && !charges) || (a.cost > 0 && !refunds) {
			continue
		}
		remaining[i] = min(b.now.burst, max(-a.maxDebt, remaining[i]+a.cost))
		c.put(now, a, remaining[i])
		if a.tenant != "" {
			c.poolAt(now, poolID{bucket: a.key}).correct(a.tenant, a.weight, a.cost, a)
		}
	}
	status := int64(settledBefore)
	if refunds {
		status = settledAll
	} else if charges {
		status = settledCharges
	}
	return status, remaining, c.sync(now, k, leases)
}

// ran tells what the leases' sequences prove about an earlier attempt of this
// settle: that it ran, that it did not, or, with both false, nothing.
func (c *core) ran(now int64, k call, leases []leaseArg) (ran, undone bool) {
	for _, a := range leases {
		l := c.leaseAt(now, a.key, k.inc)
		ran = ran || l.seq == k.seq
		undone = undone || (l.seq != noSeq && l.seq < k.seq)
	}
	return ran, undone
}

// sync restates the counts of a replica and so renews them.
func (c *core) sync(now int64, k call, leases []leaseArg) []leaseState {
	states := make([]leaseState, len(leases))
	for i, a := range leases {
		l := c.leaseAt(now, a.key, k.inc)
		count := l.own
		if l.seq < k.seq {
			count = max(a.held, min(l.own, a.want))
			if count > 0 || l.own > 0 {
				c.writeLease(now, k, a.key, l, count)
			}
		}
		states[i] = leaseState{before: l.own, count: count, total: l.total - l.own + count}
	}
	return states
}

// inspect reports levels and counts and changes nothing.
func (c *core) inspect(now int64, inc string, buckets []bucketArg, leases []leaseArg) ([]level, []leaseState) {
	levels := make([]level, len(buckets))
	for i, a := range buckets {
		levels[i] = c.look(now, a).decide(now, a)
	}
	states := make([]leaseState, len(leases))
	for i, a := range leases {
		l := c.leaseAt(now, a.key, inc)
		states[i] = leaseState{before: l.own, count: l.own, total: l.total}
	}
	return levels, states
}
