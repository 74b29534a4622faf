package fleet

import (
	"math"
	"time"
)

// Digest is what one replica tells the others about itself. It holds absolute
// values only, never differences, so that a lost or repeated digest costs
// accuracy for one interval and nothing else.
type Digest struct {
	// Replica is the member's name, unique in the fleet.
	Replica string
	// Incarnation is random at process start; a restarted replica is another
	// incarnation. Of two the higher one stays, and a replica that hears of a
	// higher one of itself goes above it.
	Incarnation uint64
	// Sequence grows with every digest of an incarnation.
	Sequence uint64
	Build    string // version of the program
	Config   string // short hash of the effective configuration
	InFlight int64  // requests running now
	Pools    []Pool // pools with waiters or recent grants, busiest first
	// Throttles are what this replica was told itself of providers' quotas, most
	// urgent first.
	Throttles []Throttle
	// Agents are those whose slots this replica holds or waits for, busiest first.
	Agents []AgentLoad
}

// AgentLoad is one replica's part of an agent's load.
type AgentLoad struct {
	Agent   string // same on every replica, e.g. 32 hex digits
	Held    int    // slots held here
	Waiting int    // requests here that wait for one
}

// Throttle is what one replica was told of the quotas of one account and model.
// Its times are relative to when the digest was made, so that clocks need not
// agree: whoever receives it counts from when it was heard. NoTime is none.
type Throttle struct {
	Name     string        // same on every replica, e.g. 32 hex digits
	Until    time.Duration // no start before then
	Overload time.Duration // nor before then
	Stopped  time.Duration // when the account was refused for good
	Probed   time.Duration // pauses that ended, and stops told, until then are over
	Levels   []QuotaLevel
}

// QuotaLevel is how one quota stood when it was last told; see package throttle.
type QuotaLevel struct {
	Unit      string
	Window    time.Duration // 0: not said; else up to a month and a day
	Scope     string
	Limit     int64
	Period    time.Duration
	Windowed  bool
	End       time.Duration // relative, as in Throttle
	Remaining int64
	Seen      time.Duration // relative, as in Throttle; in general below zero
}

// NoTime stands for an instant that does not exist.
const NoTime time.Duration = math.MinInt64

// Pool is one replica's view of one contended capacity.
type Pool struct {
	Name string // the pool's bucket, e.g. "model:<32 hex>"; same on every replica
	// Spacing is the smoothed gap between consecutive grants of this pool's
	// line here (the headway); 0 means unknown: no grants lately.
	Spacing time.Duration
	Depth   int // waiters here
	// Tenants are the longest queues of this pool here, longest first.
	Tenants []TenantLoad
}

// TenantLoad is one tenant's part of a pool at one replica.
type TenantLoad struct {
	Tenant string  // hashed id
	Queued int     // waiters here
	Served float64 // cost served here since this incarnation began, ≥ 0, never falls
}
