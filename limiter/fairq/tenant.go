package fairq

import (
	"fmt"
	"math"
	"time"
)

// maxFree bounds the free-list of tenants: enough for the turnover between two
// garbage collections of a busy queue, little enough (about 200 KiB) to keep.
const maxFree = 1024

// tenant is one party with items queued. It exists only as long as it has
// some, so everything here may be forgotten.
//
// The first fields are all that a turn of a busy tenant touches, and the whole is
// two cache lines: at 100,000 tenants the time of a turn is the time to fetch cold
// memory.
type tenant[T any] struct {
	head, tail *Item[T]
	prev, next *tenant[T] // neighbours in the ring
	class      *class[T]  // in the round; nil while parked
	spent      credit     // credit = class.earned − spent; while parked −spent
	since      uint64     // order among equals: when it joined or was last served
	length     int32      // items
	heapIndex  int32      // while parked

	weight     float64 // applies from its next turn on; class.weight until then
	name       string
	served     int64     // turns used since it was met
	generation uint64    // differs from that of every other tenant ever met
	notBefore  time.Time // parked until
}

// meet adds a tenant that is not in the table.
func (q *Queue[T]) meet(name string, weight float64) *tenant[T] {
	t := q.freeTenants
	if t == nil {
		t = new(tenant[T])
	} else {
		q.freeTenants = t.next
		q.freeCount--
		t.next = nil
	}
	q.met++
	t.name, t.weight, t.generation = name, weight, q.met
	q.tenants[name] = t
	q.peak = max(q.peak, len(q.tenants))
	return t
}

// forget removes a tenant that has no items and is in neither round nor heap.
// An item of it that is still out can tell by the generation that a tenant met
// later under this name is not the one that paid for its turn.
func (q *Queue[T]) forget(t *tenant[T]) {
	delete(q.tenants, t.name)
	if q.freeCount == maxFree {
		return
	}
	*t = tenant[T]{next: q.freeTenants}
	q.freeTenants = t
	q.freeCount++
}

// insert puts it in its place by order of arrival. New arrivals go to the
// tail at once; those that return pass only waiters that came before them and
// were themselves taken, so the walk is as long as attempts are in the air.
func (t *tenant[T]) insert(it *Item[T]) {
	it.owner, it.state = t, queued
	t.length++
	if t.tail == nil || t.tail.seq < it.seq {
		it.prev, it.next = t.tail, nil
		t.tail = it
		if it.prev == nil {
			t.head = it
		} else {
			it.prev.next = it
		}
		return
	}
	after := t.head
	for after.seq < it.seq {
		after = after.next
	}
	it.prev, it.next = after.prev, after
	after.prev = it
	if it.prev == nil {
		t.head = it
	} else {
		it.prev.next = it
	}
}

// unlink takes it out of t's list.
func (t *tenant[T]) unlink(it *Item[T]) {
	if it.prev == nil {
		t.head = it.next
	} else {
		it.prev.next = it.next
	}
	if it.next == nil {
		t.tail = it.prev
	} else {
		it.next.prev = it.prev
	}
	it.prev, it.next, it.owner = nil, nil, nil
	t.length--
}

// standing is t's credit, in the round or out of it.
func (t *tenant[T]) standing() credit {
	if t.class == nil {
		return -t.spent
	}
	return t.class.creditOf(t)
}

func checkWeight(w float64) float64 {
	if !(w > 0) || math.IsInf(w, 1) {
		panic(fmt.Sprintf("fairq: weight %v is not finite and above 0", w))
	}
	return w
}
