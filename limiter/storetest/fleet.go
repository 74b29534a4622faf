package storetest

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The replica side of turns, as package limiter has it.
const (
	turnBids  = 8         // turns a call may grant; one more bid rides along
	turnFloor = 10_000    // µs; least rest after a call that found nothing
	turnGrace = 50_000    // µs; claims outlive the wait they were told
	wire      = 600       // µs; longest way to or from the server
	claimEcho = 1_000_000 // µs for which an expired claim still holds V back
)

// simTenant is one tenant of a simulated fleet. Tenants with a rate arrive at
// random (Poisson); without one they are backlogged: they always want more.
type simTenant struct {
	name   string
	weight float64
	rate   float64 // requests per second
	at     []int   // replicas where it shows up
	idle   func(now int64) bool
	cost   func(*rand.Rand) int64 // tokens
	actual func(cost int64) int64 // tokens really used, known after hold; nil: cost

	served  float64 // actual cost / weight since the warm-up
	largest float64 // cost / weight of its largest request
	waits   []int64 // µs
}

// simMistakes are ways to get the replica's side wrong.
type simMistakes struct {
	forgetsTags bool // does not read the tags of a reply
	sinceStart  bool // sends its last start tag in place of since
	raisesTags  bool // raises what it remembers to V, ties by name
	keepsTag    bool // corrects the bucket, but not the tag, when the cost is known
}

// simItem is one request.
type simItem struct{ cost, arrived int64 }

// simQueue is a tenant's requests at one replica.
type simQueue struct {
	tenant        *simTenant
	order         int // of its first request: ties
	items         []simItem
	finish, since float64
}

func (q *simQueue) start() float64 { return max(q.finish, q.since) }

// simReplica asks for turns with one call at a time.
type simReplica struct {
	inc     string
	seq     int64
	queues  []*simQueue
	calling bool
	claimed bool
	dead    bool
	wakeAt  int64

	// At a pool of slots.
	held, pending int64 // slots that its requests hold, that its call may be granted
	freed         bool  // a slot came free while its call was under way
}

// sim is a fleet over one contended bucket in virtual time (µs since start).
type sim struct {
	t       *testing.T
	s       Raw
	rnd     *rand.Rand
	bucket  Bucket
	tenants []*simTenant
	wrong   simMistakes
	warmup  int64
	stall   func(at int64) int64 // when a call that arrives at `at` is served
	hold    int64                // µs after which the cost of a request is known
	bids    int                  // turns that a call may grant; 0: turnBids
	slots   *simSlots            // the pool, in place of the bucket

	now      int64
	replicas []*simReplica
	events   simEvents
	order    int
	calls    int
	grants   int
	spent    int64 // tokens since the warm-up
	lag      *simLag
	guard    simGuard
}

type simEvent struct {
	at, n int64
	run   func()
}

type simEvents []simEvent

func (e simEvents) Len() int { return len(e) }
func (e simEvents) Less(i, j int) bool {
	return e[i].at < e[j].at || (e[i].at == e[j].at && e[i].n < e[j].n)
}
func (e simEvents) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *simEvents) Push(x any)   { *e = append(*e, x.(simEvent)) }
func (e *simEvents) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// at runs f at an instant.
func (f *sim) at(when int64, run func()) {
	f.order++
	heap.Push(&f.events, simEvent{max(when, f.now), int64(f.order), run})
}

// run plays the fleet of n replicas for d.
func (f *sim) run(n int, d time.Duration) {
	f.bids = cmp.Or(f.bids, turnBids)
	for i := range n {
		f.replicas = append(f.replicas, &simReplica{inc: fmt.Sprintf("a%02d", i)})
	}
	f.lag = newSimLag(f.tenants)
	for _, t := range f.tenants {
		if t.rate > 0 {
			f.arriveLater(t)
			continue
		}
		for _, i := range t.at {
			f.backlog(f.replicas[i], t)
		}
	}
	for _, r := range f.replicas {
		f.wake(r, f.rnd.Int64N(turnFloor))
	}
	for end := d.Microseconds(); len(f.events) > 0 && f.events[0].at <= end; {
		e := heap.Pop(&f.events).(simEvent)
		f.s.Wait(time.Duration(e.at-f.now) * time.Microsecond)
		f.now = e.at
		e.run()
	}
}

// backlog gives a replica a queue of t that never runs dry.
func (f *sim) backlog(r *simReplica, t *simTenant) {
	f.order++
	r.queues = append(r.queues, &simQueue{tenant: t, order: f.order, since: -1})
}

// arriveLater lets requests of t come, each at one of its replicas.
func (f *sim) arriveLater(t *simTenant) {
	f.at(f.now+int64(f.rnd.ExpFloat64()/t.rate*second), func() {
		r := f.replicas[t.at[f.rnd.IntN(len(t.at))]]
		item := simItem{cost: t.cost(f.rnd), arrived: f.now}
		i := slices.IndexFunc(r.queues, func(q *simQueue) bool { return q.tenant == t })
		if i < 0 {
			f.order++
			r.queues = append(r.queues, &simQueue{tenant: t, order: f.order, since: -1, items: []simItem{item}})
			f.wake(r, f.now)
		} else {
			r.queues[i].items = append(r.queues[i].items, item)
		}
		f.arriveLater(t)
	})
}

// wake lets r ask at an instant, which replaces a later one.
func (f *sim) wake(r *simReplica, when int64) {
	r.wakeAt = when
	f.at(when, func() {
		if r.wakeAt == when && !r.calling && !r.dead {
			f.ask(r)
		}
	})
}

// before orders bids: never asked first, then by tag, then by arrival.
func (f *sim) before(a *simQueue, s float64, b *simQueue, u float64) bool {
	if new1, new2 := a.since < 0, b.since < 0; new1 != new2 {
		return new1
	}
	if s != u {
		return s < u
	}
	if f.wrong.raisesTags {
		return a.tenant.name < b.tenant.name
	}
	return a.order < b.order
}

// best returns the queues to bid for, one entry per bid, in order.
func (f *sim) best(r *simReplica) (list []*simQueue, n []int) {
	active := r.queues[:0:0]
	for _, q := range r.queues {
		if q.tenant.rate == 0 {
			if q.tenant.idle != nil && q.tenant.idle(f.now) {
				q.since = -1
				q.items = nil
				continue
			}
			for len(q.items) <= 2*f.bids {
				q.items = append(q.items, simItem{q.tenant.cost(f.rnd), f.now})
			}
		}
		active = append(active, q)
	}
	if len(active) == 0 {
		return nil, nil
	}
	most := (f.bids+len(active))/len(active) + 1
	used, starts := make([]int, len(active)), make([]float64, len(active))
	for i, q := range active {
		starts[i] = q.start()
	}
	for len(list) <= f.bids {
		at := -1
		for i, q := range active {
			if used[i] < min(most, len(q.items)) && (at < 0 || f.before(q, starts[i], active[at], starts[at])) {
				at = i
			}
		}
		if at < 0 {
			break
		}
		q := active[at]
		list, n = append(list, q), append(n, used[at])
		starts[at] += float64(q.items[used[at]].cost) / q.tenant.weight
		used[at]++
	}
	return list, n
}

// ask sends a call of r, if it has anything to say.
func (f *sim) ask(r *simReplica) {
	queues, nth := f.best(r)
	if len(queues) == 0 && !r.claimed {
		if len(r.queues) > 0 {
			f.wake(r, f.now+turnFloor) // backlogged ones that are idle
		}
		return
	}
	r.calling = true
	r.seq++
	c := Call{Op: Pool, Inc: r.inc, Seq: r.seq, TTL: 10_000, Buckets: []Bucket{f.bucket}, Grace: turnGrace, Most: int64(f.bids), Rest: turnFloor + 2*wire}
	for i, q := range queues {
		since := q.since
		if f.wrong.sinceStart && since >= 0 {
			since = q.start()
		}
		c.Bids = append(c.Bids, Bid{
			Tenant: q.tenant.name, Cost: q.items[nth[i]].cost * token, Weight: q.tenant.weight, Since: since, Seq: r.seq,
		})
	}
	for _, q := range r.queues {
		for _, it := range q.items {
			c.More += it.cost * token
		}
	}
	for _, b := range c.Bids {
		c.More -= b.Cost
	}
	if f.slots != nil {
		f.state(r, &c)
	}
	served := f.now + f.rnd.Int64N(wire)
	if f.stall != nil {
		served = f.stall(served)
	}
	f.at(served, func() {
		reply := f.s.Run(c)
		if reply[0] == 1 {
			f.guard.check(c, reply)
		}
		f.at(f.now+f.rnd.Int64N(wire), func() { f.hear(r, c, queues, reply) })
	})
}

// hear takes in a reply.
func (f *sim) hear(r *simReplica, c Call, queues []*simQueue, reply []int64) {
	r.calling = false
	if r.dead {
		return
	}
	f.calls++
	r.pending = 0
	if reply[0] != 1 { // overtaken: ask again
		f.wake(r, f.now)
		return
	}
	for i, told := range TurnsOf(c, reply) {
		q := queues[i]
		q.since = told.Since
		if !f.wrong.forgetsTags {
			q.finish = told.Finish
		}
		if told.State == 1 {
			f.granted(r, q, c.Bids[i].Cost/token)
		}
	}
	if v := Tag(reply[5]); f.wrong.raisesTags {
		for _, q := range r.queues {
			q.finish = max(q.finish, v)
		}
	}
	r.queues = slices.DeleteFunc(r.queues, func(q *simQueue) bool { return q.tenant.rate > 0 && len(q.items) == 0 })
	r.claimed = reply[2] >= 0
	next := f.now
	if fresh := slices.ContainsFunc(r.queues, func(q *simQueue) bool { return q.tenant.rate > 0 && q.since < 0 }); reply[2] > 0 && !fresh && !r.freed {
		next += max(reply[2], turnFloor)
	}
	if r.freed {
		f.restate(r) // what was stated meanwhile left room for this call
	}
	r.freed = false
	f.wake(r, next)
}

// granted starts the first request of q that costs as much.
func (f *sim) granted(r *simReplica, q *simQueue, cost int64) {
	i := slices.IndexFunc(q.items, func(it simItem) bool { return it.cost == cost })
	arrived := q.items[i].arrived
	q.items = slices.Delete(q.items, i, i+1)
	f.grants++
	if f.slots != nil {
		f.occupy(r)
	}
	t, used := q.tenant, cost
	if t.actual != nil {
		used = t.actual(cost)
		f.at(f.now+f.hold, func() { f.correct(t, cost-used) })
	}
	if f.now < f.warmup {
		return
	}
	f.spent += used
	t.served += float64(used) / t.weight
	t.largest = max(t.largest, float64(cost)/t.weight)
	t.waits = append(t.waits, f.now-arrived)
	f.lag.grant(t)
}

// correct settles what a request of t was charged too much.
func (f *sim) correct(t *simTenant, delta int64) {
	b := f.bucket
	b.Amount, b.MaxDebt = delta*token, 1<<52
	if !f.wrong.keepsTag {
		b.Tenant, b.Weight = t.name, t.weight
	}
	f.guard.corrects = true
	f.s.Run(Call{Op: Settle, Inc: "settler", Seq: 1, TTL: 1000, Buckets: []Bucket{b}})
}
