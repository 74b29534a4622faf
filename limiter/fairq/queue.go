package fairq

import "time"

// Item is one waiter. Embed it in whatever waits; the queue links items and
// allocates nothing for them. The zero Item with a Value is ready to be
// pushed. An item is in at most one queue at a time, and must not be copied
// while it is in one.
type Item[T any] struct {
	// Value is the caller's own; the queue never looks at it.
	Value T

	prev, next *Item[T] // neighbours in the tenant's queue, head first
	owner      *tenant[T]
	name       string  // tenant, for a requeue after the owner was forgotten
	weight     float64 // as pushed
	cost       float64 // as pushed, or as corrected
	seq        uint64  // order of arrival in the queue
	state      state
	taken      receipt
}

// receipt is what Requeue needs to undo Next. "Before" means before the turn.
type receipt struct {
	generation uint64  // the owner's
	turn       uint64  // which turn of the queue it was
	key        fixed   // swrr: the owner's credit before; else its key before
	since      uint64  // the owner's before
	now        fixed   // drr, sfq: the lap or virtual time before
	paid       fixed   // drr: the owner's deficit before; sfq: what it paid
	per        float64 // swrr: credit that the turn gave per unit of weight
}

type state uint8

const (
	idle   state = iota
	queued       // in its owner's list
	out          // returned by Next, its turn is charged
	used         // the same, and the turn cannot be given back any more
)

// Queue orders the waiters of one capacity: between tenants by its discipline,
// and first come first served inside each. It is not safe for concurrent use:
// the caller holds its lock around every call. Instants given to one queue
// should not go back.
type Queue[T any] struct {
	table[T]
	sched  scheduler[T] // the tenants in the round
	parked []*tenant[T] // heap: tenants out of the round, soonest first
	hold   time.Time    // the whole queue is not ready before

	length  int
	waiting int    // tenants with items, in the round or parked
	seq     uint64 // items pushed ever
}

// New returns an empty queue. It panics if the configuration is not valid.
func New[T any](c Config) *Queue[T] {
	q := &Queue[T]{table: table[T]{tenants: map[string]*tenant[T]{}}}
	q.sched = newScheduler(c, &q.table)
	return q
}

// Push appends it to its tenant's queue. The weight is the tenant's share
// relative to others, finite and > 0, and replaces the tenant's present one as
// [Queue.SetWeight] does. The cost is what serving the item takes of the
// capacity, in any unit, finite and > 0; under SWRR it is only counted. Push
// panics if the item is queued already or a number is not usable.
func (q *Queue[T]) Push(now time.Time, it *Item[T], tenant string, weight, cost float64) {
	if it.state == queued {
		panic("fairq: Push of an item that is queued already")
	}
	q.seq++
	it.seq, it.name = q.seq, tenant
	it.weight, it.cost = checkPositive("weight", weight), checkPositive("cost", cost)
	t := q.tenants[tenant]
	if t == nil {
		t = q.meet(tenant, weight)
	} else if t.weight != weight {
		q.sched.reweigh(t, weight)
	}
	q.length++
	if t.length > 0 {
		t.insert(it)
		if t.where == inRound {
			q.sched.resized(t, int(t.length)-1)
		}
		return
	}
	if t.where == inRound { // remembered for its debt
		q.sched.leave(t)
	}
	t.insert(it)
	q.waiting++
	q.sched.enter(t)
}

// Next takes the head of the tenant whose turn it is and charges that tenant.
// It returns nil when nobody is ready. The item has left the queue: either the
// turn was used (nothing more to do, or [Queue.Correct] when the real cost is
// known), or [Queue.Requeue] gives both back.
func (q *Queue[T]) Next(now time.Time) *Item[T] {
	if now.Before(q.hold) {
		return nil
	}
	q.unpark(now)
	if q.waiting == len(q.parked) {
		return nil
	}
	it, t := q.sched.take()
	it.state = out
	t.served += it.cost
	q.length--
	if t.length == 0 {
		q.waiting--
		if t.where == outside {
			q.forget(t)
		}
		q.emptied()
	}
	return it
}

// Peek returns what Next would, and leaves it where it is. It stays the next while
// nothing but Peek is called and nobody's rest ends.
func (q *Queue[T]) Peek(now time.Time) *Item[T] {
	if now.Before(q.hold) {
		return nil
	}
	q.unpark(now)
	if q.waiting == len(q.parked) {
		return nil
	}
	return q.sched.peek().head
}

// Requeue undoes Next after a denial: the item returns to its place, ahead of
// every waiter of its tenant that came later, and the turn is given back. If
// notBefore is after now the tenant leaves the round until then, for its head
// cannot be served earlier; otherwise it stays next in turn. Requeue panics if
// the item was not taken by Next.
func (q *Queue[T]) Requeue(now time.Time, it *Item[T], notBefore time.Time) {
	if it.state != out {
		panic("fairq: Requeue of an item that Next did not return")
	}
	t := q.tenants[it.name]
	if t == nil { // forgotten: it had nobody else in line
		t = q.meet(it.name, it.weight)
	} else if t.generation == it.taken.generation {
		t.served -= it.cost
	}
	if t.length == 0 {
		q.waiting++
	}
	t.insert(it)
	q.sched.undo(t, it)
	q.length++
	if notBefore.After(now) {
		q.park(t, notBefore)
	}
}

// Remove takes a queued item out, wherever it stands, and reports whether it
// was queued. The order of all others stays.
func (q *Queue[T]) Remove(it *Item[T]) bool {
	if it.state != queued {
		return false
	}
	t := it.owner
	it.state = idle
	q.length--
	if t.length > 1 {
		t.unlink(it)
		if t.where == inRound {
			q.sched.resized(t, int(t.length)+1)
		}
		return true
	}
	if t.where == parked {
		q.unheap(t)
	} else {
		q.sched.leave(t)
	}
	t.unlink(it)
	q.waiting--
	if !q.sched.enter(t) {
		q.forget(t)
	}
	q.emptied()
	return true
}

// Correct settles the real cost of an item that Next returned, finite and ≥ 0,
// against what its tenant was charged for it: DRR takes the difference from
// the tenant's deficit, SFQ adds it to the tenant's tag, and both may now owe
// the tenant service or be owed. Such a turn cannot be given back. A tenant that has left in the meantime is
// charged nevertheless, but not refunded: what it is owed ended with its
// queue. SWRR only counts. Correct may be called again as the cost becomes
// known better, until the item is pushed again; it panics if the item is in a
// queue or was never taken.
func (q *Queue[T]) Correct(it *Item[T], cost float64) {
	if it.state < out {
		panic("fairq: Correct of an item that Next did not return")
	}
	if cost != 0 {
		checkPositive("cost", cost)
	}
	it.state = used
	delta := cost - it.cost
	it.cost = cost
	t := q.tenants[it.name]
	switch {
	case t == nil && delta <= 0:
		return
	case t == nil:
		t = q.meet(it.name, it.weight)
		it.taken.generation = t.generation
	case t.generation != it.taken.generation && delta < 0:
		return
	}
	t.served += delta
	q.sched.correct(t, delta)
	if t.length == 0 {
		if t.where == inRound { // its debt has changed
			q.sched.leave(t)
		}
		if !q.sched.enter(t) {
			q.forget(t)
		}
	}
}

// SetWeight changes a tenant's share, finite and > 0, and reports whether the
// tenant is known; Push does the same for its own. Under SWRR the new weight
// applies from the tenant's next turn on. Under DRR it does from the next lap;
// under SFQ at once, and what the tenant is ahead of the others is divided by
// the new weight instead of the old.
func (q *Queue[T]) SetWeight(tenant string, weight float64) bool {
	checkPositive("weight", weight)
	t := q.tenants[tenant]
	if t == nil {
		return false
	}
	if t.weight != weight {
		q.sched.reweigh(t, weight)
	}
	return true
}

// Hold makes the whole queue not ready before until, because the capacity it
// waits for is empty. Nobody earns credit meanwhile. The zero time lifts it; a
// later call replaces an earlier one.
func (q *Queue[T]) Hold(until time.Time) { q.hold = until }

// Ready returns the earliest instant, not before now, at which Next can return
// an item; ok is false when the queue is empty.
func (q *Queue[T]) Ready(now time.Time) (at time.Time, ok bool) {
	if q.length == 0 {
		return time.Time{}, false
	}
	at = now
	if q.waiting == len(q.parked) && q.parked[0].notBefore.After(at) {
		at = q.parked[0].notBefore
	}
	if q.hold.After(at) {
		at = q.hold
	}
	return at, true
}

// Ahead estimates how many queued items will be served before it, 0 if it is
// not queued. Tenants to come are not foreseen. The package comment says how
// far off each discipline's estimate may be, and how much work it is.
func (q *Queue[T]) Ahead(it *Item[T]) int {
	if it.state != queued {
		return 0
	}
	return q.sched.ahead(it)
}

// Len is the number of items queued; taken ones are not.
func (q *Queue[T]) Len() int { return q.length }

// Tenants is the number of tenants with items queued.
func (q *Queue[T]) Tenants() int { return q.waiting }

// emptied lets go of what a crowd left behind once nobody is queued: the table,
// since maps never shrink, and with it what debts there are.
func (q *Queue[T]) emptied() {
	if q.length == 0 && q.peak > maxFree {
		q.sched.clear()
		q.tenants, q.peak, q.parked = map[string]*tenant[T]{}, 0, nil
	}
}
