package fairq

import (
	"math"
	"slices"
	"strings"
	"time"
)

// round is what the twins of the disciplines by cost have in common: a list.
type round struct {
	tenants []*twinTenant // debtors too
	hold    time.Time
	quantum float64
	turns   int
	stamp   int
	seq     int
	lives   int
}

func (r *round) find(name string) *twinTenant {
	for _, t := range r.tenants {
		if t.name == name {
			return t
		}
	}
	return nil
}

func (r *round) waiters() []*twinTenant {
	var all []*twinTenant
	for _, t := range r.tenants {
		if len(t.items) > 0 {
			all = append(all, t)
		}
	}
	return all
}

func (r *round) setHold(until time.Time) { r.hold = until }

func (r *round) meet(name string, weight float64) *twinTenant {
	r.lives++
	t := &twinTenant{name: name, weight: weight, life: r.lives}
	r.tenants = append(r.tenants, t)
	return t
}

func (r *round) forget(t *twinTenant) {
	r.tenants = slices.DeleteFunc(r.tenants, func(o *twinTenant) bool { return o == t })
}

func (r *round) last(t *twinTenant) {
	r.stamp++
	t.stamp = r.stamp
}

// put returns an item to its place by arrival.
func (t *twinTenant) put(it *twinItem) {
	t.items = append(t.items, it)
	slices.SortFunc(t.items, func(a, b *twinItem) int { return a.seq - b.seq })
}

func (t *twinTenant) park(now, notBefore time.Time) bool {
	if !notBefore.After(now) {
		return false
	}
	if !t.parked || notBefore.After(t.notBefore) {
		t.notBefore = notBefore
	}
	was := t.parked
	t.parked = true
	return !was
}

// due lists the parked tenants whose time has come.
func (r *round) due(now time.Time) []*twinTenant {
	var due []*twinTenant
	for _, t := range r.tenants {
		if t.parked && !t.notBefore.After(now) {
			due = append(due, t)
		}
	}
	slices.SortFunc(due, func(a, b *twinTenant) int {
		if c := a.notBefore.Compare(b.notBefore); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	return due
}

// take removes an item from the middle; it reports whether the tenant is empty.
func (r *round) take(it *twinItem) (t *twinTenant, found bool) {
	if t = r.find(it.tenant); t == nil {
		return nil, false
	}
	i := slices.Index(t.items, it)
	if i >= 0 {
		t.items = slices.Delete(t.items, i, i+1)
	}
	return t, i >= 0
}

// tags is start-time fair queueing.
type tags struct {
	round
	v float64
}

func (w *tags) enter(t *twinTenant) {
	t.parked = false
	t.tag = max(t.tag, w.v)
	w.last(t)
}

func (w *tags) push(it *twinItem) {
	w.seq++
	it.seq = w.seq
	t := w.find(it.tenant)
	if t == nil {
		t = w.meet(it.tenant, it.weight)
		t.tag = w.v
	}
	w.setWeight(it.tenant, it.weight)
	if t.items = append(t.items, it); len(t.items) == 1 {
		w.enter(t)
	}
}

func (w *tags) setWeight(name string, weight float64) bool {
	t := w.find(name)
	if t == nil {
		return false
	}
	if t.tag > w.v {
		t.tag = w.v + math.Round((t.tag-w.v)*t.weight/weight*float64(unit))/float64(unit)
	}
	t.weight = weight
	return true
}

func (w *tags) next(now time.Time) *twinItem {
	if now.Before(w.hold) {
		return nil
	}
	for _, t := range w.due(now) {
		w.enter(t)
	}
	var best *twinTenant
	for _, t := range w.waiters() {
		if !t.parked && (best == nil || t.tag < best.tag || t.tag == best.tag && t.stamp < best.stamp) {
			best = t
		}
	}
	if best == nil {
		return nil
	}
	w.tenants = slices.DeleteFunc(w.tenants, func(t *twinTenant) bool { // debtors passed
		return len(t.items) == 0 && (t.tag < best.tag || t.tag == best.tag && t.stamp < best.stamp)
	})
	it := best.items[0]
	best.items = best.items[1:]
	w.turns++
	it.credit, it.life, it.turn, it.stamp, it.before = best.tag, best.life, w.turns, best.stamp, w.v
	it.per = it.cost / best.weight
	w.v = max(w.v, best.tag)
	best.tag += it.per
	w.last(best)
	if len(best.items) == 0 && best.tag <= w.v {
		w.forget(best)
	}
	return it
}

func (w *tags) requeue(now time.Time, it *twinItem, notBefore time.Time) {
	if w.turns == it.turn {
		w.turns--
		w.v = it.before
	}
	t := w.find(it.tenant)
	switch {
	case t == nil:
		t = w.meet(it.tenant, it.weight)
		t.tag, t.stamp = max(it.credit, w.v), it.stamp
	case t.life == it.life:
		t.tag -= it.per
	default:
		t.tag = min(t.tag, max(it.credit, w.v))
	}
	t.stamp = min(t.stamp, it.stamp)
	t.put(it)
	t.park(now, notBefore)
}

func (w *tags) remove(it *twinItem) bool {
	t, ok := w.take(it)
	if ok && len(t.items) == 0 {
		w.retire(t)
	}
	return ok
}

// retire remembers a tenant without items only while it is in debt.
func (w *tags) retire(t *twinTenant) {
	t.parked = false
	if t.tag <= w.v {
		w.forget(t)
		return
	}
	w.last(t)
}

func (w *tags) correct(it *twinItem, cost float64) {
	delta := cost - it.cost
	it.cost = cost
	t := w.find(it.tenant)
	switch {
	case t == nil && delta <= 0 || t != nil && t.life != it.life && delta < 0:
		return
	case t == nil:
		t = w.meet(it.tenant, it.weight)
		it.life, t.tag = t.life, w.v
		w.last(t)
	}
	t.tag += delta / t.weight
	if len(t.items) == 0 {
		w.retire(t)
	}
}

// laps is deficit round robin, lap after lap.
type laps struct {
	round
	lap int
}

// has is t's deficit in a lap.
func (w *laps) has(t *twinTenant, lap int) float64 {
	d := t.deficit
	for l := t.lap; l < lap; l++ {
		d += w.quantum * t.weight
	}
	return d
}

func (w *laps) credit(t *twinTenant, lap int) {
	t.deficit = w.has(t, lap)
	t.lap = max(t.lap, lap)
}

func (w *laps) enter(t *twinTenant) {
	t.parked, t.deficit, t.lap = false, min(t.deficit, 0), w.lap
	w.last(t)
}

func (w *laps) push(it *twinItem) {
	w.seq++
	it.seq = w.seq
	t := w.find(it.tenant)
	if t == nil {
		t = w.meet(it.tenant, it.weight)
	}
	w.setWeight(it.tenant, it.weight)
	if len(t.items) == 0 {
		w.credit(t, w.lap)
		w.enter(t)
	}
	t.items = append(t.items, it)
}

func (w *laps) setWeight(name string, weight float64) bool {
	t := w.find(name)
	if t == nil {
		return false
	}
	if !t.parked && t.weight != weight {
		w.credit(t, w.lap)
	}
	t.weight = weight
	return true
}

// able reports whether t may go in a lap: a waiter to be served, a debtor to be
// forgotten.
func (w *laps) able(t *twinTenant, lap int) bool {
	need := 0.0
	if len(t.items) > 0 {
		need = t.items[0].cost
	}
	return lap >= t.lap && w.has(t, lap) >= need
}

func (w *laps) next(now time.Time) *twinItem {
	if now.Before(w.hold) {
		return nil
	}
	for _, t := range w.due(now) {
		w.enter(t)
	}
	first, some := w.lap, false
	for _, t := range w.tenants {
		if !t.parked {
			first, some = min(first, t.lap), some || len(t.items) > 0
		}
	}
	if !some {
		return nil
	}
	for lap := first; ; lap++ {
		for {
			var best *twinTenant
			for _, t := range w.tenants {
				if !t.parked && w.able(t, lap) && (best == nil || t.stamp < best.stamp) {
					best = t
				}
			}
			if best == nil {
				break
			}
			if len(best.items) > 0 {
				return w.serve(best, lap)
			}
			w.forget(best)
		}
	}
}

func (w *laps) serve(t *twinTenant, lap int) *twinItem {
	it := t.items[0]
	t.items = t.items[1:]
	w.turns++
	it.life, it.turn, it.stamp, it.before, it.key = t.life, w.turns, t.stamp, float64(w.lap), lap
	w.lap = max(w.lap, lap)
	w.credit(t, lap)
	it.credit = t.deficit
	t.deficit -= it.cost
	switch {
	case len(t.items) == 0 && t.deficit >= 0:
		w.forget(t)
	case !w.able(t, lap):
		w.last(t)
	}
	return it
}

func (w *laps) requeue(now time.Time, it *twinItem, notBefore time.Time) {
	if w.turns == it.turn {
		w.turns--
		w.lap = int(it.before)
	}
	t := w.find(it.tenant)
	switch {
	case t == nil:
		t = w.meet(it.tenant, it.weight)
		t.deficit, t.lap, t.stamp = it.credit, max(it.key, w.lap), it.stamp
	case t.life == it.life:
		t.deficit += it.cost
	default:
		t.deficit = max(t.deficit, it.credit)
	}
	t.stamp = min(t.stamp, it.stamp)
	t.put(it)
	if t.park(now, notBefore) {
		w.credit(t, w.lap)
	}
}

func (w *laps) remove(it *twinItem) bool {
	t, ok := w.take(it)
	if ok && len(t.items) == 0 {
		w.retire(t)
	}
	return ok
}

func (w *laps) retire(t *twinTenant) {
	if !t.parked {
		w.credit(t, w.lap)
	}
	t.parked = false
	if w.enter(t); t.deficit == 0 {
		w.forget(t)
	}
}

func (w *laps) correct(it *twinItem, cost float64) {
	delta := cost - it.cost
	it.cost = cost
	t := w.find(it.tenant)
	switch {
	case t == nil && delta <= 0 || t != nil && t.life != it.life && delta < 0:
		return
	case t == nil:
		t = w.meet(it.tenant, it.weight)
		it.life, t.lap = t.life, w.lap
	}
	if t.deficit -= delta; len(t.items) == 0 {
		w.retire(t)
	}
}
