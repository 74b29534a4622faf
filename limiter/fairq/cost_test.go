package fairq

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var byCost = []Discipline{DRR, SFQ}

// payer is a tenant that always has four items queued, of costs up to most.
type payer struct {
	weight float64
	most   int
}

// run serves turns among payers and returns, turn by turn, whom and at what
// cost. settle, if any, tells the real cost of an item.
func run(q *Queue[int], payers []payer, turns int, rng *rand.Rand, settle func(i int, cost float64) float64) (who []int, cost []float64) {
	push := func(i int) {
		q.Push(epoch, &Item[int]{Value: i}, fmt.Sprint("t", i), payers[i].weight, float64(1+rng.IntN(payers[i].most)))
	}
	for range 4 {
		for i := range payers {
			push(i)
		}
	}
	for range turns {
		it := q.Next(epoch)
		if settle != nil {
			q.Correct(it, settle(it.Value, it.cost))
		}
		who, cost = append(who, it.Value), append(cost, it.cost)
		push(it.Value)
	}
	return who, cost
}

// widest is the largest |W_i/w_i − W_j/w_j| over all stretches of turns.
func widest(who []int, cost []float64, i, j int, payers []payer) float64 {
	gap, low, high := 0., 0., 0.
	for k, w := range who {
		switch w {
		case i:
			gap += cost[k] / payers[i].weight
		case j:
			gap -= cost[k] / payers[j].weight
		}
		low, high = min(low, gap), max(high, gap)
	}
	return high - low
}

// TestUnfairnessIsBounded is the table of the package comment: the bounds of
// Goyal et al. for SFQ, of Shreedhar and Varghese for DRR.
func TestUnfairnessIsBounded(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 7))
	for _, d := range byCost {
		for range 40 {
			payers := make([]payer, 2+rng.IntN(12))
			for i := range payers {
				payers[i] = payer{[]float64{.25, 1, 1, 2, 7}[rng.IntN(5)], 1 + rng.IntN(200)}
			}
			quantum, laps := float64(1+rng.IntN(300)), 2.
			if rng.IntN(2) == 0 { // large enough for every item: the textbook's order
				quantum, laps = 800, 1
			}
			who, cost := run(New[int](Config{d, quantum}), payers, 3000, rng, nil)
			for i := range payers {
				for j := range i {
					bound := float64(payers[i].most)/payers[i].weight + float64(payers[j].most)/payers[j].weight + 1e-3
					if d == DRR {
						bound += laps * quantum
					}
					if gap := widest(who, cost, i, j, payers); gap > bound {
						t.Errorf("%s, quantum %v: %+v and %+v: unfairness %.1f, bound %.1f", d, quantum, payers[i], payers[j], gap, bound)
					}
				}
			}
		}
	}
}

// TestRealCostsAreShared: tenants that use half, or three times, of what they
// estimate get equal parts of what is really used, within 2 %.
func TestRealCostsAreShared(t *testing.T) {
	for _, d := range byCost {
		used, factors := make([]float64, 3), []float64{.5, 1, 3}
		payers := []payer{{1, 100}, {1, 100}, {1, 100}}
		who, cost := run(New[int](Config{Discipline: d}), payers, 6000, rand.New(rand.NewPCG(8, 8)), func(i int, cost float64) float64 { return cost * factors[i] })
		total := 0.0
		for k, i := range who {
			used[i] += cost[k]
			total += cost[k]
		}
		for i := range used {
			if share := used[i] / total; math.Abs(share-1./3) > .02/3 {
				t.Errorf("%s: tenant %d really used %.4f of all, want 1/3", d, i, share)
			}
		}
	}
}

// TestLoneWhale: one step, whatever the cost and the weight.
func TestLoneWhale(t *testing.T) {
	for _, d := range byCost {
		q := New[int](Config{Discipline: d, Quantum: 1})
		for _, w := range []float64{1, 1e-6, 1000} {
			for _, cost := range []float64{1e9, 1e-3, 1e300} {
				it := &Item[int]{}
				q.Push(epoch, it, "whale", w, cost)
				q.Push(epoch, &Item[int]{}, "minnow", 1, 1)
				if a, b := q.Next(epoch), q.Next(epoch); a == nil || b == nil || q.Next(epoch) != nil {
					t.Errorf("%s, weight %v, cost %v: served %v and %v", d, w, cost, a, b)
				}
			}
		}
	}
}

// TestNobodyStarves: a tenant of the least weight and the dearest items is
// served between cheap and heavy ones that come without end, new ones too, at
// the latest when each has got its bound.
func TestNobodyStarves(t *testing.T) {
	for _, d := range disciplines {
		q := New[int](Config{Discipline: d})
		for i := range 50 {
			q.Push(epoch, &Item[int]{Value: i}, fmt.Sprint("t", i), 10, 1)
		}
		it := &Item[int]{Value: -1}
		q.Push(epoch, it, "poor", .5, 50)
		for turn := 0; ; turn++ {
			got := q.Next(epoch)
			if got == it {
				break
			}
			// Every other one is forgotten and replaced by a newcomer.
			name := fmt.Sprint("t", got.Value)
			if turn%2 == 0 {
				name = fmt.Sprint("n", turn)
			}
			q.Push(epoch, got, name, 10, 1)
			if most := 50 * 10 * 50 / .5; float64(turn) > most {
				t.Errorf("%s: not served in %.0f turns", d, most)
				break
			}
		}
	}
}

// activeList is deficit round robin as published: a list of those that have
// items, of which the first is visited, given its quantum, served while the
// deficit lasts, and put at the end unless it is empty.
type activeList struct {
	quantum float64
	list    []*flow
	visited *flow // the first is in its visit
}

type flow struct {
	name    int
	weight  float64
	deficit float64
	costs   []float64
}

func (a *activeList) push(name int, weight, cost float64) {
	for _, f := range a.list {
		if f.name == name {
			f.costs = append(f.costs, cost)
			return
		}
	}
	a.list = append(a.list, &flow{name, weight, 0, []float64{cost}})
}

func (a *activeList) next() int {
	for len(a.list) > 0 {
		f := a.list[0]
		if a.visited != f {
			f.deficit += a.quantum * f.weight
			a.visited = f
		}
		if f.deficit < f.costs[0] {
			a.list, a.visited = append(a.list[1:], f), nil
			continue
		}
		f.deficit -= f.costs[0]
		f.costs = f.costs[1:]
		if len(f.costs) == 0 {
			a.list, a.visited = a.list[1:], nil
		} else if f.deficit < f.costs[0] { // its visit is over
			a.list, a.visited = append(a.list[1:], f), nil
		}
		return f.name
	}
	return -1
}

// TestDRRIsTextbook compares with the published algorithm where it is of
// constant work itself: quantum·weight ≥ cost. Tenants come and go.
func TestDRRIsTextbook(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 9))
	for range 60 {
		q, want := New[int](Config{Discipline: DRR, Quantum: 20}), &activeList{quantum: 20}
		weights := make([]float64, 1+rng.IntN(10))
		for i := range weights {
			weights[i] = float64(1 + rng.IntN(3))
		}
		for turn := range 2000 {
			for range rng.IntN(4) {
				i, cost := rng.IntN(len(weights)), float64(1+rng.IntN(20))
				q.Push(epoch, &Item[int]{Value: i}, fmt.Sprint("t", i), weights[i], cost)
				want.push(i, weights[i], cost)
			}
			got := -1
			if it := q.Next(epoch); it != nil {
				got = it.Value
			}
			if w := want.next(); got != w {
				t.Fatalf("weights %v: turn %d went to %d, want %d", weights, turn, got, w)
			}
		}
	}
}

// packets is start-time fair queueing as published: each item has its start tag
// S = max(V, F of the one before) from its arrival on, and V is the start tag of
// the item in service, or at the end of a busy period the largest F.
type packets struct {
	v       float64
	finish  map[int]float64
	weights []float64
	queue   []packet
}

type packet struct {
	tenant int
	start  float64
}

func (p *packets) push(tenant int, cost float64) {
	s := max(p.v, p.finish[tenant])
	p.finish[tenant] = s + cost/p.weights[tenant]
	p.queue = append(p.queue, packet{tenant, s})
}

// take serves tenant if it has a packet of the least tag.
func (p *packets) take(tenant int) error {
	least, at := math.Inf(1), -1
	for i, k := range p.queue {
		if least = min(least, k.start); k.tenant == tenant && (at < 0 || k.start < p.queue[at].start) {
			at = i
		}
	}
	if p.queue[at].start > least+1e-6 {
		return fmt.Errorf("tag %.3f was served before %.3f", p.queue[at].start, least)
	}
	p.v = p.queue[at].start
	p.queue = append(p.queue[:at], p.queue[at+1:]...)
	return nil
}

// TestSFQIsTextbook: whoever is served has the least of the published tags, with
// tenants coming and going inside a busy period.
func TestSFQIsTextbook(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 10))
	for range 60 {
		q, want := New[int](Config{Discipline: SFQ}), &packets{finish: map[int]float64{}}
		for range 1 + rng.IntN(10) {
			want.weights = append(want.weights, []float64{.5, 1, 2, 8}[rng.IntN(4)])
		}
		push := func(i int) {
			cost := float64(1 + rng.IntN(20))
			want.push(i, cost)
			q.Push(epoch, &Item[int]{Value: i}, fmt.Sprint("t", i), want.weights[i], cost)
		}
		push(0)
		for turn := range 2000 {
			for range rng.IntN(3) {
				push(rng.IntN(len(want.weights)))
			}
			if q.Len() < 2 { // the busy period goes on
				push(0)
			}
			if err := want.take(q.Next(epoch).Value); err != nil {
				t.Fatalf("weights %v, turn %d: %v", want.weights, turn, err)
			}
		}
	}
}

// TestAheadByCost compares the estimate with running the queue: equal costs, to
// one item per other tenant and the items of one lap; mixed ones, to a quarter.
func TestAheadByCost(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 11))
	for _, d := range byCost {
		for trial := range 200 {
			q, mixed := New[int](Config{Discipline: d}), trial%2 == 1
			var items []*Item[int]
			tenants := 2 + rng.IntN(8)
			for range 200 {
				i, cost := rng.IntN(tenants), 10.
				if mixed {
					cost = float64(1 + rng.IntN(20))
				}
				items = append(items, &Item[int]{})
				q.Push(epoch, items[len(items)-1], fmt.Sprint("t", i), float64(1+i%3), cost)
			}
			for range rng.IntN(50) {
				q.Next(epoch)
			}
			it := items[len(items)-1-rng.IntN(60)]
			if it.state != queued {
				continue
			}
			got, margin := q.Ahead(it), float64(2*tenants)
			want := servedBefore(q, it)
			if mixed {
				margin += float64(want) / 4
			}
			if off := math.Abs(float64(got - want)); off > margin {
				t.Errorf("%s, mixed %v, %d tenants: %d ahead, but %d were served before it", d, mixed, tenants, got, want)
			}
		}
	}
}

// TestAheadOfACrowd: the estimate over many tenants looks at few of them.
func TestAheadOfACrowd(t *testing.T) {
	for _, d := range byCost {
		q := New[int](Config{Discipline: d})
		for i := range 30_000 {
			q.Push(epoch, &Item[int]{}, fmt.Sprint("t", i%10_000), 1, 1)
		}
		it := &Item[int]{}
		q.Push(epoch, &Item[int]{}, "new", 1, 1)
		q.Push(epoch, it, "new", 1, 1)
		if got, want := q.Ahead(it), 20_001; math.Abs(float64(got-want)) > .1*float64(want) {
			t.Errorf("%s: %d ahead of the second item, want about %d", d, got, want)
		}
	}
}

// TestNumbersWrapAround: tags and laps that have passed the end of an int64
// keep their order.
func TestNumbersWrapAround(t *testing.T) {
	for _, d := range byCost {
		q := New[int](Config{Discipline: d})
		switch s := q.sched.(type) {
		case *drr[int]:
			s.now = math.MaxInt64 - 10
		case *sfq[int]:
			s.now = math.MaxInt64 - 10*unit
		}
		who, cost := run(q, []payer{{1, 10}, {2, 10}}, 500, rand.New(rand.NewPCG(12, 12)), nil)
		if gap := widest(who, cost, 0, 1, []payer{{1, 10}, {2, 10}}); gap > 17 {
			t.Errorf("%s: unfairness %v", d, gap)
		}
	}
}
