package fairq

import "math"

// credit counts turns in fixed point. The type wraps around: only differences
// of nearby values mean anything, and those stay below 2¹⁵ turns because every
// credit stays within a few turns of zero (see the package comment).
type credit int64

const (
	oneTurn credit = 1 << 48
	tie     credit = 1 << 28 // credits no further apart are equal: 2⁻²⁰ of a turn
)

// turns converts to a float for people, rounded to thousandths.
func (c credit) turns() float64 {
	return math.Round(1000*float64(c)/float64(oneTurn))/1000 + 0 // no minus zero
}

// class is the ring of all tenants in the round that have one weight, sorted
// by credit: the front has the most, equals stand in order of arrival. Between
// two neighbours in time the order changes only by the front going to the
// back, so the ring needs no sorting.
type class[T any] struct {
	weight      float64
	front, back *tenant[T]
	tenants     int
	earned      credit // what each tenant of this weight earned, plus a constant
	index       int    // in Queue.round
	since       uint64 // Queue.turns when it came into the round
	lengths     lengths
}

func (c *class[T]) creditOf(t *tenant[T]) credit { return c.earned - t.spent }

// leads reports whether c's front goes before d's.
func (c *class[T]) leads(d *class[T]) bool {
	ahead := c.creditOf(c.front) - d.creditOf(d.front)
	return ahead > tie || ahead >= -tie && c.weight > d.weight
}

// earn begins a turn: it is divided among all tenants in the round, of whom
// there is at least one, by weight. The sum of weights is formed anew each
// time, so that it cannot drift. It returns the credit per unit of weight.
func (q *Queue[T]) earn() (per float64) {
	q.turns++
	total := 0.0
	for _, c := range q.round {
		total += c.weight * float64(c.tenants)
	}
	per = float64(oneTurn) / total
	for _, c := range q.round {
		c.earned += c.share(per)
	}
	return per
}

// unearn takes back what one turn gave, from all weights that were in the
// round then. It takes what was given and not what it would give now, or else
// many denials, with tenants coming and going meanwhile, would add up to a
// credit that nobody had a turn for.
func (q *Queue[T]) unearn(r receipt) {
	for _, c := range q.round {
		if c.since < r.turn {
			c.earned -= c.share(r.per)
		}
	}
}

// share is what a tenant of c gets of a turn.
func (c *class[T]) share(per float64) credit { return credit(math.Round(c.weight * per)) }

// first returns the tenant whose turn it is; somebody must be in the round.
func (q *Queue[T]) first() *tenant[T] {
	best := q.round[0]
	for _, c := range q.round[1:] {
		if c.leads(best) {
			best = c
		}
	}
	return best.front
}

// serve takes the head item of t, the front of its class, and charges a turn.
func (q *Queue[T]) serve(t *tenant[T]) {
	c := t.class
	t.served++
	if t.length == 1 || t.weight != c.weight {
		left := c.creditOf(t) - oneTurn
		q.leave(t)
		t.unlink(t.head)
		if t.length == 0 {
			q.forget(t)
		} else {
			q.enter(t, left)
		}
		return
	}
	c.lengths.fell(int(t.length))
	t.unlink(t.head)
	t.spent += oneTurn
	q.last(t)
	if t.next != nil {
		c.unlink(t)
		c.insertFromBack(t)
	}
}

// shrink takes it out of t's queue without a turn.
func (q *Queue[T]) shrink(t *tenant[T], it *Item[T]) {
	if t.length > 1 {
		if t.class != nil {
			t.class.lengths.fell(int(t.length))
		}
		t.unlink(it)
		return
	}
	if t.class != nil {
		q.leave(t)
	} else {
		q.unheap(t)
	}
	t.unlink(it)
	q.forget(t)
}

// grew notes that an item was added to t's queue.
func (q *Queue[T]) grew(t *tenant[T]) {
	if t.class != nil {
		t.class.lengths.rose(int(t.length))
	}
}

// enter puts t into the round behind its equals, with at most the given
// credit. Its credit is not above the last one's, or the ring would not be
// sorted; and not below the first one's by more than a turn, or the first
// could not pass it when it is served.
func (q *Queue[T]) enter(t *tenant[T], atMost credit) {
	c := q.classOf(t.weight)
	cr := min(atMost, 0)
	if c.back != nil {
		cr = max(cr, c.creditOf(c.front)-oneTurn)
		cr = min(cr, c.creditOf(c.back))
	}
	t.spent = c.earned - cr
	q.last(t)
	c.insertFromBack(t)
	q.admit(c, t)
}

// last puts t behind its equals.
func (q *Queue[T]) last(t *tenant[T]) {
	q.stamp++
	t.since = q.stamp
}

// restore puts t into the round where it was before a turn that was given back.
func (q *Queue[T]) restore(t *tenant[T], cr credit, since uint64) {
	c := q.classOf(t.weight)
	t.spent, t.since = c.earned-cr, since
	c.insertFromFront(t)
	q.admit(c, t)
}

// refund puts t where it was before a turn that was given back, after an item
// was added to its queue.
func (q *Queue[T]) refund(t *tenant[T], cr credit, since uint64) {
	t.since = min(t.since, since)
	if t.class == nil {
		t.spent = -cr
		return
	}
	c := t.class
	c.lengths.rose(int(t.length))
	c.unlink(t)
	t.spent = c.earned - cr
	c.insertFromFront(t)
}

func (q *Queue[T]) admit(c *class[T], t *tenant[T]) {
	t.class = c
	c.tenants++
	c.lengths.joined(int(t.length))
}

// leave takes t out of the round.
func (q *Queue[T]) leave(t *tenant[T]) {
	c := t.class
	c.unlink(t)
	c.tenants--
	c.lengths.left(int(t.length))
	t.class = nil
	if c.tenants == 0 {
		q.dropClass(c)
	}
}

// classOf finds or makes the class of a weight.
func (q *Queue[T]) classOf(weight float64) *class[T] {
	c := q.classes[weight]
	if c != nil {
		return c
	}
	if last := len(q.freeClasses) - 1; last >= 0 {
		c = q.freeClasses[last]
		q.freeClasses = q.freeClasses[:last]
	} else {
		c = new(class[T])
	}
	c.weight, c.index, c.since = weight, len(q.round), q.turns
	q.round = append(q.round, c)
	q.classes[weight] = c
	return c
}

// maxFreeClasses bounds the classes kept for weights to come.
const maxFreeClasses = 64

// dropClass forgets an empty class.
func (q *Queue[T]) dropClass(c *class[T]) {
	last := len(q.round) - 1
	q.round[c.index] = q.round[last]
	q.round[c.index].index = c.index
	q.round[last] = nil
	q.round = q.round[:last]
	delete(q.classes, c.weight)
	if len(q.freeClasses) < maxFreeClasses {
		*c = class[T]{lengths: c.lengths.cleared()}
		q.freeClasses = append(q.freeClasses, c)
	}
}

// before reports whether t goes before o in their ring.
func (t *tenant[T]) before(o *tenant[T]) bool {
	more := t.spent - o.spent
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
