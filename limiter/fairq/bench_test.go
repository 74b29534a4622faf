package fairq

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkFairq measures one turn: the tenant whose turn it is leaves with
// its only item and joins again with it, which is the dearest case, since it
// is forgotten and met in between.
func BenchmarkFairq(b *testing.B) {
	for _, tenants := range []int{10, 10_000, 100_000} {
		for _, weights := range []int{1, 8} {
			b.Run(fmt.Sprintf("tenants=%d/weights=%d", tenants, weights), func(b *testing.B) {
				q := New[int]()
				now := time.Unix(1e9, 0)
				items := make([]Item[int], tenants)
				names := make([]string, tenants)
				for i := range items {
					items[i].Value = i
					names[i] = fmt.Sprintf("%032x", i)
					q.Push(now, &items[i], names[i], float64(1+i%weights))
				}
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					it := q.Next(now)
					q.Push(now, it, names[it.Value], float64(1+it.Value%weights))
				}
			})
		}
	}
}

// BenchmarkAhead measures the estimate made for a newcomer.
func BenchmarkAhead(b *testing.B) {
	for _, tenants := range []int{10, 100_000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			q := New[int]()
			now := time.Unix(1e9, 0)
			items := make([]Item[int], tenants*3)
			for i := range items {
				q.Push(now, &items[i], fmt.Sprintf("%032x", i%tenants), float64(1+i%tenants%8))
			}
			b.ReportAllocs()
			for b.Loop() {
				q.Ahead(&items[len(items)-1])
			}
		})
	}
}
