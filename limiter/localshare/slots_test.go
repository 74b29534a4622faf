package localshare_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/storetest"
)

func newRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

// plenty never runs dry.
var plenty = limiter.Rate{Limit: 1_000_000, Per: time.Second, Burst: 1_000_000}

// free ends one request that holds a slot of k.
func (p *replica) free(k limiter.Take, local bool) {
	p.Settle(limiter.Settlement{Free: []limiter.SlotID{k.Slots[0].Slot}, Local: local})
}

// stored is how many slots of k the store knows of.
func (r *rig) stored(k limiter.Take) int {
	for n := 1; ; n++ {
		ask := k
		ask.Slots = []limiter.Slot{{Slot: k.Slots[0].Slot, Cap: n}}
		v, err := r.replicas[0].redis.Peek(r.t.Context(), ask)
		if err != nil {
			r.t.Fatal(err)
		}
		if !v.Full[0] {
			return n - 1
		}
	}
}

// Requests that run are never cut, shares are whole slots, and all are known to
// the store when it is back, longer than any ttl later.
func TestSlotsThroughAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 4)
		k := take(plenty, 1, 9) // shares of 2
		for range 5 {
			r.replicas[0].must(t, k, false)
		}
		r.links((*storetest.Link).Cut)
		time.Sleep(time.Second)
		if r.replicas[0].decide(t, k).OK {
			t.Error("one more than a share where 5 are held")
		}
		r.replicas[1].must(t, k, true)
		r.replicas[1].must(t, k, true)
		if v := r.replicas[1].decide(t, k); v.OK || !v.Full[0] {
			t.Errorf("a third of 9 slots at a quarter of the fleet: %+v", v)
		}
		for range 4 {
			r.replicas[0].free(k, false)
		}
		r.replicas[0].must(t, k, true)
		time.Sleep(time.Minute)
		r.links((*storetest.Link).Mend)
		r.usable(true, 2*time.Second)
		time.Sleep(100 * time.Millisecond)
		if got := r.stored(k); got != 4 {
			t.Errorf("the store knows of %d slots, 4 are held", got)
		}
		time.Sleep(time.Minute)
		if got := r.stored(k); got != 4 {
			t.Errorf("a minute later the store knows of %d slots, 4 are held", got)
		}
		r.replicas[0].free(k, false)
		r.replicas[0].free(k, true)
		r.replicas[1].free(k, true)
		r.replicas[1].free(k, true)
		time.Sleep(time.Second)
		if got := r.stored(k); got != 0 {
			t.Errorf("the store knows of %d slots, none is held", got)
		}
	})
}

// No more than the cap ever run, though replicas come back one after the other
// to a store that has lost everything.
func TestCapWhileReplicasComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 5)
		const cap = 10
		k := take(plenty, 1, cap)
		var running, peak, after atomic.Int64
		r.links((*storetest.Link).Cut)
		time.Sleep(time.Second)
		end := time.Now().Add(30 * time.Second)
		for _, p := range r.replicas {
			for range 6 {
				go func() {
					for time.Now().Before(end) {
						v, err := p.Admit(t.Context(), k)
						if err == nil && v.OK {
							peak.Store(max(peak.Load(), running.Add(1)))
							if !v.Local {
								after.Add(1)
							}
							time.Sleep(3 * time.Second)
							running.Add(-1)
							p.free(k, v.Local)
						}
						time.Sleep(20 * time.Millisecond)
					}
				}()
			}
		}
		time.Sleep(15 * time.Second)
		r.server.Redis.FlushAll()
		for _, p := range r.replicas {
			p.link.Mend()
			time.Sleep(130 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		t.Logf("%d ran at once, %d granted by the store afterwards", peak.Load(), after.Load())
		if peak.Load() != cap || after.Load() < 20 {
			t.Errorf("%d ran at once, the cap is %d; %d granted by the store afterwards", peak.Load(), cap, after.Load())
		}
		if got := r.stored(k); got != 0 {
			t.Errorf("in the end the store knows of %d slots, want none", got)
		}
	})
}
