package fairq

// class is the ring of all tenants in the round that have one weight, sorted
// by credit: the front has the most, equals stand in order of arrival. Between
// two neighbours in time the order changes only by the front going to the
// back, so the ring needs no sorting.
type class[T any] struct {
	weight      float64
	front, back *tenant[T]
	tenants     int
	earned      fixed  // what each tenant of this weight earned, plus a constant
	index       int    // in swrr.round
	since       uint64 // swrr.turns when it came into the round
	lengths     lengths
}

func (c *class[T]) creditOf(t *tenant[T]) fixed { return c.earned - t.key }

// leads reports whether c's front goes before d's.
func (c *class[T]) leads(d *class[T]) bool {
	ahead := c.creditOf(c.front) - d.creditOf(d.front)
	return ahead > tie || ahead >= -tie && c.weight > d.weight
}

// before reports whether t goes before o in their ring.
func (t *tenant[T]) before(o *tenant[T]) bool {
	more := t.key - o.key
	return more < -tie || more <= tie && t.since < o.since
}

// insertFromBack links t into its place, looking from the back. In an
// undisturbed round that is the very back; after turns were given back it is
// at most as many steps away as there were turns.
func (c *class[T]) insertFromBack(t *tenant[T]) {
	at := c.back
	for at != nil && t.before(at) {
		at = at.prev
	}
	c.linkAfter(at, t)
}

// insertFromFront is insertFromBack from the other end, for a tenant that was
// at the front a moment ago.
func (c *class[T]) insertFromFront(t *tenant[T]) {
	var at *tenant[T]
	for next := c.front; next != nil && next.before(t); next = next.next {
		at = next
	}
	c.linkAfter(at, t)
}

// linkAfter links t behind at, or as the front if at is nil.
func (c *class[T]) linkAfter(at, t *tenant[T]) {
	t.prev = at
	if at == nil {
		t.next = c.front
		c.front = t
	} else {
		t.next = at.next
		at.next = t
	}
	if t.next == nil {
		c.back = t
	} else {
		t.next.prev = t
	}
}

func (c *class[T]) unlink(t *tenant[T]) {
	if t.prev == nil {
		c.front = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		c.back = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
}
