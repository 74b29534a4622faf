package limiter

import (
	"context"
	"time"
)

// Rate is a token bucket's shape: Limit tokens every Per, never more than
// Burst at once. A new bucket is full.
type Rate struct {
	Limit int64         // tokens per Per, ≥ 0; zero blocks everything
	Per   time.Duration // > 0, whole microseconds
	Burst int64         // > 0 unless Limit is 0
}

// BucketID names one token bucket.
type BucketID struct {
	Dimension Dimension
	Class     Class // Requests or Tokens
	ID        ID
	// Home is the tenant beside whose keys this one is kept, so that one call of
	// a sharded store reaches all of them; empty where tenants share it, and in
	// stores that keep everything together (see Config.Homes).
	Home ID
}

// SlotID names one in-flight counter.
type SlotID struct {
	Dimension Dimension
	ID        ID
	Home      ID // as in BucketID
	// Here counts it in this process alone (see Config.LocalSlots). The limiter
	// does so itself: stores never see such a slot.
	Here bool
}

// Charge is what a request takes from one bucket.
type Charge struct {
	Bucket BucketID
	Rate   Rate
	Cost   int64 // whole tokens, ≥ 0
	// InTurn refuses the charge, as Contended, while the bucket has claims: some
	// replica waits for its turn there (see Turns).
	InTurn bool
}

// Slot asks for one in-flight slot.
type Slot struct {
	Slot SlotID
	Cap  int // most slots held at once over the fleet, > 0
}

// Take is everything that one request needs to start, taken all or nothing.
type Take struct {
	Charges []Charge
	Slots   []Slot
	// Waited says that the request has stood in a line and this is its turn: a
	// store that remembers what it refused should not make it lose that turn.
	Waited bool
}

// Verdict is the store's decision on one Take.
type Verdict struct {
	OK bool
	// Charges has one entry per Take.Charges, in order: its level after the
	// decision and, if that bucket refuses, how long until it would not.
	Charges []ChargeVerdict
	// Full has one entry per Take.Slots: whether that slot was refused.
	Full []bool
	// Local says that the store was out of reach, and this replica decided alone
	// by its share of the limits (see LocalShare).
	Local bool
}

// ChargeVerdict is one bucket's part of a Verdict.
type ChargeVerdict struct {
	Remaining int64         // whole tokens left, floored, may be negative (debt)
	Wait      time.Duration // 0: covered; Never: cost above burst, or blocked; else rounded up to 1 µs
	Contended bool          // others wait for their turn: join them
}

// Adjustment corrects one bucket after the fact.
type Adjustment struct {
	Bucket BucketID
	Rate   Rate
	Delta  int64 // whole tokens: > 0 gives back, < 0 charges, into debt if need be
	// Tenant, if not empty, had its turn at this bucket (see Turns) with Weight
	// > 0: its finish tag is corrected by the same Delta, in the same step.
	Tenant ID
	Weight float64
}

// Settlement ends what one granted Take began.
type Settlement struct {
	Adjust []Adjustment
	Free   []SlotID // one entry per slot held
	Local  bool     // as in the Verdict that granted it
}

// Health is what readiness and debug pages say of a store.
type Health struct {
	Usable bool
	State  string    // "ok", or the kind of trouble in a few words
	Since  time.Time // when State began
}

// Store keeps buckets and in-flight slots for the whole fleet. An
// implementation stands for one replica: it keeps its slots alive while they
// are held, and loses them all at once when the replica dies. Implementations
// are safe for concurrent use; [github.com/headway-limiter/headway/limiter/storetest]
// is their contract as tests.
type Store interface {
	// Admit decides one Take by the store's own clock, all or nothing: refused
	// means that no bucket and no slot changed. The error, if any, wraps
	// ErrUnavailable or is ctx.Err(); whatever a call took that ended in an
	// error is given back by the store itself. Admit returns at the latest
	// when the store's own deadline has passed, even if the server hangs.
	Admit(ctx context.Context, t Take) (Verdict, error)
	// Settle ends a granted Take: slots are free for this replica when it
	// returns, and for the fleet as soon as the store hears of it. It never
	// waits for the network and never fails: what cannot be delivered is tried
	// again, then left to expiry. Give-backs happen at most once, charges at
	// least once, so that loss can only admit less.
	Settle(s Settlement)
	// Turns gives turns at a bucket or at slots in the order of the whole fleet:
	// start-time fair queueing between tenants, with one claim per replica on
	// the next turn. Deadline and errors are those of Admit.
	Turns(ctx context.Context, t Turns) (TurnsVerdict, error)
	// Health reports whether the store can decide now. It does no I/O.
	Health() Health
	// Close gives back every slot of this replica, as far as ctx allows, and
	// ends all goroutines of the store.
	Close(ctx context.Context) error
}
