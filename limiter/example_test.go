package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// One request a minute for each user. The second is refused, and told why.
func Example() {
	// One process alone; package redisstore is the store of many.
	store := memstore.New().Replica(memstore.Options{})
	l, err := limiter.New(limiter.Config{
		Limits: map[limiter.Dimension]limiter.Limit{
			limiter.User: {Rule: limiter.Rule{Requests: &limiter.Rate{Limit: 1, Per: time.Minute, Burst: 1}}},
		},
	}, store, nil) // nil: no other replicas to hear of
	if err != nil {
		panic(err)
	}
	defer l.Close()
	request := limiter.Request{Identities: limiter.Identities{User: limiter.Hash(limiter.User, "ada")}}
	for range 2 {
		grant, err := l.Admit(context.Background(), request)
		var refusal *limiter.Refusal
		if errors.As(err, &refusal) {
			fmt.Println("refused:", refusal.Reason, "of", refusal.LimitType())
			continue
		}
		if err != nil {
			panic(err) // the store is out, or ctx has ended
		}
		fmt.Println("granted")
		grant.Done(limiter.Outcome{})
	}
	// Output:
	// granted
	// refused: requests of user
}
