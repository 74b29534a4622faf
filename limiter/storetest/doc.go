// Package storetest is the contract of limiter.Store as tests, for every
// implementation, and of the scripts beneath.
//
// From the outside in:
//
//   - Contract checks a fleet of limiter.Store handles on one server: limits,
//     all or nothing, slots, crashes, give-backs. Same compares two kinds of
//     store over a random tape of operations, answer by answer; SameTurns does for turns.
//   - Properties checks one server at the level of script calls, where a call or
//     a reply can be lost, repeated or reordered on purpose: B1 to B8 of buckets
//     and L1 to L4 of leases, as named below.
//   - TurnProperties plays whole fleets in virtual time against one contended
//     bucket or a pool of slots, and Mistakes does so with each known mistake put back, which must
//     break the bound that the right code keeps.
//   - Twin and PoolTwin feed one random tape of script calls to a server and to
//     an oracle at the server's own time, and want equal replies, number by
//     number.
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
//	F1 two tenants backlogged over any interval: their service / weight differs by
//	   at most 2·K·max(cost/weight), K = 8 turns a call
//	F2 Jain's index over backlogged tenants ≥ .99, however they are spread
//	F3 utilisation of a contended bucket ≥ .99, of slots ≥ .97, and no slot is free
//	   for longer than 50 ms while somebody waits anywhere
//	F4 every backlogged tenant gets ≥ .9 of its share, with costs of σ = 1 too
//	F5 V never falls, nor does a tag without a correction; no call moves V beyond
//	   the least start that others claim or claimed a second ago
//	F6 a tenant that was away is not ahead of others by more than one head each
//	F7 the claim of a dead replica delays others by its wait and grace, once
//	F8 calls per grant ≤ 4, with a rest of 10 ms; at slots ≤ 25 per second and
//	   replica that waits, besides one for each that came free
//	F9 the server pauses 200 ms: small tenants wait ≤ 300 ms (p99)
//	F10 costs known late: Jain ≥ .99 on what was really used
package storetest
