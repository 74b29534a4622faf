package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// TestTogether: what is outstanding together shares calls, nobody waits for that,
// and nothing is admitted that as many calls would not have.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		k := oneTake(120, 100)
		mustAdmit(t, r.store, k)
		before := r.store.Calls()
		r.link.Freeze()
		go func() {
			time.Sleep(10 * time.Millisecond)
			r.link.Thaw()
		}()
		var mu sync.Mutex
		granted, full := 0, 0
		start := time.Now()
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				v, err := r.store.Admit(context.Background(), k)
				if err != nil {
					t.Errorf("admit: %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if v.OK {
					granted++
				} else if v.Full[0] {
					full++
				}
			})
		}
		wg.Wait()
		if took := time.Since(start); took != 10*time.Millisecond {
			t.Errorf("200 decisions took %v, the server was away for 10ms", took)
		}
		if granted != 99 || full != 101 {
			t.Errorf("%d granted and %d found no slot, want the 99 slots that were left, and 101", granted, full)
		}
		after := r.store.Calls()
		calls, decisions := after.Admit-before.Admit, after.Decisions-before.Decisions
		t.Logf("%d decisions in %d calls", decisions, calls)
		if decisions < 200 || calls > decisions/8 {
			t.Errorf("%d decisions in %d calls: this test shows nothing about calls of several", decisions, calls)
		}
		if left := remaining(t, r.store, k); left != 20 {
			t.Errorf("%d tokens left of 120 after 100 grants", left)
		}
	})
}

// TestOneSpoilsNoOther: a bucket that holds what no script wrote fails those who
// name it, and nobody who shares a call with them.
func TestOneSpoilsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		broken := oneTake(100, 0)
		k := oneTake(100, 0)
		k.Charges[0].Bucket.ID = limiter.Hash(limiter.User, "other")
		mustAdmit(t, r.store, k)
		r.Redis.Set("hw:{hw}:b:user:"+string(broken.Charges[0].Bucket.ID), "garbage")
		r.link.Freeze()
		go func() {
			time.Sleep(10 * time.Millisecond)
			r.link.Thaw()
		}()
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				ask := k
				if i%10 == 0 {
					ask = broken
				}
				v, err := r.store.Admit(context.Background(), ask)
				if i%10 == 0 && !errors.Is(err, limiter.ErrUnavailable) {
					t.Errorf("a spoilt bucket: got %+v, %v; want ErrUnavailable", v, err)
				}
				if i%10 != 0 && (err != nil || !v.OK) {
					t.Errorf("beside a spoilt bucket: got %+v, %v; want a grant", v, err)
				}
			})
		}
		wg.Wait()
		if left := remaining(t, r.store, k); left != 45 {
			t.Errorf("%d tokens left of 100 after 55 grants", left)
		}
	})
}

// TestCrowd: many callers on a real server, over hot and cold buckets: what is
// admitted is what the buckets held, to the token, and calls are shared.
func TestCrowd(t *testing.T) {
	server := redisproc.Start(t)
	s := newStore(t, redisstore.Options{Address: server.Addr(), Timeout: patient})
	storetest.Eventually(t, healing, "usable", usable(s))
	before := s.Calls()
	const callers, each, hot = 100, 100, 4
	var mu sync.Mutex
	granted := map[int]int64{}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				name := (c*each + i) % (2 * hot)
				k := oneTake(500, 0)
				k.Charges[0].Bucket.ID = limiter.Hash(limiter.User, fmt.Sprint(name))
				if name >= hot { // the other shape
					second := k.Charges[0]
					second.Bucket.Dimension = limiter.Team
					k.Charges = append(k.Charges, second)
				}
				v, err := s.Admit(context.Background(), k)
				if err != nil {
					t.Errorf("admit: %v", err)
					return
				}
				mu.Lock()
				if v.OK {
					granted[name]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for name := range 2 * hot {
		if granted[name] != 500 {
			t.Errorf("bucket %d: %d granted, want all 500 tokens and no more", name, granted[name])
		}
	}
	after := s.Calls()
	calls, decisions := after.Admit-before.Admit, after.Decisions-before.Decisions
	t.Logf("%d decisions in %d calls", decisions, calls)
	if decisions < callers*each || calls >= decisions/2 {
		t.Errorf("%d decisions in %d calls, want at least %d in less than half as many", decisions, calls, callers*each)
	}
}
