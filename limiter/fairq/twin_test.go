package fairq

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is a naive twin of a queue: the rules of the package comment followed
// in the dumbest way.
type model interface {
	push(it *twinItem)
	next(now time.Time) *twinItem
	requeue(now time.Time, it *twinItem, notBefore time.Time)
	remove(it *twinItem) bool
	setWeight(tenant string, weight float64) bool
	correct(it *twinItem, cost float64)
	setHold(until time.Time)
	waiters() []*twinTenant // with items
}

type twinTenant struct {
	name            string
	weight, ordered float64 // as pushed; swrr: as it takes part in the present round
	items           []*twinItem
	credit          float64 // swrr
	stamp           int     // order among equals: lower first
	parked          bool
	notBefore       time.Time
	life            int
	tag             float64 // sfq
	deficit         float64 // drr, in lap
	lap             int
}

type twinItem struct {
	id, seq int
	tenant  string
	weight  float64
	cost    float64
	// As noted when its turn came.
	credit float64 // swrr: before the turn; sfq: tag; drr: deficit
	life   int
	turn   int
	per    float64
	stamp  int
	before float64 // sfq, drr: of the round
	key    int     // drr: lap
	used   bool    // corrected
}

// pair runs one tape on the queue and on its twin.
type pair struct {
	q     *Queue[int]
	w     model
	costs bool // the order is by cost
	now   time.Time
	items []*Item[int]
	twins []*twinItem
	out   []int // taken by Next and not returned
}

func newPair(d Discipline) *pair {
	p := &pair{q: New[int](Config{Discipline: d, Quantum: 2}), now: epoch, costs: true}
	switch d {
	case DRR:
		p.w = &laps{round: round{quantum: 2}}
	case SFQ:
		p.w = &tags{}
	default:
		p.w, p.costs = &twin{}, false
	}
	return p
}

// The weights of tapes by cost are powers of 2, so that the twins' floats are
// exact; those by turns are not.
var (
	tapeWeights     = [...]float64{1, 1, 3, 0.5}
	tapeCostWeights = [...]float64{1, 1, 4, 0.5}
)

// weight is that of tenant n on the tape; tenant 7 changes its own.
func (p *pair) weight(n, arg int) float64 {
	switch {
	case n == 7 && p.costs:
		return float64(int(1) << (arg / 8))
	case n == 7:
		return float64(1 + arg/8)
	case p.costs:
		return tapeCostWeights[n%4]
	}
	return tapeWeights[n%4]
}

// step decodes one operation: the low bits choose it, the rest is its operand.
func (p *pair) step(op byte) error {
	arg := int(op >> 3)
	switch op & 7 {
	case 0, 1: // push; tenant 7 changes its weight
		name, weight, id := fmt.Sprint("t", arg%8), p.weight(arg%8, arg), len(p.items)
		cost := float64(1 + (id+arg)%5)
		p.items = append(p.items, &Item[int]{Value: id})
		p.twins = append(p.twins, &twinItem{id: id, tenant: name, weight: weight, cost: cost})
		p.q.Push(p.now, p.items[id], name, weight, cost)
		p.w.push(p.twins[id])
	case 2, 3: // next
		head := p.q.Peek(p.now)
		if p.q.Peek(p.now) != head {
			return fmt.Errorf("a second look sees another")
		}
		got, want := p.q.Next(p.now), p.w.next(p.now)
		switch {
		case got != head:
			return fmt.Errorf("next: got %v after a look at %v", got, head)
		case (got == nil) != (want == nil):
			return fmt.Errorf("next: got %v, want %v", got, want)
		case got != nil && got.Value != want.id:
			return fmt.Errorf("next: item %d of %s, want %d of %s", got.Value, got.name, want.id, want.tenant)
		case got != nil:
			p.out = append(p.out, got.Value)
		}
	case 4: // requeue, at once or later
		id, ok := p.taken(arg)
		if !ok {
			return nil
		}
		if p.twins[id].used {
			return p.step(2)
		}
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
	case 7: // hold, change a weight or correct a cost
		return p.rest(arg)
	}
	return p.check()
}

// taken removes an item from those that are out.
func (p *pair) taken(arg int) (id int, ok bool) {
	if len(p.out) == 0 {
		return 0, false
	}
	i := arg % len(p.out)
	id = p.out[i]
	p.out = slices.Delete(p.out, i, i+1)
	return id, true
}

func (p *pair) rest(arg int) error {
	switch {
	case arg < 16:
		until := time.Time{}
		if arg%4 > 0 {
			until = p.now.Add(time.Duration(arg%4) * time.Second)
		}
		p.q.Hold(until)
		p.w.setHold(until)
	case arg < 20:
		name, weight := fmt.Sprint("t", arg%8), p.weight(arg%4, 0)*2
		if got, want := p.q.SetWeight(name, weight), p.w.setWeight(name, weight); got != want {
			return fmt.Errorf("weight of %s: %v, want %v", name, got, want)
		}
	default:
		id, ok := p.taken(arg)
		if !ok {
			return nil
		}
		cost := float64(arg%4) * 2
		p.q.Correct(p.items[id], cost)
		p.w.correct(p.twins[id], cost)
		p.twins[id].used = true
		if arg%2 == 0 { // may be corrected again
			p.out = append(p.out, id)
		}
	}
	return p.check()
}

// check compares everything that can be asked, and the queue's own invariants.
func (p *pair) check() error {
	queued := 0
	for _, t := range p.w.waiters() {
		queued += len(t.items)
	}
	if p.q.Len() != queued || p.q.Tenants() != len(p.w.waiters()) {
		return fmt.Errorf("%d items of %d tenants, want %d of %d", p.q.Len(), p.q.Tenants(), queued, len(p.w.waiters()))
	}
	if w, ok := p.w.(*twin); ok {
		for i := max(0, len(p.items)-40); i < len(p.items); i++ {
			if got, want := p.q.Ahead(p.items[i]), w.ahead(p.twins[i]); got != want {
				return fmt.Errorf("ahead of item %d: %d, want %d", i, got, want)
			}
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
	for _, t := range p.w.waiters() {
		from := p.now
		if t.parked && t.notBefore.After(from) {
			from = t.notBefore
		}
		if want.IsZero() || from.Before(want) {
			want = from
		}
	}
	if p.q.hold.After(want) {
		want = p.q.hold
	}
	if !at.Equal(want) {
		return fmt.Errorf("ready at +%v, want +%v", at.Sub(epoch), want.Sub(epoch))
	}
	return nil
}

func runTape(d Discipline, tape []byte) error {
	p := newPair(d)
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
	for _, d := range disciplines {
		for range 200 {
			tape := make([]byte, 300)
			for i := range tape {
				tape[i] = byte(rng.IntN(256))
			}
			if err := runTape(d, tape); err != nil {
				t.Fatalf("%s, tape %v: %v", d, tape, err)
			}
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
		for _, d := range disciplines {
			if err := runTape(d, tape[:min(len(tape), 500)]); err != nil {
				t.Fatal(d, err)
			}
		}
	})
}
