package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
)

// A store is opened once per process. It needs no Redis to open, only to decide.
func Example() {
	server, err := miniredis.Run() // stands for a Redis at an address of yours
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := redisstore.New(redisstore.Options{Address: server.Addr(), Timeout: time.Second, Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	take := limiter.Take{Charges: []limiter.Charge{{
		Bucket: limiter.BucketID{Dimension: limiter.Team, Class: limiter.Requests, ID: limiter.Hash(limiter.Team, "acme")},
		Rate:   limiter.Rate{Limit: 100, Per: time.Hour, Burst: 100},
		Cost:   30,
	}}}
	v, err := store.Admit(context.Background(), take)
	fmt.Println(v.OK, v.Charges[0].Remaining, err)

	server.Close()
	_, err = store.Admit(context.Background(), take)
	fmt.Println("unavailable:", errors.Is(err, limiter.ErrUnavailable))

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	fmt.Println("told everything:", store.Close(ctx) == nil) // what is left unsaid expires
	// Output:
	// true 70 <nil>
	// unavailable: true
	// told everything: false
}
