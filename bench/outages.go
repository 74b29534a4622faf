package bench

import (
	"fmt"
	"time"
)

// Measures of the scenarios that take the store away. Two thirds of what is
// offered fits the limit, so that a fleet that lets everything through shows.
const (
	outageTenants = 6
	outageLoad    = 1.5
	outageRate    = 200
	// outageTimeout is the default of redis.timeout, which these scenarios are
	// about.
	outageTimeout = 50 * time.Millisecond
	// settled is when a new fleet has seen each other for long enough, which is 5 s,
	// for its replicas to take their shares.
	settled = 6 * time.Second
	// slowness is that of RedisSlow: more than any request waits.
	slowness = 200 * time.Millisecond
)

// Policies are the values of redis.on_outage, by what the chaos table calls
// them.
var Policies = []string{"fail_closed", "fail_open", "local_share"}

// outageScenarios are those of the store and of a replica that are away for a
// while, and of slots, which must outlive both.
var outageScenarios = []Scenario{
	outage("redis-outage", "Redis is killed and comes back empty", Trouble{Kind: RedisDown}),
	outage("redis-hang", "Redis hangs: it accepts connections and answers nothing", Trouble{Kind: RedisHang}),
	outage("replica-crash", "the last replica is killed and starts again", Trouble{Kind: Crash}),
	usual(longStreams),
}

// outage is a scenario of equal tenants on one limit, refused at once where it
// is reached, with 4 s before the trouble, 6 s of it, and 6 s after.
func outage(name, help string, t Trouble) Scenario {
	s := usual(Scenario{
		Name: name, Help: help, Balance: RoundRobin, Rate: outageRate, Places: 1,
		Warm: 4 * time.Second, Measured: 16 * time.Second,
		Immediate: true, OnOutage: Policies[0], StoreTimeout: outageTimeout,
	})
	for i := range outageTenants {
		s.Members = append(s.Members, Member{fmt.Sprintf("tenant-%d", i+1), Heavy, 1, outageLoad})
	}
	t.At, t.For, t.Pause = 4.0/16, 6.0/16, slowness
	s.Faults = []Trouble{t}
	return s
}

// Cell is one scenario of the chaos table: what happens to the store, and what
// replicas do about it.
type Cell struct {
	Kind   TroubleKind
	Policy string // one of Policies
}

// Name is how the cell is asked for: redis_down/fail_closed.
func (c Cell) Name() string { return string(c.Kind) + "/" + c.Policy }

// Scenario is the cell's. A quick one is of a few seconds, long enough to see
// that it holds and heals.
func (c Cell) Scenario(quick bool) Scenario {
	s := outage(c.Name(), "", Trouble{Kind: c.Kind})
	s.OnOutage = c.Policy
	if quick {
		s.Warm, s.Measured = 2*time.Second, 8*time.Second
		s.Faults[0].At, s.Faults[0].For = 1.0/8, 2.5/8
		if c.Policy == "local_share" {
			s.Warm = settled
		}
	}
	return s
}

// ChaosCells are all, by kind and then by policy.
func ChaosCells() (cells []Cell) {
	for _, k := range OutageKinds {
		for _, p := range Policies {
			cells = append(cells, Cell{k, p})
		}
	}
	return cells
}

// QuickCells are the few that every change has to stand: one of each policy,
// down and hung.
var QuickCells = []Cell{{RedisDown, "fail_closed"}, {RedisHang, "fail_open"}, {RedisDown, "local_share"}}
