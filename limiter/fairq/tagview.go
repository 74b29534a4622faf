package fairq

import (
	"fmt"
	"io"
	"slices"
)

// start is the tag of the tenant's next turn: where it stands, or where it stood
// when it began to wait if that is later, for who was away has saved up nothing.
func (t *tagTenant[T]) start() float64 { return max(t.finish, t.since) }

// place is the index of an item in its tenant's queue.
func (t *tagTenant[T]) place(it *TagItem[T]) int {
	i, _ := slices.BinarySearchFunc(t.items, it.seq, bySeq[T])
	return i
}

// uses is the virtual time that the first n items of t take: cost per weight.
func (t *tagTenant[T]) uses(n int) float64 {
	cost := 0.0
	for _, it := range t.items[:n] {
		cost += it.cost
	}
	return cost / t.weight
}

// Since is what was last learnt of when the item's tenant began to wait, in
// virtual time; Unknown before the first answer and when the item is not
// queued.
func (q *Tagged[T]) Since(it *TagItem[T]) float64 {
	if it.owner == nil {
		return Unknown
	}
	return it.owner.since
}

// Tags returns, in virtual time (cost per weight), the start tag of the item's
// tenant as last learnt, and what the tenant's earlier items here will add to
// it: so start + before is the start tag of the item itself if nothing of the
// tenant is served elsewhere. known is false, and start zero, before the first
// answer; of an item that is not queued nothing is known.
func (q *Tagged[T]) Tags(it *TagItem[T]) (start, before float64, known bool) {
	t := it.owner
	if t == nil {
		return 0, 0, false
	}
	if before = t.uses(t.place(it)); t.since == Unknown {
		return 0, before, false
	}
	return t.start(), before, true
}

// leastShare bounds Share from below: more replicas than this do not matter.
const leastShare = 1.0 / 64

// Share is the part of its tenant's service that this replica got since the
// tenant came here, in [1/64, 1]: what is served elsewhere also moves its tag.
// Both sides count one item more than was seen, so that the first one served
// elsewhere does not look like all of them. 1 if the item is not queued.
func (q *Tagged[T]) Share(it *TagItem[T]) float64 {
	t := it.owner
	if t == nil {
		return 1
	}
	anywhere := max(0, t.finish-t.base) * t.weight
	return min(1, max(leastShare, (t.served+it.cost)/(anywhere+it.cost)))
}

// Len is the number of items queued.
func (q *Tagged[T]) Len() int { return q.length }

// Tenants is the number of tenants with items queued.
func (q *Tagged[T]) Tenants() int { return len(q.tenants) }

// Ahead estimates the items here that are served before it: earlier ones of its
// tenant, and of every other tenant those whose turn has a lesser tag, or the
// same and came first, whether it rests or not. A tenant that was never bid for
// counts as standing at the latest virtual time told. Of each other tenant it
// takes the mean cost for that of every item, and of more than 256 tenants it
// looks at every second one, third one, …, each for its neighbours. Zero if the
// item is not queued.
func (q *Tagged[T]) Ahead(it *TagItem[T]) int {
	t := it.owner
	if t == nil {
		return 0
	}
	n := t.place(it)
	tag := q.reckon(t) + t.uses(n)
	for _, h := range [...]*tagHeap[T]{&q.fresh, &q.known, &q.resting} {
		n += q.sum(h, t, tag)
	}
	return n
}

// reckon is t's start tag as far as one can tell.
func (q *Tagged[T]) reckon(t *tagTenant[T]) float64 {
	if t.since == Unknown {
		return q.now
	}
	return t.start()
}

// sum counts items before tag in one heap, those of t excepted.
func (q *Tagged[T]) sum(h *tagHeap[T], t *tagTenant[T], tag float64) int {
	stride, n := max(1, (len(h.all)+maxSample-1)/maxSample), 0
	for i := 0; i < len(h.all); i += stride {
		o := h.all[i]
		lead := tag - q.reckon(o)
		if o == t || lead < 0 {
			continue
		}
		items := lead * o.weight / (o.backlog / float64(len(o.items)))
		less := turnsOf(items)
		if o.seq < t.seq && float64(less)-items < 1e-6 { // its next ties, and came first
			less++
		}
		n += min(len(o.items), less)
	}
	return n * stride
}

// Loads returns the n tenants with the longest queues, longest first, equal
// ones by name. It looks at every tenant once.
func (q *Tagged[T]) Loads(n int) []Load {
	all := make([]Load, 0, len(q.tenants))
	for _, t := range q.tenants {
		all = append(all, Load{Tenant: t.name, Queued: len(t.items), Weight: t.weight, Served: t.served})
	}
	return longest(all, n)
}

// Standings returns the n tenants with the longest queues as Loads does, and who
// is first in each.
func (q *Tagged[T]) Standings(n int) []Standing[T] {
	return standings(q.Loads(n), func(tenant string) T { return q.tenants[tenant].items[0].Value })
}

// Dump writes the order for people: one line for all, then one per tenant, those
// never bid for first, then by tag, then those that rest; at most 200.
func (q *Tagged[T]) Dump(w io.Writer) {
	fmt.Fprintf(w, "queued=%d tenants=%d resting=%d now=%.3f\n", q.length, len(q.tenants), len(q.resting.all), q.now)
	all := make([]*tagTenant[T], 0, len(q.tenants))
	for _, h := range [...]*tagHeap[T]{&q.fresh, &q.known, &q.resting} {
		from := len(all)
		all = append(all, h.all...)
		slices.SortFunc(all[from:], func(a, b *tagTenant[T]) int {
			if h.before(a, b) {
				return -1
			}
			return 1
		})
	}
	for _, t := range all[:min(len(all), maxDump)] {
		fmt.Fprintf(w, "  %s weight=%g queued=%d served=%g", t.name, t.weight, len(t.items), t.served)
		if t.since == Unknown {
			fmt.Fprint(w, " fresh")
		} else {
			fmt.Fprintf(w, " start=%.3f", t.start())
		}
		if t.in == &q.resting {
			fmt.Fprintf(w, " rests=%s", t.until.Format(dumpTime))
		}
		fmt.Fprintln(w)
	}
	if rest := len(all) - maxDump; rest > 0 {
		fmt.Fprintf(w, "  and %d more\n", rest)
	}
}
