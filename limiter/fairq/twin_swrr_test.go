package fairq

import (
	"math"
	"slices"
	"strings"
	"time"
)

// twin follows the rules of the package comment in the dumbest way: one list
// of tenants, one float per tenant, everything recomputed by scanning.
type twin struct {
	tenants []*twinTenant
	hold    time.Time
	turns   int
	since   map[float64]int // turn in which a weight came into the round
	stamp   int
	seq     int
	lives   int
}

const near = 1. / (1 << 20)

func (w *twin) find(name string) *twinTenant {
	for _, t := range w.tenants {
		if t.name == name {
			return t
		}
	}
	return nil
}

func (w *twin) waiters() []*twinTenant { return w.tenants }

func (w *twin) setHold(until time.Time) { w.hold = until }

func (w *twin) correct(*twinItem, float64) {}

func (w *twin) setWeight(name string, weight float64) bool {
	t := w.find(name)
	if t != nil {
		t.weight = weight
	}
	return t != nil
}

func (w *twin) meet(name string, weight float64) *twinTenant {
	w.lives++
	t := &twinTenant{name: name, weight: weight, life: w.lives}
	w.tenants = append(w.tenants, t)
	return t
}

func (w *twin) round() []*twinTenant {
	var in []*twinTenant
	for _, t := range w.tenants {
		if !t.parked {
			in = append(in, t)
		}
	}
	slices.SortFunc(in, func(a, b *twinTenant) int {
		if twinBefore(a, b) {
			return -1
		}
		return 1
	})
	return in
}

func twinBefore(a, b *twinTenant) bool {
	if math.Abs(a.credit-b.credit) > near {
		return a.credit > b.credit
	}
	if a.ordered != b.ordered {
		return a.ordered > b.ordered
	}
	return a.stamp < b.stamp
}

// enter puts t behind its equals.
func (w *twin) enter(t *twinTenant, atMost float64) {
	first, last, any := math.Inf(-1), math.Inf(1), false
	for _, o := range w.tenants {
		if o != t && !o.parked && o.ordered == t.weight {
			first, last, any = max(first, o.credit), min(last, o.credit), true
		}
	}
	t.credit = min(atMost, 0)
	if any {
		t.credit = min(max(t.credit, first-1), last)
	}
	w.stamp++
	t.parked, t.ordered, t.stamp = false, t.weight, w.stamp
	w.ages()
}

func (w *twin) push(it *twinItem) {
	w.seq++
	it.seq = w.seq
	t := w.find(it.tenant)
	if t == nil {
		t = w.meet(it.tenant, it.weight)
		w.enter(t, 0)
	}
	t.weight = it.weight
	t.items = append(t.items, it)
}

func (w *twin) unpark(now time.Time) {
	var due []*twinTenant
	for _, t := range w.tenants {
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
	for _, t := range due {
		w.enter(t, t.credit)
	}
}

func (w *twin) next(now time.Time) *twinItem {
	if now.Before(w.hold) {
		return nil
	}
	w.unpark(now)
	in := w.round()
	if len(in) == 0 {
		return nil
	}
	total := 0.0
	for _, t := range in {
		total += t.ordered
	}
	for _, t := range in {
		t.credit += t.ordered / total
	}
	w.turns++
	t := w.round()[0]
	it := t.items[0]
	it.credit, it.life, it.turn, it.per = t.credit-t.ordered/total, t.life, w.turns, 1/total
	it.stamp = t.stamp
	t.items = t.items[1:]
	switch {
	case len(t.items) == 0:
		w.forget(t)
	case t.weight != t.ordered:
		w.enter(t, t.credit-1)
	default:
		t.credit--
		w.stamp++
		t.stamp = w.stamp
	}
	return it
}

// ages notes which weights are in the round; it is called after every change.
func (w *twin) ages() {
	present := map[float64]int{}
	for _, t := range w.tenants {
		if !t.parked {
			present[t.ordered] = w.turns
			if since, ok := w.since[t.ordered]; ok {
				present[t.ordered] = since
			}
		}
	}
	w.since = present
}

func (w *twin) forget(t *twinTenant) {
	w.tenants = slices.DeleteFunc(w.tenants, func(o *twinTenant) bool { return o == t })
	w.ages()
}

func (w *twin) requeue(now time.Time, it *twinItem, notBefore time.Time) {
	for _, t := range w.tenants {
		if since, ok := w.since[t.ordered]; ok && !t.parked && since < it.turn {
			t.credit -= t.ordered * it.per
		}
	}
	t := w.find(it.tenant)
	switch {
	case t == nil:
		t = w.meet(it.tenant, it.weight)
		t.ordered, t.credit, t.stamp = it.weight, it.credit, it.stamp
	case t.life == it.life:
		t.credit, t.stamp = t.credit+1, min(t.stamp, it.stamp)
	default:
		t.credit, t.stamp = max(t.credit, it.credit), min(t.stamp, it.stamp)
	}
	t.items = append(t.items, it)
	slices.SortFunc(t.items, func(a, b *twinItem) int { return a.seq - b.seq })
	if notBefore.After(now) {
		if !t.parked || notBefore.After(t.notBefore) {
			t.notBefore = notBefore
		}
		t.parked = true
	}
	w.ages()
}

func (w *twin) remove(it *twinItem) bool {
	t := w.find(it.tenant)
	if t == nil {
		return false
	}
	i := slices.Index(t.items, it)
	if i < 0 {
		return false
	}
	if t.items = slices.Delete(t.items, i, i+1); len(t.items) == 0 {
		w.forget(t)
	}
	return true
}

func (w *twin) ahead(it *twinItem) int {
	t := w.find(it.tenant)
	if t == nil || !slices.Contains(t.items, it) {
		return 0
	}
	own := slices.Index(t.items, it)
	weight := t.weight
	if !t.parked {
		weight = t.ordered
	}
	n := own
	for _, o := range w.tenants {
		if o != t && !o.parked {
			n += min(len(o.items), int(math.Ceil(float64(own+1)*o.ordered/weight-1e-9)))
		}
	}
	return n
}
