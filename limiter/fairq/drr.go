package fairq

import (
	"fmt"
	"math"
)

// drr is the round of deficit round robin. A tenant's key is the lap in which
// its deficit covers its head item, worked out ahead when the head or the
// deficit changes, so that laps in which nobody can be served cost nothing.
// The queue's lap is that of its latest turn.
type drr[T any] struct {
	agenda[T]
	quantum float64 // cost per lap and weight
}

// share is what t may use more per lap.
func (d *drr[T]) share(t *tenant[T]) fixed { return max(1, amount(d.quantum*t.weight)) }

// due is the lap of t's next turn; of a debtor the lap in which it is quits.
func (d *drr[T]) due(t *tenant[T]) fixed {
	var need fixed
	if t.head != nil {
		need = amount(t.head.cost)
	}
	if need -= t.deficit; need <= 0 {
		return t.lap
	}
	share := d.share(t)
	return t.lap + (need-1)/share + 1
}

// credit gives t its share of every lap up to the given one.
func (d *drr[T]) credit(t *tenant[T], lap fixed) {
	if laps := lap - t.lap; laps > 0 {
		t.deficit += laps * d.share(t)
		t.lap = lap
	}
}

// enter joins with nothing, to be given its first share in the next lap.
func (d *drr[T]) enter(t *tenant[T]) bool {
	t.deficit, t.lap = min(t.deficit, 0), d.now
	if t.length == 0 && t.deficit == 0 {
		return false
	}
	t.key = d.due(t)
	d.last(t)
	d.add(t)
	return true
}

func (d *drr[T]) leave(t *tenant[T]) {
	d.credit(t, d.now)
	d.remove(t)
}

// resized looks at the head again.
func (d *drr[T]) resized(t *tenant[T], _ int) { d.again(t) }

func (d *drr[T]) again(t *tenant[T]) {
	if key := d.due(t); key != t.key || t.since != d.heap[t.index].since {
		t.key = key
		d.moved(t)
	}
}

func (d *drr[T]) reweigh(t *tenant[T], weight float64) {
	if t.where != inRound {
		t.weight = weight
		return
	}
	d.credit(t, d.now)
	t.weight = weight
	d.again(t)
}

// take serves the tenant at the front, which stays there while what is left of
// its deficit covers its next head.
func (d *drr[T]) take() (*Item[T], *tenant[T]) {
	t := d.first()
	it := t.head
	d.begin(t)
	d.credit(t, t.key)
	it.taken.paid = t.deficit
	t.deficit -= amount(it.cost)
	if t.unlink(it); t.length == 0 { // what is left of its deficit goes with it
		d.remove(t)
		return it, t
	}
	if key := d.due(t); key != t.key {
		t.key = key
		d.last(t)
		d.moved(t)
	}
	return it, t
}

func (d *drr[T]) undo(t *tenant[T], it *Item[T]) {
	was := it.taken
	d.rewind(was)
	t.since = min(t.since, was.since)
	switch {
	case t.where == outside: // forgotten
		t.deficit, t.lap, t.since = was.paid, later(was.key, d.now), was.since
		t.key = d.due(t)
		d.add(t)
		return
	case t.generation == was.generation:
		t.deficit += amount(it.cost)
	default: // forgotten and met again: this life of it paid nothing
		t.deficit = max(t.deficit, was.paid)
	}
	if t.where == inRound {
		d.again(t)
	}
}

func (d *drr[T]) correct(t *tenant[T], delta float64) {
	t.deficit = (t.deficit - signed(delta)).near()
	if t.where == inRound {
		d.again(t)
	}
}

// ahead counts what each other tenant may have been served when the lap of
// it comes, with the mean cost for that of every item; one that is behind t
// has not had its turn in that lap yet.
func (d *drr[T]) ahead(it *Item[T]) int {
	t := it.owner
	n, cost := t.earlier(it)
	lap, deficit := t.lap, t.deficit
	if t.where == parked {
		lap, deficit = d.now, min(deficit, 0)
	}
	need := amount(cost+it.cost) - deficit
	if need > 0 {
		lap += (need-1)/d.share(t) + 1
	}
	return n + d.sum(t, lap, func(o *tenant[T]) int {
		laps := float64(lap - o.lap)
		if o.since > t.since {
			laps--
		}
		can := (float64(o.deficit) + max(0, laps)*float64(d.share(o))) / float64(unit)
		each := o.backlog / float64(o.length)
		return int(min(float64(o.length), max(0, math.Floor(can/each+1e-9))))
	})
}

func (d *drr[T]) describe(t *tenant[T]) string {
	if t.where == parked {
		return fmt.Sprintf("deficit=%g", t.deficit.of(unit))
	}
	return fmt.Sprintf("laps=%d deficit=%g", t.key-d.now, t.deficit.of(unit))
}
