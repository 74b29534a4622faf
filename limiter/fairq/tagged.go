package fairq

import (
	"cmp"
	"container/heap"
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
// known yet and its answer may be "now"; then the least start tag. But of
// several places one is kept for the least known tag, so that newcomers
// without end do not starve anybody.
//
// Like Queue it is not safe for concurrent use, and an item is in at most one
// of either. A turn is O(log tenants) and what follows the item in its own
// tenant's queue, which is a slice: queues are meant to be short, as the default
// bound of 32 is. Tenants come from a free-list; those without items are
// forgotten, for the fleet remembers their tags.
type Tagged[T any] struct {
	tenants map[string]*tagTenant[T]
	fresh   tagHeap[T] // tenants never bid for, longest here first
	known   tagHeap[T] // the others, by start tag
	resting tagHeap[T] // tenants out of the order, soonest back first
	hold    time.Time  // nobody is ready before
	length  int
	seq     uint64
	now     float64 // latest virtual time told
	free    []*tagTenant[T]
	picks   []pick[T] // of Best, kept for the next
}

// TagItem is one waiter of a Tagged. The caller allocates it, and copies it
// only while it is not queued.
type TagItem[T any] struct {
	// Value is the caller's own; Tagged never looks at it.
	Value T

	owner  *tagTenant[T]
	weight float64
	cost   float64
	seq    uint64 // order of arrival
}

// tagTenant is a tenant with waiters.
type tagTenant[T any] struct {
	name    string
	weight  float64       // as last pushed
	items   []*TagItem[T] // first come first
	backlog float64       // cost of items
	seq     uint64        // of its first item here: order of equal tags

	finish, since float64 // as last told; since is Unknown before the first bid
	served        float64 // cost served here
	base          float64 // finish when first told
	told          bool

	until time.Time // of its rest
	in    *tagHeap[T]
	index int // in it
}

// NewTagged returns an empty order.
func NewTagged[T any]() *Tagged[T] {
	return &Tagged[T]{
		tenants: map[string]*tagTenant[T]{},
		fresh:   tagHeap[T]{before: func(a, b *tagTenant[T]) bool { return a.seq < b.seq }},
		known: tagHeap[T]{before: func(a, b *tagTenant[T]) bool {
			return cmp.Or(cmp.Compare(a.start(), b.start()), cmp.Compare(a.seq, b.seq)) < 0
		}},
		resting: tagHeap[T]{before: func(a, b *tagTenant[T]) bool {
			return cmp.Or(a.until.Compare(b.until), cmp.Compare(a.seq, b.seq)) < 0
		}},
	}
}

// Push appends it to its tenant's queue. Weight and cost are finite and > 0; a
// weight replaces the tenant's present one. Push panics on others, and if the
// item is queued already.
func (q *Tagged[T]) Push(it *TagItem[T], tenant string, weight, cost float64) {
	q.seq++
	it.seq, it.weight, it.cost = q.seq, checkPositive("weight", weight), checkPositive("cost", cost)
	q.insert(it, tenant)
}

// SetWeight changes a tenant's share, finite and > 0, from its next turn on, and
// reports whether the tenant is known; Push does the same for its own.
func (q *Tagged[T]) SetWeight(tenant string, weight float64) bool {
	checkPositive("weight", weight)
	t := q.tenants[tenant]
	if t != nil {
		t.weight = weight
	}
	return t != nil
}

// Return puts an item that was removed unserved back to where it stood. It
// panics if the item is queued.
func (q *Tagged[T]) Return(it *TagItem[T], tenant string) { q.insert(it, tenant) }

// insert queues an item in the order of arrival.
func (q *Tagged[T]) insert(it *TagItem[T], tenant string) {
	if it.owner != nil {
		panic("fairq: Push or Return of an item that is queued already")
	}
	t := q.tenants[tenant]
	if t == nil {
		t = q.meet(tenant)
		t.seq = it.seq
		q.move(t, &q.fresh)
	}
	i, _ := slices.BinarySearchFunc(t.items, it.seq, bySeq[T])
	t.items = slices.Insert(t.items, i, it)
	t.weight, it.owner = it.weight, t
	t.backlog += it.cost
	q.length++
}

func bySeq[T any](it *TagItem[T], seq uint64) int { return cmp.Compare(it.seq, seq) }

func (q *Tagged[T]) meet(name string) *tagTenant[T] {
	var t *tagTenant[T]
	if last := len(q.free) - 1; last >= 0 {
		t = q.free[last]
		q.free = q.free[:last]
	} else {
		t = new(tagTenant[T])
	}
	t.name, t.since = name, Unknown
	q.tenants[name] = t
	return t
}

// forget keeps the empty tenant and its slice for another one.
func (q *Tagged[T]) forget(t *tagTenant[T]) {
	delete(q.tenants, t.name)
	q.move(t, nil)
	if len(q.free) < maxFree && cap(t.items) <= maxLevels {
		*t = tagTenant[T]{items: t.items[:0]}
		q.free = append(q.free, t)
	}
}

// Remove takes an item out, served or not, and reports whether it was queued.
// It moves those behind it in its tenant's queue.
func (q *Tagged[T]) Remove(it *TagItem[T], served bool) bool {
	t := it.owner
	if t == nil {
		return false
	}
	i := t.place(it)
	t.items = slices.Delete(t.items, i, i+1)
	it.owner = nil
	q.length--
	if t.backlog -= it.cost; served {
		t.served += it.cost
	}
	if len(t.items) == 0 {
		q.forget(t)
	}
	return true
}

// pick is a tenant that Best has chosen from, and how far it has got.
type pick[T any] struct {
	tenant *tagTenant[T]
	used   int
	tag    float64 // of its next item
}

// Best returns up to n items to bid for, in order, into into[:0]: they stay
// queued. A tenant gets at most ⌈n/tenants⌉ + 1 of the places, and those that
// have never been bid for at most n−1 if there are others.
func (q *Tagged[T]) Best(now time.Time, n int, into []*TagItem[T]) []*TagItem[T] {
	into = into[:0]
	q.wake(now)
	ready := len(q.fresh.all) + len(q.known.all)
	if now.Before(q.hold) || ready == 0 || n <= 0 {
		return into
	}
	most := (n+ready-1)/ready + 1
	q.choose(n)
	for len(into) < n {
		best := -1
		for i, p := range q.picks {
			if p.used < min(len(p.tenant.items), most) && (best < 0 || p.before(q.picks[best])) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		p := &q.picks[best]
		it := p.tenant.items[p.used]
		into = append(into, it)
		p.used++
		p.tag += it.cost / p.tenant.weight
	}
	for _, p := range q.picks {
		q.move(p.tenant, p.tenant.proper(q))
	}
	clear(q.picks)
	return into
}

// choose takes the n tenants that have the best heads out of the order.
func (q *Tagged[T]) choose(n int) {
	q.picks = q.picks[:0]
	fresh := n
	if n > 1 && len(q.known.all) > 0 {
		fresh = n - 1
	}
	take := func(h *tagHeap[T], most int) {
		for len(h.all) > 0 && len(q.picks) < most {
			t := h.all[0]
			q.move(t, nil)
			q.picks = append(q.picks, pick[T]{tenant: t, tag: q.reckon(t)})
		}
	}
	take(&q.fresh, fresh)
	take(&q.known, n)
}

// before orders picks: an unknown head, then by tag, then by arrival. Only the
// first item of a tenant that nothing is known of has a claim to be asked for.
func (p pick[T]) before(o pick[T]) bool {
	a, b := p.tenant.since == Unknown && p.used == 0, o.tenant.since == Unknown && o.used == 0
	if a != b {
		return a
	}
	return cmp.Or(cmp.Compare(p.tag, o.tag), cmp.Compare(p.tenant.seq, o.tenant.seq)) < 0
}

// proper is where a tenant that does not rest belongs.
func (t *tagTenant[T]) proper(q *Tagged[T]) *tagHeap[T] {
	if t.since == Unknown {
		return &q.fresh
	}
	return &q.known
}

// Learn stores what the fleet said of a tenant: its finish tag, and since when,
// in virtual time, it has had waiters. Unknown tenants are ignored.
func (q *Tagged[T]) Learn(tenant string, finish, since float64) {
	q.now = max(q.now, since)
	t := q.tenants[tenant]
	if t == nil {
		return
	}
	if !t.told {
		t.told, t.base = true, finish
	}
	t.finish, t.since = finish, since
	if t.in != &q.resting {
		q.move(t, t.proper(q))
	}
}

// Forget makes every tenant one that was never bid for, when what was learnt of
// them is of another fleet's, or nobody's, virtual time.
func (q *Tagged[T]) Forget() {
	for _, t := range q.tenants {
		t.finish, t.since, t.told = 0, Unknown, false
		if t.in != &q.resting {
			q.move(t, &q.fresh)
		}
	}
}

// Rest takes the item's tenant out of the order until an instant, or a later
// one if it rests already.
func (q *Tagged[T]) Rest(now time.Time, it *TagItem[T], until time.Time) {
	t := it.owner
	if t == nil || !until.After(now) || t.in == &q.resting && !until.After(t.until) {
		return
	}
	t.until = until
	q.move(t, &q.resting)
}

// wake returns tenants whose rest is over.
func (q *Tagged[T]) wake(now time.Time) {
	for len(q.resting.all) > 0 && !q.resting.all[0].until.After(now) {
		t := q.resting.all[0]
		t.until = time.Time{}
		q.move(t, t.proper(q))
	}
}

// Wake ends the hold and every tenant's rest, because what they waited for has
// changed: each may be bid for now.
func (q *Tagged[T]) Wake() {
	q.hold = time.Time{}
	for len(q.resting.all) > 0 {
		t := q.resting.all[0]
		t.until = time.Time{}
		q.move(t, t.proper(q))
	}
}

// move puts t into a heap, or into its place in the one it is in; nil takes it
// out.
func (q *Tagged[T]) move(t *tagTenant[T], to *tagHeap[T]) {
	switch {
	case t.in == to && to != nil:
		heap.Fix(to, t.index)
		return
	case t.in != nil:
		heap.Remove(t.in, t.index)
	}
	if t.in = to; to != nil {
		heap.Push(to, t)
	}
}

// Hold makes nobody ready before until; a later call replaces an earlier one.
func (q *Tagged[T]) Hold(until time.Time) { q.hold = until }

// Waiting is the cost of all items of tenants that do not rest. It looks at
// every such tenant once.
func (q *Tagged[T]) Waiting() (cost float64) {
	for _, t := range q.fresh.all {
		cost += t.backlog
	}
	for _, t := range q.known.all {
		cost += t.backlog
	}
	return cost
}

// Fresh reports whether a ready tenant has never been bid for.
func (q *Tagged[T]) Fresh() bool { return len(q.fresh.all) > 0 }

// Ready is the earliest instant, not before now, at which Best returns
// somebody; ok is false when nobody is queued.
func (q *Tagged[T]) Ready(now time.Time) (at time.Time, ok bool) {
	if q.length == 0 {
		return time.Time{}, false
	}
	at = now
	if len(q.fresh.all)+len(q.known.all) == 0 && q.resting.all[0].until.After(at) {
		at = q.resting.all[0].until
	}
	if q.hold.After(at) {
		at = q.hold
	}
	return at, true
}

// tagHeap is a heap of tenants that know their place in it.
type tagHeap[T any] struct {
	all    []*tagTenant[T]
	before func(a, b *tagTenant[T]) bool
}

func (h *tagHeap[T]) Len() int           { return len(h.all) }
func (h *tagHeap[T]) Less(i, j int) bool { return h.before(h.all[i], h.all[j]) }
func (h *tagHeap[T]) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	h.all[i].index, h.all[j].index = i, j
}
func (h *tagHeap[T]) Push(x any) {
	t := x.(*tagTenant[T])
	t.index = len(h.all)
	h.all = append(h.all, t)
}
func (h *tagHeap[T]) Pop() any {
	last := len(h.all) - 1
	t := h.all[last]
	h.all[last] = nil
	h.all = h.all[:last]
	return t
}
