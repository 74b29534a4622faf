package near_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
	"github.com/headway-limiter/headway/limiter/near"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// cpu is the processor time that this process has used: on a busy machine it
// tells more than the clock. Two free cores refuse 2 s / cpu-ns per second.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkDenied is how fast one hot key is refused, by all cores together.
func BenchmarkDenied(b *testing.B) {
	rates := map[string][]limiter.Dimension{
		"1 bucket": {limiter.APIKey}, "3 buckets": {limiter.APIKey, limiter.User, limiter.Model},
	}
	for _, name := range []string{"1 bucket", "3 buckets"} {
		b.Run(name, func(b *testing.B) {
			w := &wire{Store: memstore.New().Replica(memstore.Options{})}
			s := open(b, w, 1, both)
			var k limiter.Take
			for _, d := range rates[name] {
				c := key("hot", limiter.Rate{Limit: 1, Per: time.Hour, Burst: 1}, 1)
				c.Bucket.Dimension = d
				k.Charges = append(k.Charges, c)
			}
			s.Admit(context.Background(), k)
			b.ReportAllocs()
			before := cpu()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if v, err := s.Admit(context.Background(), k); err != nil || v.OK {
						b.Fail()
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "refusals/s")
			b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(w.asked.Load()), "calls")
		})
	}
}

// BenchmarkDeniedByLimiter is the same through limiter.Admit.
func BenchmarkDeniedByLimiter(b *testing.B) {
	r := limiter.Rate{Limit: 1, Per: time.Hour, Burst: 1}
	s := open(b, memstore.New().Replica(memstore.Options{}), 1, both)
	l, err := limiter.New(limiter.Config{
		Limits: map[limiter.Dimension]limiter.Limit{limiter.APIKey: {Rule: limiter.Rule{Requests: &r}}},
	}, s, fleet.Solo("bench"))
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	ask := limiter.Request{Identities: limiter.Identities{APIKey: limiter.Hash(limiter.APIKey, "hot")}}
	l.Admit(context.Background(), ask)
	b.ReportAllocs()
	before := cpu()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			var refusal *limiter.Refusal
			if _, err := l.Admit(context.Background(), ask); !errors.As(err, &refusal) {
				b.Fail()
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "refusals/s")
	b.ReportMetric(float64(cpu()-before)/float64(b.N), "cpu-ns/op")
}

// BenchmarkHotKey lets 64 callers hammer one key of 1000/s for a second, as
// replicas on one redis-server, and reports what they got of what is allowed.
func BenchmarkHotKey(b *testing.B) {
	for _, n := range []int{1, 8} {
		for _, c := range []struct {
			name string
			o    near.Options
		}{{"nothing", near.Options{}}, {"deny cache", near.Options{DenyCache: true}}, {"both", both}} {
			b.Run(fmt.Sprintf("replicas=%d/%s", n, c.name), func(b *testing.B) {
				hammer(b, n, c.o, perSecond(1000, 1000))
			})
		}
	}
}

// BenchmarkBorrow is the same with a limit that nobody reaches.
func BenchmarkBorrow(b *testing.B) {
	for _, c := range []struct {
		name string
		o    near.Options
	}{{"nothing", near.Options{}}, {"both", both}} {
		b.Run(c.name, func(b *testing.B) { hammer(b, 1, c.o, perSecond(1e9, 1e9)) })
	}
}

func hammer(b *testing.B, n int, o near.Options, r limiter.Rate) {
	server := redisproc.Start(b)
	var wires []*wire
	var stores []*near.Store
	for range n {
		s, err := redisstore.New(redisstore.Options{
			Address: server.Addr(), Timeout: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			b.Fatal(err)
		}
		w := &wire{Store: s}
		wires, stores = append(wires, w), append(stores, open(b, w, n, o))
	}
	k := limiter.Take{Charges: []limiter.Charge{key("hot", r, 1)}}
	var asked, admitted, failed atomic.Int64
	var all sync.WaitGroup
	span := max(time.Second, time.Duration(b.N))
	start := time.Now()
	for i := range 64 {
		s := stores[i%n]
		all.Go(func() {
			for time.Since(start) < span {
				v, err := s.Admit(context.Background(), k)
				asked.Add(1)
				if err != nil {
					failed.Add(1)
				}
				if v.OK {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(start).Seconds()
	calls := int64(0)
	for _, w := range wires {
		calls += w.asked.Load() + w.settles.Load()
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(asked.Load())/took, "decisions/s")
	b.ReportMetric(float64(calls)/took, "calls/s")
	b.ReportMetric(float64(admitted.Load())/(float64(r.Burst)+float64(r.Limit)*took), "admitted/allowed")
	if failed.Load() > 0 {
		b.Errorf("%d calls failed", failed.Load())
	}
}
