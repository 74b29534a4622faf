package limiter

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter/fairq"
)

// Defaults of FairConfig, used where a field is zero.
const (
	DefaultWeight                 = 1.0
	DefaultMaxQueueDepthPerTenant = 32
	DefaultMaxTotalQueued         = 4096
	DefaultMaxTenants             = 1024
	DefaultMaxInFlight            = 8
	DefaultMaxWait                = 5 * time.Second

	// MaxWeight is the largest weight a tenant may have.
	MaxWeight = 1000.0
	// maxAmount bounds limits, bursts and costs: in micro-tokens they stay
	// below 2^53 and so exact in the scripts' floating point numbers.
	maxAmount = 9_000_000_000
)

// Defaults of DeferralConfig and of Config.BatchDepth, used where a field is zero.
const (
	DefaultDeferralWait = 5 * time.Second
	DefaultMaxHeld      = 256
	DefaultBatchDepth   = 1000
)

// DisciplineOfBatch is the order between tenants of batch work.
const DisciplineOfBatch = fairq.DRR

// OutagePolicy says what happens to requests while the store cannot decide.
type OutagePolicy string

const (
	FailClosed OutagePolicy = "fail_closed" // refuse: ErrUnavailable
	FailOpen   OutagePolicy = "fail_open"   // admit, counted and marked as degraded

	// LocalShare lets this process limit alone, to its share of each limit. It
	// takes a Store that does so; with any other it is FailClosed.
	LocalShare OutagePolicy = "local_share"
)

// Rule is the set of limits of one identity. The zero Rule limits nothing.
type Rule struct {
	Requests    *Rate // nil: unlimited
	Tokens      *Rate // nil: unlimited
	MaxInFlight int   // most requests running at once; 0: unlimited
}

// Limit is the rule of one dimension, and of identities that differ from it.
type Limit struct {
	Rule
	Overrides map[ID]Rule // replace the whole rule
}

// rule returns the rule of one identity.
func (l Limit) rule(id ID) Rule {
	if r, ok := l.Overrides[id]; ok {
		return r
	}
	return l.Rule
}

// FairConfig shapes the wait line. Zero fields take the defaults.
type FairConfig struct {
	// Enabled turns waiting on. Off, every refusal is answered at once.
	Enabled bool
	// TenantDimension names the party fairness is between: User (the default),
	// APIKey or Team. A request without it falls back to user, team, api_key.
	TenantDimension Dimension
	// Scope says how far fairness reaches; empty means FairReplica.
	Scope FairnessScope
	// Discipline is the order between tenants under FairReplica; empty means
	// fairq.SWRR. By DRR and SFQ tenants share cost: that of a request is its
	// Tokens, at least 1. The other scopes have an order of their own.
	Discipline    Discipline
	Weights       map[ID]float64 // share of single tenants, in (0, 1000]
	DefaultWeight float64        // share of all others, in (0, 1000]

	MaxQueueDepthPerTenant int // waiters of one tenant
	MaxTotalQueued         int // waiters in this process
	MaxTenants             int // tenants with waiters
	// MaxInFlight is how many waiters may ask the store at the same moment.
	// More shortens the line's dead time at a fast limit; each one too many
	// costs a refused call.
	MaxInFlight int
	MaxWait     time.Duration // longest time one request waits
}

// DeferralConfig shapes the wait for token budgets. Zero fields take the defaults.
type DeferralConfig struct {
	Enabled bool
	MaxWait time.Duration // longest time one request is held
	MaxHeld int           // requests held in this process
}

func (d DeferralConfig) validate() error {
	if d.MaxWait < 0 || d.MaxHeld < 0 {
		return fmt.Errorf("limiter: deferral: max wait %v or max held %d is negative", d.MaxWait, d.MaxHeld)
	}
	return nil
}

// withDefaults fills the zero fields.
func (c Config) withDefaults() Config {
	c.Fair = c.Fair.withDefaults()
	c.Deferral.MaxWait = cmp.Or(c.Deferral.MaxWait, DefaultDeferralWait)
	c.Deferral.MaxHeld = cmp.Or(c.Deferral.MaxHeld, DefaultMaxHeld)
	c.BatchDepth = cmp.Or(c.BatchDepth, DefaultBatchDepth)
	return c
}

// Discipline names an order between tenants: fairq.SWRR, DRR or SFQ.
type Discipline = fairq.Discipline

// FairnessScope says how far fairness reaches.
type FairnessScope string

const (
	// FairReplica shares turns among the waiters of each replica, which then
	// race for the bucket.
	FairReplica FairnessScope = "replica"
	// FairGossip orders the waiters of each replica by what their tenants were
	// served in the whole fleet, as gossip tells, and slows down those ahead.
	FairGossip FairnessScope = "gossip"
	// FairExact shares turns among the waiters of the whole fleet: the store
	// keeps everybody's place.
	FairExact FairnessScope = "exact"
)

// inTurn reports whether the line of b takes turns with the whole fleet: where
// it may hold more than one tenant.
func (f FairConfig) inTurn(b BucketID) bool {
	return f.Enabled && f.Scope == FairExact && b.Class == Requests && f.shares(b)
}

// shares reports whether b is a pool: more than one tenant can draw from it.
func (f FairConfig) shares(b BucketID) bool { return breadth[b.Dimension] > breadth[f.TenantDimension] }

// weight is the share of a tenant.
func (f FairConfig) weight(id ID) float64 {
	if w, ok := f.Weights[id]; ok {
		return w
	}
	return f.DefaultWeight
}

// Config configures a Limiter.
type Config struct {
	// Limits by dimension; an absent dimension is unlimited.
	Limits map[Dimension]Limit
	Fair   FairConfig
	// Deferral holds requests that a token budget refuses. Off, they are refused.
	Deferral DeferralConfig
	// BatchDepth is how much batch work of one tenant may wait for its limits here;
	// 0: DefaultBatchDepth.
	BatchDepth int
	// DefaultOutage applies to every dimension without an entry in OnOutage;
	// empty means FailClosed. A request that several policies apply to fails
	// closed if any of them says so; else it is decided by the dimensions of
	// LocalShare alone.
	DefaultOutage OutagePolicy
	OnOutage      map[Dimension]OutagePolicy
	// Homes names a tenant's home in all its buckets and slots, for stores that
	// spread tenants over shards. A user must then be of one team, and a key of
	// one user, in all requests: with two homes it would have two budgets.
	Homes bool
	// LocalSlots counts in-flight slots in this process, not over the fleet: a cap
	// is then one per replica, costs no call, and holds without the store, too.
	LocalSlots bool
	// Registerer takes the limiter's metrics, and keeps them after Close, so each
	// Limiter needs one of its own; nil keeps them private.
	Registerer prometheus.Registerer
	Logger     *slog.Logger // nil: slog.Default()

	version uint64 // counts changes of a Limiter's
}

// Validate reports every mistake at once, each naming its field.
func (c Config) Validate() error {
	var errs []error
	for d, l := range c.Limits {
		if !slices.Contains(Dimensions[:], d) {
			errs = append(errs, fmt.Errorf("limiter: limits: %q is not a dimension", d))
		}
		errs = append(errs, l.Rule.validate(string(d)))
		for id, r := range l.Overrides {
			errs = append(errs, r.validate(fmt.Sprintf("%s override %s", d, id)))
		}
	}
	if c.BatchDepth < 0 {
		errs = append(errs, fmt.Errorf("limiter: batch depth is negative (%d)", c.BatchDepth))
	}
	errs = append(errs, c.Fair.validate(), c.Deferral.validate(), c.DefaultOutage.validate("default"))
	for d, p := range c.OnOutage {
		errs = append(errs, p.validate(string(d)))
	}
	return errors.Join(errs...)
}

func (p OutagePolicy) validate(where string) error {
	switch p {
	case "", FailClosed, FailOpen, LocalShare:
		return nil
	}
	return fmt.Errorf("limiter: %s: on_outage %q is not fail_closed, fail_open or local_share", where, p)
}

func (r Rule) validate(where string) error {
	var errs []error
	for class, rate := range map[Class]*Rate{Requests: r.Requests, Tokens: r.Tokens} {
		if rate != nil {
			errs = append(errs, rate.validate(fmt.Sprintf("%s %s", where, class)))
		}
	}
	if r.MaxInFlight < 0 {
		errs = append(errs, fmt.Errorf("limiter: %s: max in-flight %d is negative; 0 means unlimited", where, r.MaxInFlight))
	}
	return errors.Join(errs...)
}

func (r Rate) validate(where string) error {
	switch {
	case r.Limit < 0 || r.Limit > maxAmount:
		return fmt.Errorf("limiter: %s: limit %d is not in 0..%d", where, r.Limit, int64(maxAmount))
	case r.Per < time.Microsecond:
		return fmt.Errorf("limiter: %s: period %v is shorter than 1µs", where, r.Per)
	case r.Limit > 0 && (r.Burst < 1 || r.Burst > maxAmount):
		return fmt.Errorf("limiter: %s: burst %d is not in 1..%d", where, r.Burst, int64(maxAmount))
	}
	return nil
}

func (f FairConfig) validate() error {
	var errs []error
	if d := f.TenantDimension; d != "" && !d.Tenant() {
		errs = append(errs, fmt.Errorf("limiter: tenant dimension %q is not user, api_key or team", d))
	}
	switch f.Scope {
	case "", FairReplica, FairGossip, FairExact:
	default:
		errs = append(errs, fmt.Errorf("limiter: fairness scope %q is not replica, gossip or exact", f.Scope))
	}
	if err := (fairq.Config{Discipline: f.Discipline}).Validate(); err != nil {
		errs = append(errs, fmt.Errorf("limiter: %w", err))
	}
	weight := func(who string, w float64) {
		if !(w > 0 && w <= MaxWeight) { // also catches NaN
			errs = append(errs, fmt.Errorf("limiter: weight %v of %s is not in (0, %v]", w, who, MaxWeight))
		}
	}
	for id, w := range f.Weights {
		weight("tenant "+string(id), w)
	}
	if f.DefaultWeight != 0 || math.IsNaN(f.DefaultWeight) {
		weight("everyone else", f.DefaultWeight)
	}
	for name, n := range map[string]int{
		"max queue depth per tenant": f.MaxQueueDepthPerTenant, "max total queued": f.MaxTotalQueued,
		"max tenants": f.MaxTenants, "max in flight": f.MaxInFlight, "max wait": int(f.MaxWait),
	} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("limiter: %s is negative (%d)", name, n))
		}
	}
	return errors.Join(errs...)
}

// withDefaults fills the zero fields.
func (f FairConfig) withDefaults() FairConfig {
	if f.TenantDimension == "" {
		f.TenantDimension = User
	}
	if f.Scope == "" {
		f.Scope = FairReplica
	}
	if f.DefaultWeight == 0 {
		f.DefaultWeight = DefaultWeight
	}
	for p, def := range map[*int]int{
		&f.MaxQueueDepthPerTenant: DefaultMaxQueueDepthPerTenant, &f.MaxTotalQueued: DefaultMaxTotalQueued,
		&f.MaxTenants: DefaultMaxTenants, &f.MaxInFlight: DefaultMaxInFlight,
	} {
		if *p == 0 {
			*p = def
		}
	}
	if f.MaxWait == 0 {
		f.MaxWait = DefaultMaxWait
	}
	return f
}

// tenant resolves the party that r belongs to; false when r has no identity.
func (f FairConfig) tenant(r Request) (Tenant, bool) {
	for _, d := range [...]Dimension{f.TenantDimension, User, Team, APIKey} {
		id := r.Of(d)
		if id == "" {
			continue
		}
		return Tenant{Dimension: d, ID: id, Weight: f.weight(id)}, true
	}
	return Tenant{}, false
}

// OutageOf returns the policy of one dimension.
func (c Config) OutageOf(d Dimension) OutagePolicy {
	return cmp.Or(c.OnOutage[d], c.DefaultOutage, FailClosed)
}

// outage returns the policy for a request that dims apply to and that the store
// has left undecided. Where local shares are possible, they come as verdicts.
func (c Config) outage(dims []Dimension) OutagePolicy {
	for _, d := range dims {
		if c.OutageOf(d) != FailOpen {
			return FailClosed
		}
	}
	return FailOpen
}
