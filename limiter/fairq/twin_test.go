package fairq

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
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

type twinTenant struct {
	name            string
	weight, ordered float64 // as pushed; as it takes part in the present round
	items           []*twinItem
	credit          float64
	stamp           int // order among equals: lower first
	parked          bool
	notBefore       time.Time
	life            int
}

type twinItem struct {
	id, seq int
	tenant  string
	weight  float64
	credit  float64 // before the turn
	life    int
	turn    int
	per     float64
	stamp   int
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

// pair runs one tape on the queue and on its twin.
type pair struct {
	q     *Queue[int]
	w     *twin
	now   time.Time
	items []*Item[int]
	twins []*twinItem
	out   []int // taken by Next and not returned
}

func newPair() *pair { return &pair{q: New[int](), w: &twin{}, now: epoch} }

var tapeWeights = [...]float64{1, 1, 3, 0.5}

// step decodes one operation: the low bits choose it, the rest is its operand.
func (p *pair) step(op byte) error {
	arg := int(op >> 3)
	switch op & 7 {
	case 0, 1: // push; tenant 7 changes its weight
		name, weight := fmt.Sprint("t", arg%8), tapeWeights[arg%4]
		if arg%8 == 7 {
			weight = float64(1 + arg/8)
		}
		id := len(p.items)
		p.items = append(p.items, &Item[int]{Value: id})
		p.twins = append(p.twins, &twinItem{id: id, tenant: name, weight: weight})
		p.q.Push(p.now, p.items[id], name, weight)
		p.w.push(p.twins[id])
	case 2, 3: // next
		got, want := p.q.Next(p.now), p.w.next(p.now)
		switch {
		case (got == nil) != (want == nil):
			return fmt.Errorf("next: got %v, want %v", got, want)
		case got != nil && got.Value != want.id:
			return fmt.Errorf("next: item %d of %s, want %d of %s", got.Value, got.name, want.id, want.tenant)
		case got != nil:
			p.out = append(p.out, got.Value)
		}
	case 4: // requeue, at once or later
		if len(p.out) == 0 {
			return nil
		}
		i := arg % len(p.out)
		id := p.out[i]
		p.out = slices.Delete(p.out, i, i+1)
		notBefore := p.now.Add(time.Duration(arg/4) * time.Second)
		p.q.Requeue(p.now, p.items[id], notBefore)
		p.w.requeue(p.now, p.twins[id], notBefore)
	case 5: // remove
		if len(p.items) == 0 {
			return nil
		}
		id := (arg * 7) % len(p.items)
		if got, want := p.q.Remove(p.items[id]), p.w.remove(p.twins[id]); got != want {
			return fmt.Errorf("remove of %d: %v, want %v", id, got, want)
		}
	case 6: // advance
		p.now = p.now.Add(time.Duration(arg%4) * time.Second)
	case 7: // hold
		until := time.Time{}
		if arg%4 > 0 {
			until = p.now.Add(time.Duration(arg%4) * time.Second)
		}
		p.q.Hold(until)
		p.w.hold = until
	}
	return p.check()
}

// check compares everything that can be asked, and the queue's own invariants.
func (p *pair) check() error {
	queued := 0
	for _, t := range p.w.tenants {
		queued += len(t.items)
	}
	if p.q.Len() != queued || p.q.Tenants() != len(p.w.tenants) {
		return fmt.Errorf("%d items of %d tenants, want %d of %d", p.q.Len(), p.q.Tenants(), queued, len(p.w.tenants))
	}
	for i := max(0, len(p.items)-40); i < len(p.items); i++ {
		if got, want := p.q.Ahead(p.items[i]), p.w.ahead(p.twins[i]); got != want {
			return fmt.Errorf("ahead of item %d: %d, want %d", i, got, want)
		}
	}
	if err := p.checkReady(); err != nil {
		return err
	}
	return invariants(p.q)
}

func (p *pair) checkReady() error {
	at, ok := p.q.Ready(p.now)
	if ok != (p.q.Len() > 0) {
		return fmt.Errorf("ready %v with %d queued", ok, p.q.Len())
	}
	if !ok {
		return nil
	}
	want := time.Time{}
	for _, t := range p.w.tenants {
		from := p.now
		if t.parked && t.notBefore.After(from) {
			from = t.notBefore
		}
		if want.IsZero() || from.Before(want) {
			want = from
		}
	}
	if p.w.hold.After(want) {
		want = p.w.hold
	}
	if !at.Equal(want) {
		return fmt.Errorf("ready at +%v, want +%v", at.Sub(epoch), want.Sub(epoch))
	}
	return nil
}

// invariants checks the structure itself.
func invariants[T any](q *Queue[T]) error {
	inRound, items := 0, 0
	for i, c := range q.round {
		if c.index != i || q.classes[c.weight] != c || c.tenants == 0 {
			return fmt.Errorf("class %v: index %d, tenants %d", c.weight, c.index, c.tenants)
		}
		n, depth, counted := 0, 0, make([]int32, len(c.lengths.atLeast))
		for t := c.front; t != nil; t = t.next {
			if t.class != c || t.length == 0 || q.tenants[t.name] != t {
				return fmt.Errorf("tenant %s in class %v: length %d", t.name, c.weight, t.length)
			}
			if t.next != nil && t.next.spent-t.spent < -tie {
				return fmt.Errorf("class %v is not sorted at %s", c.weight, t.name)
			}
			if cr := c.creditOf(t).turns(); math.Abs(cr) > 100 {
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
		inRound, items = inRound+n, items+depth
	}
	for i, t := range q.parked {
		if int(t.heapIndex) != i || t.class != nil || t.length == 0 || i > 0 && q.sooner(i, (i-1)/2) {
			return fmt.Errorf("heap is broken at %d (%s)", i, t.name)
		}
		items += int(t.length)
	}
	if inRound+len(q.parked) != len(q.tenants) || items != q.length || len(q.classes) != len(q.round) {
		return fmt.Errorf("%d in the round, %d parked, %d in the table; %d items of %d", inRound, len(q.parked), len(q.tenants), items, q.length)
	}
	return nil
}

func runTape(tape []byte) error {
	p := newPair()
	for i, op := range tape {
		if err := p.step(op); err != nil {
			return fmt.Errorf("step %d (%d): %w", i, op, err)
		}
	}
	return nil
}

func TestTwinOnRandomTapes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	for range 200 {
		tape := make([]byte, 300)
		for i := range tape {
			tape[i] = byte(rng.IntN(256))
		}
		if err := runTape(tape); err != nil {
			t.Fatalf("tape %v: %v", tape, err)
		}
	}
}

// FuzzQueue also runs the tapes in testdata/fuzz, each of which once went wrong;
// their names say what it was.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 8, 16, 2, 2, 4, 2, 2})
	f.Add([]byte{0, 0, 8, 2, 36, 2, 14, 2, 2, 63, 2, 7, 2})
	f.Add([]byte{56, 120, 184, 2, 2, 5, 13, 2})
	f.Fuzz(func(t *testing.T, tape []byte) {
		if err := runTape(tape[:min(len(tape), 500)]); err != nil {
			t.Fatal(err)
		}
	})
}
