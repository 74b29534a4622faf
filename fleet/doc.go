// Package fleet is what replicas know of each other: digests that they send
// around, a table that merges them, and the sums that waiters are told. It is
// pure: no sockets, no goroutines, no clock; package gossip moves the bytes.
//
// # Merging
//
// Every replica describes itself, and only itself, in a [Digest] of absolute
// values. A [Table] keeps the highest version of each replica it has heard of,
// where a version is the pair (incarnation, sequence) in lexical order, and one
// version has one content. Taking the highest is idempotent, commutative and
// associative, so digests may be lost, repeated, reordered and relayed, and
// tables that have seen the same set of digests are equal. No wall clock takes
// part: two replicas whose clocks differ by an hour agree.
//
// A restarted process picks a random incarnation, which may be below that of its
// former life. It then hears of a higher one of itself and goes above it
// ([Table.Announce]), so it is believed after one exchange at the latest.
//
// When a digest was heard is local knowledge, beside the merge: an instant of
// this process's clock, moved back by the age the relaying replica stated. Of two
// copies of a version the earlier hearing stays, so that a copy that wandered
// about does not look new.
//
// # Instants
//
// What replicas tell of providers ([Throttle]) is full of instants. They travel as
// spans from when the digest was made, and the receiver counts them from when it
// heard it, so each is late by the time of the message and never early. Replicas
// tell only what they were told themselves: passed on and on, an instant would run
// away by the time of a message at every turn.
//
// # What may depend on it
//
// Estimates, positions, ordering, the pace at which a provider is asked. Never whether a request may start: a view may
// be wrong for seconds after a crash and for as long as a cut lasts. A view says
// so itself: it is fresh while every member of the fleet was heard of within
// [FreshFor], three intervals of gossip.
//
// # Sums
//
// Replicas race for one bucket, each serving its own line. With s_r the smoothed
// gap between grants at replica r (its grant spacing), the fleet grants Σ 1/s_r
// per second, hence a fleet spacing of 1/Σ(1/s_r). While a waiter with a others
// before it here waits about a·s, replica r grants a·s/s_r, but no more than it
// has waiting:
//
//	ahead = a + Σ_r min(depth_r, round(a·s/s_r))
//
// which counts those who wait now, not those who will come to a shorter line and
// still be served earlier. It tells a position; a wait is foreseen from the local
// line alone ([View.Expect]). Both assume that the shares of the replicas stay as
// they are over the wait; TestEstimateErrorSpec says what that costs.
package fleet
