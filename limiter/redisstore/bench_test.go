package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
	"github.com/headway-limiter/headway/lua"
)

// benchTakes are plain requests of many tenants: limits buckets each, that never
// run dry.
func benchTakes(limits int) (list []limiter.Take) {
	for i := range 1024 {
		var t limiter.Take
		for _, d := range []limiter.Dimension{limiter.APIKey, limiter.User, limiter.Team}[:limits] {
			t.Charges = append(t.Charges, limiter.Charge{
				Bucket: limiter.BucketID{Dimension: d, ID: limiter.Hash(d, fmt.Sprint(i))},
				Rate:   limiter.Rate{Limit: 1e9, Per: time.Second, Burst: 1e9}, Cost: 1,
			})
		}
		list = append(list, t)
	}
	return list
}

// bareArgs returns the EVALSHA that a take amounts to.
func bareArgs(t limiter.Take) (keys, args []string) {
	const limit = "1000000000000000"
	args = []string{"00", "10000", fmt.Sprint(len(t.Charges)), "0", "0", "1", limit, "1000000", limit, "0", never, "0"}
	for _, c := range t.Charges {
		keys = append(keys, fmt.Sprintf("hw:{hw}:b:%s:%s", c.Bucket.Dimension, c.Bucket.ID))
		args = append(args, "1", "1000000")
	}
	return keys, args
}

// share runs n calls of f over callers goroutines and returns calls per second.
func share(callers, n int, f func(i int)) float64 {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for i := left.Add(-1); i >= 0; i = left.Add(-1) {
				f(int(i) % 1024)
			}
		})
	}
	wg.Wait()
	return float64(n) / time.Since(start).Seconds()
}

// BenchmarkAdmit compares the store with the same script called bare through
// the same client library, in alternating rounds against one server, so that
// both see the same machine. "ratio" is the store's rate over the bare one's.
func BenchmarkAdmit(b *testing.B) {
	server := redisproc.Start(b)
	store, err := redisstore.New(redisstore.Options{
		Address: server.Addr(), Timeout: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close(context.Background())
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, DisableRetry: true, DisableCache: true, ForceSingleClient: true,
		Dialer: net.Dialer{KeepAlive: 250 * time.Millisecond},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	for _, limits := range []int{1, 3} {
		takes := benchTakes(limits)
		keys, args := make([][]string, len(takes)), []string{}
		for i, t := range takes {
			keys[i], args = bareArgs(t)
		}
		admit := func(i int) {
			if v, err := store.Admit(ctx, takes[i]); err != nil || !v.OK {
				b.Errorf("admit: %+v, %v", v, err)
			}
		}
		bare := func(i int) {
			cmd := client.B().Evalsha().Sha1(lua.Admit.SHA).Numkeys(int64(limits)).Key(keys[i]...).Arg(args...).Build()
			if reply, err := client.Do(ctx, cmd).AsIntSlice(); err != nil || reply[2] != 1 {
				b.Errorf("bare: %v, %v", reply, err)
			}
		}
		for _, callers := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("limits=%d/callers=%d", limits, callers), func(b *testing.B) {
				compare(b, store, callers, bare, admit)
			})
		}
	}
}

// compare reports the rates of two ways to decide, in alternating rounds.
func compare(b *testing.B, store *redisstore.Store, callers int, bare, admit func(int)) {
	const rounds = 10
	n := max(1, b.N/rounds)
	admit(0)
	bare(0)
	var of, ob float64
	before := store.Calls()
	for range rounds {
		ob += share(callers, n, bare) / rounds
		of += share(callers, n, admit) / rounds
	}
	after := store.Calls()
	b.ReportMetric(of, "admit/s")
	b.ReportMetric(ob, "bare/s")
	b.ReportMetric(of/ob, "ratio")
	b.ReportMetric(float64(after.Decisions-before.Decisions)/float64(after.Admit-before.Admit), "decisions/call")
	b.ReportMetric(0, "ns/op")
}
