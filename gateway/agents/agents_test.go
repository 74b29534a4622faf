package agents

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

func TestSlotsAreOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 3, agentsOf(3, "a"))
		var held []*Slot
		for i := range 3 {
			held = append(held, r.take(i, want("ann", "a")))
		}
		for i := range 3 {
			w := want("ann", "a")
			w.Queue = false
			before := time.Now()
			_, err := r.sets[i].Acquire(context.Background(), w)
			var sat *Saturated
			if !errors.As(err, &sat) || sat.Reason != ReasonCapacity || sat.RetryAfter < time.Second || sat.Down {
				t.Errorf("replica %d: %+v, want %s", i, err, ReasonCapacity)
			}
			if d := time.Since(before); d > 20*time.Millisecond {
				t.Errorf("replica %d shed after %v, want at once", i, d)
			}
		}
		held[1].Free(false)
		held[1].Free(false) // has no effect
		time.Sleep(time.Millisecond)
		again := r.take(2, want("ann", "a"))
		for _, s := range []*Slot{held[0], held[2], again} {
			s.Free(false)
		}
	})
}

// TestShedLeavesNoClaim: one that may not wait holds back nobody.
func TestShedLeavesNoClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, agentsOf(1, "a"))
		first := r.take(0, want("ann", "a"))
		w := want("bob", "a")
		w.Queue = false
		if _, err := r.sets[1].Acquire(context.Background(), w); reason(err) != "capacity_exceeded" {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // the claim is withdrawn behind it
		first.Free(false)
		r.take(0, want("ann", "a")).Free(false)
	})
}

func TestWaitsAreBoundedFromTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := agentsOf(1, "a")
		c.Timeout = time.Second
		r := newRig(t, 1, c)
		slot := r.take(0, want("ann", "a"))
		for _, before := range []time.Duration{0, 400 * time.Millisecond, time.Second, time.Hour} {
			w, start := want("bob", "a"), time.Now()
			w.Waited = before
			_, err := r.sets[0].Acquire(context.Background(), w)
			var sat *Saturated
			if !errors.As(err, &sat) || sat.Reason != ReasonQueueTimeout {
				t.Fatalf("%v, want %s", err, ReasonQueueTimeout)
			}
			left := max(0, time.Second-before)
			if d := time.Since(start); d < left || d > left+10*time.Millisecond {
				t.Errorf("having waited %v before, it waited %v more, want %v", before, d, left)
			}
			if sat.Waited < before+left {
				t.Errorf("it says it waited %v, want %v", sat.Waited, before+left)
			}
		}
		w, start := want("bob", "a"), time.Now()
		w.Until = start.Add(300 * time.Millisecond)
		if _, err := r.sets[0].Acquire(context.Background(), w); err == nil || time.Since(start) > 310*time.Millisecond {
			t.Errorf("it waited %v for a slot, %v, want 300 ms in vain", time.Since(start), err)
		}
		slot.Free(false)
		w = want("bob", "a")
		w.Waited = time.Hour // what is free may be had all the same
		r.take(0, w).Free(false)
	})
}

// TestBatchGoesBehind: of one tenant and of others, who is waited for goes before batch
// work that came earlier, but for one of each tenant's; alone, batch work is served like
// any other, fair between tenants.
func TestBatchGoesBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, agentsOf(1, "a"))
		slot := r.take(0, want("ann", "a"))
		var all sync.WaitGroup
		line := func(tenant, name string, n int, batch bool) {
			w := want(tenant, "a")
			w.Batch = batch
			for range n {
				all.Go(func() {
					if err := r.run(context.Background(), 0, name, w, 100*time.Millisecond); err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(50 * time.Millisecond)
		}
		line("ann", "ann's batch", 10, true)
		line("bob", "bob's batch", 10, true)
		line("ann", "ann", 10, false)
		line("cid", "cid", 10, false)
		slot.Free(false)
		all.Wait()
		batch, last := map[string]int{}, map[string]int{}
		for i, s := range r.starts {
			last[s.tenant] = i
			if i < 22 && strings.HasSuffix(s.tenant, "batch") {
				batch[s.tenant]++
			}
		}
		if last["ann"] > 21 || last["cid"] > 21 || batch["ann's batch"] > 1 || batch["bob's batch"] > 1 {
			t.Errorf("the last of ann was %d. and of cid %d., before them came %v", last["ann"]+1, last["cid"]+1, batch)
		}
		if d := last["ann's batch"] - last["bob's batch"]; d*d > 4 {
			t.Errorf("the batch work of one ended at %d, of the other at %d", last["ann's batch"], last["bob's batch"])
		}
	})
}

// TestBatchLeavesRoom: batch work fills three quarters of a line, callers all of it.
func TestBatchLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := agentsOf(1, "a")
		c.Agents[0].Depth = 8
		r := newRig(t, 1, c)
		slot := r.take(0, want("ann", "a"))
		var all sync.WaitGroup
		var refused sync.Mutex
		full := map[bool]int{}
		for _, batch := range []bool{true, false} {
			w := want("ann", "a")
			w.Batch = batch
			for range 10 {
				all.Go(func() {
					if err := r.run(context.Background(), 0, "ann", w, time.Millisecond); reason(err) == string(limiter.ReasonQueueFull) {
						refused.Lock()
						full[batch]++
						refused.Unlock()
					}
				})
				time.Sleep(10 * time.Millisecond)
			}
		}
		slot.Free(false)
		all.Wait()
		if full[true] != 4 || full[false] != 8 {
			t.Errorf("turned away %d of batch work and %d callers, want 4 and 8", full[true], full[false])
		}
	})
}

func TestLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := agentsOf(1, "a", "b")
		c.Agents[0].Depth, c.Agents[1].Depth = 2, 1
		r := newRig(t, 1, c)
		slots := []*Slot{r.take(0, want("ann", "a")), r.take(0, want("ann", "b"))}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if err := r.run(context.Background(), 0, "bob", want("bob", "a", "b"), time.Millisecond); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		before := time.Now()
		_, err := r.sets[0].Acquire(context.Background(), want("bob", "a", "b"))
		if reason(err) != "queue_full" || time.Since(before) > 20*time.Millisecond {
			t.Errorf("%v after %v, want queue_full at once", err, time.Since(before))
		}
		for _, s := range slots {
			s.Free(false)
		}
		all.Wait()
	})
}

// TestAnyAgentWillDo: a waiter is served by whichever of its agents is free first, and
// by none that it did not name.
func TestAnyAgentWillDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, agentsOf(1, "a", "b", "c"))
		slots := map[string]*Slot{}
		for i, name := range []string{"a", "b", "c"} {
			slots[name] = r.take(i%2, want("ann", name))
		}
		var got *Slot
		var all sync.WaitGroup
		all.Go(func() { got, _ = r.sets[1].Acquire(context.Background(), want("bob", "a", "b")) })
		time.Sleep(time.Second)
		slots["c"].Free(false)
		time.Sleep(time.Second)
		if got != nil {
			t.Fatalf("it got %s, which it did not want", got.Agent())
		}
		freed := time.Now()
		slots["b"].Free(false) // held by replica 1
		all.Wait()
		if got == nil || got.Agent() != "b" || time.Since(freed) > 50*time.Millisecond {
			t.Fatalf("it got %v after %v, want b within 50 ms", got, time.Since(freed))
		}
		got.Free(false)
		slots["a"].Free(false)
	})
}

func TestLeastLoadedIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := agentsOf(4, "a", "b")
		c.Agents[0].Slots = 2
		r := newRig(t, 1, c)
		var got []string
		var slots []*Slot
		for range 6 {
			s := r.take(0, want("ann", "a", "b"))
			slots, got = append(slots, s), append(got, s.Agent())
		}
		if fmt.Sprint(got) != "[a b b a b b]" {
			t.Errorf("agents of 2 and 4 slots were chosen in the order %v", got)
		}
		for _, s := range slots {
			s.Free(false)
		}
	})
}

func TestWhoLeavesFreesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := agentsOf(1, "a")
		c.Agents[0].Depth = 1
		r := newRig(t, 1, c)
		slot := r.take(0, want("ann", "a"))
		ctx, cancel := context.WithCancel(context.Background())
		left := make(chan error)
		go func() { _, err := r.sets[0].Acquire(ctx, want("bob", "a")); left <- err }()
		synctest.Wait()
		if _, err := r.sets[0].Acquire(context.Background(), want("bob", "a")); reason(err) != "queue_full" {
			t.Errorf("%v, want queue_full", err)
		}
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who left was told %v", err)
		}
		if s := r.sets[0].States()[0]; s.Waiting != 0 || s.Held != 1 {
			t.Errorf("after it left: %+v", s)
		}
		slot.Free(false)
		r.take(0, want("cleo", "a")).Free(false)
	})
}

// TestFairAndBusy: 40 clients of two tenants, spread unevenly over the replicas, at one
// agent of four slots: it is hardly ever idle, and tenants alternate.
func TestFairAndBusy(t *testing.T) {
	for _, c := range []struct {
		replicas int
		busy     float64
	}{{1, 0.99}, {3, 0.97}, {8, 0.95}} {
		t.Run(fmt.Sprintf("N=%d", c.replicas), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fairAndBusy(t, c.replicas, c.busy) })
		})
	}
}

func fairAndBusy(t *testing.T, replicas int, least float64) {
	const slots, warm, length = 4, 2 * time.Second, 30 * time.Second
	r := newRig(t, replicas, agentsOf(slots, "a"))
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range 40 {
		tenant := []string{"ann", "bob"}[i/2%2]
		rnd := rand.New(rand.NewPCG(1, uint64(i)))
		all.Go(func() {
			for ctx.Err() == nil {
				r.run(ctx, min(i%(replicas+1), replicas-1), tenant, want(tenant, "a"), 200*time.Millisecond+time.Duration(rnd.IntN(200))*time.Millisecond)
			}
		})
	}
	time.Sleep(warm)
	r.mu.Lock()
	r.countLocked()
	r.busy, r.idle, r.starts = 0, nil, nil
	r.mu.Unlock()
	time.Sleep(length)
	r.mu.Lock()
	r.countLocked()
	lead, worst := 0, 0
	for _, s := range r.starts {
		lead += map[string]int{"ann": 1, "bob": -1}[s.tenant]
		worst = max(worst, lead, -lead)
	}
	late, busy := p99(r.idle), float64(r.busy)/float64(slots*length)
	t.Logf("peak %d, one tenant at most %d ahead, a free slot taken after %v (median), %v (p99), %v (worst), busy %.4f, %.1f calls per grant",
		r.peak["a"], worst, r.idle[len(r.idle)/2], late, r.idle[len(r.idle)-1], busy, float64(r.stores[0].calls.Load()*int64(replicas))/float64(len(r.starts)))
	if r.peak["a"] != slots || worst > 3 || late > 25*time.Millisecond || busy < least {
		t.Errorf("peak %d, one tenant %d ahead, p99 %v, busy %.4f of at least %.2f", r.peak["a"], worst, late, busy, least)
	}
	r.mu.Unlock()
	stop()
	all.Wait()
}

func TestWeightsShareSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 2, agentsOf(4, "a"))
		ctx, stop := context.WithTimeout(context.Background(), 60*time.Second)
		defer stop()
		var all sync.WaitGroup
		served := map[string]int{}
		for i := range 24 {
			tenant := []string{"heavy", "light"}[i%2]
			all.Go(func() {
				w := want(tenant, "a")
				w.Weight = map[string]float64{"heavy": 3, "light": 1}[tenant]
				for r.run(ctx, i%2, tenant, w, 200*time.Millisecond) == nil {
					r.mu.Lock()
					served[tenant]++
					r.mu.Unlock()
				}
			})
		}
		all.Wait()
		if ratio := float64(served["heavy"]) / float64(served["light"]); ratio < 2.7 || ratio > 3.3 {
			t.Errorf("weights of 3 and 1 were served %v", served)
		}
		if r.peak["a"] > 4 {
			t.Errorf("%d ran at once", r.peak["a"])
		}
	})
}

// TestManyAgents: waiters for any of several agents, some of them for all, come and go;
// nobody is granted two slots, nothing is lost, no agent is overrun.
func TestManyAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seed = 7
		c := agentsOf(3, "a", "b", "c")
		c.Agents[1].Slots = 1
		r := newRig(t, 4, c)
		rnd := rand.New(rand.NewPCG(seed, seed))
		var all sync.WaitGroup
		sets := [][]string{{"a"}, {"a", "b"}, {"b", "c"}, {"a", "b", "c"}, {"c"}}
		var mu sync.Mutex
		outcomes := map[string]int{}
		for i := range 600 {
			names, tenant := sets[rnd.IntN(len(sets))], fmt.Sprint(rnd.IntN(5))
			at, keep, patience := time.Duration(rnd.IntN(20000))*time.Millisecond, time.Duration(rnd.IntN(300))*time.Millisecond, time.Duration(rnd.IntN(5000))*time.Millisecond
			shed, replica := rnd.IntN(4) == 0, rnd.IntN(4)
			all.Go(func() {
				time.Sleep(at)
				ctx, cancel := context.WithTimeout(context.Background(), patience+keep)
				defer cancel()
				w := want(tenant, names...)
				w.Queue = !shed
				err := r.run(ctx, replica, tenant, w, keep)
				mu.Lock()
				defer mu.Unlock()
				outcomes[reason(err)]++
				_ = i
			})
		}
		all.Wait()
		t.Log(outcomes, r.peak)
		if r.peak["a"] > 3 || r.peak["b"] > 1 || r.peak["c"] > 3 {
			t.Errorf("seed %d: peaks %v", seed, r.peak)
		}
		if outcomes["<nil>"] < 300 || outcomes["capacity_exceeded"] == 0 {
			t.Errorf("seed %d: %v", seed, outcomes)
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, agentsOf(1, "a", "b"))
		slot := r.take(0, want("ann", "a"))
		told := make(chan error)
		go func() { _, err := r.sets[0].Acquire(context.Background(), want("bob", "a")); told <- err }()
		synctest.Wait()
		r.sets[0].Drain()
		if err := <-told; !errors.Is(err, ErrDraining) {
			t.Errorf("a waiter was told %v", err)
		}
		if _, err := r.sets[0].Acquire(context.Background(), want("bob", "a")); !errors.Is(err, ErrDraining) {
			t.Errorf("one that would have to wait was told %v", err)
		}
		r.take(0, want("bob", "b")).Free(false)
		slot.Free(false)
	})
}

func TestConfigureLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, agentsOf(1, "a", "b"))
		a, b := r.take(0, want("ann", "a")), r.take(0, want("ann", "b"))
		served := make(chan error)
		go func() { served <- r.run(context.Background(), 0, "bob", want("bob", "a"), time.Millisecond) }()
		synctest.Wait()
		r.sets[0].Configure(agentsOf(2, "a")) // one more slot, and b is gone
		if err := <-served; err != nil {
			t.Errorf("a waiter was told %v when there was one slot more", err)
		}
		r.sets[0].Configure(agentsOf(1, "a"))
		w := want("bob", "a", "b")
		w.Queue = false
		if _, err := r.sets[0].Acquire(context.Background(), w); reason(err) != "capacity_exceeded" {
			t.Errorf("%v, want capacity_exceeded: b is gone, and a is full", err)
		}
		b.Free(false)
		a.Free(false)
		time.Sleep(time.Millisecond)
		r.take(0, want("bob", "a")).Free(false)
		if n := len(r.sets[0].agents); n != 1 {
			t.Errorf("%d agents are kept, one is configured", n)
		}
	})
}

// TestGoneAgentServesItsWaiters: those who came for it before are served yet.
func TestGoneAgentServesItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, agentsOf(1, "a"))
		slot := r.take(0, want("ann", "a"))
		served := make(chan error)
		go func() { served <- r.run(context.Background(), 0, "bob", want("bob", "a"), time.Millisecond) }()
		synctest.Wait()
		r.sets[0].Configure(Config{Timeout: time.Second})
		slot.Free(false)
		if err := <-served; err != nil {
			t.Errorf("a waiter was told %v", err)
		}
	})
}

func TestStoreOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, agentsOf(1, "a"))
		r.memory.SetDown(true)
		w := want("ann", "a")
		w.Queue = false
		if _, err := r.sets[0].Acquire(context.Background(), w); !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
		served := make(chan error)
		go func() { served <- r.run(context.Background(), 0, "ann", want("ann", "a"), time.Millisecond) }()
		time.Sleep(3 * time.Second)
		calls := r.stores[0].calls.Load()
		if calls > 100 {
			t.Errorf("%d calls in 3 s of a store that is out", calls)
		}
		r.memory.SetDown(false)
		before := time.Now()
		if err := <-served; err != nil || time.Since(before) > 100*time.Millisecond {
			t.Errorf("who waited for the store got %v after %v", err, time.Since(before))
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 1, agentsOf(1, "a"))
		slot := r.take(0, want("ann", "a"))
		told := make(chan error)
		go func() { _, err := r.sets[0].Acquire(context.Background(), want("bob", "a")); told <- err }()
		synctest.Wait()
		r.sets[0].Close()
		if err := <-told; !errors.Is(err, limiter.ErrUnavailable) {
			t.Errorf("a waiter was told %v", err)
		}
		slot.Free(false)
	})
}

// halfBack is a store that answers again, but not yet who bids: that is decided here,
// for one slot.
type halfBack struct {
	limiter.Store
	mu   sync.Mutex
	held int
}

func (h *halfBack) Turns(_ context.Context, t limiter.Turns) (limiter.TurnsVerdict, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := limiter.TurnsVerdict{Local: len(t.Bids) > 0, Wait: limiter.Never, Bids: make([]limiter.BidVerdict, len(t.Bids))}
	for i := range t.Bids {
		if v.Bids[i].State, v.Wait = limiter.BidWaits, time.Millisecond; h.held == 0 {
			h.held, v.Bids[i].State = 1, limiter.BidGranted
		}
	}
	return v, nil
}

func (h *halfBack) Settle(f limiter.Settlement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held -= len(f.Free)
}

// TestHalfBackChangesNoOrder: while calls for nobody reach the store again, and those
// with bids are still decided here, tenants take turns as before.
func TestHalfBackChangesNoOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := New(Options{Store: &halfBack{}})
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		set.Configure(agentsOf(1, "a"))
		ctx, stop := context.WithCancel(context.Background())
		var all sync.WaitGroup
		var mu sync.Mutex
		served := map[string]int{}
		for i := range 16 {
			tenant := fmt.Sprint("u", i%4)
			all.Go(func() {
				for ctx.Err() == nil {
					slot, err := set.Acquire(ctx, want(tenant, "a"))
					if err != nil {
						return
					}
					mu.Lock()
					served[tenant]++
					mu.Unlock()
					time.Sleep(50 * time.Millisecond)
					slot.Free(false)
				}
			})
		}
		time.Sleep(4 * time.Second)
		stop()
		all.Wait()
		for i := range 4 {
			if n := served[fmt.Sprint("u", i)]; n < 10 || n > 30 {
				t.Errorf("served %v, want 20 of each or nearly", served)
				break
			}
		}
	})
}
