package fairq

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// textbook is smooth weighted round robin as it is usually written, in exact
// integers: every counter grows by its weight, the largest wins and pays the
// sum. It breaks ties as this package declares.
type textbook struct {
	weights, counters []int
	lastServed        []int
	turn              int
}

func newTextbook(weights []int) *textbook {
	b := &textbook{weights: weights, counters: make([]int, len(weights)), lastServed: make([]int, len(weights))}
	for i := range weights {
		b.lastServed[i] = i - len(weights) // in order of joining
	}
	return b
}

func (b *textbook) next() int {
	total, best := 0, 0
	for i, w := range b.weights {
		b.counters[i] += w
		total += w
	}
	for i := range b.weights {
		if b.before(i, best) {
			best = i
		}
	}
	b.counters[best] -= total
	b.turn++
	b.lastServed[best] = b.turn
	return best
}

func (b *textbook) before(i, j int) bool {
	switch {
	case b.counters[i] != b.counters[j]:
		return b.counters[i] > b.counters[j]
	case b.weights[i] != b.weights[j]:
		return b.weights[i] > b.weights[j]
	}
	return b.lastServed[i] < b.lastServed[j]
}

// TestTextbookItself checks the twin against the sequence that the nginx
// change which introduced the algorithm gives for weights 5, 1, 1.
func TestTextbookItself(t *testing.T) {
	b, got := newTextbook([]int{5, 1, 1}), ""
	for range 14 {
		got += string(rune('a' + b.next()))
	}
	if want := "aabacaaaabacaa"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

// backlog is a queue whose tenants never empty: whoever is served has another
// item at once.
type backlog struct {
	*Queue[int]
	weights []float64
	now     time.Time
}

func newBacklog(weights []float64) *backlog {
	b := &backlog{New[int](Config{}), weights, epoch}
	for range 4 {
		for i := range weights {
			b.push(i)
		}
	}
	return b
}

func (b *backlog) push(i int) {
	b.Push(b.now, &Item[int]{Value: i}, fmt.Sprint("t", i), b.weights[i], 1)
}

func (b *backlog) next() int {
	i := b.Next(b.now).Value
	b.push(i)
	return i
}

func floats(weights []int) []float64 {
	f := make([]float64, len(weights))
	for i, w := range weights {
		f[i] = float64(w)
	}
	return f
}

// TestOrderIsTextbook compares turn by turn while nobody joins or leaves.
func TestOrderIsTextbook(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	fixed := [][]int{{1}, {1, 1, 1}, {5, 1, 1}, {1, 2, 3, 4}, {7, 7, 3, 3, 3, 1}, {1000, 1, 999, 1}, {2, 4, 6}}
	for range 80 {
		weights := make([]int, 1+rng.IntN(40))
		top := []int{1, 2, 3, 10, 1000}[rng.IntN(5)]
		for i := range weights {
			weights[i] = 1 + rng.IntN(top)
		}
		fixed = append(fixed, weights)
	}
	for _, weights := range fixed {
		got, want := newBacklog(floats(weights)), newTextbook(weights)
		for turn := range 3000 {
			if g, w := got.next(), want.next(); g != w {
				t.Fatalf("weights %v: turn %d went to %d (weight %d), want %d (weight %d)", weights, turn, g, weights[g], w, weights[w])
			}
		}
	}
}

// TestOrderStaysExact runs long enough that an accumulating error would show.
func TestOrderStaysExact(t *testing.T) {
	weights := []int{997, 3, 3, 7, 1, 1, 1, 500, 13}
	got, want := newBacklog(floats(weights)), newTextbook(weights)
	for turn := range 300_000 {
		if g, w := got.next(), want.next(); g != w {
			t.Fatalf("turn %d went to %d, want %d", turn, g, w)
		}
	}
}

// TestDenialsLeaveTheOrder gives turns back at random, several at a time and
// in any order: those that remain are in textbook order. Every tenant has
// more items than are out at once, for one that empties is forgotten.
func TestDenialsLeaveTheOrder(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	for range 50 {
		weights := make([]int, 2+rng.IntN(12))
		for i := range weights {
			weights[i] = 1 + rng.IntN(6)
		}
		q, want := newBacklog(floats(weights)), newTextbook(weights)
		for turn := range 500 {
			var denied []*Item[int]
			for range rng.IntN(4) {
				denied = append(denied, q.Next(q.now))
			}
			rng.Shuffle(len(denied), func(i, j int) { denied[i], denied[j] = denied[j], denied[i] })
			for _, it := range denied {
				q.Requeue(q.now, it, time.Time{})
			}
			if g, w := q.next(), want.next(); g != w {
				t.Fatalf("weights %v: turn %d went to %d, want %d", weights, turn, g, w)
			}
		}
	}
}

// TestLagIsSmall is the bound on a backlogged tenant's distance from its exact
// share, over all stretches that begin at the first turn.
func TestLagIsSmall(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	worst := 0.0
	for range 40 {
		weights := make([]float64, 2+rng.IntN(300))
		total := 0.0
		for i := range weights {
			weights[i] = []float64{0.01, 0.5, 1, 2.5, 30, 1000}[rng.IntN(6)]
			total += weights[i]
		}
		q, served := newBacklog(weights), make([]float64, len(weights))
		for turn := range 4000 {
			served[q.next()]++
			for i, w := range weights {
				worst = max(worst, float64(turn+1)*w/total-served[i])
			}
		}
	}
	t.Logf("largest lag behind the exact share: %.2f turns", worst)
	if worst > 3 {
		t.Errorf("a backlogged tenant was %.2f turns behind its share, want at most 3", worst)
	}
}
