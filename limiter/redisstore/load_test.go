package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// plenty of requests that hardly come back: what is missing was taken.
const plenty = 1_000_000

// normalWithin is how long after a promotion calls may still fail: 3 s, and what a
// machine adds that stands still for longer than a budget, which fails some more.
const normalWithin = 6 * time.Second

// tenant is a caller's account: what it was told, to be compared with Redis.
type tenant struct {
	name string
	take limiter.Take

	heard   atomic.Int64 // grants
	unsure  atomic.Int64 // failed calls that may have run
	failed  atomic.Int64 // all failed calls
	slow    atomic.Int64 // failed calls that took a quarter of the budget or more
	lastBad atomic.Int64 // Unix ns of the last failure
}

// newTenant takes one request of its own and, if shared, one of everybody's, and
// holds a slot while it runs.
func newTenant(home limiter.ID, shared bool) *tenant {
	rate := limiter.Rate{Limit: 1, Per: 100 * time.Hour, Burst: plenty}
	own := limiter.BucketID{Dimension: limiter.Team, ID: home, Home: home}
	t := &tenant{name: string(home), take: limiter.Take{
		Charges: []limiter.Charge{{Bucket: own, Rate: rate, Cost: 1}},
		Slots:   []limiter.Slot{{Slot: limiter.SlotID{Dimension: limiter.Team, ID: home, Home: home}, Cap: 1000}},
	}}
	if shared {
		all := limiter.BucketID{Dimension: limiter.Model, ID: limiter.Hash(limiter.Model, "m")}
		t.take.Charges = append(t.take.Charges, limiter.Charge{Bucket: all, Rate: rate, Cost: 1})
	}
	return t
}

// call asks once and notes what came of it.
func (n *tenant) call(t *testing.T, s *redisstore.Store, budget time.Duration) {
	start := time.Now()
	v, err := s.Admit(context.Background(), n.take)
	switch {
	case err == nil && v.OK:
		n.heard.Add(1)
		s.Settle(limiter.Settlement{Free: []limiter.SlotID{n.take.Slots[0].Slot}})
		return
	case err == nil:
		t.Errorf("%s: refused: %+v", n.name, v)
		return
	case !errors.Is(err, limiter.ErrUnavailable):
		t.Errorf("%s: %v", n.name, err)
	case strings.Contains(err.Error(), "CROSSSLOT"), strings.Contains(err.Error(), "panic"):
		t.Errorf("%s: %v", n.name, err)
	}
	n.failed.Add(1)
	if strings.Contains(err.Error(), "(after ") { // it was tried; an open breaker has no time
		n.unsure.Add(1)
	}
	if time.Since(start) >= budget/4 {
		n.slow.Add(1)
	}
	n.lastBad.Store(time.Now().UnixNano())
}

// load keeps several callers of each tenant asking until stop, at most most times
// in all.
type load struct {
	stop func()
	wg   sync.WaitGroup
	left atomic.Int64
}

func startLoad(t *testing.T, s *redisstore.Store, budget time.Duration, tenants ...*tenant) *load {
	const callers, most = 3, 60_000
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{}
	l.left.Store(most)
	l.stop = sync.OnceFunc(func() { cancel(); l.wg.Wait() })
	t.Cleanup(l.stop)
	for _, n := range tenants {
		for range callers {
			l.wg.Go(func() {
				for ctx.Err() == nil && l.left.Add(-1) > 0 {
					n.call(t, s, budget)
					<-time.After(4 * time.Millisecond)
				}
			})
		}
	}
	return l
}

// awaitGrants waits until every tenant has heard n more grants.
func awaitGrants(t *testing.T, n int64, tenants ...*tenant) {
	t.Helper()
	for _, ten := range tenants {
		before := ten.heard.Load()
		storetest.Eventually(t, 30*time.Second, fmt.Sprintf("%s is granted %d more", ten.name, n), func() bool {
			return ten.heard.Load() >= before+n
		})
	}
}

// awaitNormal waits until no call of n has failed for a second, and returns how
// long after an instant the last one did.
func awaitNormal(t *testing.T, since time.Time, n *tenant) time.Duration {
	t.Helper()
	awaitGrants(t, 20, n)
	storetest.Eventually(t, 30*time.Second, n.name+" is normal again", func() bool {
		return time.Now().UnixNano()-max(n.lastBad.Load(), since.UnixNano()) > int64(time.Second)
	})
	return max(0, time.Unix(0, n.lastBad.Load()).Sub(since))
}

// judge compares a tenant's account with Redis: its own bucket, and that no slot
// is left. atRisk is how many grants a failover may have lost at most.
func (n *tenant) judge(t *testing.T, s *redisstore.Store, atRisk int64) (taken, lost int64) {
	t.Helper()
	one := n.take
	one.Slots = []limiter.Slot{{Slot: n.take.Slots[0].Slot, Cap: 1}}
	var v limiter.Verdict
	storetest.Eventually(t, 10*time.Second, n.name+" holds no slot", func() bool {
		var err error
		v, err = s.Peek(context.Background(), one)
		return err == nil && !v.Full[0]
	})
	taken = plenty - v.Charges[0].Remaining
	heard, unsure := n.heard.Load(), n.unsure.Load()
	lost = max(0, heard-taken)
	if taken > heard+unsure {
		t.Errorf("%s: %d taken, %d heard and %d unsure: charged twice", n.name, taken, heard, unsure)
	}
	if lost > atRisk {
		t.Errorf("%s: %d taken of %d heard: %d lost, at most %d were not yet replicated", n.name, taken, heard, lost, atRisk)
	}
	t.Logf("%.8s: %d heard, %d taken, %d lost; %d failed, %d of them slow, %d unsure",
		n.name, heard, taken, lost, n.failed.Load(), n.slow.Load(), unsure)
	return taken, lost
}
