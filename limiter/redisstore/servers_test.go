package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
)

// twoMasters is a store on a cluster of two, in layout tenant, and a take on each.
func twoMasters(t *testing.T) (*farm, *redisstore.Store, []limiter.Take) {
	f := newFarm(t, 2)
	f.halves()
	s := newStore(t, redisstore.Options{
		Mode: redisstore.ModeCluster, Addresses: []string{f.addr(0), f.addr(1)}, Layout: redisstore.LayoutTenant, DialCtxFn: f.dial,
	})
	takes := []limiter.Take{f.takeOn(0), f.takeOn(1)}
	for _, k := range takes {
		mustAdmit(t, s, k)
	}
	return f, s, takes
}

// TestOneHungServer: of two masters one hangs. Its callers wait once, for their
// budget, and are refused at once from then on; those of the other notice nothing.
func TestOneHungServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s, takes := twoMasters(t)
		f.links[0].Freeze()
		waited := 0
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			start := time.Now()
			mustAdmit(t, s, takes[1])
			if took := time.Since(start); took > 0 {
				t.Fatalf("a call to the other server took %v", took)
			}
			if _, err := s.Admit(t.Context(), takes[0]); !errors.Is(err, limiter.ErrUnavailable) {
				t.Fatalf("hung: got %v", err)
			}
			if time.Since(start) > 0 {
				waited++
			}
		}
		if waited != 3 {
			t.Errorf("%d calls waited for a server that hangs, want 3", waited)
		}
		if h := s.Health(); !h.Usable || !strings.Contains(h.State, f.addr(0)) {
			t.Errorf("one of two hangs: got %+v", h)
		}
		f.links[1].Freeze()
		time.Sleep(time.Second)
		if h := s.Health(); h.Usable {
			t.Errorf("both hang: got %+v", h)
		}
		f.links[0].Thaw()
		f.links[1].Thaw()
		time.Sleep(2 * time.Second)
		for _, k := range takes {
			mustAdmit(t, s, k)
		}
		if h := s.Health(); !h.Usable || h.State != "ok" {
			t.Errorf("both are well again: got %+v", h)
		}
	})
}

// TestRedo: replies that prove that nothing ran are followed by another attempt,
// inside the budget, and charged once; others are not.
func TestRedo(t *testing.T) {
	moved := func(word string, to int) string { return fmt.Sprintf("%s 1 10.0.0.%d:6379", word, to+1) }
	for _, c := range []struct {
		name string
		says func(n int, node int, asking bool) string // n: scripts asked for so far
		ok   bool
	}{
		{"TRYAGAIN thrice", func(n, _ int, _ bool) string {
			return when(n < 3, "TRYAGAIN Multiple keys request during rehashing of slot")
		}, true},
		{"TRYAGAIN for ever", func(int, int, bool) string { return "TRYAGAIN x" }, false},
		{"LOADING twice", func(n, _ int, _ bool) string { return when(n < 2, "LOADING Redis is loading the dataset in memory") }, true},
		{"CLUSTERDOWN once", func(n, _ int, _ bool) string { return when(n < 1, "CLUSTERDOWN Hash slot not served") }, true},
		{"ASK", func(_, node int, asking bool) string { return when(node == 0 || !asking, moved("ASK", 1)) }, true},
		{"ASK, then TRYAGAIN", func(n, node int, asking bool) string {
			return when(node == 0, moved("ASK", 1)) + when(node == 1 && n < 6, "TRYAGAIN x")
		}, true},
		{"each names the other", func(_, node int, _ bool) string { return moved("MOVED", 1-node) }, false},
		{"READONLY", func(n, _ int, _ bool) string {
			return when(n < 1, "READONLY You can't write against a read only replica.")
		}, false},
		{"any other", func(n, _ int, _ bool) string { return when(n < 1, "ERR whatever") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, s, takes := twoMasters(t)
				k := takes[0]
				before := remaining(t, s, k)
				n, start := 0, time.Now()
				f.mu.Lock()
				f.says = func(node int, asking bool) string { n++; return c.says(n-1, node, asking) }
				f.mu.Unlock()
				v, err := s.Admit(t.Context(), k)
				f.mu.Lock()
				f.says = nil
				f.mu.Unlock()
				if (err == nil && v.OK) != c.ok || err != nil && !errors.Is(err, limiter.ErrUnavailable) {
					t.Errorf("got %+v, %v; want granted: %v", v, err, c.ok)
				}
				if took := time.Since(start); took > redisstore.DefaultTimeout {
					t.Errorf("took %v, the budget is %v", took, redisstore.DefaultTimeout)
				}
				time.Sleep(3 * time.Second)
				if strings.HasPrefix(c.name, "ASK") { // the move is completed
					f.mu.Lock()
					f.owner, f.ranges, f.epochs, before = func(uint16) int { return 1 }, []string{"", "0-16383"}, []int{1, 3}, 1_000_000
					f.mu.Unlock()
					time.Sleep(2 * time.Second)
				}
				if taken := before - remaining(t, s, k); c.ok && taken != 1 || !c.ok && taken != 0 {
					t.Errorf("%d taken", taken)
				}
			})
		})
	}
}

func when(ok bool, text string) string {
	if ok {
		return text
	}
	return ""
}
