package redisstore_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// TestNoSlotsFromAnEmptiedRedis: a replica that holds all slots of a pool states them
// within 300 ms of the loss of all data, also while nothing else happens; another that
// asks is told that they are not known, never granted one, and goes on afterwards.
func TestNoSlotsFromAnEmptiedRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := storetest.NewBubble(t)
		var stores [2]*redisstore.Store
		for i := range stores {
			s, err := redisstore.New(redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: server.Link().Dial, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close(context.Background()) })
			stores[i] = s
		}
		pool := limiter.SlotID{Dimension: "agent", ID: limiter.Hash("agent", "a")}
		ask := func(s *redisstore.Store) (bool, error) {
			v, err := s.Turns(t.Context(), limiter.Turns{
				Slots: pool, Rate: limiter.Rate{Limit: 2, Per: time.Second, Burst: 2}, Most: 8, Grace: time.Millisecond,
				Bids: []limiter.Bid{{Tenant: "ann", Cost: 1, Weight: 1, Since: limiter.Unknown}},
			})
			return err == nil && v.Bids[0].State == limiter.BidGranted, err
		}
		for range 2 {
			if ok, err := ask(stores[0]); !ok {
				t.Fatal("a free slot is not granted:", err)
			}
		}
		time.Sleep(time.Second) // clocks that stand still tell no epochs apart
		for round, pause := range []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, time.Second} {
			server.Redis.FlushAll()
			lost := time.Now()
			time.Sleep(pause)
			known := time.Duration(0)
			for time.Since(lost) < 4*time.Second {
				ok, err := ask(stores[1])
				if ok {
					t.Fatalf("round %d: one more than two slots was granted %v after the loss", round, time.Since(lost))
				}
				if err == nil && known == 0 {
					known = time.Since(lost)
				} else if err != nil && !errors.Is(err, limiter.ErrForgotten) {
					t.Error(err)
				}
				if v, err := stores[1].Peek(t.Context(), limiter.Take{Slots: []limiter.Slot{{Slot: pool, Cap: 2}}}); err != nil || !v.Full[0] {
					if time.Since(lost) > 300*time.Millisecond {
						t.Fatalf("round %d: %v after the loss two slots are not known (%v)", round, time.Since(lost), err)
					}
				}
				time.Sleep(10 * time.Millisecond)
			}
			if known < 2*time.Second || known > 2500*time.Millisecond {
				t.Errorf("round %d: turns were given again %v after the loss", round, known)
			}
		}
		stores[0].Settle(limiter.Settlement{Free: []limiter.SlotID{pool}})
		time.Sleep(100 * time.Millisecond)
		if ok, err := ask(stores[1]); !ok {
			t.Error("a free slot is not granted afterwards:", err)
		}
	})
}
