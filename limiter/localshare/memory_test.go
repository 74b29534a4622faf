package localshare

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// Tenants that come once leave nothing here either, before an outage and in one.
func TestSharesOfTenantsThatComeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memstore.New()
		s, err := New(Options{
			Inner: m.Replica(memstore.Options{}), Fleet: alone{}, Logger: slog.New(slog.DiscardHandler),
			Policy: func(limiter.Dimension) limiter.OutagePolicy { return limiter.LocalShare },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(context.Background())
		time.Sleep(10 * time.Second)
		for round := range 10 {
			m.SetDown(round >= 5)
			for i := range 20_000 {
				id := limiter.Hash(limiter.User, strconv.Itoa(round)+"/"+strconv.Itoa(i))
				c := limiter.Charge{Bucket: limiter.BucketID{Dimension: limiter.User, ID: id}, Rate: limiter.Rate{Limit: 10, Per: time.Second, Burst: 10}, Cost: 1}
				if v, err := s.Admit(t.Context(), limiter.Take{Charges: []limiter.Charge{c}}); err != nil || !v.OK || v.Local != (round >= 5) {
					t.Fatalf("round %d: got %+v, %v", round, v, err)
				}
				if i%100 == 0 {
					time.Sleep(50 * time.Millisecond) // a bucket is full again after twice this
				}
			}
			s.mu.Lock()
			if n := len(s.buckets); n > 2*minSweep {
				t.Errorf("round %d: %d buckets are kept, some 200 are not full", round, n)
			}
			s.mu.Unlock()
		}
		m.SetDown(false)
	})
}
