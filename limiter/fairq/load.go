package fairq

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Load is one tenant's part of a queue.
type Load struct {
	Tenant string
	Queued int     // items queued, ≥ 1
	Weight float64 // as last pushed
	// Served is the cost it was served since it last joined the queue; a tenant
	// that empties starts again from zero.
	Served float64
}

// Loads returns the n tenants with the longest queues, longest first, equal
// ones by name. It looks at every tenant: meant for a few calls a second.
func (q *Queue[T]) Loads(n int) []Load {
	all := make([]Load, 0, q.waiting)
	for _, t := range q.tenants {
		if t.length > 0 {
			all = append(all, Load{Tenant: t.name, Queued: int(t.length), Weight: t.weight, Served: t.served})
		}
	}
	return longest(all, n)
}

// Standing is a tenant's load and the first of its items.
type Standing[T any] struct {
	Load
	Head T // Value of the item that is served next of this tenant
}

// Standings returns the n tenants with the longest queues as Loads does, and who
// is first in each.
func (q *Queue[T]) Standings(n int) []Standing[T] {
	return standings(q.Loads(n), func(tenant string) T { return q.tenants[tenant].head.Value })
}

// standings adds the heads to loads.
func standings[T any](loads []Load, head func(tenant string) T) []Standing[T] {
	all := make([]Standing[T], len(loads))
	for i, l := range loads {
		all[i] = Standing[T]{l, head(l.Tenant)}
	}
	return all
}

// longest sorts all and returns the first n.
func longest(all []Load, n int) []Load {
	slices.SortFunc(all, compareLoads)
	return all[:max(0, min(n, len(all)))]
}

func compareLoads(a, b Load) int {
	return cmp.Or(cmp.Compare(b.Queued, a.Queued), cmp.Compare(a.Tenant, b.Tenant))
}

// maxDump bounds the tenants that Dump writes.
const maxDump = 200

// Dump writes the state for people: one line for the queue, then one per
// tenant, those in the round first in about the order of their turns, then
// those out of it by the instant of their return; at most 200.
func (q *Queue[T]) Dump(w io.Writer) {
	fmt.Fprintf(w, "queued=%d tenants=%d parked=%d", q.length, q.waiting, len(q.parked))
	if !q.hold.IsZero() {
		fmt.Fprintf(w, " hold=%s", q.hold.Format(dumpTime))
	}
	fmt.Fprintln(w)
	all := append(q.sched.order(), q.returning()...)
	for _, t := range all[:min(len(all), maxDump)] {
		fmt.Fprintf(w, "  %s weight=%g queued=%d served=%g %s", t.name, t.weight, t.length, t.served, q.sched.describe(t))
		if t.where == parked {
			fmt.Fprintf(w, " parked=%s", t.notBefore.Format(dumpTime))
		}
		fmt.Fprintln(w)
	}
	if rest := len(all) - maxDump; rest > 0 {
		fmt.Fprintf(w, "  and %d more\n", rest)
	}
}

const dumpTime = "15:04:05.000"

// returning lists the parked tenants, soonest first.
func (q *Queue[T]) returning() []*tenant[T] {
	all := slices.Clone(q.parked)
	slices.SortFunc(all, func(a, b *tenant[T]) int {
		return cmp.Or(a.notBefore.Compare(b.notBefore), cmp.Compare(a.name, b.name))
	})
	return all
}

// order lists the round by weight, and by turn inside a weight.
func (s *swrr[T]) order() []*tenant[T] {
	var all []*tenant[T]
	round := slices.Clone(s.round)
	slices.SortFunc(round, func(a, b *class[T]) int { return cmp.Compare(b.weight, a.weight) })
	for _, c := range round {
		for t := c.front; t != nil; t = t.next {
			all = append(all, t)
		}
	}
	return all
}

func (s *swrr[T]) describe(t *tenant[T]) string {
	return fmt.Sprintf("credit=%+.3f", t.standing().of(oneTurn))
}
