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
	seq        uint64  // order of arrival in the queue
	state      state
	taken      receipt
}

// receipt is what Requeue needs to undo Next.
type receipt struct {
	generation uint64  // owner's
	credit     credit  // owner's before the turn
	since      uint64  // owner's before the turn
	turn       uint64  // which turn of the queue it was
	per        float64 // credit that it gave per unit of weight
}

type state uint8

const (
	idle   state = iota
	queued       // in its owner's list
	out          // returned by Next, its turn is charged
)

// Queue orders the waiters of one capacity by smooth weighted round robin
// between tenants and first come first served inside each. It is not safe for
// concurrent use: the caller holds its lock around every call. Instants given
// to one queue should not go back.
type Queue[T any] struct {
	tenants map[string]*tenant[T]
	round   []*class[T] // weights with a tenant in the round, in no order
	classes map[float64]*class[T]
	parked  []*tenant[T] // heap: tenants out of the round, soonest first
	hold    time.Time    // the whole queue is not ready before

	length int
	seq    uint64 // items pushed ever
	met    uint64 // tenants met ever
	turns  uint64 // turns begun ever
	stamp  uint64 // times that somebody went behind its equals

	freeTenants *tenant[T]
	freeCount   int
	freeClasses []*class[T]
	peak        int // most tenants since the table was made
}

// New returns an empty queue.
func New[T any]() *Queue[T] {
	return &Queue[T]{tenants: map[string]*tenant[T]{}, classes: map[float64]*class[T]{}}
}

// Push appends it to its tenant's queue. The weight is the tenant's share
// relative to others, finite and > 0; one that differs from the tenant's
// present weight replaces it from the tenant's next turn on. Push panics if
// the item is queued already or the weight is not usable.
func (q *Queue[T]) Push(now time.Time, it *Item[T], tenant string, weight float64) {
	if it.state == queued {
		panic("fairq: Push of an item that is queued already")
	}
	q.seq++
	it.seq, it.name, it.weight = q.seq, tenant, checkWeight(weight)
	t := q.tenants[tenant]
	if t == nil {
		t = q.meet(tenant, weight)
		t.insert(it)
		q.enter(t, 0)
	} else {
		t.weight = weight
		t.insert(it)
		q.grew(t)
	}
	q.length++
}

// Next takes the head of the tenant whose turn it is and charges that tenant
// one turn. It returns nil when nobody is ready. The item has left the queue:
// either the turn was used (nothing more to do), or [Queue.Requeue] gives both
// back.
func (q *Queue[T]) Next(now time.Time) *Item[T] {
	if now.Before(q.hold) {
		return nil
	}
	q.unpark(now)
	if len(q.round) == 0 {
		return nil
	}
	per := q.earn()
	t := q.first()
	it := t.head
	it.taken = receipt{t.generation, t.standing() - t.class.share(per), t.since, q.turns, per}
	q.serve(t)
	q.length--
	it.state = out
	q.emptied()
	return it
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
	was := it.taken
	q.unearn(was)
	t := q.tenants[it.name]
	switch {
	case t == nil: // forgotten: it had nobody else in line
		t = q.meet(it.name, it.weight)
		t.insert(it)
		q.restore(t, was.credit, was.since)
	case t.generation == was.generation:
		t.insert(it)
		t.served--
		q.refund(t, t.standing()+oneTurn, was.since)
	default: // forgotten and met again: this life of it paid nothing
		t.insert(it)
		q.refund(t, max(t.standing(), was.credit), was.since)
	}
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
	q.shrink(t, it)
	q.length--
	it.state = idle
	q.emptied()
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
	if len(q.round) == 0 && q.parked[0].notBefore.After(at) {
		at = q.parked[0].notBefore
	}
	if q.hold.After(at) {
		at = q.hold
	}
	return at, true
}

// Len is the number of items queued; taken ones are not.
func (q *Queue[T]) Len() int { return q.length }

// Tenants is the number of tenants with items queued.
func (q *Queue[T]) Tenants() int { return len(q.tenants) }

// emptied lets go of a table that once held a crowd, since maps never shrink.
func (q *Queue[T]) emptied() {
	if q.length == 0 && q.peak > maxFree {
		q.tenants, q.peak, q.parked = map[string]*tenant[T]{}, 0, nil
	}
}
