package near_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
	"github.com/headway-limiter/headway/limiter/near"
)

// runFor is long enough for the start to weigh little.
const runFor = 6 * time.Second

// wire counts what reaches a store, which takes a while.
type wire struct {
	limiter.Store
	delay         time.Duration
	asked, turned atomic.Int64 // Admit, Turns
	settled       atomic.Int64 // tokens given back
	settles       atomic.Int64
}

func (w *wire) Admit(ctx context.Context, t limiter.Take) (limiter.Verdict, error) {
	w.asked.Add(1)
	if w.delay > 0 {
		time.Sleep(w.delay / 2)
		defer time.Sleep(w.delay / 2)
	}
	return w.Store.Admit(ctx, t)
}

func (w *wire) Turns(ctx context.Context, t limiter.Turns) (limiter.TurnsVerdict, error) {
	w.turned.Add(1)
	return w.Store.Turns(ctx, t)
}

func (w *wire) Settle(f limiter.Settlement) {
	w.settles.Add(1)
	for _, a := range f.Adjust {
		w.settled.Add(a.Delta)
	}
	w.Store.Settle(f)
}

// crowd is n replicas on one memory.
type crowd struct {
	memory *memstore.Memory
	wires  []*wire
	near   []*near.Store
}

func newCrowd(t testing.TB, n int, o near.Options, delay time.Duration) *crowd {
	f := &crowd{memory: memstore.New()}
	for range n {
		w := &wire{Store: f.memory.Replica(memstore.Options{}), delay: delay}
		f.wires = append(f.wires, w)
		f.near = append(f.near, open(t, w, n, o))
	}
	return f
}

// calls are those that reached the store so far.
func (f *crowd) calls() (n int64) {
	for _, w := range f.wires {
		n += w.asked.Load() + w.settles.Load()
	}
	return n
}

// key is a charge of cost on the API key k.
func key(k string, r limiter.Rate, cost int64) limiter.Charge {
	return limiter.Charge{Bucket: limiter.BucketID{Dimension: limiter.APIKey, ID: limiter.Hash(limiter.APIKey, k)}, Rate: r, Cost: cost}
}

func perSecond(limit, burst int64) limiter.Rate {
	return limiter.Rate{Limit: limit, Per: time.Second, Burst: burst}
}

// outcome is what a run of open load came to.
type outcome struct {
	offered, admitted int64
	calls             float64 // per request
	used              float64 // admitted / min(offered, allowed)
	excess            float64 // most admitted in any window beyond burst + rate × window
	total             float64 // admitted beyond burst + rate × time since the start
}

func (o outcome) String() string {
	return fmt.Sprintf("%.3f calls per request, used %.4f, worst window %+.0f, since birth %+.0f", o.calls, o.used, o.excess, o.total)
}

// load offers f Poisson traffic on one key for a span, in all times × the limit.
func (f *crowd) load(rnd *rand.Rand, r limiter.Rate, times float64, span time.Duration) outcome {
	var o outcome
	var all sync.WaitGroup
	var mu sync.Mutex
	var grants []time.Duration
	start := time.Now()
	k := limiter.Take{Charges: []limiter.Charge{key("hot", r, 1)}}
	for time.Since(start) < span {
		time.Sleep(time.Duration(rnd.ExpFloat64() / times / float64(r.Limit) * float64(r.Per)))
		o.offered++
		s := f.near[rnd.IntN(len(f.near))]
		all.Go(func() {
			v, err := s.Admit(context.Background(), k)
			if err != nil {
				panic(err)
			}
			if v.OK {
				mu.Lock()
				defer mu.Unlock()
				grants = append(grants, time.Since(start))
			}
		})
	}
	all.Wait()
	o.admitted = int64(len(grants))
	o.calls = float64(f.calls()) / float64(o.offered)
	rate := float64(r.Limit) / float64(r.Per)
	o.used = float64(o.admitted) / min(float64(o.offered), float64(r.Burst)+rate*float64(span))
	// The worst window ends at some grant; debt is how far the windows that end
	// there may exceed, as in a bucket without a bottom.
	level := 0.0
	for i, at := range grants {
		if i > 0 {
			level = max(0, level-rate*float64(at-grants[i-1]))
		}
		level++
		o.excess = max(o.excess, level-float64(r.Burst))
		o.total = max(o.total, float64(i+1)-float64(r.Burst)-rate*float64(at))
	}
	return o
}

// TestTable measures what a decision costs in calls: prefetch pays for itself
// more than twenty times over below the limit, the deny cache bounds what
// overload costs, and neither wastes tokens.
func TestTable(t *testing.T) {
	big, small := perSecond(2000, 400), perSecond(200, 40)
	for _, c := range []struct {
		name  string
		n     int
		rate  limiter.Rate
		times float64
		most  map[string]float64 // calls per request; 1 where nothing is said
	}{
		{"N=3 .95", 3, big, .95, map[string]float64{"both": .02}},
		{"N=8 .95", 8, big, .95, map[string]float64{"both": .05}},
		{"N=32 .95", 32, big, .95, map[string]float64{"both": .22}},
		{"N=8 x3", 8, big, 3, map[string]float64{"deny cache": .48, "both": .48}},
		{"N=32 x3", 32, big, 3, map[string]float64{"deny cache": .63, "both": .63}},
		{"small N=8 .95", 8, small, .95, map[string]float64{"both": .8}},
		{"small N=32 .95", 32, small, .95, nil},
	} {
		for name, o := range map[string]near.Options{"nothing": {}, "deny cache": deny, "both": both} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newCrowd(t, c.n, o, 500*time.Microsecond)
					seed := rand.Uint64()
					used, d := .99, runFor
					if c.rate == small { // so few tokens are at the mercy of chance, with every option
						used, d = .98, 20*runFor
					}
					got := f.load(rand.New(rand.NewPCG(seed, 2)), c.rate, c.times, d)
					t.Log(got)
					if most := cmp.Or(c.most[name], 1.02); got.calls > most || got.used < used {
						t.Errorf("seed %d: %v, want at most %.2f calls and %.2f used", seed, got, most, used)
					}
					if got.total > 1e-6 || got.excess > float64(c.rate.Burst)/2 {
						t.Errorf("seed %d: %v, want at most 0 since birth, %d in a window", seed, got, c.rate.Burst/2)
					}
				})
			})
		}
	}
}
