package fairq_test

import (
	"fmt"
	"time"

	"github.com/headway-limiter/headway/limiter/fairq"
)

// An importer has queued five requests when two people ask for something. Each
// waits for one turn of the importer, not for its queue.
func Example() {
	now := time.Now()
	q := fairq.New[string](fairq.Config{})
	push := func(tenant, what string) {
		q.Push(now, &fairq.Item[string]{Value: what}, tenant, 1, 1)
	}
	for i := range 5 {
		push("importer", fmt.Sprint("batch ", i+1))
	}
	push("ann", "a question")
	push("bob", "another one")

	for it := q.Next(now); it != nil; it = q.Next(now) {
		fmt.Println(it.Value)
	}
	// Output:
	// batch 1
	// a question
	// another one
	// batch 2
	// batch 3
	// batch 4
	// batch 5
}

// A turn that the limiter then denies is given back: the waiter keeps its
// place, and its tenant is not asked again before it can succeed.
func ExampleQueue_Requeue() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	q := fairq.New[string](fairq.Config{})
	q.Push(now, &fairq.Item[string]{Value: "first of ann"}, "ann", 1, 1)
	q.Push(now, &fairq.Item[string]{Value: "second of ann"}, "ann", 1, 1)

	denied := q.Next(now)
	q.Requeue(now, denied, now.Add(2*time.Second))

	at, _ := q.Ready(now)
	fmt.Println("again in", at.Sub(now))
	fmt.Println(q.Next(at).Value)
	// Output:
	// again in 2s
	// first of ann
}

// By cost: one tenant sends small requests, the other large ones. They get equal
// numbers of tokens.
func ExampleConfig() {
	now := time.Now()
	q := fairq.New[string](fairq.Config{Discipline: fairq.SFQ})
	for range 5 {
		q.Push(now, &fairq.Item[string]{Value: "large"}, "a", 1, 3000)
	}
	for range 15 {
		q.Push(now, &fairq.Item[string]{Value: "small"}, "b", 1, 1000)
	}
	for range 8 {
		fmt.Print(q.Next(now).Value, " ")
	}
	fmt.Println()
	// Output:
	// large small small small large small small small
}

// A request was thought to cost 100 and did cost 300: its tenant owes two turns.
func ExampleQueue_Correct() {
	now := time.Now()
	q := fairq.New[string](fairq.Config{Discipline: fairq.DRR, Quantum: 100})
	for i := range 5 {
		q.Push(now, &fairq.Item[string]{Value: fmt.Sprint("a", i+1)}, "a", 1, 100)
		q.Push(now, &fairq.Item[string]{Value: fmt.Sprint("b", i+1)}, "b", 1, 100)
	}
	q.Correct(q.Next(now), 300)
	for it := q.Next(now); it != nil; it = q.Next(now) {
		fmt.Print(it.Value, " ")
	}
	fmt.Println()
	// Output:
	// b1 b2 b3 a2 b4 a3 b5 a4 a5
}

// A replica bids for its waiters, is told the tags that the fleet keeps, and bids
// next for the tenant that got least anywhere.
func ExampleTagged() {
	q := fairq.NewTagged[string]()
	for _, tenant := range []string{"ann", "bob"} {
		q.Push(&fairq.TagItem[string]{Value: "a question of " + tenant}, tenant, 1, 1)
	}
	// The fleet has served ann ten turns, and bob four, since time 3.
	q.Learn("ann", 10, 3)
	q.Learn("bob", 4, 3)
	for _, it := range q.Best(time.Now(), 2, nil) {
		fmt.Println(it.Value)
	}
	// Output:
	// a question of bob
	// a question of ann
}
