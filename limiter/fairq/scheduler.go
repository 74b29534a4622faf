package fairq

import (
	"fmt"
	"math"
)

// Discipline names an order between tenants.
type Discipline string

const (
	// SWRR is smooth weighted round robin: by turns, whatever they cost.
	SWRR Discipline = "swrr"
	// DRR is deficit round robin: by cost, in laps.
	DRR Discipline = "drr"
	// SFQ is start-time fair queueing: by cost, in virtual time.
	SFQ Discipline = "sfq"
)

// Config chooses what a queue is fair by. The zero Config is SWRR.
type Config struct {
	Discipline Discipline // empty: SWRR
	// Quantum is, under DRR, the cost that a tenant of weight 1 may use per
	// lap; 0 means 1. It does not change shares. A larger one lets each tenant
	// serve more in a row, a smaller one takes no more work: laps in which
	// nobody can be served are skipped by arithmetic. The others ignore it.
	Quantum float64
}

// Validate reports what New would panic on.
func (c Config) Validate() error {
	switch c.Discipline {
	case "", SWRR, DRR, SFQ:
	default:
		return fmt.Errorf("fairq: discipline %q is not swrr, drr or sfq", c.Discipline)
	}
	if !(c.Quantum >= 0) || math.IsInf(c.Quantum, 1) {
		return fmt.Errorf("fairq: quantum %v is not finite and at least 0", c.Quantum)
	}
	return nil
}

// scheduler is a discipline: it keeps the round, which is the tenants that may
// be served now, and knows whose turn it is. The queue keeps everything else:
// items, the table of tenants and those that rest.
type scheduler[T any] interface {
	membership[T]
	turns[T]
	// ahead estimates the items served before it, which is queued.
	ahead(it *Item[T]) int
	// describe is a tenant's standing for people.
	describe(t *tenant[T]) string
	// order lists the tenants of the round in about the order of their turns.
	order() []*tenant[T]
}

// membership is who is in the round.
type membership[T any] interface {
	// enter brings t, who is outside, into the round behind its equals, with
	// the debt it left with but no credit. Without items t only comes in to be
	// remembered while it is in debt; false means that there is no need.
	enter(t *tenant[T]) bool
	// leave takes t out of the round.
	leave(t *tenant[T])
	// resized notes that t, in the round, got or lost an item without a turn;
	// it had from items before, and has some now.
	resized(t *tenant[T], from int)
	// reweigh changes the weight of t, in the round or not.
	reweigh(t *tenant[T], weight float64)
	// clear forgets everybody remembered; nobody has items.
	clear()
}

// turns is who is served, and what it pays.
type turns[T any] interface {
	// peek returns the tenant that take would serve.
	peek() *tenant[T]
	// take unlinks the head item of the tenant whose turn it is, charges it and
	// notes in it.taken how to undo that. Somebody in the round has items. A
	// tenant that is empty now is outside unless it must be remembered.
	take() (*Item[T], *tenant[T])
	// undo gives back the turn of an item that stands in t's list again. If t
	// is outside it comes into the round.
	undo(t *tenant[T], it *Item[T])
	// correct charges t more for what it was served, or less if delta < 0.
	correct(t *tenant[T], delta float64)
}

func newScheduler[T any](c Config, tb *table[T]) scheduler[T] {
	if err := c.Validate(); err != nil {
		panic(err)
	}
	switch c.Discipline {
	case DRR:
		q := c.Quantum
		if q == 0 {
			q = 1
		}
		return &drr[T]{agenda: agenda[T]{table: tb}, quantum: q}
	case SFQ:
		return &sfq[T]{agenda: agenda[T]{table: tb}}
	}
	return &swrr[T]{table: tb, classes: map[float64]*class[T]{}}
}
