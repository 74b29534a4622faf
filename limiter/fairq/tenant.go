package fairq

import (
	"fmt"
	"math"
	"time"
)

// maxFree bounds the free-list of tenants: enough for the turnover between two
// garbage collections of a busy queue, little enough (about 200 KiB) to keep.
// It also bounds the debtors remembered by an empty queue.
const maxFree = 1024

// tenant is one party with items queued, or with a debt that outlives them.
//
// The first fields are all that a turn of a busy tenant touches: at 100,000
// tenants the time of a turn is the time to fetch cold memory.
type tenant[T any] struct {
	head, tail *Item[T]
	prev, next *tenant[T] // swrr: neighbours in the ring
	class      *class[T]  // swrr, in the round: its weight there
	key        fixed      // swrr: spent; drr: the lap of its turn; sfq: its start tag
	since      uint64     // order among equals: when it joined or was last served
	length     int32      // items
	index      int32      // in the heap it is in: of the parked, or of an agenda

	weight     float64
	name       string
	generation uint64    // differs from that of every other tenant ever met
	served     float64   // cost served since it was met
	backlog    float64   // cost queued
	notBefore  time.Time // parked until

	where   where
	deficit fixed // drr: cost it may use in the lap credited
	lap     fixed // drr: the last lap that is in deficit
}

// where a tenant stands.
type where uint8

const (
	outside where = iota // nowhere yet
	inRound              // with its scheduler
	parked               // out of the round until notBefore
)

// table is every tenant there is, by name, and a free-list of those that were.
type table[T any] struct {
	tenants map[string]*tenant[T]
	met     uint64 // tenants met ever
	free    *tenant[T]
	freed   int // in free
	peak    int // most tenants since the map was made, which never shrinks
}

// meet adds a tenant that is not in the table.
func (tb *table[T]) meet(name string, weight float64) *tenant[T] {
	t := tb.free
	if t == nil {
		t = new(tenant[T])
	} else {
		tb.free = t.next
		tb.freed--
		t.next = nil
	}
	tb.met++
	t.name, t.weight, t.generation = name, weight, tb.met
	tb.tenants[name] = t
	tb.peak = max(tb.peak, len(tb.tenants))
	return t
}

// forget removes a tenant that has no items and is outside. An item of it that
// is still out can tell by the generation that a tenant met later under this
// name is not the one that paid for its turn.
func (tb *table[T]) forget(t *tenant[T]) {
	delete(tb.tenants, t.name)
	if tb.freed == maxFree {
		return
	}
	*t = tenant[T]{next: tb.free}
	tb.free = t
	tb.freed++
}

// insert puts it in its place by order of arrival. New arrivals go to the
// tail at once; those that return pass only waiters that came before them and
// were themselves taken, so the walk is as long as attempts are in the air.
func (t *tenant[T]) insert(it *Item[T]) {
	it.owner, it.state = t, queued
	t.length++
	t.backlog += it.cost
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
	if t.backlog -= it.cost; t.length == 0 {
		t.backlog = 0 // whatever rounding left
	}
}

// earlier counts t's items ahead of it and sums up their cost. It looks at
// each of them, but for the last item.
func (t *tenant[T]) earlier(it *Item[T]) (n int, cost float64) {
	if it == t.tail {
		return int(t.length) - 1, t.backlog - it.cost
	}
	for p := it.prev; p != nil; p = p.prev {
		n++
		cost += p.cost
	}
	return n, cost
}

func checkPositive(what string, x float64) float64 {
	if !(x > 0) || math.IsInf(x, 1) {
		panic(fmt.Sprintf("fairq: %s %v is not finite and above 0", what, x))
	}
	return x
}
