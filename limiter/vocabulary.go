package limiter

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Dimension is what a limit is kept per. The set is closed: it is a metric
// label, a part of store keys and the limit_type of an answer.
type Dimension string

const (
	Global Dimension = "global"  // the whole fleet; one identity, checked before authentication
	Client Dimension = "client"  // client address; checked before authentication
	APIKey Dimension = "api_key" // one API key, by its stable secret-free id
	User   Dimension = "user"    // the user behind the key
	Team   Dimension = "team"    // the organisation behind the key
	Model  Dimension = "model"   // the model a request names; shared by all tenants

	// Backend is the server that does the work; charged when one is selected, after
	// admission (see Grant.Select).
	Backend Dimension = "backend"
)

// Dimensions lists every dimension in the order in which a request is charged.
var Dimensions = [...]Dimension{Global, Client, APIKey, User, Team, Model, Backend}

// Identifies reports whether d says who is asking once a key is known. Only
// refusals of such dimensions may wait in line: global and client refusals
// happen before anybody is identified.
func (d Dimension) Identifies() bool {
	return d == APIKey || d == User || d == Team || d == Model
}

// Tenant reports whether d can name a tenant, the party fairness is between.
func (d Dimension) Tenant() bool { return d == APIKey || d == User || d == Team }

// Class is the kind of thing a limit counts. Classes are checked in the order
// of their declaration, and the first that refuses gives a refusal its name.
type Class uint8

const (
	Requests Class = iota // requests started
	Tokens                // LLM tokens: estimated at admission, settled at the end
	InFlight              // requests running now
)

// String returns the name used in keys, metrics and answers.
func (c Class) String() string { return [...]string{"requests", "tokens", "inflight"}[c] }

// ID is an identity as the store, gossip, metrics and logs may see it: the
// first 128 bits of a SHA-256 in 32 hex digits. The empty ID means that the
// request has no identity in that dimension, and no limit of it applies.
type ID string

// Hash derives the ID of a raw identity. The dimension is part of the digest,
// so that one text used as a user and as a team gives two unrelated IDs. The
// empty text has the empty ID.
func Hash(d Dimension, raw string) ID {
	if raw == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(string(d) + "\x00" + raw))
	return ID(hex.EncodeToString(sum[:16]))
}

// Everyone is the one identity of the Global dimension.
var Everyone = Hash(Global, "*")

// Identities says who and what a request is about: one ID per dimension,
// empty where it has none.
type Identities struct {
	Client, APIKey, User, Team, Model ID
}

// Of returns the ID in dimension d.
func (i Identities) Of(d Dimension) ID {
	switch d {
	case Global:
		return Everyone
	case Client:
		return i.Client
	case APIKey:
		return i.APIKey
	case User:
		return i.User
	case Team:
		return i.Team
	case Model:
		return i.Model
	}
	return ""
}

// Skip names classes of limits that do not apply to a request. The zero Skip is
// that of everybody.
type Skip uint8

const (
	SkipRequests Skip = 1 << iota // request counts
	SkipTokens                    // token budgets
	SkipInFlight                  // in-flight caps
	SkipQueue                     // the wait line: it asks past those who wait, and is refused rather than held

	SkipAll = SkipRequests | SkipTokens | SkipInFlight | SkipQueue // every limit
)

// Tenant is the party that fairness is between, and its share.
type Tenant struct {
	Dimension Dimension
	ID        ID
	Weight    float64 // share relative to other tenants; > 0
}

// Request asks to start one piece of work.
type Request struct {
	Identities
	// Tokens is the estimated cost in LLM tokens, ≥ 0. Zero takes nothing from
	// token budgets, but a budget in debt still refuses it.
	Tokens int64
	// Deadline is when the caller stops caring (the request's total timeout). A wait
	// that cannot end before is refused at once; one that the deadline of a context
	// ends is not, so say both. The zero time means that only the wait line's own
	// bound applies.
	Deadline time.Time
	// Anonymous requests (no valid key) are charged to Global and Client only,
	// and never wait.
	Anonymous bool
	// Skip names what does not apply to the request.
	Skip Skip
	// Batch work is not refused for what time will lift: it waits, behind everybody
	// else, until Deadline. The wait line's own bounds and SkipQueue do not matter.
	Batch bool
	// Step marks a part of a request that was admitted itself: it is charged to
	// Model alone, and who asks only says whose turn it is.
	Step bool
}
