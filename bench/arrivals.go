package bench

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"time"
)

// Arrivals says how the instants of one tenant's requests are spread.
type Arrivals string

const (
	Poisson Arrivals = "poisson" // independent of each other, as of many separate users
	Fixed   Arrivals = "fixed"   // evenly spaced, as of a clock; the first at a random phase
)

// schedule yields the instants at which requests of all tenants are due, in
// order. Equal seeds and loads give equal schedules. It is not safe for
// concurrent use.
type schedule struct {
	heap dueHeap
}

// due is one tenant's next request.
type due struct {
	at     time.Duration // after the begin of the run
	tenant int           // index of its Load
	gap    float64       // mean seconds between its requests
	spread Arrivals
	rng    *rand.Rand // of this tenant alone: one tenant's rate does not shift another's instants
}

func newSchedule(loads []Load, spread Arrivals, seed uint64) *schedule {
	s := &schedule{}
	for i, l := range loads {
		d := &due{tenant: i, gap: 1 / l.Rate, spread: spread, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		if spread == Fixed {
			d.at = time.Duration(d.rng.Float64() * d.gap * float64(time.Second))
		} else {
			d.advance()
		}
		s.heap = append(s.heap, d)
	}
	heap.Init(&s.heap)
	return s
}

// next returns when the next request is due and whose it is.
func (s *schedule) next() (at time.Duration, tenant int) {
	d := s.heap[0]
	at, tenant = d.at, d.tenant
	d.advance()
	heap.Fix(&s.heap, 0)
	return at, tenant
}

func (d *due) advance() {
	gap := d.gap
	if d.spread != Fixed {
		gap *= d.rng.ExpFloat64()
	}
	d.at += time.Duration(gap * float64(time.Second))
}

// dueHeap has the earliest on top; ties go to the lower index.
type dueHeap []*due

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].at, h[j].at), cmp.Compare(h[i].tenant, h[j].tenant)) < 0
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push and Pop implement heap.Interface; the number of tenants never changes.
func (h dueHeap) Push(any) { panic("bench: schedule grows") }
func (h dueHeap) Pop() any { panic("bench: schedule shrinks") }
