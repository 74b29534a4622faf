package localshare_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// turnsAt is a call for turns at a pool of 40 a minute, of which a replica of two
// has half.
func turnsAt(most int, bids ...limiter.Bid) limiter.Turns {
	rate := limiter.Rate{Limit: 40, Per: time.Minute, Burst: 8}
	return limiter.Turns{Pool: limiter.BucketID{Dimension: limiter.Model, ID: limiter.Hash(limiter.Model, "m")}, Rate: rate, Most: most, Bids: bids}
}

func bid(tenant string, rest ...limiter.Charge) limiter.Bid {
	return limiter.Bid{Tenant: limiter.Hash(limiter.User, tenant), Weight: 1, Cost: 1, Since: limiter.Unknown, Rest: limiter.Take{Charges: rest}}
}

// without is a replica of two that has its share, and whose store is gone.
func without(t *testing.T, policy func(limiter.Dimension) limiter.OutagePolicy) wrapped {
	m := memstore.New()
	w := wrap(t, m.Replica(memstore.Options{}), 2)
	w.SetPolicy(policy)
	time.Sleep(10 * time.Second)
	m.SetDown(true)
	return w
}

// Turns are given in the order of the bids, as far as the share goes; one that
// its own limits block delays nobody.
func TestTurnsByShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := without(t, shares)
		own := limiter.Charge{Bucket: bucketOf("b"), Rate: limiter.Rate{Limit: 2, Per: time.Hour, Burst: 2}, Cost: 1}
		v, err := w.Turns(t.Context(), turnsAt(3, bid("a"), bid("b", own), bid("b", own), bid("c"), bid("d"), bid("e")))
		if err != nil || !v.Local {
			t.Fatalf("got %+v, %v; want turns by the share", v, err)
		}
		want := []limiter.BidState{limiter.BidGranted, limiter.BidGranted, limiter.BidBlocked, limiter.BidGranted, limiter.BidWaits, limiter.BidWaits}
		for i, b := range v.Bids {
			if b.State != want[i] || b.State != limiter.BidWaits && !b.Rest.Local {
				t.Errorf("bid %d: %+v, want state %d", i, b, want[i])
			}
		}
		if v.Wait != 0 {
			t.Errorf("three of three granted: wait %v, want to be asked again at once", v.Wait)
		}
		// One of four is left, and another comes in 3 s.
		v, _ = w.Turns(t.Context(), turnsAt(3, bid("d"), bid("e")))
		if v.Bids[0].State != limiter.BidGranted || v.Bids[1].State != limiter.BidWaits || v.Wait != 3*time.Second || v.Bucket != v.Wait {
			t.Errorf("one left: %+v", v)
		}
		if v, _ = w.Turns(t.Context(), turnsAt(3)); v.Wait != limiter.Never {
			t.Errorf("no bid: wait %v", v.Wait)
		}
	})
}

// A bid whose own limits must not be decided without the store gets the store's
// error, and the others their turns.
func TestTurnsByPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := without(t, func(d limiter.Dimension) limiter.OutagePolicy {
			if d == limiter.Team {
				return limiter.FailClosed
			}
			return limiter.LocalShare
		})
		team := limiter.Charge{Bucket: limiter.BucketID{Dimension: limiter.Team, ID: limiter.Hash(limiter.Team, "t")}, Rate: thousand, Cost: 1}
		v, err := w.Turns(t.Context(), turnsAt(8, bid("a", team), bid("b")))
		if err != nil || !errors.Is(v.Bids[0].Err, limiter.ErrUnavailable) || v.Bids[1].State != limiter.BidGranted {
			t.Errorf("got %+v, %v", v, err)
		}
		for _, p := range []limiter.OutagePolicy{limiter.FailClosed, limiter.FailOpen} {
			w.SetPolicy(func(limiter.Dimension) limiter.OutagePolicy { return p })
			if v, err := w.Turns(t.Context(), turnsAt(8, bid("a"))); !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("%s: got %+v, %v; want the store's error", p, v, err)
			}
		}
	})
}

// Turns at slots are given up to this replica's part of the cap, counting those it
// was given before the store was gone.
func TestTurnsAtSlotsByShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memstore.New()
		w := wrap(t, m.Replica(memstore.Options{}), 2)
		w.SetPolicy(shares)
		time.Sleep(10 * time.Second)
		slots := limiter.SlotID{Dimension: limiter.User, ID: limiter.Hash(limiter.User, "agent")}
		ask := func(n int) limiter.TurnsVerdict {
			call := limiter.Turns{Slots: slots, Rate: limiter.Rate{Limit: 8, Per: time.Second, Burst: 8}, Most: 8}
			for range n {
				call.Bids = append(call.Bids, bid("a"))
			}
			v, err := w.Turns(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		granted := func(v limiter.TurnsVerdict) (n int) {
			for _, b := range v.Bids {
				if b.State == limiter.BidGranted {
					n++
				}
			}
			return n
		}
		if v := ask(2); granted(v) != 2 || v.Local {
			t.Fatalf("with the store: %+v", v)
		}
		m.SetDown(true)
		if v := ask(6); granted(v) != 2 || !v.Local || v.Wait <= 0 {
			t.Errorf("2 of a share of 4 are held: %d granted, %+v", granted(v), v)
		}
		w.Settle(limiter.Settlement{Free: []limiter.SlotID{slots}})
		if v := ask(6); granted(v) != 1 {
			t.Errorf("one came free: %d granted", granted(v))
		}
	})
}
