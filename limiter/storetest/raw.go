package storetest

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

// Op is a script.
type Op uint8

// The scripts.
const (
	Admit Op = iota
	Settle
	Lease
	Inspect
	Pool
)

// Call is one script call: the union of all scripts' arguments, each in the
// unit of its header. Amounts are micro-tokens, times µs, TTL ms.
type Call struct {
	Op       Op
	NotAfter int64 // 0: no fence
	Inc      string
	Seq, TTL int64
	Retry    bool // of Settle
	Buckets  []Bucket
	Slots    []Slot
	// Also are further decisions of the same Admit, after this one, each with as
	// many buckets, slots and turns. Of them only NotAfter, Seq, Buckets and Slots
	// count.
	Also []Call

	// Of Pool. Its bucket is the contended one, or, with a slot, describes it: the
	// counter is contended then, of which the replica holds Held.
	Grace, Most, Rest, More int64
	Bids                    []Bid
}

// Bid is one bid of a Pool call.
type Bid struct {
	Tenant        string
	Cost          int64
	Weight, Since float64 // Since < 0: unknown
	Seq           int64
	Buckets       []Bucket
	Slots         []Slot
}

// Bucket is a bucket of a call. Key is any short name.
type Bucket struct {
	Key                  string
	Limit, Period, Burst int64
	Amount               int64 // cost, or the delta of Settle
	MaxDebt              int64

	InTurn bool    // of Admit: claims on its turns refuse it
	Tenant string  // of Settle: whose turn is corrected; or empty
	Weight float64 // of that tenant
}

// Slot is a counter of a call. Key is any short name.
type Slot struct {
	Key             string
	Cap, Held, Want int64
}

// Raw is a server at the level of script calls. Implementations fail the test
// when a call cannot be made.
type Raw interface {
	// Run makes one call and returns its reply, flat as the script gives it; tags
	// and virtual times as the bits of their float64. Of an Admit the reply
	// begins with the first decision's status and the time; each decision of
	// Also adds its status and the rest.
	Run(c Call) []int64
	// Flush loses all data.
	Flush()
	// State returns everything stored, values and the instants of expiry.
	State() string
	// Wait lets d pass for the server, at least.
	Wait(d time.Duration)
	// Back sets the server's clock back by d, or does what amounts to it for
	// the buckets that are stored.
	Back(d time.Duration)
}

// Oracle answers a call as of a Redis time that it is told.
type Oracle interface {
	At(now int64, c Call) []int64
}

var seedFlag = flag.Uint64("storetest.seed", 0, "repeat random store tests with this seed")

// Seeded returns a source of randomness and prints its seed if t fails.
func Seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with -storetest.seed=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

// token is one token in micro-tokens.
const token = 1_000_000

// second is one second in µs.
const second = 1_000_000
