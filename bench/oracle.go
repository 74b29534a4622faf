package bench

import (
	"cmp"
	"slices"
)

// Entitled divides capacity between claims by weighted max-min fairness and
// returns what each is entitled to, in the unit of capacity and demand. A claim
// with weight or demand ≤ 0 gets nothing. demand and weight have one entry per
// tenant. The cost is that of sorting n tenants.
//
// Tenants that want little per weight are served in full first; what they
// leave is divided again between the rest.
func Entitled(capacity float64, demand, weight []float64) []float64 {
	share := make([]float64, len(demand))
	var claims []int
	var weights float64 // of the claims not yet served
	for i := range demand {
		if demand[i] > 0 && weight[i] > 0 {
			claims = append(claims, i)
			weights += weight[i]
		}
	}
	slices.SortFunc(claims, func(a, b int) int {
		return cmp.Compare(demand[a]/weight[a], demand[b]/weight[b])
	})
	left := max(capacity, 0)
	for _, i := range claims {
		share[i] = min(demand[i], left*weight[i]/weights)
		left -= share[i]
		weights -= weight[i]
	}
	return share
}

// Interval is one stretch of a run: how much could be served in it, and how
// much each tenant newly asked for.
type Interval struct {
	Capacity float64
	Demand   []float64
}

// EntitledOver adds up what EntitledEach yields.
func EntitledOver(intervals []Interval, weight, patience []float64) []float64 {
	total := make([]float64, len(weight))
	for _, got := range EntitledEach(intervals, weight, patience) {
		for i, v := range got {
			total[i] += v
		}
	}
	return total
}

// EntitledEach works out what tenants are entitled to in each of consecutive
// intervals. What a tenant asked for in one interval and could not have stays
// asked for in the next, but never more than its patience: the number of its
// requests that can wait at once. Shorter intervals are stricter about tenants
// that come and go; capacity left over in an interval is lost.
func EntitledEach(intervals []Interval, weight, patience []float64) [][]float64 {
	each := make([][]float64, len(intervals))
	waiting := make([]float64, len(weight))
	for n, iv := range intervals {
		for i, d := range iv.Demand {
			waiting[i] += d
		}
		each[n] = Entitled(iv.Capacity, waiting, weight)
		for i, got := range each[n] {
			waiting[i] = min(waiting[i]-got, patience[i])
		}
	}
	return each
}

// Jain is Jain's fairness index of x: (Σx)²/(n·Σx²), between 1/n (one has all)
// and 1 (all are equal). It does not depend on the scale of x. With no value,
// or only zeros, nobody is treated unequally and it is 1.
func Jain(x []float64) float64 {
	var sum, squares float64
	for _, v := range x {
		sum += v
		squares += v * v
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(x)) * squares)
}

// Satisfaction is received/entitled of every tenant that is entitled to
// something: the input of Jain.
func Satisfaction(received, entitled []float64) []float64 {
	var x []float64
	for i, e := range entitled {
		if e > 0 {
			x = append(x, received[i]/e)
		}
	}
	return x
}

// Fractions scales x so that it sums to 1. Zeros stay zeros.
func Fractions(x []float64) []float64 {
	var sum float64
	for _, v := range x {
		sum += v
	}
	f := make([]float64, len(x))
	for i, v := range x {
		if sum > 0 {
			f[i] = v / sum
		}
	}
	return f
}
