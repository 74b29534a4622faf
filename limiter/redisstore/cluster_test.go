package redisstore_test

import (
	"context"
	"testing"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// homed gives every tenant's bucket and slot a home of its own, so that whatever
// a test takes together is taken in as many calls.
type homed struct{ storetest.Store }

func homeOf(d limiter.Dimension, id limiter.ID) limiter.ID {
	if d.Tenant() {
		return id
	}
	return ""
}

func homedTake(t limiter.Take) (out limiter.Take) {
	for _, ch := range t.Charges {
		ch.Bucket.Home = homeOf(ch.Bucket.Dimension, ch.Bucket.ID)
		out.Charges = append(out.Charges, ch)
	}
	for _, sl := range t.Slots {
		sl.Slot.Home = homeOf(sl.Slot.Dimension, sl.Slot.ID)
		out.Slots = append(out.Slots, sl)
	}
	return out
}

func (h homed) Admit(ctx context.Context, t limiter.Take) (limiter.Verdict, error) {
	return h.Store.Admit(ctx, homedTake(t))
}

func (h homed) Peek(ctx context.Context, t limiter.Take) (limiter.Verdict, error) {
	return h.Store.Peek(ctx, homedTake(t))
}

func (h homed) Settle(s limiter.Settlement) {
	var out limiter.Settlement
	for _, a := range s.Adjust {
		a.Bucket.Home = homeOf(a.Bucket.Dimension, a.Bucket.ID)
		out.Adjust = append(out.Adjust, a)
	}
	for _, id := range s.Free {
		id.Home = homeOf(id.Dimension, id.ID)
		out.Free = append(out.Free, id)
	}
	h.Store.Settle(out)
}

func (h homed) Turns(ctx context.Context, t limiter.Turns) (limiter.TurnsVerdict, error) {
	t.Pool.Home = homeOf(t.Pool.Dimension, t.Pool.ID)
	t.Slots.Home = homeOf(t.Slots.Dimension, t.Slots.ID)
	bids := make([]limiter.Bid, len(t.Bids))
	for i, b := range t.Bids {
		b.Rest = homedTake(b.Rest)
		bids[i] = b
	}
	t.Bids = bids
	return h.Store.Turns(ctx, t)
}

// clusterFleet is a fleet on c, emptied, whose replicas can be cut off.
func clusterFleet(t *testing.T, c *redisproc.Cluster, layout redisstore.Layout) storetest.Fleet {
	c.Flush()
	cables := map[storetest.Store]*cable{}
	return storetest.Fleet{
		Replica: func() storetest.Store {
			cut := &cable{}
			store := newStore(t, redisstore.Options{
				Mode: redisstore.ModeCluster, Addresses: c.Addrs()[:2], Layout: layout,
				Timeout: patient, LeaseTTL: contractTTL, DialCtxFn: cut.dial,
			})
			storetest.Eventually(t, patient, "usable", usable(store))
			var s storetest.Store = store
			if layout == redisstore.LayoutTenant {
				s = homed{s}
			}
			cables[s] = cut
			return s
		},
		Crash:    func(s storetest.Store) { cables[s].Cut() },
		LeaseTTL: contractTTL,
		Rounds:   40,
	}
}

// TestContractOnCluster: all rules hold on a cluster, whatever the layout. In
// layout tenant every bucket of a test lives in another slot than the next.
func TestContractOnCluster(t *testing.T) {
	c := redisproc.StartCluster(t)
	for _, layout := range []redisstore.Layout{redisstore.LayoutSingle, redisstore.LayoutTenant} {
		t.Run(string(layout), func(t *testing.T) {
			storetest.Contract(t, func(t *testing.T) storetest.Fleet { return clusterFleet(t, c, layout) })
		})
	}
}
