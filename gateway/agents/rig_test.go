package agents

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// wire is a store some way off.
type wire struct {
	limiter.Store
	delay time.Duration // of a call, there and back
	calls atomic.Int64
}

func (w *wire) Turns(ctx context.Context, t limiter.Turns) (limiter.TurnsVerdict, error) {
	time.Sleep(w.delay / 2)
	v, err := w.Store.Turns(ctx, t)
	time.Sleep(w.delay / 2)
	w.calls.Add(1)
	return v, err
}

// rig is a fleet whose replicas share a store in memory, and the judge of what runs.
type rig struct {
	t      *testing.T
	memory *memstore.Memory
	stores []*wire
	sets   []*Set
	probes map[string]error // what probes find; guarded by mu
	probed map[string]int

	mu      sync.Mutex
	running map[string]int
	peak    map[string]int
	starts  []start
	freed   []time.Time // slots that came free and that nobody has had since
	idle    []time.Duration
	busy    time.Duration // slots' time in use
	since   time.Time
}

// start is one request that got a slot.
type start struct {
	agent, tenant string
	at            time.Time
}

// newRig starts n replicas. It has to be called, and the test has to end, in a bubble.
func newRig(t *testing.T, n int, c Config) *rig {
	t.Helper()
	r := &rig{
		t: t, memory: memstore.New(), running: map[string]int{}, peak: map[string]int{}, since: time.Now(),
		probes: map[string]error{}, probed: map[string]int{},
	}
	for range n {
		store := &wire{Store: r.memory.Replica(memstore.Options{}), delay: time.Millisecond}
		set, err := New(Options{Store: store, Probe: r.probe, Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		set.Configure(c)
		r.stores, r.sets = append(r.stores, store), append(r.sets, set)
	}
	t.Cleanup(func() {
		for i, set := range r.sets {
			synctest.Wait()
			for _, s := range set.States() {
				if s.Held != 0 || s.Waiting != 0 {
					t.Errorf("replica %d is left with %+v", i, s)
				}
			}
			set.Close()
			if err := r.stores[i].Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

func (r *rig) probe(_ context.Context, agent string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probed[agent]++
	return r.probes[agent]
}

// agentsOf are agents of equal size.
func agentsOf(slots int, names ...string) Config {
	c := Config{Timeout: 30 * time.Second}
	for _, name := range names {
		c.Agents = append(c.Agents, Agent{Name: name, Slots: slots, Depth: 64})
	}
	return c
}

// want is a request of a tenant that may wait for any of some agents.
func want(tenant string, names ...string) Want {
	return Want{Agents: names, Tenant: limiter.Hash(limiter.User, tenant), Weight: 1, Queue: true}
}

// take acquires a slot at once, or fails the test.
func (r *rig) take(replica int, w Want) *Slot {
	r.t.Helper()
	before := time.Now()
	s, err := r.sets[replica].Acquire(context.Background(), w)
	if err != nil {
		r.t.Fatal(err)
	}
	if d := time.Since(before); d > 10*time.Millisecond {
		r.t.Fatalf("a slot was granted after %v, at once was expected", d)
	}
	return s
}

// began and ended are what the judge sees of a request.
func (r *rig) began(agent, tenant string, waiting bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countLocked()
	r.running[agent]++
	r.peak[agent] = max(r.peak[agent], r.running[agent])
	r.starts = append(r.starts, start{agent, tenant, time.Now()})
	if len(r.freed) > 0 {
		if waiting {
			r.idle = append(r.idle, time.Since(r.freed[0]))
		}
		r.freed = r.freed[1:]
	}
}

func (r *rig) ended(agent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.countLocked()
	r.running[agent]--
	r.freed = append(r.freed, time.Now())
}

func (r *rig) countLocked() {
	for _, n := range r.running {
		r.busy += time.Duration(n) * time.Since(r.since)
	}
	r.since = time.Now()
}

// run has a request run for a while once it has its slot; it returns the error it got
// instead.
func (r *rig) run(ctx context.Context, replica int, tenant string, w Want, d time.Duration) error {
	s, err := r.sets[replica].Acquire(ctx, w)
	if err != nil {
		return err
	}
	r.began(s.Agent(), tenant, s.Waited() > 10*time.Millisecond)
	time.Sleep(d)
	r.ended(s.Agent())
	s.Free(false)
	return nil
}

// reason is that of an error that says so.
func reason(err error) string {
	var sat *Saturated
	if errors.As(err, &sat) {
		return string(sat.Reason)
	}
	return fmt.Sprint(err)
}

// p99 is what 99 of 100 stay within.
func p99(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)*99/100]
}
