package fairq

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// servedBefore runs the queue dry and counts the items that come out before it.
func servedBefore[T any](q *Queue[T], it *Item[T]) int {
	for n := 0; ; n++ {
		if got := q.Next(epoch); got == it || got == nil {
			return n
		}
	}
}

// crowd fills a queue: lengths[i] items of tenant i, in rounds, and returns the
// last item of every tenant.
func crowd(q *Queue[int], lengths []int, weights []float64) []*Item[int] {
	last := make([]*Item[int], len(lengths))
	for k := 0; ; k++ {
		more := false
		for i, n := range lengths {
			if k < n {
				last[i] = &Item[int]{Value: i}
				q.Push(epoch, last[i], fmt.Sprint("t", i), weights[i], 1)
				more = true
			}
		}
		if !more {
			return last
		}
	}
}

// TestAheadOfNewcomer compares with running the queue, for an item of a tenant
// that has just joined: exact while weights are equal.
func TestAheadOfNewcomer(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 200 {
		q := New[int](Config{})
		lengths, weights := make([]int, 1+rng.IntN(8)), make([]float64, 8)
		for i := range lengths {
			lengths[i], weights[i] = 1+rng.IntN(9), 1
		}
		crowd(q, lengths, weights)
		var it *Item[int]
		for range 1 + rng.IntN(6) {
			it = &Item[int]{}
			q.Push(epoch, it, "new", 1, 1)
		}
		if got, want := q.Ahead(it), servedBefore(q, it); got != want {
			t.Fatalf("lengths %v: %d ahead, but %d were served before it", lengths, got, want)
		}
	}
}

// TestAheadWithinOneRound: with any weights and lengths, in an undisturbed
// round, the estimate is off by at most one round: one turn of each other tenant
// and as many as its weight gives it meanwhile.
func TestAheadWithinOneRound(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for range 400 {
		lengths, weights := make([]int, 2+rng.IntN(6)), make([]float64, 8)
		for i := range lengths {
			lengths[i], weights[i] = 1+rng.IntN(30), float64(1+rng.IntN(5))
		}
		served, choice := rng.IntN(20), rng.IntN(len(lengths))
		q := New[int](Config{})
		last := crowd(q, lengths, weights)[choice]
		for range served {
			q.Next(epoch)
		}
		if last.state != queued {
			continue
		}
		estimate, real := q.Ahead(last), servedBefore(q, last)
		round := 0.0
		for i := range lengths {
			if i != choice {
				round += math.Ceil(1 + weights[i]/weights[choice])
			}
		}
		if d := float64(estimate - real); d < -round || d > round {
			t.Errorf("lengths %v weights %v after %d turns, last of t%d: estimated %d, real %d", lengths, weights, served, choice, estimate, real)
		}
	}
}

// TestAheadCountsDeepQueuesInFull covers the cap on levels.
func TestAheadCountsDeepQueuesInFull(t *testing.T) {
	q := New[int](Config{})
	crowd(q, []int{1000}, []float64{1})
	var it *Item[int]
	for range 2 * maxLevels {
		it = &Item[int]{}
		q.Push(epoch, it, "new", 1, 1)
	}
	if got, want := q.Ahead(it), 2*maxLevels-1+1000; got != want {
		t.Errorf("%d ahead, want %d", got, want)
	}
	if err := invariants(q); err != nil {
		t.Error(err)
	}
	for range 900 {
		q.Next(epoch)
	}
	if err := invariants(q); err != nil {
		t.Error(err)
	}
}
