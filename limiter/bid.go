package limiter

import "time"

// Unknown is a Bid's Since before a store has told it.
const Unknown = -1

// Bid is one waiter's request for a turn at a pool.
type Bid struct {
	Tenant ID
	Weight float64 // share relative to other tenants, in (0, 1000]
	Cost   int64   // whole tokens of the pool's bucket, or slots, 1..Burst
	// Since is the pool's virtual time when the tenant began to wait here, as an
	// earlier BidVerdict told; Unknown before.
	Since float64
	// Rest is what the waiter needs besides the pool's bucket or slots, taken with
	// it or not at all.
	Rest Take
}

// Turns asks for turns at one pool, for waiters of one replica. At most one call
// per pool and replica should be under way.
//
// A pool is a bucket, or the slots of a counter. A granted bid then holds Cost
// slots until a Settlement frees each, and nobody else may take slots of that
// counter by a Take: a newcomer bids as well, and has its answer in one call if
// nobody waits. Whoever frees slots should ask again at once: it alone knows. It
// is given them if its turn has come, and otherwise leaves them to whom they are due,
// who asks within 40 ms, for nobody is told to wait for slots longer than that.
type Turns struct {
	Pool BucketID
	// Slots is the pool if its ID is not empty; Pool is then ignored.
	Slots SlotID
	// Rate of the bucket, Limit > 0. Of slots, Burst is how many there are in the
	// fleet, and Limit of them come free each Per when all are held, as far as the
	// caller can tell: Burst per mean time that a slot is held. It only decides how
	// long waits are told to be, and how much a claim covers.
	Rate Rate
	// Bids in the local order, which decides between equal tags. None withdraws
	// this replica's claim on the next turn.
	Bids []Bid
	Most int // grants of this call, ≥ 1
	// Rest is how long the replica rests at least before it asks again, once it
	// was told to wait: its claim covers what it could have taken meanwhile.
	Rest time.Duration
	More int64 // whole tokens or slots that it would bid for besides, if it could
	// Grace is how long this replica's claim outlives the wait it is told: until
	// then nobody whose turn is later may take what it waits for.
	Grace time.Duration
}

// Home is where the pool's keys are kept (see BucketID.Home).
func (t Turns) Home() ID {
	if t.Slots.ID != "" {
		return t.Slots.Home
	}
	return t.Pool.Home
}

// BidState is what became of a bid.
type BidState uint8

const (
	BidWaits   BidState = iota // others are before it, or the bucket is empty
	BidGranted                 // it and its Rest are taken
	BidBlocked                 // its Rest refuses; it delays nobody
)

// BidVerdict is the store's decision on one Bid.
type BidVerdict struct {
	State BidState
	Rest  Verdict // meaningful unless State is BidWaits
	// Finish is the tenant's finish tag, Since what to send next time, both in
	// virtual time: whole tokens divided by weight.
	Finish, Since float64
	// Err, if not nil, wraps ErrUnavailable: a Local verdict that leaves out this
	// bid, whose limits forbid deciding without the store; or a Rest kept elsewhere
	// than the pool that could not be asked for, after which the turn was given
	// back. It waits.
	Err error
}

// TurnsVerdict is the store's decision on Turns.
type TurnsVerdict struct {
	Bids []BidVerdict // one per bid, in order
	// Wait is until the first bid left may have its turn, Never if none is
	// left; it differs between replicas by construction. Bucket is what it
	// would be with nobody else there. Of slots both are half of what can be
	// expected, at most 40 ms.
	Wait, Bucket time.Duration
	// Before and After are the pool's virtual time around this call.
	Before, After float64
	// Local is as in Verdict: bids were served in the order given, for tags and
	// virtual time are out of reach, and theirs here mean nothing.
	Local bool
}
