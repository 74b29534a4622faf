package fairq

import (
	"fmt"
	"math"
	"slices"
)

// invariants checks the structure itself.
func invariants[T any](q *Queue[T]) error {
	round, items := 0, 0
	for _, t := range q.sched.order() {
		if t.where != inRound || q.tenants[t.name] != t {
			return fmt.Errorf("tenant %s in the round: where %d", t.name, t.where)
		}
		if t.length > 0 {
			round++
		}
		items += int(t.length)
	}
	for i, t := range q.parked {
		if int(t.index) != i || t.where != parked || t.length == 0 || i > 0 && q.sooner(i, (i-1)/2) {
			return fmt.Errorf("heap is broken at %d (%s)", i, t.name)
		}
		items += int(t.length)
	}
	if round+len(q.parked) != q.waiting || items != q.length || len(q.sched.order())+len(q.parked) != len(q.tenants) {
		return fmt.Errorf("%d in the round, %d parked, %d waiting, %d in the table; %d items of %d", round, len(q.parked), q.waiting, len(q.tenants), items, q.length)
	}
	for _, t := range q.tenants {
		sum := 0.0
		for it := t.head; it != nil; it = it.next {
			sum += it.cost
		}
		if math.Abs(sum-t.backlog) > 1e-6 {
			return fmt.Errorf("tenant %s: backlog %v, stated %v", t.name, sum, t.backlog)
		}
	}
	switch s := q.sched.(type) {
	case *swrr[T]:
		return s.invariants()
	case *drr[T]:
		return s.agenda.invariants()
	case *sfq[T]:
		return s.agenda.invariants()
	}
	return nil
}

func (a *agenda[T]) invariants() error {
	for i, e := range a.heap {
		if int(e.tenant.index) != i || e.key != e.tenant.key || e.since != e.tenant.since || i > 0 && e.before(a.heap[(i-1)/4]) {
			return fmt.Errorf("agenda is broken at %d (%s)", i, e.tenant.name)
		}
	}
	return nil
}

func (s *swrr[T]) invariants() error {
	for i, c := range s.round {
		if c.index != i || s.classes[c.weight] != c || c.tenants == 0 {
			return fmt.Errorf("class %v: index %d, tenants %d", c.weight, c.index, c.tenants)
		}
		n, depth, counted := 0, 0, make([]int32, len(c.lengths.atLeast))
		for t := c.front; t != nil; t = t.next {
			if t.class != c || t.length == 0 {
				return fmt.Errorf("tenant %s in class %v: length %d", t.name, c.weight, t.length)
			}
			if t.next != nil && t.next.key-t.key < -tie {
				return fmt.Errorf("class %v is not sorted at %s", c.weight, t.name)
			}
			if cr := c.creditOf(t).of(oneTurn); math.Abs(cr) > 100 {
				return fmt.Errorf("credit %v of %s", cr, t.name)
			}
			n, depth = n+1, depth+int(t.length)
			for k := range min(t.length, maxLevels) {
				counted[k]++
			}
		}
		if n != c.tenants || depth != c.lengths.items || !slices.Equal(counted, c.lengths.atLeast) {
			return fmt.Errorf("class %v: %d tenants of %d items, counted %v; stated %d, %d, %v",
				c.weight, n, depth, counted, c.tenants, c.lengths.items, c.lengths.atLeast)
		}
	}
	if len(s.classes) != len(s.round) {
		return fmt.Errorf("%d classes, %d in the round", len(s.classes), len(s.round))
	}
	return nil
}
