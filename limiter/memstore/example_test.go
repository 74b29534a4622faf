package memstore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// Two replicas of one process share a user's limit of two requests an hour and
// one request at a time.
func Example() {
	server := memstore.New()
	one, two := server.Replica(memstore.Options{}), server.Replica(memstore.Options{})
	user := limiter.Hash(limiter.User, "ada")
	take := limiter.Take{
		Charges: []limiter.Charge{{
			Bucket: limiter.BucketID{Dimension: limiter.User, Class: limiter.Requests, ID: user},
			Rate:   limiter.Rate{Limit: 2, Per: time.Hour, Burst: 2},
			Cost:   1,
		}},
		Slots: []limiter.Slot{{Slot: limiter.SlotID{Dimension: limiter.User, ID: user}, Cap: 1}},
	}
	ask := func(s *memstore.Store) {
		v, err := s.Admit(context.Background(), take)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("ok %v, %d left, slot full %v, wait %v\n",
			v.OK, v.Charges[0].Remaining, v.Full[0], v.Charges[0].Wait.Round(time.Minute))
	}
	ask(one)
	ask(two) // one at a time
	one.Settle(limiter.Settlement{Free: []limiter.SlotID{take.Slots[0].Slot}})
	ask(two)
	two.Settle(limiter.Settlement{Free: []limiter.SlotID{take.Slots[0].Slot}})
	ask(one) // two an hour
	// Output:
	// ok true, 1 left, slot full false, wait 0s
	// ok false, 1 left, slot full true, wait 0s
	// ok true, 0 left, slot full false, wait 0s
	// ok false, 0 left, slot full false, wait 30m0s
}
