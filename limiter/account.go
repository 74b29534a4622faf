package limiter

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/headway-limiter/headway/fleet"
)

// accountMemory is how long a tenant without waiters keeps its account: long
// enough for every replica to hear what it was served here.
const accountMemory = 10 * time.Second

// accounts say who was served how much at one pool, here and elsewhere. What
// others gossip are absolute counters that never fall, so that a lost digest
// is made good by the next; only growth since the last look counts.
type accounts struct {
	tenants map[ID]*account
	seen    map[source]sighting
	looked  time.Time // at the view absorbed last
	v       float64   // virtual time: the least finish tag of those who wait anywhere
	weights float64   // of those who wait anywhere
	poorest float64   // least finish tag of those who wait elsewhere; +Inf: nobody does
}

// account is one tenant's.
type account struct {
	weight    float64
	served    float64 // cost served here, ever; never falls
	here      int     // waiters here
	elsewhere int     // waiters at others
	finish    float64 // tag: cost served anywhere / weight, lifted to v on return
	touched   time.Time

	// Since the last division (see divide).
	servedHere, servedElsewhere float64
}

// source is one counter of one replica's life.
type source struct {
	replica     string
	incarnation uint64
	tenant      ID
}

// sighting is the value that counter had.
type sighting struct {
	served float64
	heard  time.Time
}

func newAccounts() *accounts {
	return &accounts{tenants: map[ID]*account{}, seen: map[source]sighting{}, poorest: math.Inf(1)}
}

// of returns a tenant's account, made when missing.
func (a *accounts) of(id ID, weight float64, now time.Time) *account {
	acc := a.tenants[id]
	if acc == nil {
		acc = &account{finish: a.v}
		a.tenants[id] = acc
	}
	acc.weight, acc.touched = weight, now
	return acc
}

// arrive counts one more waiter here. Who did not wait anywhere starts level
// with the others: having been away earns nothing.
func (a *accounts) arrive(t Tenant, now time.Time) *account {
	acc := a.of(t.ID, t.Weight, now)
	if acc.here == 0 && acc.elsewhere == 0 {
		acc.finish = max(acc.finish, a.v)
	}
	acc.here++
	return acc
}

// leave undoes arrive.
func (a *accounts) leave(t Tenant) {
	if acc := a.tenants[t.ID]; acc != nil && acc.here > 0 {
		acc.here--
	}
}

// serve books a cost served here.
func (a *accounts) serve(t Tenant, cost float64, now time.Time) *account {
	acc := a.of(t.ID, t.Weight, now)
	acc.served += cost
	acc.servedHere += cost
	acc.finish += cost / acc.weight
	return acc
}

// absorb takes what a newer view says of the pool: who waits elsewhere, and
// what they were served since the last look. weightOf tells a tenant's weight.
func (a *accounts) absorb(v *fleet.View, pool string, weightOf func(ID) float64, now time.Time) bool {
	if !v.At.After(a.looked) {
		return false
	}
	a.looked = v.At
	for _, acc := range a.tenants {
		acc.elsewhere = 0
	}
	for _, r := range v.Replicas {
		for _, p := range r.Pools {
			if p.Name == pool {
				a.hear(r, p, weightOf, now)
			}
		}
	}
	a.level()
	for id, acc := range a.tenants {
		if acc.here == 0 && acc.elsewhere == 0 && now.Sub(acc.touched) > accountMemory {
			delete(a.tenants, id)
		}
	}
	for src, s := range a.seen {
		if now.Sub(s.heard) > accountMemory {
			delete(a.seen, src)
		}
	}
	return true
}

// hear takes one replica's digest of the pool.
func (a *accounts) hear(r fleet.Digest, p fleet.Pool, weightOf func(ID) float64, now time.Time) {
	for _, load := range p.Tenants {
		id := ID(load.Tenant)
		src := source{r.Replica, r.Incarnation, id}
		last, known := a.seen[src]
		a.seen[src] = sighting{load.Served, now}
		grown := load.Served - last.served
		if !known || grown < 0 {
			grown = 0 // a counter that is new here, or began again, tells nothing of the past
		}
		if load.Queued == 0 && grown == 0 {
			continue
		}
		acc := a.of(id, weightOf(id), now)
		if acc.here == 0 && acc.elsewhere == 0 {
			acc.finish = max(acc.finish, a.v)
		}
		acc.elsewhere += load.Queued
		acc.servedElsewhere += grown
		acc.finish += grown / acc.weight
	}
}

// level works out virtual time and the weight of those who wait.
func (a *accounts) level() {
	least, weights := 0.0, 0.0
	a.poorest = math.Inf(1)
	for _, acc := range a.tenants {
		if acc.here+acc.elsewhere == 0 {
			continue
		}
		if acc.elsewhere > 0 {
			a.poorest = min(a.poorest, acc.finish)
		}
		if weights == 0 || acc.finish < least {
			least = acc.finish
		}
		weights += acc.weight
	}
	a.weights = weights
	if weights > 0 {
		a.v = max(a.v, least)
	}
}

// lead is how far a tenant that waits here is ahead of the poorest elsewhere.
func (a *accounts) lead(id ID) float64 {
	acc := a.tenants[id]
	if acc == nil {
		return 0
	}
	a.v = max(a.v, min(acc.finish, a.poorest))
	return max(0, acc.finish-a.poorest)
}

// portion is what a tenant was entitled to and received in an interval, as cost:
// this replica's part of it, and in the whole fleet as far as its digests tell.
type portion struct{ entitled, received, fleetEntitled, fleetReceived float64 }

// divide closes an interval: it calls f with what each tenant received, and with
// what it was entitled to. Those who waited share by
// weight what is left over by those who did not, who are entitled to what they
// asked for; the part of this replica is its part of the tenant's waiters.
func (a *accounts) divide(f func(id ID, p portion)) {
	left, weights := 0.0, 0.0
	for _, acc := range a.tenants {
		left += acc.servedHere + acc.servedElsewhere
		if acc.here+acc.elsewhere > 0 {
			weights += acc.weight
		} else {
			left -= acc.servedHere + acc.servedElsewhere
		}
	}
	for id, acc := range a.tenants {
		p := portion{received: acc.servedHere, fleetReceived: acc.servedHere + acc.servedElsewhere}
		p.entitled, p.fleetEntitled = p.received, p.fleetReceived
		if all := acc.here + acc.elsewhere; all > 0 {
			p.fleetEntitled = left * acc.weight / weights
			p.entitled = p.fleetEntitled * float64(acc.here) / float64(all)
		}
		if p != (portion{}) {
			f(id, p)
		}
		acc.servedHere, acc.servedElsewhere = 0, 0
	}
}

// loads describes the tenants to the fleet: the longest queues first, then who
// was served last.
func (a *accounts) loads(n int) []fleet.TenantLoad {
	ids := make([]ID, 0, len(a.tenants))
	for id, acc := range a.tenants {
		if acc.here > 0 || acc.served > 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(x, y ID) int {
		p, q := a.tenants[x], a.tenants[y]
		return cmp.Or(cmp.Compare(q.here, p.here), q.touched.Compare(p.touched), cmp.Compare(x, y))
	})
	list := make([]fleet.TenantLoad, 0, min(n, len(ids)))
	for _, id := range ids[:min(n, len(ids))] {
		acc := a.tenants[id]
		list = append(list, fleet.TenantLoad{Tenant: string(id), Queued: acc.here, Served: acc.served})
	}
	return list
}
