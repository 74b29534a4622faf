package bench

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Class is what kind of tenant one is. It decides how much it asks for.
type Class string

// All classes. A tenant's share is what it would get of the limit if all asked
// for more than they can have.
const (
	Flood Class = "flood" // many times its share: an importer, a runaway loop
	Heavy Class = "heavy" // a few times its share: always backlogged
	Small Class = "small" // well below its share: should never wait for long
)

// Backlogged reports whether tenants of the class always have somebody waiting.
func (c Class) Backlogged() bool { return c != Small }

// Scenario is a mix of tenants, the way they reach the replicas, and what
// happens to the fleet meanwhile. It is data: equal options plan equal runs.
type Scenario struct {
	Name, Help string
	Balance    Balance
	Tenants    int // where no other number is asked for
	// Members are the tenants one by one, in place of the usual mix of Tenants:
	// one flood, 30 % heavy ones, all others small.
	Members []Member
	// Weights are dealt out to the tenants of the usual mix in turn; none: all 1.
	Weights []float64
	// Rate is the shared limit in requests per second against a redis-server;
	// the embedded one gets a fraction of it.
	Rate int64
	// Places is how many requests of one tenant may wait on one replica. They
	// are enough to keep a backlogged tenant backlogged, and few enough for
	// waits to end within the run.
	Places int
	// Answer is the distribution of the tokens of an answer.
	Answer Dist
	// Warm and Measured are the parts of a run, where no other is asked for.
	Warm, Measured time.Duration
	Faults         []Trouble
	// Immediate says that nobody waits in line: what is over the limit is refused
	// at once. Times to answer then are the store's and the replica's alone.
	Immediate bool
	// OnOutage is the replicas' policy for an unusable store, where no other is
	// asked for; empty: their default.
	OnOutage string
	// StoreTimeout is a request's budget for the store. Zero: a generous one, for
	// scenarios in which a busy machine should look slow, not broken.
	StoreTimeout time.Duration
	// TokenGap is the pause between tokens, in seconds; with one, answers are
	// streams.
	TokenGap Dist
	// Slots is how many requests of one tenant may be in flight, and LeaseTTL how
	// long those of a dead replica stay taken. Zero: unlimited, and the default.
	Slots    int64
	LeaseTTL time.Duration
}

// Member is one tenant of a Scenario that names them.
type Member struct {
	Name   string
	Class  Class
	Weight float64
	Load   float64 // in multiples of its share
}

// What the classes of the usual mix ask for, in multiples of their share. The
// flood is enough to be backlogged on every replica of a large fleet.
const (
	floodLoad = 25
	heavyLoad = 3
	smallLoad = 0.3
	heavyPart = 0.3 // of all tenants
)

// TroubleKind is something that happens to a fleet.
type TroubleKind string

// All kinds of trouble.
const (
	RedisStall TroubleKind = "redis_stall" // Redis answers nothing, again and again
	Leave      TroubleKind = "leave"       // the last replica drains and ends
	Join       TroubleKind = "join"        // it starts again
	GossipCut  TroubleKind = "gossip_cut"  // replicas hear nothing of each other

	// The store is away from the begin to the end.
	RedisDown     TroubleKind = "redis_down"     // killed, and started again empty
	RedisHang     TroubleKind = "redis_hang"     // stopped: it accepts and reads nothing
	RedisSlow     TroubleKind = "redis_slow"     // every answer of it is late by Pause
	RedisReadonly TroubleKind = "redis_readonly" // it has become the replica of a server that is away
	RedisFull     TroubleKind = "redis_oom"      // out of memory, with nothing to evict
	RedisFailover TroubleKind = "redis_failover" // the master is killed; sentinels promote another

	Crash TroubleKind = "replica_crash" // the last replica is killed, and started again at the end
)

// OutageKinds are the troubles that take the store away, in the order of the
// chaos table.
var OutageKinds = []TroubleKind{RedisDown, RedisHang, RedisSlow, RedisReadonly, RedisFull, RedisFailover}

// TakesStore reports whether the store is unusable while the trouble lasts.
func (k TroubleKind) TakesStore() bool { return slices.Contains(OutageKinds, k) }

// Trouble is a TroubleKind on the timeline of the measured part of a run.
type Trouble struct {
	Kind TroubleKind
	At   float64 // when it begins, as a part of the measured time
	For  float64 // how long it lasts, likewise; 0 for what only begins
	// A RedisStall stops Redis for Pause once every Every; RedisSlow is slow by
	// Pause.
	Every, Pause time.Duration
}

// usual fills in what most scenarios have in common.
func usual(s Scenario) Scenario {
	s.Tenants = cmp.Or(s.Tenants, 30)
	s.Rate = cmp.Or(s.Rate, 100)
	s.Places = cmp.Or(s.Places, 16)
	s.Warm, s.Measured = cmp.Or(s.Warm, 6*time.Second), cmp.Or(s.Measured, 30*time.Second)
	if s.Answer == (Dist{}) {
		s.Answer = Constant(8)
	}
	return s
}

// Scenarios are all that ship, in the order of their introduction.
var Scenarios = append([]Scenario{
	usual(Scenario{
		Name: "even", Help: "every tenant spreads over all replicas", Balance: RoundRobin, Places: 4,
	}),
	usual(Scenario{
		Name: "skewed", Help: "the flood reaches one replica only, all others spread", Balance: Skewed, Places: 4,
	}),
	usual(Scenario{
		Name: "sticky", Help: "every tenant stays on one replica", Balance: Sticky,
	}),
	usual(Scenario{
		Name: "heavyall", Help: "the flood reaches all replicas, every other tenant stays on one", Balance: FloodAll,
	}),
	usual(Scenario{
		Name: "heavy-tenant", Help: "an importer floods; gold (weight 3) wants more than there is, two small ones little", Balance: RoundRobin, Places: 8,
		Members: []Member{
			{"importer", Flood, 1, 12}, {"gold", Heavy, 3, 2}, {"small-a", Small, 1, 0.3}, {"small-b", Small, 1, 0.3},
		},
	}),
	usual(Scenario{
		Name: "weights", Help: "heavyall with weights 1, 2, 3 and 4", Balance: FloodAll, Weights: []float64{1, 2, 3, 4},
	}),
	usual(Scenario{
		Name: "big-jobs", Help: "heavyall with answers of very different length (log-normal, sigma 1)", Balance: FloodAll,
		Answer: LogNormal(100, 1),
	}),
	usual(Scenario{
		Name: "join-leave", Help: "heavyall, and the last replica leaves and comes back", Balance: FloodAll,
		Measured: 45 * time.Second,
		Faults:   []Trouble{{Kind: Leave, At: 1.0 / 3}, {Kind: Join, At: 2.0 / 3}},
	}),
	usual(Scenario{
		Name: "many-tenants", Help: "10,000 tenants on one limit, the flood on all replicas", Balance: FloodAll,
		Tenants: 10_000, Rate: 800, Warm: 15 * time.Second, Measured: 60 * time.Second,
	}),
	usual(Scenario{
		Name: "stall", Help: "heavyall on a Redis that stops for 200 ms every 2 s", Balance: FloodAll,
		Rate:   400, // a round of all tenants is short beside a stall
		Faults: []Trouble{{Kind: RedisStall, For: 1, Every: 2 * time.Second, Pause: 200 * time.Millisecond}},
	}),
	usual(Scenario{
		Name: "gossip-cut", Help: "heavyall, and half of the time no replica hears another", Balance: FloodAll,
		Measured: 120 * time.Second,
		Faults:   []Trouble{{Kind: GossipCut, At: 0.125, For: 0.5}},
	}),
}, outageScenarios...)

// FindScenario returns the scenario of that name.
func FindScenario(name string) (Scenario, error) {
	var names []string
	for _, s := range Scenarios {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Scenario{}, fmt.Errorf("bench: scenario %q is not one of %v", name, names)
}

// Tenant is one tenant of a plan: its load, and what is expected of it.
type Tenant struct {
	Load
	Class Class
	// Settled says that all of its requests go to one replica.
	Settled bool
	// Places is how many of its requests may wait in the whole fleet at once.
	Places int
}

// Plan deals out the scenario's load: tenants share rate requests per second,
// and the order in which a balancer meets them is drawn from the seed (the
// flood stays first).
func (s Scenario) Plan(tenants, replicas int, rate float64, seed uint64) []Tenant {
	members := s.Members
	if members == nil {
		members = s.mix(tenants)
		// The number keeps this sequence apart from those of the driver.
		rng := rand.New(rand.NewPCG(seed, 1<<61))
		rest := members[1:]
		rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	}
	var weights float64
	for _, m := range members {
		weights += m.Weight
	}
	out := make([]Tenant, len(members))
	for i, m := range members {
		t := Tenant{Class: m.Class, Settled: replicas == 1 || s.Balance.Settled(i), Places: s.Places * replicas}
		if t.Settled {
			t.Places = s.Places
		}
		t.Load = Load{
			Tenant: m.Name, Weight: m.Weight, Rate: rate * m.Weight / weights * m.Load, Tokens: s.Answer,
			Stream: s.TokenGap != (Dist{}),
		}
		out[i] = t
	}
	return out
}

// mix is the usual one.
func (s Scenario) mix(n int) []Member {
	weight := func(i int) float64 {
		if len(s.Weights) == 0 {
			return 1
		}
		return s.Weights[i%len(s.Weights)]
	}
	members := []Member{{"flood", Flood, weight(0), floodLoad}}
	heavy := int(heavyPart * float64(n))
	for i := 1; i < n; i++ {
		m := Member{fmt.Sprintf("small-%d", i), Small, weight(i), smallLoad}
		if i <= heavy {
			m = Member{fmt.Sprintf("heavy-%d", i), Heavy, weight(i), heavyLoad}
		}
		members = append(members, m)
	}
	return members
}

// OwnsRedis reports whether the scenario needs a Redis of its own, since it does
// to it what no other user of one should meet.
func (s Scenario) OwnsRedis() bool {
	return slices.ContainsFunc(s.Faults, func(t Trouble) bool { return t.Kind == RedisStall || t.Kind.TakesStore() })
}

// NeedsProcesses reports whether replicas are to be processes of their own even
// where that is not asked for: one in this process cannot be killed, and times
// of what they do to each other would be those of one program.
func (s Scenario) NeedsProcesses() bool {
	return slices.ContainsFunc(s.Faults, func(t Trouble) bool { return t.Kind == Crash || t.Kind.TakesStore() })
}

// Has reports whether kind is among the scenario's troubles.
func (s Scenario) Has(kind TroubleKind) bool {
	return slices.ContainsFunc(s.Faults, func(t Trouble) bool { return t.Kind == kind })
}
