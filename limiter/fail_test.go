package limiter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// What ends a wait while the store is asked is counted as what it is.
func TestWaitsThatFailWhileAsking(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		end    func(context.Context) error // of the store's second call
		reason limiter.Reason              // that is counted; "": none
		is     error
	}{
		{"the store breaks", func(context.Context) error { return broken }, "", broken},
		{"the caller leaves", func(ctx context.Context) error {
			ctx.Value(leave{}).(context.CancelFunc)()
			return ctx.Err()
		}, limiter.ReasonClientGone, context.Canceled},
		{"time is over", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, limiter.ReasonDeadlineExceeded, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry, cfg := prometheus.NewRegistry(), shared(&limiter.Rate{Limit: 1, Per: time.Second, Burst: 1})
				cfg.Registerer = registry
				store := &failing{Store: memstore.New().Replica(memstore.Options{}), end: c.end}
				l, err := limiter.New(cfg, store, fleet.Solo("test"))
				if err != nil {
					t.Fatal(err)
				}
				defer store.Close(context.Background())
				defer l.Close()
				g, _ := l.Admit(context.Background(), user("ann"))
				g.Done(limiter.Outcome{})
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				defer cancel()
				g, err = l.Admit(context.WithValue(ctx, leave{}, cancel), user("ann"))
				if g != nil || c.is != nil && !errors.Is(err, c.is) || c.is == nil && reasonOf(err) != c.reason {
					t.Errorf("got %v, %v", g, err)
				}
				counted := 0
				if c.reason != "" {
					counted = 1
				}
				if n, _ := testutil.GatherAndCount(registry, "rate_limit_fair_queue_refused_total"); n != counted {
					t.Errorf("%d reasons are counted, want %q", n, c.reason)
				}
				if l.Waiting() != 0 {
					t.Error("it still waits")
				}
			})
		})
	}
}

// leave is the key of a function that makes a caller leave.
type leave struct{}

// failing is a store that ends the call of whoever has waited.
type failing struct {
	limiter.Store
	end func(context.Context) error
}

func (f *failing) Admit(ctx context.Context, k limiter.Take) (limiter.Verdict, error) {
	if k.Waited {
		return limiter.Verdict{}, f.end(ctx)
	}
	return f.Store.Admit(ctx, k)
}
