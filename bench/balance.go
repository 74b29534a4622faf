package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
)

// Balance names the way requests are spread over replicas, as a load balancer
// in front of them would.
type Balance string

const (
	RoundRobin       Balance = "round_robin"       // one after the other
	RandomReplica    Balance = "random"            // any, independently
	LeastConnections Balance = "least_connections" // the one with fewest requests outstanding
	Sticky           Balance = "sticky"            // each tenant on one replica, tenants in turn
	Skewed           Balance = "skewed"            // the first tenant on the first replica, all others round robin
	FloodAll         Balance = "all"               // the first tenant round robin, each other one on one replica
)

// Balances lists every Balance.
var Balances = []Balance{RoundRobin, RandomReplica, LeastConnections, Sticky, Skewed, FloodAll}

// ParseBalance checks a name.
func ParseBalance(name string) (Balance, error) {
	if !slices.Contains(Balances, Balance(name)) {
		return "", fmt.Errorf("bench: balance %q is not one of %s", name, strings.Trim(fmt.Sprint(Balances), "[]"))
	}
	return Balance(name), nil
}

// balancer picks a replica for each request. pick is called by one goroutine;
// outstanding changes under it.
type balancer struct {
	policy      Balance
	rng         *rand.Rand
	turn        int
	outstanding []atomic.Int64 // per replica
	down        []atomic.Bool  // per replica: takes no requests
}

func newBalancer(policy Balance, replicas int, seed uint64) *balancer {
	return &balancer{
		policy: policy,
		// The second number keeps this sequence apart from those of the tenants.
		rng:         rand.New(rand.NewPCG(seed, 1<<63)),
		outstanding: make([]atomic.Int64, replicas), down: make([]atomic.Bool, replicas),
	}
}

// Settled reports whether b keeps every request of the tenant on one replica.
func (b Balance) Settled(tenant int) bool {
	switch b {
	case Sticky:
		return true
	case Skewed:
		return tenant == 0
	case FloodAll:
		return tenant != 0
	}
	return false
}

// pick is the chosen replica, or the next one that takes requests.
func (b *balancer) pick(tenant int) int {
	n, at := len(b.outstanding), b.choose(tenant)
	for i := range n {
		if next := (at + i) % n; !b.down[next].Load() {
			return next
		}
	}
	return at
}

func (b *balancer) choose(tenant int) int {
	n := len(b.outstanding)
	switch b.policy {
	case RandomReplica:
		return b.rng.IntN(n)
	case LeastConnections:
		return b.least()
	case Sticky, Skewed, FloodAll:
		if b.policy.Settled(tenant) {
			return tenant % n
		}
	}
	b.turn++
	return (b.turn - 1) % n
}

// least starts its search at another replica each time, so that ties are
// spread.
func (b *balancer) least() int {
	n := len(b.outstanding)
	b.turn++
	best := b.turn % n
	for i := range n {
		at := (b.turn + i) % n
		if b.down[best].Load() || b.outstanding[at].Load() < b.outstanding[best].Load() && !b.down[at].Load() {
			best = at
		}
	}
	return best
}
