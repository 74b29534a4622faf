package fairq

import "time"

// park takes t out of the round until notBefore. One that is out already
// stays out until the later of the two instants.
func (q *Queue[T]) park(t *tenant[T], notBefore time.Time) {
	if t.where == parked {
		if notBefore.After(t.notBefore) {
			t.notBefore = notBefore
			q.down(int(t.index))
		}
		return
	}
	q.sched.leave(t)
	t.where, t.notBefore = parked, notBefore
	t.index = int32(len(q.parked))
	q.parked = append(q.parked, t)
	q.up(int(t.index))
}

// unpark returns to the round every tenant whose time has come.
func (q *Queue[T]) unpark(now time.Time) {
	for len(q.parked) > 0 && !q.parked[0].notBefore.After(now) {
		t := q.parked[0]
		q.unheap(t)
		q.sched.enter(t)
	}
}

// Wake ends the hold and every tenant's rest, because what they waited for has
// changed: each may be tried now.
func (q *Queue[T]) Wake() {
	q.hold = time.Time{}
	for len(q.parked) > 0 {
		t := q.parked[0]
		q.unheap(t)
		q.sched.enter(t)
	}
}

// unheap takes t out of the heap of parked tenants. The heap is written out
// because container/heap would allocate for its interface values.
func (q *Queue[T]) unheap(t *tenant[T]) {
	i, last := int(t.index), len(q.parked)-1
	q.swap(i, last)
	q.parked[last] = nil
	q.parked = q.parked[:last]
	if i < last {
		q.down(i)
		q.up(i)
	}
	t.where, t.notBefore = outside, time.Time{}
}

func (q *Queue[T]) swap(i, j int) {
	p := q.parked
	p[i], p[j] = p[j], p[i]
	p[i].index, p[j].index = int32(i), int32(j)
}

// sooner orders by instant, then by name so that equal instants end in one
// order whatever happened before.
func (q *Queue[T]) sooner(i, j int) bool {
	a, b := q.parked[i], q.parked[j]
	if c := a.notBefore.Compare(b.notBefore); c != 0 {
		return c < 0
	}
	return a.name < b.name
}

func (q *Queue[T]) up(i int) {
	for i > 0 && q.sooner(i, (i-1)/2) {
		q.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (q *Queue[T]) down(i int) {
	for {
		least := 2*i + 1
		if least >= len(q.parked) {
			return
		}
		if r := least + 1; r < len(q.parked) && q.sooner(r, least) {
			least = r
		}
		if !q.sooner(least, i) {
			return
		}
		q.swap(i, least)
		i = least
	}
}
