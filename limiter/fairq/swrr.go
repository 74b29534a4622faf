package fairq

import "math"

// swrr is the round of smooth weighted round robin.
type swrr[T any] struct {
	*table[T]
	round   []*class[T] // weights with a tenant in the round, in no order
	classes map[float64]*class[T]
	turns   uint64 // turns begun ever
	stamp   uint64 // times that somebody went behind its equals
	free    []*class[T]
}

// Credits are in turns.
const (
	oneTurn fixed = 1 << 48
	tie     fixed = 1 << 28 // credits no further apart are equal: 2⁻²⁰ of a turn
)

// earn begins a turn: it is divided among all tenants in the round, of whom
// there is at least one, by weight. The sum of weights is formed anew each
// time, so that it cannot drift. It returns the credit per unit of weight.
func (s *swrr[T]) earn() (per float64) {
	s.turns++
	total := 0.0
	for _, c := range s.round {
		total += c.weight * float64(c.tenants)
	}
	per = float64(oneTurn) / total
	for _, c := range s.round {
		c.earned += c.share(per)
	}
	return per
}

// unearn takes back what one turn gave, from all weights that were in the
// round then. It takes what was given and not what it would give now, or else
// many denials, with tenants coming and going meanwhile, would add up to a
// credit that nobody had a turn for.
func (s *swrr[T]) unearn(r receipt) {
	for _, c := range s.round {
		if c.since < r.turn {
			c.earned -= c.share(r.per)
		}
	}
}

// share is what a tenant of c gets of a turn.
func (c *class[T]) share(per float64) fixed { return fixed(math.Round(c.weight * per)) }

// first returns the tenant whose turn it is; somebody must be in the round.
func (s *swrr[T]) first() *tenant[T] {
	best := s.round[0]
	for _, c := range s.round[1:] {
		if c.leads(best) {
			best = c
		}
	}
	return best.front
}

// peek begins a turn and takes it back.
func (s *swrr[T]) peek() *tenant[T] {
	per := s.earn()
	t := s.first()
	s.unearn(receipt{turn: s.turns, per: per})
	s.turns--
	return t
}

// take serves the head item of the tenant whose turn it is for one turn.
func (s *swrr[T]) take() (*Item[T], *tenant[T]) {
	per := s.earn()
	t := s.first()
	it, c := t.head, t.class
	it.taken = receipt{generation: t.generation, turn: s.turns, key: c.creditOf(t) - c.share(per), since: t.since, per: per}
	t.key += oneTurn
	if t.length == 1 || t.weight != c.weight {
		s.leave(t)
		if t.unlink(it); t.length > 0 {
			s.enter(t)
		}
		return it, t
	}
	c.lengths.fell(int(t.length))
	t.unlink(it)
	s.last(t)
	if t.next != nil {
		c.unlink(t)
		c.insertFromBack(t)
	}
	return it, t
}

// undo takes back what everybody earned by the turn, and gives t its own.
func (s *swrr[T]) undo(t *tenant[T], it *Item[T]) {
	was := it.taken
	s.unearn(was)
	switch {
	case t.where == outside:
		s.restore(t, was.key, was.since)
	case t.generation == was.generation:
		s.refund(t, t.standing()+oneTurn, was.since)
	default: // forgotten and met again: this life of it paid nothing
		s.refund(t, max(t.standing(), was.key), was.since)
	}
}

// correct does nothing: a turn is a turn.
func (s *swrr[T]) correct(*tenant[T], float64) {}

// resized keeps the count of lengths.
func (s *swrr[T]) resized(t *tenant[T], from int) {
	if int(t.length) > from {
		t.class.lengths.rose(int(t.length))
	} else {
		t.class.lengths.fell(from)
	}
}

// reweigh moves t to its new class when it is next served.
func (s *swrr[T]) reweigh(t *tenant[T], weight float64) { t.weight = weight }

func (s *swrr[T]) clear() {}

// standing is t's credit, in the round or out of it.
func (t *tenant[T]) standing() fixed {
	if t.class == nil {
		return -t.key
	}
	return t.class.creditOf(t)
}

// enter puts t into the round behind its equals, with no credit above 0. Its
// credit is not above the last one's, or the ring would not be sorted; and not
// below the first one's by more than a turn, or the first could not pass it when
// it is served.
func (s *swrr[T]) enter(t *tenant[T]) bool {
	if t.length == 0 {
		return false
	}
	c := s.classOf(t.weight)
	cr := min(-t.key, 0)
	if c.back != nil {
		cr = max(cr, c.creditOf(c.front)-oneTurn)
		cr = min(cr, c.creditOf(c.back))
	}
	t.key = c.earned - cr
	s.last(t)
	c.insertFromBack(t)
	s.admit(c, t)
	return true
}

// last puts t behind its equals.
func (s *swrr[T]) last(t *tenant[T]) {
	s.stamp++
	t.since = s.stamp
}

// restore puts t into the round where it was before a turn that was given back.
func (s *swrr[T]) restore(t *tenant[T], cr fixed, since uint64) {
	c := s.classOf(t.weight)
	t.key, t.since = c.earned-cr, since
	c.insertFromFront(t)
	s.admit(c, t)
}

// refund puts t where it was before a turn that was given back, after an item
// was added to its queue.
func (s *swrr[T]) refund(t *tenant[T], cr fixed, since uint64) {
	t.since = min(t.since, since)
	if t.class == nil {
		t.key = -cr
		return
	}
	c := t.class
	c.lengths.rose(int(t.length))
	c.unlink(t)
	t.key = c.earned - cr
	c.insertFromFront(t)
}

func (s *swrr[T]) admit(c *class[T], t *tenant[T]) {
	t.class, t.where = c, inRound
	c.tenants++
	c.lengths.joined(int(t.length))
}

// leave takes t out of the round and keeps its credit, negated, in t.key.
func (s *swrr[T]) leave(t *tenant[T]) {
	c := t.class
	t.key = -c.creditOf(t)
	c.unlink(t)
	c.tenants--
	c.lengths.left(int(t.length))
	t.class, t.where = nil, outside
	if c.tenants == 0 {
		s.dropClass(c)
	}
}

// classOf finds or makes the class of a weight.
func (s *swrr[T]) classOf(weight float64) *class[T] {
	c := s.classes[weight]
	if c != nil {
		return c
	}
	if last := len(s.free) - 1; last >= 0 {
		c = s.free[last]
		s.free = s.free[:last]
	} else {
		c = new(class[T])
	}
	c.weight, c.index, c.since = weight, len(s.round), s.turns
	s.round = append(s.round, c)
	s.classes[weight] = c
	return c
}

// maxFreeClasses bounds the classes kept for weights to come.
const maxFreeClasses = 64

// dropClass forgets an empty class.
func (s *swrr[T]) dropClass(c *class[T]) {
	last := len(s.round) - 1
	s.round[c.index] = s.round[last]
	s.round[c.index].index = c.index
	s.round[last] = nil
	s.round = s.round[:last]
	delete(s.classes, c.weight)
	if len(s.free) < maxFreeClasses {
		*c = class[T]{lengths: c.lengths.cleared()}
		s.free = append(s.free, c)
	}
}
