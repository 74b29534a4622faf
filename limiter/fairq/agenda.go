package fairq

import "slices"

// agenda is a round ordered by a key: the tenant with the least key is next,
// and of equal ones the one that has waited longest since it joined or was
// served. Some of its tenants may have no items: debtors, remembered until the
// order reaches them.
type agenda[T any] struct {
	*table[T]
	heap  []entry[T] // with four children each: half as deep as with two
	now   fixed      // key of the latest turn: nobody joins below it
	turns uint64     // turns given and not given back in reverse
	stamp uint64     // times that somebody went behind its equals
}

// entry repeats what the order compares, so that looking for a place touches
// no tenant but the one that moves.
type entry[T any] struct {
	key    fixed
	since  uint64
	tenant *tenant[T]
}

func (e entry[T]) before(f entry[T]) bool {
	d := e.key - f.key
	return d < 0 || d == 0 && e.since < f.since
}

// first returns the tenant whose turn it is. Debtors in front of it are
// forgotten, since everybody has caught up with them. Somebody has items.
func (a *agenda[T]) first() *tenant[T] {
	for {
		t := a.heap[0].tenant
		if t.length > 0 {
			return t
		}
		a.remove(t)
		a.forget(t)
	}
}

func (a *agenda[T]) peek() *tenant[T] { return a.first() }

// begin notes that t's head has its turn.
func (a *agenda[T]) begin(t *tenant[T]) {
	a.turns++
	t.head.taken = receipt{generation: t.generation, turn: a.turns, key: t.key, since: t.since, now: a.now}
	if t.key-a.now > 0 { // one that is owed may be behind
		a.now = t.key
	}
}

// rewind undoes begin. The key of the round goes back if no later turn stands.
func (a *agenda[T]) rewind(was receipt) {
	if a.turns == was.turn {
		a.turns--
		a.now = was.now
	}
}

// last puts t behind its equals.
func (a *agenda[T]) last(t *tenant[T]) {
	a.stamp++
	t.since = a.stamp
}

// add brings t into the round.
func (a *agenda[T]) add(t *tenant[T]) {
	t.where, t.index = inRound, int32(len(a.heap))
	a.heap = append(a.heap, entry[T]{t.key, t.since, t})
	a.up(len(a.heap) - 1)
}

// remove takes t out of the round.
func (a *agenda[T]) remove(t *tenant[T]) {
	i, last := int(t.index), len(a.heap)-1
	moved := a.heap[last]
	a.heap[last] = entry[T]{}
	a.heap = a.heap[:last]
	if i < last {
		a.put(i, moved)
		a.settle(i)
	}
	t.where = outside
}

// moved restores the order after t's key or stamp changed.
func (a *agenda[T]) moved(t *tenant[T]) {
	i := int(t.index)
	a.heap[i].key, a.heap[i].since = t.key, t.since
	a.settle(i)
}

func (a *agenda[T]) settle(i int) {
	if !a.up(i) {
		a.down(i)
	}
}

func (a *agenda[T]) put(i int, e entry[T]) {
	a.heap[i] = e
	e.tenant.index = int32(i)
}

// up moves the entry at i towards the front and reports whether it moved.
func (a *agenda[T]) up(i int) bool {
	e, from := a.heap[i], i
	for i > 0 && e.before(a.heap[(i-1)/4]) {
		a.put(i, a.heap[(i-1)/4])
		i = (i - 1) / 4
	}
	if i == from {
		return false
	}
	a.put(i, e)
	return true
}

// down moves the entry at i away from the front.
func (a *agenda[T]) down(i int) {
	e, from := a.heap[i], i
	for {
		child := 4*i + 1
		if child >= len(a.heap) {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, len(a.heap)); c++ {
			if a.heap[c].before(a.heap[least]) {
				least = c
			}
		}
		if !a.heap[least].before(e) {
			break
		}
		a.put(i, a.heap[least])
		i = least
	}
	if i != from {
		a.put(i, e)
	}
}

func (a *agenda[T]) clear() { a.heap = nil }

// order lists the tenants that have items by key.
func (a *agenda[T]) order() []*tenant[T] {
	entries := slices.Clone(a.heap)
	slices.SortFunc(entries, func(e, f entry[T]) int {
		if e.before(f) {
			return -1
		}
		return 1
	})
	var all []*tenant[T]
	for _, e := range entries {
		all = append(all, e.tenant)
	}
	return all
}

// maxSample bounds the tenants that an estimate looks at.
const maxSample = 256

// sum adds up count over the tenants that have items and whose key is not
// beyond last, t excepted. Of more than 256 tenants it looks at every second
// one, third one, …, each for its neighbours.
func (a *agenda[T]) sum(t *tenant[T], last fixed, count func(o *tenant[T]) int) int {
	stride := max(1, (len(a.heap)+maxSample-1)/maxSample)
	n := 0
	for i := 0; i < len(a.heap); i += stride {
		if a.heap[i].key-last > 0 {
			continue
		}
		if o := a.heap[i].tenant; o != t && o.length > 0 {
			n += count(o)
		}
	}
	return n * stride
}
