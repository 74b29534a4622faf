package fairq

import (
	"fmt"
	"testing"
	"time"
)

var disciplines = []Discipline{SWRR, DRR, SFQ}

// BenchmarkFairq measures one turn: the tenant whose turn it is leaves with
// its only item and joins again with it, which is the dearest case, since it
// is forgotten and met in between. With eight weights, and costs that differ,
// the tenants served one after the other are far apart in memory, as they are
// in a real queue.
func BenchmarkFairq(b *testing.B) {
	type waiter struct {
		item         Item[*waiter]
		tenant       string
		weight, cost float64
	}
	for _, d := range disciplines {
		for _, tenants := range []int{10, 10_000, 100_000} {
			for _, weights := range []int{1, 8} {
				b.Run(fmt.Sprintf("%s/tenants=%d/weights=%d", d, tenants, weights), func(b *testing.B) {
					q := New[*waiter](Config{Discipline: d})
					now := time.Unix(1e9, 0)
					waiters := make([]waiter, tenants)
					for i := range waiters {
						w := &waiters[i]
						w.item.Value, w.tenant, w.weight, w.cost = w, fmt.Sprintf("%032x", i), float64(1+i%weights), float64(1+i%7)
						q.Push(now, &w.item, w.tenant, w.weight, w.cost)
					}
					b.ReportAllocs()
					b.ResetTimer()
					for range b.N {
						w := q.Next(now).Value
						q.Push(now, &w.item, w.tenant, w.weight, w.cost)
					}
				})
			}
		}
	}
}

// BenchmarkAhead measures the estimate made for a newcomer.
func BenchmarkAhead(b *testing.B) {
	for _, d := range disciplines {
		for _, tenants := range []int{10, 1000, 100_000} {
			b.Run(fmt.Sprintf("%s/tenants=%d", d, tenants), func(b *testing.B) {
				q := New[int](Config{Discipline: d})
				now := time.Unix(1e9, 0)
				items := make([]Item[int], tenants*3)
				for i := range items {
					q.Push(now, &items[i], fmt.Sprintf("%032x", i%tenants), float64(1+i%tenants%8), 1)
				}
				b.ReportAllocs()
				for b.Loop() {
					q.Ahead(&items[len(items)-1])
				}
			})
		}
	}
}
