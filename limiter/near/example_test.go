package near_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
	"github.com/headway-limiter/headway/limiter/near"
)

// A hot key is refused without asking, and admitted when it was told.
func Example() {
	alone := func() int { return 1 }
	s, err := near.New(memstore.New().Replica(memstore.Options{}), alone, near.Options{DenyCache: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close(context.Background())
	hot := limiter.Take{Charges: []limiter.Charge{{
		Bucket: limiter.BucketID{Dimension: limiter.APIKey, ID: limiter.Hash(limiter.APIKey, "hot")},
		Rate:   limiter.Rate{Limit: 20, Per: time.Second, Burst: 1}, Cost: 1,
	}}}
	ask := func() time.Duration {
		v, err := s.Admit(context.Background(), hot)
		if err != nil {
			fmt.Println(err)
			return 0
		}
		fmt.Println("admitted:", v.OK)
		return v.Charges[0].Wait
	}
	ask()
	ask()               // refused by the store
	<-time.After(ask()) // refused from memory, with what is left of the wait
	ask()
	// Output:
	// admitted: true
	// admitted: false
	// admitted: false
	// admitted: true
}
