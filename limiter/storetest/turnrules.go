package storetest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// queue asks for turns of 1 at a bucket, and insists on an answer.
func queue(t *testing.T, s limiter.Store, c limiter.Charge, bids ...limiter.Bid) limiter.TurnsVerdict {
	t.Helper()
	v, err := s.Turns(context.Background(), limiter.Turns{
		Pool: c.Bucket, Rate: c.Rate, Bids: bids, Most: 8, Rest: 10 * time.Millisecond, Grace: time.Minute,
	})
	if err != nil {
		t.Fatalf("turns: %v", err)
	}
	return v
}

func waiter(who string, weight float64) limiter.Bid {
	return limiter.Bid{Tenant: limiter.Hash(limiter.User, who), Weight: weight, Cost: 1, Since: limiter.Unknown}
}

func granted(v limiter.TurnsVerdict) (list []bool) {
	for _, b := range v.Bids {
		list = append(list, b.State == limiter.BidGranted)
	}
	return list
}

// turnsByWeight: of what is there, tenants get in proportion to their weights,
// whichever replica they ask at, and a replica alone is told so.
func turnsByWeight(t *testing.T, f Fleet) {
	a, b := f.Replica(), f.Replica()
	c := charge(limiter.Model, "m", hourly(4), 1)
	heavy, light := waiter("heavy", 3), waiter("light", 1)
	if got := granted(queue(t, a, c, heavy, heavy)); !slices.Equal(got, []bool{true, true}) {
		t.Fatalf("alone at a full bucket: granted %v", got)
	}
	v := queue(t, b, c, light, light, heavy)
	if got := granted(v); !slices.Equal(got, []bool{true, false, true}) || v.Wait < 14*time.Minute || v.Wait > 15*time.Minute {
		t.Fatalf("two left, 3 : 1 so far 2 : 0: got %+v", v)
	}
	if v := queue(t, a, c, heavy); v.Bids[0].State != limiter.BidWaits || v.Bucket > 15*time.Minute {
		t.Fatalf("empty: got %+v", v)
	}
}

// newcomersJoin: who has not waited may not overtake those who have, until they
// are gone.
func newcomersJoin(t *testing.T, f Fleet) {
	a, b := f.Replica(), f.Replica()
	c := charge(limiter.Model, "m", hourly(4), 1)
	k := limiter.Take{Charges: []limiter.Charge{charge(limiter.User, "u", hourly(9), 1), c}}
	k.Charges[1].InTurn = true
	if v := admit(t, b, k); !v.OK || v.Charges[1].Contended {
		t.Fatalf("nobody waits: got %+v", v)
	}
	all := waiter("all", 1)
	all.Cost = 4
	queue(t, a, c, all) // 3 are there
	v := admit(t, b, k)
	if v.OK || !v.Charges[1].Contended || v.Charges[0].Contended || v.Charges[1].Remaining != 3 || v.Charges[0].Remaining != 8 {
		t.Fatalf("somebody waits: got %+v, want refused as contended, and nothing taken", v)
	}
	queue(t, a, c)
	if v := admit(t, b, k); !v.OK || v.Charges[1].Contended {
		t.Fatalf("after it left: got %+v", v)
	}
}

// turnsGivenBack: a settled turn corrects bucket and tag.
func turnsGivenBack(t *testing.T, f Fleet) {
	s := f.Replica()
	c := charge(limiter.Model, "m", hourly(9), 1)
	bid := waiter("x", 2)
	bid.Cost = 6
	if v := queue(t, s, c, bid); v.Bids[0].Finish != 3 {
		t.Fatalf("6 at weight 2: got %+v, want the tag 3", v)
	}
	s.Settle(limiter.Settlement{Adjust: []limiter.Adjustment{
		{Bucket: c.Bucket, Rate: c.Rate, Delta: 2, Tenant: bid.Tenant, Weight: bid.Weight},
	}})
	bid.Cost = 9
	Eventually(t, 5*time.Second, "bucket and tag are corrected", func() bool {
		v := queue(t, s, c, bid)
		return v.Bids[0].State == limiter.BidWaits && v.Bids[0].Finish == 2 &&
			peek(t, s, limiter.Take{Charges: []limiter.Charge{c}}).Charges[0].Remaining == 5
	})
}

// queueSlots bids for slots of a pool of n, which are held for a second each.
func queueSlots(t *testing.T, s limiter.Store, n int, bids ...limiter.Bid) limiter.TurnsVerdict {
	t.Helper()
	v, err := s.Turns(context.Background(), limiter.Turns{
		Slots: slotOf("agent", n).Slot, Rate: limiter.Rate{Limit: int64(n), Per: time.Second, Burst: int64(n)},
		Bids: bids, Most: 8, Grace: time.Minute,
	})
	if err != nil {
		t.Fatalf("turns: %v", err)
	}
	return v
}

// slotsInTurn: a slot that comes free anywhere goes to whose turn it is, though
// the one who freed it asks first, and waits are short.
func slotsInTurn(t *testing.T, f Fleet) {
	a, b := f.Replica(), f.Replica()
	free := limiter.Settlement{Free: []limiter.SlotID{slotOf("agent", 3).Slot}}
	x, y := waiter("x", 1), waiter("y", 1)
	if got := granted(queueSlots(t, a, 3, x, x, x)); !slices.Equal(got, []bool{true, true, true}) {
		t.Fatalf("alone at three free slots: granted %v", got)
	}
	v := queueSlots(t, b, 3, y)
	if v.Bids[0].State != limiter.BidWaits || v.Wait <= 0 || v.Wait > 40*time.Millisecond {
		t.Fatalf("all held: got %+v, want to wait for at most 40 ms", v)
	}
	a.Settle(free)
	if v := queueSlots(t, a, 3, x); v.Bids[0].State != limiter.BidWaits || v.Wait == 0 {
		t.Fatalf("it freed a slot that another waits for: got %+v", v)
	}
	Eventually(t, 5*time.Second, "the one whose turn it is has the slot", func() bool {
		return queueSlots(t, b, 3, y).Bids[0].State == limiter.BidGranted
	})
	if v := peek(t, b, limiter.Take{Slots: []limiter.Slot{slotOf("agent", 3)}}); !v.Full[0] {
		t.Fatal("three of three are held, and there is room")
	}
	queueSlots(t, b, 3) // nobody waits there any more
	a.Settle(free)
	Eventually(t, 5*time.Second, "its own slot, as nobody is before it", func() bool {
		return queueSlots(t, a, 3, x).Bids[0].State == limiter.BidGranted
	})
}

// slotsAfterCrash: slots that were given in turn are free when their replica is
// dead for the ttl, and its claim delays nobody for longer.
func slotsAfterCrash(t *testing.T, f Fleet) {
	a, b := f.Replica(), f.Replica()
	x, y := waiter("x", 1), waiter("y", 1)
	queueSlots(t, a, 2, x, x)
	if v := queueSlots(t, b, 2, y); v.Bids[0].State != limiter.BidWaits {
		t.Fatalf("all held: got %+v", v)
	}
	f.Crash(a)
	Eventually(t, f.LeaseTTL+healed, "its slots are free", func() bool {
		return queueSlots(t, b, 2, y).Bids[0].State == limiter.BidGranted
	})
	if v := queueSlots(t, b, 2, y, y); !slices.Equal(granted(v), []bool{true, false}) {
		t.Fatalf("one of two is left: granted %v", granted(v))
	}
}
