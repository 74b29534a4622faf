package limiter_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// Three replicas race for one bucket. Whatever each does alone, together they
// never exceed it, use all of it, and a load that is spread evenly is shared
// by weight.
func TestReplicasShareOneBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const replicas, span = 3, 20 * time.Second
		rate := limiter.Rate{Limit: 90, Per: time.Second, Burst: 10}
		cfg := shared(&rate)
		cfg.Fair.Weights = map[limiter.ID]float64{limiter.Hash(limiter.User, "gold"): 3}
		memory := memstore.New()
		var limiters []*limiter.Limiter
		for i := range replicas {
			l, err := limiter.New(cfg, memory.Replica(memstore.Options{}), fleet.Solo(fmt.Sprint(i)))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			limiters = append(limiters, l)
		}
		ctx, cancel := context.WithTimeout(t.Context(), span)
		defer cancel()
		served, total, mu, clients := map[string]int{}, 0, sync.Mutex{}, sync.WaitGroup{}
		for _, name := range []string{"gold", "plain", "other"} {
			for i := range replicas * 12 { // twelve callers each per replica: always backlogged
				clients.Go(func() {
					for ctx.Err() == nil {
						g, err := limiters[i%replicas].Admit(ctx, user(name))
						if err != nil {
							time.Sleep(10 * time.Millisecond)
							continue
						}
						g.Done(limiter.Outcome{})
						mu.Lock()
						served[name]++
						total++
						mu.Unlock()
					}
				})
			}
		}
		clients.Wait()
		allowed := float64(rate.Burst) + float64(rate.Limit)*span.Seconds()
		if float64(total) > allowed || float64(total) < 0.98*allowed {
			t.Errorf("admitted %d of %.0f allowed", total, allowed)
		}
		for name, weight := range map[string]float64{"gold": 3, "plain": 1, "other": 1} {
			entitled := allowed * weight / 5
			if got := float64(served[name]) / entitled; got < 0.95 || got > 1.05 {
				t.Errorf("%s received %.3f of its share (%v)", name, got, served)
			}
		}
	})
}

// One op is one request that is admitted at once and finished: the limiter's
// own cost, with two buckets and a slot in a store that costs little.
func BenchmarkLimiter(b *testing.B) {
	huge := &limiter.Rate{Limit: 9e9, Per: time.Second, Burst: 9e9}
	cfg := shared(huge)
	cfg.Limits[limiter.User] = limiter.Limit{Rule: limiter.Rule{Requests: huge, MaxInFlight: 1 << 20}}
	l, err := limiter.New(cfg, memstore.New().Replica(memstore.Options{}), fleet.Solo("bench"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		req := user("a")
		for pb.Next() {
			g, err := l.Admit(context.Background(), req)
			if err != nil {
				b.Error(err)
				return
			}
			g.Done(limiter.Outcome{})
		}
	})
}
