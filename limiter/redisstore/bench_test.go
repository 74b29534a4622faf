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

// benchTake is a plain request: three buckets that never run dry.
func benchTake() limiter.Take {
	var t limiter.Take
	for _, d := range []limiter.Dimension{limiter.APIKey, limiter.User, limiter.Model} {
		t.Charges = append(t.Charges, limiter.Charge{
			Bucket: limiter.BucketID{Dimension: d, ID: limiter.Hash(d, "bench")},
			Rate:   limiter.Rate{Limit: 1e9, Per: time.Second, Burst: 1e9}, Cost: 1,
		})
	}
	return t
}

// bare returns the arguments of the EVALSHA that benchTake amounts to.
func bareArgs() (keys, args []string) {
	for _, c := range benchTake().Charges {
		keys = append(keys, fmt.Sprintf("hw:{hw}:b:%s:%s", c.Bucket.Dimension, c.Bucket.ID))
	}
	args = []string{"9007199254740991", "00", "1", "10000", "3"}
	for range keys {
		args = append(args, "1000000000000000", "1000000", "1000000000000000", "1000000", "0")
	}
	return keys, args
}

// share runs n calls of f over callers goroutines and returns calls per second.
func share(callers, n int, f func()) float64 {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	start := time.Now()
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				f()
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
	ctx, take := context.Background(), benchTake()
	keys, args := bareArgs()
	admit := func() {
		if v, err := store.Admit(ctx, take); err != nil || !v.OK {
			b.Errorf("admit: %+v, %v", v, err)
		}
	}
	bare := func() {
		cmd := client.B().Evalsha().Sha1(lua.Admit.SHA).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
		if reply, err := client.Do(ctx, cmd).AsIntSlice(); err != nil || reply[0] != 1 {
			b.Errorf("bare: %v, %v", reply, err)
		}
	}
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			const rounds = 10
			n := max(1, b.N/rounds)
			admit()
			bare()
			var of, ob float64
			for range rounds {
				ob += share(callers, n, bare) / rounds
				of += share(callers, n, admit) / rounds
			}
			b.ReportMetric(of, "admit/s")
			b.ReportMetric(ob, "bare/s")
			b.ReportMetric(of/ob, "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
