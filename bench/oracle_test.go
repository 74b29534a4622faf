package bench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestEntitled(t *testing.T) {
	for _, c := range []struct {
		name                 string
		capacity             float64
		demand, weight, want []float64
	}{
		{"enough for all", 100, []float64{10, 20}, []float64{1, 5}, []float64{10, 20}},
		{"equal", 30, []float64{100, 100, 100}, []float64{1, 1, 1}, []float64{10, 10, 10}},
		{"weights", 40, []float64{100, 100}, []float64{1, 3}, []float64{10, 30}},
		{"small one in full", 80, []float64{200, 60, 8, 8}, []float64{1, 3, 1, 1}, []float64{16, 48, 8, 8}},
		{"left over twice", 100, []float64{10, 30, 1000}, []float64{1, 1, 1}, []float64{10, 30, 60}},
		{"nothing asked", 10, []float64{0, 0}, []float64{1, 1}, []float64{0, 0}},
		{"no weight", 10, []float64{5, 100}, []float64{0, 1}, []float64{0, 10}},
		{"no capacity", -1, []float64{5}, []float64{1}, []float64{0}},
		{"nobody", 10, nil, nil, []float64{}},
	} {
		got := Entitled(c.capacity, c.demand, c.weight)
		if !slices.EqualFunc(got, c.want, near) {
			t.Errorf("%s: Entitled(%v, %v, %v) = %v, want %v", c.name, c.capacity, c.demand, c.weight, got, c.want)
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// bySearch finds the water level by bisection: slow, and nothing like the
// sorted sweep it is to agree with.
func bySearch(capacity float64, demand, weight []float64) []float64 {
	fill := func(level float64) (got []float64, sum float64) {
		for i := range demand {
			v := min(demand[i], level*weight[i])
			got, sum = append(got, v), sum+v
		}
		return got, sum
	}
	lo, hi := 0.0, 1e12
	for range 200 {
		if mid := (lo + hi) / 2; func() float64 { _, s := fill(mid); return s }() <= capacity {
			lo = mid
		} else {
			hi = mid
		}
	}
	got, _ := fill(lo)
	return got
}

func TestEntitledAgreesWithSearch(t *testing.T) {
	const seed = 7
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 3000 {
		n := 1 + r.IntN(12)
		demand, weight := make([]float64, n), make([]float64, n)
		for i := range n {
			demand[i] = math.Floor(math.Exp(6 * r.Float64()))
			weight[i] = 0.25 + 4*r.Float64()
		}
		capacity := 1500 * r.Float64()
		got, want := Entitled(capacity, demand, weight), bySearch(capacity, demand, weight)
		for i := range got {
			if math.Abs(got[i]-want[i]) > 1e-6*max(1, want[i]) {
				t.Fatalf("seed %d round %d: Entitled(%v, %v, %v)[%d] = %v, by search %v", seed, round, capacity, demand, weight, i, got[i], want[i])
			}
		}
		checkMaxMin(t, capacity, demand, weight, got)
	}
}

// checkMaxMin checks the definition itself: nothing is wasted, nobody gets more
// than it asked for, and whoever wants more has no less per weight than anybody.
func checkMaxMin(t *testing.T, capacity float64, demand, weight, got []float64) {
	t.Helper()
	const eps = 1e-9
	var sum, asked float64
	for i := range got {
		sum, asked = sum+got[i], asked+demand[i]
		if got[i] > demand[i] {
			t.Fatalf("tenant %d gets %v of %v asked", i, got[i], demand[i])
		}
		for j := range got {
			if got[i] < demand[i]-eps && got[i]/weight[i] < got[j]/weight[j]-1e-6 {
				t.Fatalf("tenant %d wants more with %v per weight while %d has %v", i, got[i]/weight[i], j, got[j]/weight[j])
			}
		}
	}
	if !near(sum, min(capacity, asked)) {
		t.Fatalf("%v of %v capacity for %v demand is given away", sum, capacity, asked)
	}
}

func TestEntitledOverCarriesPatientDemand(t *testing.T) {
	intervals := []Interval{
		{Capacity: 10, Demand: []float64{40, 0}},
		{Capacity: 10, Demand: []float64{0, 40}},
		{Capacity: 10, Demand: []float64{0, 0}},
	}
	weight := []float64{1, 1}
	for _, c := range []struct{ patience, want []float64 }{
		{[]float64{0, 0}, []float64{10, 10}},    // whoever is not served gives up
		{[]float64{20, 20}, []float64{20, 10}},  // 0: 10+5+5; 1: 5+5
		{[]float64{1000, 5}, []float64{20, 10}}, // 1 keeps 5, all of it served
		{[]float64{3, 1000}, []float64{13, 17}}, // 0 keeps 3 for the second interval
	} {
		if got := EntitledOver(intervals, weight, c.patience); !slices.EqualFunc(got, c.want, near) {
			t.Errorf("patience %v: %v, want %v", c.patience, got, c.want)
		}
	}
}

func TestEntitledEachTellsWhen(t *testing.T) {
	got := EntitledEach([]Interval{
		{Capacity: 10, Demand: []float64{40, 0}}, // one alone takes all
		{Capacity: 10, Demand: []float64{0, 40}}, // and then shares by weight
		{Capacity: 10, Demand: []float64{0, 0}},
	}, []float64{1, 3}, []float64{4, 100})
	want := [][]float64{{10, 0}, {2.5, 7.5}, {1.5, 8.5}} // the first had 4 left to wait, then 1.5
	for i := range want {
		if !slices.EqualFunc(got[i], want[i], near) {
			t.Errorf("interval %d: %v, want %v", i, got[i], want[i])
		}
	}
}

func TestJain(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{
		{nil, 1}, {[]float64{0, 0}, 1}, {[]float64{3}, 1}, {[]float64{2, 2, 2, 2}, 1},
		{[]float64{1, 0, 0, 0}, 0.25}, {[]float64{1, 2}, 0.9},
	} {
		if got := Jain(c.x); !near(got, c.want) {
			t.Errorf("Jain(%v) = %v, want %v", c.x, got, c.want)
		}
	}
}

func TestSatisfactionLeavesOutWhoIsEntitledToNothing(t *testing.T) {
	got := Satisfaction([]float64{5, 3, 1}, []float64{10, 0, 2})
	if want := []float64{0.5, 0.5}; !slices.EqualFunc(got, want, near) {
		t.Errorf("Satisfaction = %v, want %v", got, want)
	}
}
