package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// rig is one store on a miniredis in the bubble of t.
type rig struct {
	*storetest.Bubble
	link  *storetest.Link
	store *redisstore.Store
	reg   *prometheus.Registry
}

func newRig(t *testing.T) *rig {
	r := &rig{Bubble: storetest.NewBubble(t), reg: prometheus.NewRegistry()}
	r.link = r.Bubble.Link()
	r.store = newStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: r.link.Dial, Registerer: r.reg})
	return r
}

// metric sums a counter or gauge over its labels.
func (r *rig) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// oneTake asks for one of n requests that hardly come back (one in 100 hours),
// and one of cap slots if cap > 0.
func oneTake(n int64, cap int) limiter.Take {
	id := limiter.Hash(limiter.User, "u")
	t := limiter.Take{Charges: []limiter.Charge{{
		Bucket: limiter.BucketID{Dimension: limiter.User, ID: id},
		Rate:   limiter.Rate{Limit: 1, Per: 100 * time.Hour, Burst: n}, Cost: 1,
	}}}
	if cap > 0 {
		t.Slots = []limiter.Slot{{Slot: limiter.SlotID{Dimension: limiter.User, ID: id}, Cap: cap}}
	}
	return t
}

func mustAdmit(t *testing.T, s *redisstore.Store, k limiter.Take) {
	t.Helper()
	if v, err := s.Admit(context.Background(), k); err != nil || !v.OK {
		t.Fatalf("admit: got %+v, %v; want a grant", v, err)
	}
}

func remaining(t *testing.T, s *redisstore.Store, k limiter.Take) int64 {
	t.Helper()
	v, err := s.Peek(context.Background(), k)
	if err != nil {
		t.Fatalf("peek: %v", err)
	}
	return v.Charges[0].Remaining
}

// burstOf runs n Admits at once and returns their errors.
func burstOf(s *redisstore.Store, n int, k limiter.Take) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { _, errs[i] = s.Admit(context.Background(), k) })
	}
	wg.Wait()
	return errs
}

// TestHungTakesNothing: a frozen server costs every caller its budget and no
// more, opens the breaker, and takes nothing when it wakes.
func TestHungTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		k := oneTake(1000, 1000)
		mustAdmit(t, r.store, k)
		sent := r.store.Calls().Admit
		r.link.Freeze()
		start := time.Now()
		for i, err := range burstOf(r.store, 200, k) {
			if !errors.Is(err, limiter.ErrUnavailable) {
				t.Fatalf("call %d on a frozen server: %v", i, err)
			}
		}
		if took := time.Since(start); took != redisstore.DefaultTimeout {
			t.Fatalf("200 calls took %v, want exactly the budget %v", took, redisstore.DefaultTimeout)
		}
		if r.store.Calls().Admit == sent {
			t.Fatal("no call was sent: this test shows nothing")
		}
		if h := r.store.Health(); h.Usable || !strings.Contains(h.State, "timeout") {
			t.Fatalf("after 200 timeouts: %+v", h)
		}
		start = time.Now()
		if _, err := r.store.Admit(t.Context(), k); !errors.Is(err, limiter.ErrUnavailable) || time.Since(start) > 0 {
			t.Fatalf("open breaker: got %v after %v, want ErrUnavailable at once", err, time.Since(start))
		}
		time.Sleep(5 * time.Second)
		r.link.Thaw()
		woken := time.Now()
		for !r.store.Health().Usable {
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(woken); took > 2*time.Second {
			t.Fatalf("healed after %v, want at most 2 s", took)
		}
		time.Sleep(time.Second)
		if left := remaining(t, r.store, k); left != 999 {
			t.Fatalf("%d left of 1000 after one grant and 200 given up", left)
		}
		r.store.Settle(limiter.Settlement{Free: []limiter.SlotID{k.Slots[0].Slot}})
		synctest.Wait()
		if v, _ := r.store.Peek(t.Context(), oneTake(1000, 1)); v.Full[0] {
			t.Fatal("slots were taken by calls that had been given up")
		}
	})
}

// TestLateGrantIsGivenBack: executed in time, heard too late.
func TestLateGrantIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		k := oneTake(11, 2)
		mustAdmit(t, r.store, k) // the server knows the script
		r.link.Mute()
		if _, err := r.store.Admit(t.Context(), k); !errors.Is(err, limiter.ErrUnavailable) {
			t.Fatalf("a mute server: got %v", err)
		}
		r.link.Unmute()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		if got := r.metric(t, "headway_store_late_grants_total"); got != 1 {
			t.Fatalf("%v late grants counted, want 1", got)
		}
		if v, err := r.store.Peek(t.Context(), k); err != nil || !v.OK || v.Charges[0].Remaining != 10 {
			t.Fatalf("after a late grant: got %+v, %v; want everything back", v, err)
		}
	})
}

// TestLostReplyHeals: the connection dies after the server has executed; the
// slot is stated free once the call cannot run any more.
func TestLostReplyHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		k := oneTake(11, 2)
		mustAdmit(t, r.store, k)
		r.link.Mute()
		go func() {
			time.Sleep(10 * time.Millisecond)
			r.link.Cut()
			r.link.Unmute()
			r.link.Mend()
		}()
		if _, err := r.store.Admit(t.Context(), k); !errors.Is(err, limiter.ErrUnavailable) {
			t.Fatalf("a lost reply: got %v", err)
		}
		time.Sleep(2 * time.Second)
		v, err := r.store.Peek(t.Context(), k)
		if err != nil || v.Full[0] {
			t.Fatalf("after the reply of a granted slot was lost: got %+v, %v; want it free", v, err)
		}
		if v.Charges[0].Remaining != 9 {
			t.Fatalf("%d left, want 9: what an unheard call took is not given back twice", v.Charges[0].Remaining)
		}
	})
}

// TestIdleNotices: trouble and recovery show without any traffic.
func TestIdleNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, fault := range []struct{ begin, end func() }{
			{r.link.Freeze, r.link.Thaw},
			{r.link.Cut, r.link.Mend},
			{func() { r.Redis.SetError("LOADING Redis is loading the dataset in memory") }, func() { r.Redis.SetError("") }},
		} {
			time.Sleep(time.Minute)
			if h := r.store.Health(); !h.Usable || h.State != "ok" {
				t.Fatalf("before the fault: %+v", h)
			}
			fault.begin()
			began := time.Now()
			for r.store.Health().Usable {
				time.Sleep(10 * time.Millisecond)
				if time.Since(began) > 3*time.Second {
					t.Fatal("not noticed within 3 s")
				}
			}
			t.Logf("noticed after %v: %s", time.Since(began), r.store.Health().State)
			time.Sleep(10 * time.Second)
			fault.end()
			began = time.Now()
			for !r.store.Health().Usable {
				time.Sleep(10 * time.Millisecond)
			}
			t.Logf("healed after %v", time.Since(began))
			if took := time.Since(began); took > 2*time.Second {
				t.Fatalf("healed after %v, want at most 2 s", took)
			}
		}
	})
}

// TestSleeperRestates: a replica cut off for longer than its ttl comes back and
// states what it holds, above the cap; nobody gets a slot until that drained.
func TestSleeperRestates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		other := newStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: r.Bubble.Link().Dial})
		k := oneTake(1000, 2)
		mustAdmit(t, r.store, k)
		mustAdmit(t, r.store, k)
		r.link.Cut()
		time.Sleep(redisstore.DefaultLeaseTTL + time.Second)
		mustAdmit(t, other, k) // the sleeper's slots have expired
		r.link.Mend()
		time.Sleep(3 * time.Second)
		if got := r.metric(t, "headway_store_leases_restated_total"); got != 2 {
			t.Fatalf("%v slots restated, want 2", got)
		}
		free := limiter.Settlement{Free: []limiter.SlotID{k.Slots[0].Slot}}
		for held := 3; held >= 2; held-- {
			for _, s := range []*redisstore.Store{r.store, other} {
				if v, err := s.Admit(t.Context(), k); err != nil || v.OK {
					t.Fatalf("%d of 2 held: got %+v, %v; want full", held, v, err)
				}
			}
			r.store.Settle(free)
			synctest.Wait()
		}
		mustAdmit(t, other, k)
	})
}

// TestClockJumps: the server's clock jumps, and every later call is still fenced
// by the new one.
func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		k := oneTake(1_000_000, 0)
		mustAdmit(t, r.store, k)
		for _, jump := range []time.Duration{time.Hour, -24 * time.Hour, 48 * time.Hour} {
			r.Redis.SetTime(time.Now().Add(jump))
			mustAdmit(t, r.store, k)
			mustAdmit(t, r.store, k)
			time.Sleep(time.Millisecond)
		}
		left := remaining(t, r.store, k)
		// Behind the clock at which the server stands still, a frozen call must
		// be late: the fence of the last reply applies, not an older one.
		r.link.Freeze()
		r.Redis.SetTime(time.Now().Add(-time.Hour))
		r.link.Thaw()
		mustAdmit(t, r.store, k) // the first reply tells of the new clock
		r.link.Freeze()
		burstOf(r.store, 5, k)
		r.Redis.SetTime(time.Now().Add(-time.Hour))
		r.link.Thaw()
		time.Sleep(2 * time.Second)
		if got := remaining(t, r.store, k); got < left-1 {
			t.Fatalf("%d left after one grant from %d: given-up calls took something", got, left)
		}
	})
}

// TestDeadlines: the caller's own deadline is the caller's error, and no trouble
// of the store.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		k := oneTake(11, 9)
		mustAdmit(t, r.store, k)
		r.link.Mute()
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err := r.store.Admit(ctx, k); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, limiter.ErrUnavailable) {
				t.Fatalf("own deadline: got %v", err)
			}
			cancel()
		}
		r.link.Unmute()
		synctest.Wait()
		if h := r.store.Health(); !h.Usable {
			t.Fatalf("five impatient callers: %+v", h)
		}
		if left := remaining(t, r.store, k); left != 10 {
			t.Fatalf("%d left, want all 10: abandoned grants are given back", left)
		}
	})
}

// TestEveryErrorIsUnavailable: no reply of a broken server lets anything through.
func TestEveryErrorIsUnavailable(t *testing.T) {
	for _, reply := range []string{
		"LOADING Redis is loading the dataset in memory", "READONLY You can't write against a read only replica.",
		"OOM command not allowed when used memory > 'maxmemory'.", "BUSY Redis is busy running a script.",
		"CLUSTERDOWN The cluster is down", "CROSSSLOT Keys in request don't hash to the same slot",
		"NOSCRIPT No matching script. Please use EVAL.", "ERR user_script:1: attempt to index a nil value",
		"NOAUTH Authentication required.", "MISCONF Redis is configured to save RDB snapshots",
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.Redis.SetError(reply)
			v, err := r.store.Admit(t.Context(), oneTake(10, 1))
			if v.OK || !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("%s: got %+v, %v; want ErrUnavailable", reply, v, err)
			}
			for _, err := range burstOf(r.store, 30, oneTake(10, 1)) {
				if !errors.Is(err, limiter.ErrUnavailable) {
					t.Errorf("%s: got %v", reply, err)
				}
			}
			if r.store.Health().Usable {
				t.Errorf("%s: still called usable after 31 failures", reply)
			}
			r.Redis.SetError("")
			time.Sleep(2 * time.Second)
			mustAdmit(t, r.store, oneTake(10, 1))
		})
	}
}

// TestGarbageTakesNothing: a value that no script wrote is an outage of that
// call, and takes nothing from its other buckets.
func TestGarbageTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		k := oneTake(10, 1)
		other := k.Charges[0]
		other.Bucket.Dimension = limiter.Team
		both := limiter.Take{Charges: []limiter.Charge{other, k.Charges[0]}}
		r.Redis.Set("hw:{hw}:b:user:"+string(k.Charges[0].Bucket.ID), "garbage")
		if v, err := r.store.Admit(t.Context(), both); v.OK || !errors.Is(err, limiter.ErrUnavailable) {
			t.Fatalf("garbage: got %+v, %v", v, err)
		}
		if left := remaining(t, r.store, limiter.Take{Charges: both.Charges[:1]}); left != 10 {
			t.Fatalf("%d left in the other bucket, want 10", left)
		}
	})
}

// TestStartsDown: a store comes up before its Redis, and heals by itself.
func TestStartsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := storetest.NewBubble(t)
		link := b.Link()
		link.Cut()
		s := newStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: link.Dial})
		if _, err := s.Admit(t.Context(), oneTake(1, 0)); s.Health().Usable || !errors.Is(err, limiter.ErrUnavailable) {
			t.Fatalf("started without Redis: %+v, %v", s.Health(), err)
		}
		link.Mend()
		time.Sleep(2 * time.Second)
		mustAdmit(t, s, oneTake(1, 0))
	})
}

// TestSettledOnce: a settlement with a slot is applied exactly once, whether its
// first attempt was executed unheard, executed late, or never sent.
func TestSettledOnce(t *testing.T) {
	wait := func() { time.Sleep(10 * time.Millisecond) }
	for name, fault := range map[string]func(l *storetest.Link, settle func()){
		"executed, reply lost": func(l *storetest.Link, settle func()) {
			l.Mute()
			settle()
			wait()
			l.Cut()
			l.Unmute()
			l.Mend()
		},
		"executed after the connection was given up": func(l *storetest.Link, settle func()) {
			l.Freeze()
			settle()
			wait()
			l.Cut()
			l.Mend()
			l.Thaw()
		},
		"never sent": func(l *storetest.Link, settle func()) {
			l.Cut()
			settle()
			wait()
			l.Mend()
		},
	} {
		for _, delta := range []int64{+30, -30} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				k := oneTake(100, 5)
				k.Charges[0].Cost = 40
				mustAdmit(t, r.store, k)
				mustAdmit(t, r.store, k) // another request still runs and bears witness
				fault(r.link, func() {
					r.store.Settle(limiter.Settlement{
						Adjust: []limiter.Adjustment{{Bucket: k.Charges[0].Bucket, Rate: k.Charges[0].Rate, Delta: delta}},
						Free:   []limiter.SlotID{k.Slots[0].Slot},
					})
				})
				time.Sleep(5 * time.Second)
				if left := remaining(t, r.store, k); left != 20+delta {
					t.Errorf("%s: %d left after settling %+d, want %d", name, left, delta, 20+delta)
				}
				for _, c := range []struct {
					cap  int
					full bool
				}{{1, true}, {2, false}} {
					one := oneTake(100, c.cap)
					if v, err := r.store.Peek(t.Context(), one); err != nil || v.Full[0] != c.full {
						t.Errorf("%s: one request runs, cap %d: got full %v, %v", name, c.cap, v.Full[0], err)
					}
				}
			})
		}
	}
}
