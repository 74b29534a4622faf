package fairq

import (
	"cmp"
	"container/heap"
	"fmt"
	"io"
	"slices"
	"time"
)

// Unknown is a virtual time that nobody has told yet.
const Unknown = -1

// Tagged orders the waiters of one replica by tags that are kept elsewhere for
// the whole fleet: start-time fair queueing whose virtual time this side only
// hears of. It picks whom to bid for, learns their tags from the answer, and
// decides nothing itself.
//
// A tenant that has never been bid for goes first, since its place is not
// known yet and its answer may be "now"; then the least start tag. Like Queue
// it is not safe for concurrent use, and an item is in at most one of either.
type Tagged[T any] struct {
	tenants map[string]*tagTenant[T]
	ready   tagHeap[T]  // tenants by start tag
	resting restHeap[T] // tenants out of the order, soonest first
	hold    time.Time   // nobody is ready before
	length  int
	seq     uint64
}

// TagItem is one waiter of a Tagged. The caller allocates it.
type TagItem[T any] struct {
	Value  T
	owner  *tagTenant[T]
	weight float64
	cost   float64
	seq    uint64
}

// tagTenant is a tenant with waiters. It is forgotten when it has none: the
// fleet remembers its finish tag.
type tagTenant[T any] struct {
	name          string
	weight        float64
	items         []*TagItem[T] // first come first
	finish, since float64       // as last told; since is Unknown before the first bid
	until         time.Time     // of its rest
	seq           uint64        // of its first item: ties
	index         int           // in its heap
	rests         bool
	served        float64 // cost served here
	base          float64 // finish when first told
	told          bool
}

// NewTagged returns an empty order.
func NewTagged[T any]() *Tagged[T] { return &Tagged[T]{tenants: map[string]*tagTenant[T]{}} }

// Push appends it to its tenant's queue. cost and weight are > 0.
func (q *Tagged[T]) Push(it *TagItem[T], tenant string, weight, cost float64) {
	q.seq++
	it.seq, it.weight, it.cost = q.seq, weight, cost
	q.insert(it, tenant)
}

// Return puts an item that was removed unserved back to where it stood.
func (q *Tagged[T]) Return(it *TagItem[T], tenant string) { q.insert(it, tenant) }

// insert queues an item in the order of arrival.
func (q *Tagged[T]) insert(it *TagItem[T], tenant string) {
	q.length++
	t := q.tenants[tenant]
	if t == nil {
		t = &tagTenant[T]{name: tenant, since: Unknown, seq: it.seq}
		q.tenants[tenant] = t
		defer heap.Push(&q.ready, t)
	}
	i, _ := slices.BinarySearchFunc(t.items, it.seq, func(o *TagItem[T], seq uint64) int { return cmp.Compare(o.seq, seq) })
	t.items = slices.Insert(t.items, i, it)
	t.weight, it.owner = it.weight, t
}

// Best returns up to n items to bid for, in order, into into[:0]. They stay
// queued. No tenant gets so many of the places that others with waiters get
// none.
func (q *Tagged[T]) Best(now time.Time, n int, into []*TagItem[T]) []*TagItem[T] {
	into = into[:0]
	q.wake(now)
	if now.Before(q.hold) || len(q.ready) == 0 {
		return into
	}
	most := (n+len(q.ready)-1)/len(q.ready) + 1
	picked := make([]*tagTenant[T], 0, n)
	for len(picked) < n && len(q.ready) > 0 {
		picked = append(picked, heap.Pop(&q.ready).(*tagTenant[T]))
	}
	used := make([]int, len(picked))
	for len(into) < n {
		best := -1
		for i, t := range picked {
			if used[i] < min(len(t.items), most) && (best < 0 || less(t, t.ahead(used[i]), picked[best], picked[best].ahead(used[best]))) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		into = append(into, picked[best].items[used[best]])
		used[best]++
	}
	for _, t := range picked {
		heap.Push(&q.ready, t)
	}
	return into
}

// start is the tag of the tenant's next turn.
func (t *tagTenant[T]) start() float64 { return max(t.finish, t.since) }

// ahead is the tag of its turn after n others of its own.
func (t *tagTenant[T]) ahead(n int) float64 {
	s := t.start()
	for _, it := range t.items[:n] {
		s += it.cost / t.weight
	}
	return s
}

// less orders tenants a and b at tags s and u: never asked first, then by tag,
// then by arrival.
func less[T any](a *tagTenant[T], s float64, b *tagTenant[T], u float64) bool {
	if new1, new2 := a.since == Unknown, b.since == Unknown; new1 != new2 {
		return new1
	}
	return cmp.Or(cmp.Compare(s, u), cmp.Compare(a.seq, b.seq)) < 0
}

// Learn stores what the fleet said of a tenant; unknown ones are ignored.
func (q *Tagged[T]) Learn(tenant string, finish, since float64) {
	t := q.tenants[tenant]
	if t == nil {
		return
	}
	if !t.told {
		t.told, t.base = true, finish
	}
	t.finish, t.since = finish, since
	if !t.rests {
		heap.Fix(&q.ready, t.index)
	}
}

// Since is what was last learnt of when the item's tenant began to wait, in
// virtual time; Unknown before the first answer.
func (q *Tagged[T]) Since(it *TagItem[T]) float64 {
	if it.owner == nil {
		return Unknown
	}
	return it.owner.since
}

// Tags returns what was last learnt of an item's tenant, and the units of
// virtual time that earlier items of it will use; known is false before the
// first answer.
func (q *Tagged[T]) Tags(it *TagItem[T]) (start, before float64, known bool) {
	t := it.owner
	if t == nil || t.since == Unknown {
		return 0, 0, false
	}
	return t.start(), t.ahead(slices.Index(t.items, it)) - t.start(), true
}

// leastShare bounds Share from below: more replicas than this do not matter.
const leastShare = 1.0 / 64

// Share is the part of its tenant's service that this replica got since the
// tenant came here, in [1/64, 1]: what is served elsewhere also moves its tag.
// Both sides count one item more than was seen, so that the first one served
// elsewhere does not look like all of them.
func (q *Tagged[T]) Share(it *TagItem[T]) float64 {
	t := it.owner
	if t == nil {
		return 1
	}
	anywhere := max(0, t.finish-t.base) * t.weight
	return min(1, max(leastShare, (t.served+it.cost)/(anywhere+it.cost)))
}

// Rest takes the item's tenant out of the order until an instant.
func (q *Tagged[T]) Rest(now time.Time, it *TagItem[T], until time.Time) {
	t := it.owner
	if t == nil || !until.After(now) || t.rests {
		return
	}
	heap.Remove(&q.ready, t.index)
	t.rests, t.until = true, until
	heap.Push(&q.resting, t)
}

// wake returns tenants whose rest is over.
func (q *Tagged[T]) wake(now time.Time) {
	for len(q.resting) > 0 && !q.resting[0].until.After(now) {
		t := heap.Pop(&q.resting).(*tagTenant[T])
		t.rests = false
		heap.Push(&q.ready, t)
	}
}

// Remove takes an item out, served or not, and reports whether it was queued.
func (q *Tagged[T]) Remove(it *TagItem[T], served bool) bool {
	t := it.owner
	if t == nil {
		return false
	}
	i := slices.Index(t.items, it)
	t.items = slices.Delete(t.items, i, i+1)
	it.owner = nil
	q.length--
	if served {
		t.served += it.cost
	}
	if len(t.items) == 0 {
		delete(q.tenants, t.name)
		if t.rests {
			heap.Remove(&q.resting, t.index)
		} else {
			heap.Remove(&q.ready, t.index)
		}
	}
	return true
}

// Hold makes nobody ready before until; a later call replaces an earlier one.
func (q *Tagged[T]) Hold(until time.Time) { q.hold = until }

// Fresh reports whether a ready tenant has never been bid for.
func (q *Tagged[T]) Fresh() bool { return len(q.ready) > 0 && q.ready[0].since == Unknown }

// Ready is the earliest instant, not before now, at which Best returns
// somebody; ok is false when nobody is queued.
func (q *Tagged[T]) Ready(now time.Time) (at time.Time, ok bool) {
	if q.length == 0 {
		return time.Time{}, false
	}
	at = now
	if len(q.ready) == 0 && q.resting[0].until.After(at) {
		at = q.resting[0].until
	}
	if q.hold.After(at) {
		at = q.hold
	}
	return at, true
}

// Len is the number of items queued.
func (q *Tagged[T]) Len() int { return q.length }

// Tenants is the number of tenants with items queued.
func (q *Tagged[T]) Tenants() int { return len(q.tenants) }

// Ahead is the number of items expected to be served before it: earlier ones
// of its tenant, and of every other tenant those whose turn has a lesser tag.
// It looks at every tenant once.
func (q *Tagged[T]) Ahead(it *TagItem[T]) int {
	t := it.owner
	if t == nil {
		return 0
	}
	own := slices.Index(t.items, it)
	mine, n := t.ahead(own), own
	for _, o := range q.tenants {
		if o == t {
			continue
		}
		for k, s := 0, o.start(); k < len(o.items) && less(o, s, t, mine); k++ {
			s += o.items[k].cost / o.weight
			n++
		}
	}
	return n
}

// Loads returns the n tenants with the longest queues, longest first.
func (q *Tagged[T]) Loads(n int) []Load {
	all := make([]Load, 0, len(q.tenants))
	for _, t := range q.tenants {
		all = append(all, Load{Tenant: t.name, Queued: len(t.items), Weight: t.weight, Served: t.served})
	}
	slices.SortFunc(all, compareLoads)
	return all[:min(n, len(all))]
}

// Dump writes the order for people, at most 200 tenants.
func (q *Tagged[T]) Dump(w io.Writer) {
	fmt.Fprintf(w, "queued=%d tenants=%d resting=%d\n", q.length, len(q.tenants), len(q.resting))
	all := slices.Clone(q.ready)
	slices.SortFunc(all, func(a, b *tagTenant[T]) int { return cmp.Compare(a.start(), b.start()) })
	for _, t := range append(all, q.resting...)[:min(len(q.tenants), maxDump)] {
		fmt.Fprintf(w, "  %s weight=%g queued=%d start=%.3f rests=%v\n", t.name, t.weight, len(t.items), t.start(), t.rests)
	}
}

type tagHeap[T any] []*tagTenant[T]

func (h tagHeap[T]) Len() int           { return len(h) }
func (h tagHeap[T]) Less(i, j int) bool { return less(h[i], h[i].start(), h[j], h[j].start()) }
func (h tagHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *tagHeap[T]) Push(x any) {
	t := x.(*tagTenant[T])
	t.index = len(*h)
	*h = append(*h, t)
}
func (h *tagHeap[T]) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}

type restHeap[T any] []*tagTenant[T]

func (h restHeap[T]) Len() int           { return len(h) }
func (h restHeap[T]) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h restHeap[T]) Swap(i, j int)      { tagHeap[T](h).Swap(i, j) }
func (h *restHeap[T]) Push(x any)        { (*tagHeap[T])(h).Push(x) }
func (h *restHeap[T]) Pop() any          { return (*tagHeap[T])(h).Pop() }
