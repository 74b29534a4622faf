// Package storetest is the contract of limiter.Store as tests, for every
// implementation, and of the scripts beneath.
//
// Three levels, from the outside in:
//
//   - Contract checks a fleet of limiter.Store handles on one server: limits,
//     all or nothing, slots, crashes, give-backs. Same compares two kinds of
//     store over a random tape of operations, answer by answer.
//   - Properties checks one server at the level of script calls, where a call or
//     a reply can be lost, repeated or reordered on purpose: B1 to B8 of buckets
//     and L1 to L4 of leases, as named below.
//   - Twin feeds one random tape of script calls to a server and to an oracle at
//     the server's own time, and wants equal replies, integer by integer.
//
// Random tests print their seed when they fail; -storetest.seed repeats one.
//
// The properties, for limits in micro-tokens (u):
//
//	B1 in any window w: Σ charged ≤ burst + limit·w/period
//	B2 saturated for w: Σ charged ≥ burst + limit·w/period − max cost − 1 u per operation
//	B3 a refused call changes no key, byte for byte, and extends no lifetime
//	B4 a wait is tight: a call passes then, and not 1 µs before
//	B5 a clock that goes back adds no tokens
//	B6 take and give back restores; repeated give-backs stop at the burst
//	B7 a cost above the burst never passes, or, with debt allowed, only from full
//	B8 a lowered burst cuts at once; a raised one gives nothing
//	L1 Σ running of replicas that never missed their ttl ≤ cap
//	L2 stored total ≥ Σ running; equal after each replica's next sync
//	L3 a crashed replica's slots end with its ttl; its successor inherits none
//	L4 a repeated statement changes nothing more, an older one nothing at all
package storetest
