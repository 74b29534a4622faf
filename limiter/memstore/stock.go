package memstore

import "github.com/headway-limiter/headway/limiter"

// slotRest, in µs: nobody is told to wait for a slot longer, for one may come
// free at any moment.
const slotRest = 40_000

// poolID names a pool: one of the two is empty.
type poolID struct {
	bucket limiter.BucketID
	slots  limiter.SlotID
}

// stock is what a pool gives out, as in lua/prelude_stock.lua: tokens of the
// bucket, or slots of a counter, which the bucket's shape describes (its cost is
// ignored in both cases).
type stock struct {
	bucket bucketArg
	slots  limiter.SlotID // none: the bucket
	held   int64          // slots that the replica states to hold
}

func (a stock) id() poolID {
	if a.slots.ID != "" {
		return poolID{slots: a.slots}
	}
	return poolID{bucket: a.bucket.key}
}

// overtaken reports that a later statement of the replica about its slots came
// first, so that a.held is old.
func (c *core) overtaken(now int64, k call, a stock) bool {
	return a.slots.ID != "" && c.leaseAt(now, a.slots, k.inc).seq >= k.seq
}

// stocked is what is there, and the most there can be, in micro-tokens or
// micro-slots.
func (c *core) stocked(now int64, k call, a stock) (level, full int64) {
	if a.slots.ID == "" {
		b := c.find(now, a.bucket)
		return b.level(now), b.now.burst // the burst that stands may be less for now
	}
	l := c.leaseAt(now, a.slots, k.inc)
	return a.bucket.burst - 1e6*(l.total-l.own+a.held), a.bucket.burst
}

// takeStock takes from level what was granted, and returns how much that was.
func (c *core) takeStock(now int64, k call, a stock, level int64, bids []*bid) (taken int64) {
	for _, b := range bids {
		if b.state == limiter.BidGranted {
			taken += b.cost
		}
	}
	if a.slots.ID == "" {
		c.put(now, a.bucket, level-taken)
	} else {
		c.writeLease(now, k, a.slots, c.leaseAt(now, a.slots, k.inc), a.held+taken/1e6)
	}
	return taken
}

// stockWait tells the µs until need is there, of which level is: for slots half
// the time in which as many come free on average, for they come at random.
func (c *core) stockWait(now int64, a stock, level, need int64) int64 {
	if a.slots.ID != "" {
		return min(slotRest, (fill(max(0, need-level), a.bucket)+1)/2)
	}
	return max(0, c.find(now, a.bucket).until(now, need, a.bucket))
}
