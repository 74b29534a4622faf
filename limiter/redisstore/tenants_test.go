package redisstore_test

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// window is the time in which a bucket of these tenants is full again.
const window = time.Second

// crowdSize is how many tenants come once: HEADWAY_TENANTS, else a few.
func crowdSize(t *testing.T) int {
	text := os.Getenv("HEADWAY_TENANTS")
	if text == "" {
		return 5000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("HEADWAY_TENANTS: %v", err)
	}
	return n
}

// Tenants that come once leave nothing behind: every key has an end, the server
// has forgotten all of them two windows later, and this process does not grow
// from round to round. `make soak` runs it with 100,000.
func TestTenantsThatComeOnce(t *testing.T) {
	tenants, server := crowdSize(t), redisproc.Start(t)
	s := newStore(t, redisstore.Options{Address: server.Addr(), Timeout: patient})
	storetest.Eventually(t, healing, "usable", usable(s))
	keys := func() int64 { return server.Do("DBSIZE").(int64) }
	baseline := keys()
	var heap []uint64
	for round := range 5 {
		began := time.Now()
		var all sync.WaitGroup
		for worker := range 32 {
			all.Go(func() {
				for i := worker; i < tenants; i += 32 {
					once(t, s, "r"+strconv.Itoa(round)+"t"+strconv.Itoa(i))
				}
			})
		}
		all.Wait()
		took := time.Since(began)
		endless := server.Do("EVAL", `local n = 0
			for _, key in ipairs(redis.call('KEYS', '*')) do
				if redis.call('PTTL', key) < 0 then n = n + 1 end
			end
			return n`, "0").(int64)
		if endless != 0 {
			t.Fatalf("round %d: %d keys without an end", round, endless)
		}
		most := keys()
		// Expired keys are collected ten times a second, a part each time.
		last := time.Now()
		storetest.Eventually(t, 2*window+healing, "the server has forgotten them", func() bool { return keys() <= baseline })
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap = append(heap, m.HeapAlloc)
		t.Logf("round %d: %d tenants in %v, at most %d keys, gone after %v; heap %d kB", round, tenants, took.Round(time.Millisecond), most, time.Since(last).Round(10*time.Millisecond), m.HeapAlloc>>10)
	}
	// The first rounds fill pools and maps to their size.
	if grown := int64(heap[4]) - int64(heap[1]); grown > 2<<20 {
		t.Errorf("the heap has grown by %d kB in three rounds", grown>>10)
	}
}

// once is a tenant's only request: a count, a token budget settled, a slot.
func once(t *testing.T, s *redisstore.Store, who string) {
	id := limiter.Hash(limiter.User, who)
	rate := limiter.Rate{Limit: 5, Per: window, Burst: 5}
	k := limiter.Take{
		Charges: []limiter.Charge{
			{Bucket: limiter.BucketID{Dimension: limiter.User, Class: limiter.Requests, ID: id}, Rate: rate, Cost: 1},
			{Bucket: limiter.BucketID{Dimension: limiter.User, Class: limiter.Tokens, ID: id}, Rate: rate, Cost: 3},
		},
		Slots: []limiter.Slot{{Slot: limiter.SlotID{Dimension: limiter.User, ID: id}, Cap: 2}},
	}
	v, err := s.Admit(context.Background(), k)
	if err != nil || !v.OK {
		t.Errorf("%s: got %+v, %v; want a grant", who, v, err)
		return
	}
	s.Settle(limiter.Settlement{
		Adjust: []limiter.Adjustment{{Bucket: k.Charges[1].Bucket, Rate: rate, Delta: 1}},
		Free:   []limiter.SlotID{k.Slots[0].Slot},
	})
}
