package storetest

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// Same runs one random tape of n operations on two fleets of equal lease time
// and wants equal verdicts. Both must see the same clock, so it belongs into a
// bubble; settled waits until all that Settle began has arrived.
func Same(t *testing.T, want, got Fleet, settled func(), n int) {
	rnd := Seeded(t)
	type pair struct{ want, got Store }
	type grant struct {
		pair int
		take limiter.Take
	}
	var pairs []pair
	for range 3 {
		pairs = append(pairs, pair{want.Replica(), got.Replica()})
	}
	var grants []grant
	for i := range n {
		p := rnd.IntN(len(pairs))
		w, g := pairs[p].want, pairs[p].got
		switch op := rnd.IntN(10); {
		case op < 6:
			k := limiter.Take{Slots: []limiter.Slot{slotOf(fmt.Sprint(rnd.IntN(3)), 4)}}
			for d := range limiter.Dimensions[:1+rnd.IntN(4)] {
				r := limiter.Rate{Limit: int64(10 * (d + 1)), Per: time.Second, Burst: 20}
				k.Charges = append(k.Charges, charge(limiter.Dimensions[d], fmt.Sprint(rnd.IntN(2)), r, rnd.Int64N(6)))
			}
			vw, vg := admit(t, w, k), admit(t, g, k)
			if !reflect.DeepEqual(vw, vg) {
				t.Fatalf("step %d: admit %+v\nwant %+v\ngot  %+v", i, k, vw, vg)
			}
			if vw.OK {
				grants = append(grants, grant{p, k})
			}
		case op < 9 && len(grants) > 0:
			j := rnd.IntN(len(grants))
			f := limiter.Settlement{Free: []limiter.SlotID{grants[j].take.Slots[0].Slot}}
			for _, c := range grants[j].take.Charges {
				f.Adjust = append(f.Adjust, limiter.Adjustment{Bucket: c.Bucket, Rate: c.Rate, Delta: rnd.Int64N(9) - 5})
			}
			pairs[grants[j].pair].want.Settle(f)
			pairs[grants[j].pair].got.Settle(f)
			settled()
			grants = append(grants[:j], grants[j+1:]...)
		default:
			<-time.After(time.Duration(rnd.Int64N(int64(200 * time.Millisecond))))
		}
	}
	for _, p := range pairs {
		if err := p.got.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
