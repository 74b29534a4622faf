package limiter

import (
	"errors"
	"fmt"
	"time"
)

// Reason says why a request was refused. The set is closed and small: it is a
// metric label, a JSON field and what tests compare.
type Reason string

// Reasons given by a bucket or a slot.
const (
	ReasonRequests     Reason = "requests"      // a request bucket is empty
	ReasonTokens       Reason = "tokens"        // a token budget cannot cover the estimate
	ReasonInFlight     Reason = "inflight"      // no in-flight slot is free
	ReasonExceedsBurst Reason = "exceeds_burst" // the cost is above the burst: it can never pass
	ReasonBlocked      Reason = "blocked"       // the limit is zero: nothing ever passes
)

// Reasons that lie with the provider behind a backend; see [Grant.Refused].
const (
	ReasonProviderPaused  Reason = "provider_paused"  // it refuses for now, or is overloaded
	ReasonProviderQuota   Reason = "provider_quota"   // too little is left of its quota
	ReasonProviderStopped Reason = "provider_stopped" // the account needs its owner
)

// Reasons given by the wait line.
const (
	ReasonQueueFull         Reason = "queue_full"          // max_total_queued
	ReasonTenantQueueFull   Reason = "tenant_queue_full"   // max_queue_depth_per_tenant
	ReasonTenantTableFull   Reason = "tenant_table_full"   // max_tenants
	ReasonWaitExceedsBudget Reason = "wait_exceeds_budget" // the limiter's own wait does not fit what is left
	ReasonDeadlineExceeded  Reason = "deadline_exceeded"   // waited as long as it may
	ReasonClientGone        Reason = "client_gone"         // the caller left; counted, never answered
	ReasonDraining          Reason = "draining"            // this replica is going away
)

// Reasons lists every Reason, for documentation and tests.
var Reasons = [...]Reason{
	ReasonRequests, ReasonTokens, ReasonInFlight, ReasonExceedsBurst, ReasonBlocked,
	ReasonProviderPaused, ReasonProviderQuota, ReasonProviderStopped,
	ReasonQueueFull, ReasonTenantQueueFull, ReasonTenantTableFull, ReasonWaitExceedsBudget,
	ReasonDeadlineExceeded, ReasonClientGone, ReasonDraining,
}

// ErrUnavailable means that the store could not decide in time: it is down,
// hung, read-only, out of memory or broken. It is never a refusal; the outage
// policy looks at this error alone.
var ErrUnavailable = errors.New("limiter: store unavailable")

// ErrForgotten says why a usable store gives no turns of slots for a moment: it has
// lost what replicas hold, and not all have stated that again. It wraps ErrUnavailable.
var ErrForgotten = fmt.Errorf("what replicas hold is not known: %w", ErrUnavailable)

// Never is the wait of a request that cannot pass however long it waits.
const Never time.Duration = -1

// Refusal is the answer "not now" to one request. It is a value for the
// caller, never a failure of the limiter; the request took nothing.
type Refusal struct {
	Dimension Dimension // whose limit refused
	Class     Class     // what ran out
	Reason    Reason
	// RetryAfter is when a lone retry would pass, counted from now: the longest
	// wait of all limits that refuse. Never means that no retry can help.
	RetryAfter time.Duration
	// Line describes the wait, nil when the request never came near a wait line.
	Line *LineInfo
	// Held describes the wait for token budgets, or of batch work; nil: it was not
	// held.
	Held *HeldInfo
	// Levels are those of the caller's own API-key buckets.
	Levels Levels
	// Degraded is as in Grant.Degraded.
	Degraded string
}

// Error implements error.
func (r *Refusal) Error() string {
	return fmt.Sprintf("limiter: refused by %s %s: %s, retry after %v", r.Dimension, r.Class, r.Reason, r.RetryAfter)
}

// LimitType is the limit_type of an answer: "inflight" or "tokens" for those
// classes, else the dimension.
func (r *Refusal) LimitType() string {
	if r.Class == Requests {
		return string(r.Dimension)
	}
	return r.Class.String()
}

// LineInfo describes what a wait line did to one request.
type LineInfo struct {
	TenantDimension Dimension
	// Position is 1 plus the waiters that will be served before, over the
	// fleet when Scope is "fleet". It never rises for a waiter.
	Position int
	Waited   time.Duration // time spent queued so far
	// Estimated is the wait foreseen when the request was queued.
	Estimated time.Duration
	Scope     Scope
}

// HeldInfo describes how long a request was held until its limits could cover it:
// one that was deferred, or batch work.
type HeldInfo struct {
	Waited time.Duration
}

// Scope tells how far a position or an estimate reaches.
type Scope string

const (
	ScopeReplica Scope = "replica" // this process only
	ScopeFleet   Scope = "fleet"   // all replicas, from a fresh gossip view
)

// Levels are the fill levels a caller may be told, after its request was
// decided. A nil entry means that there is no such limit.
type Levels struct {
	Requests, Tokens *Level
}

// Level is the state of one bucket.
type Level struct {
	Rate      Rate
	Remaining int64         // whole tokens left, ≥ 0 (a debt shows as 0)
	Reset     time.Duration // until the bucket is full again
}
