package redisstore_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// phantoms freezes a node while calls are on their way to it, lets it wake, and
// returns how many of them have taken something. Just before, another node has
// told its time in the answer to last.
func phantoms(t *testing.T, s *redisstore.Store, link *storetest.Link, k, last limiter.Take) int64 {
	t.Helper()
	mustAdmit(t, s, k)
	before := remaining(t, s, k)
	mustAdmit(t, s, last)
	sent := s.Calls().Total()
	link.Freeze()
	for _, err := range burstOf(s, 50, k) {
		if !errors.Is(err, limiter.ErrUnavailable) {
			t.Fatalf("a frozen node: %v", err)
		}
	}
	if s.Calls().Total() == sent {
		t.Fatal("no call was sent: this test shows nothing")
	}
	time.Sleep(10 * time.Microsecond) // at its very instant, a call is still in time
	link.Cut()                        // no late answer can tell of them, to be given back
	link.Thaw()
	link.Mend()
	time.Sleep(5 * time.Second)
	return before - remaining(t, s, k)
}

// takeOn is a take whose keys node i owns.
func (f *farm) takeOn(i int) limiter.Take {
	for n := 0; ; n++ {
		home := limiter.Hash(limiter.Team, fmt.Sprint(n))
		if f.owner(redisstore.HashSlot(string(home))) == i {
			k := oneTake(1_000_000, 0)
			k.Charges[0].Bucket = limiter.BucketID{Dimension: limiter.Team, ID: home, Home: home}
			return k
		}
	}
}

// TestFencePerNode: two masters whose clocks are 10 s apart. A call that is given
// up takes nothing on either, nor on one of them after its slots moved to the
// other; and each decides every call, for a fence of the other would be 10 s
// early.
func TestFencePerNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t, 2)
		f.halves()
		s := newStore(t, redisstore.Options{
			Mode: redisstore.ModeCluster, Addresses: []string{f.addr(1)}, Layout: redisstore.LayoutTenant, DialCtxFn: f.dial,
		})
		takes := []limiter.Take{f.takeOn(0), f.takeOn(1)}
		for i, k := range takes {
			if n := phantoms(t, s, f.links[i], k, takes[1-i]); n != 0 {
				t.Errorf("node %d: %d calls that were given up took something", i, n)
			}
		}
		f.mu.Lock()
		f.owner = func(uint16) int { return 1 }
		f.ranges, f.epochs = []string{"", "0-16383"}, []int{1, 3}
		f.mu.Unlock()
		mustAdmit(t, s, takes[0]) // by MOVED
		if n := phantoms(t, s, f.links[1], takes[0], takes[1]); n != 0 {
			t.Errorf("after a move: %d calls that were given up took something", n)
		}
	})
}

// TestFenceAfterPromotion: sentinels name another master, whose clock is 10 s
// behind. A fence by the old one's would be 10 s late.
func TestFenceAfterPromotion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t, 2)
		f.ranges = nil // every node takes every key
		s := newStore(t, redisstore.Options{
			Mode: redisstore.ModeSentinel, Addresses: []string{f.addr(0), "10.0.0.9:26379"}, SentinelMaster: "m", DialCtxFn: f.dial,
		})
		k, last := oneTake(1_000_000, 0), oneTake(1_000_000, 0)
		last.Charges[0].Bucket.ID = limiter.Hash(limiter.User, "another")
		if n := phantoms(t, s, f.links[0], k, last); n != 0 {
			t.Errorf("%d calls that were given up took something", n)
		}
		f.mu.Lock()
		f.master, f.epochs[1] = 1, 1
		f.mu.Unlock()
		time.Sleep(2 * time.Second)
		if n := phantoms(t, s, f.links[1], k, last); n != 0 {
			t.Errorf("after a promotion: %d calls that were given up took something", n)
		}
		if s.Health().State != "ok" {
			t.Errorf("got %+v", s.Health())
		}
	})
}

// TestStartsWhileDown: a store begins unusable while nobody answers, and becomes
// usable by itself, in every mode.
func TestStartsWhileDown(t *testing.T) {
	for _, o := range []redisstore.Options{
		{Mode: redisstore.ModeCluster, Addresses: []string{"10.0.0.1:6379", "10.0.0.2:6379"}},
		{Mode: redisstore.ModeSentinel, Addresses: []string{"10.0.0.1:6379", "10.0.0.2:6379"}, SentinelMaster: "m"},
	} {
		t.Run(string(o.Mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFarm(t, 2)
				for _, l := range f.links {
					l.Cut()
				}
				o.DialCtxFn = f.dial
				s := newStore(t, o)
				if _, err := s.Admit(t.Context(), oneTake(10, 0)); !errors.Is(err, limiter.ErrUnavailable) || s.Health().Usable {
					t.Fatalf("nobody answers: got %v, %+v", err, s.Health())
				}
				time.Sleep(10 * time.Second)
				for _, l := range f.links {
					l.Mend()
				}
				time.Sleep(time.Second)
				mustAdmit(t, s, oneTake(10, 0))
				f.links[0].Freeze() // whoever was met late is watched, too
				time.Sleep(time.Second)
				if s.Health().Usable {
					t.Errorf("hung for a second: got %+v", s.Health())
				}
				f.links[0].Thaw()
				time.Sleep(2 * time.Second)
				mustAdmit(t, s, oneTake(10, 0))
			})
		})
	}
}

// TestOldViews: of two nodes that claim a slot, the one with the greater epoch
// owns it, whoever tells.
func TestOldViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t, 3)
		f.owner = func(uint16) int { return 1 }
		f.ranges, f.epochs = []string{"0-16383", "0-16383", ""}, []int{1, 2, 0} // node 0 was replaced, and does not know
		s := newStore(t, redisstore.Options{
			Mode: redisstore.ModeCluster, Addresses: []string{f.addr(0), f.addr(1)}, DialCtxFn: f.dial,
		})
		mustAdmit(t, s, oneTake(1_000_000, 0)) // which loads the script
		resent := s.Calls().Admit
		for range 50 {
			mustAdmit(t, s, oneTake(1_000_000, 0))
		}
		if n := s.Calls().Admit - resent; n != 50 {
			t.Errorf("%d calls for 50 requests: some went to whom they no longer belong", n)
		}
	})
}
