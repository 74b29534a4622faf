package fairq

import "math"

// maxLevels is how deep queues are told apart when waiters ahead are counted.
// A queue that is asked for more of its items than this counts in full.
const maxLevels = 256

// lengths sums up the queue lengths of a class so that Σ min(length, m) over
// its tenants takes O(m) steps, not O(tenants).
type lengths struct {
	// atLeast[k] is the number of tenants with more than k items, k < maxLevels.
	atLeast []int32
	items   int // over all tenants
}

// rose notes that one tenant's queue has grown to n items.
func (l *lengths) rose(n int) {
	l.items++
	if n > maxLevels {
		return
	}
	for len(l.atLeast) < n {
		l.atLeast = append(l.atLeast, 0)
	}
	l.atLeast[n-1]++
}

// fell notes that one tenant's queue is about to shrink from n items.
func (l *lengths) fell(n int) {
	l.items--
	if n <= maxLevels {
		l.atLeast[n-1]--
	}
}

// joined notes a tenant with n items, left the end of one.
func (l *lengths) joined(n int) {
	for k := 1; k <= n; k++ {
		l.rose(k)
	}
}

func (l *lengths) left(n int) {
	for k := n; k > 0; k-- {
		l.fell(k)
	}
}

// capped is Σ min(length, m).
func (l *lengths) capped(m int) int {
	if m >= maxLevels {
		return l.items
	}
	sum := 0
	for _, n := range l.atLeast[:min(m, len(l.atLeast))] {
		sum += int(n)
	}
	return sum
}

func (l *lengths) cleared() lengths {
	clear(l.atLeast)
	return lengths{atLeast: l.atLeast[:0]}
}

// ahead is, with k−1 items before it in its own tenant's queue, those and
//
//	Σ min(length_j, ⌈k·w_j/w⌉)
//
// over the other tenants j in the round, in 256 steps per distinct weight.
func (s *swrr[T]) ahead(it *Item[T]) int {
	t := it.owner
	n, _ := t.earlier(it)
	w := t.weight
	if t.class != nil {
		w = t.class.weight
	}
	k := n + 1
	for _, c := range s.round {
		// The small allowance keeps a quotient like 3·(1/3) from rounding up.
		n += c.lengths.capped(turnsOf(float64(k) * c.weight / w))
	}
	if t.class != nil {
		if k >= maxLevels {
			n -= int(t.length)
		} else {
			n -= min(int(t.length), k)
		}
	}
	return n
}

// turnsOf rounds up, but not for a rounding error in the quotient, and keeps
// huge ratios of weights within an int.
func turnsOf(x float64) int {
	return int(min(math.Ceil(x-1e-9), math.MaxInt32))
}
