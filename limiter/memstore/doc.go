// Package memstore keeps buckets and in-flight slots in this process. It is
// the twin of the Redis scripts: same rules, same integers, same answers, so
// it serves as their oracle in tests and as the store of a single process.
//
// # Buckets
//
// A bucket holds integer micro-tokens (1 u = 1e-6 token) at an instant, its
// stamp, in microseconds. It is read as
//
//	level(now) = min(burst, tokens + floor(max(0, now-stamp) * limit / period))
//
// and written only when something is taken or given back, so refused requests
// leave no trace. The textbook bucket keeps real numbers; flooring loses less
// than 1 u per write, always in the safe direction. A bucket nobody has
// touched is full. What a request lacks gives a tight wait: it would pass at
// now+wait and not a microsecond earlier.
//
// # Slots
//
// A counter of in-flight slots is, per replica incarnation, the absolute count
// that this replica says it holds, until an expiry, under a sequence number.
// Absolute counts make every call idempotent and let the next one heal a lost
// one; the sequence orders calls that overtake each other on the way:
//
//   - acquire states want = held + pending. In order, it is granted when the
//     others' counts plus want fit the cap. Overtaken (a later call of the same
//     incarnation ran first), it is granted without a write when want is
//     covered by what is stored, else it takes nothing and must be resent.
//   - sync states held and want; the count becomes max(held, min(stored, want)),
//     so that it never acquires, and tells the truth, even above the cap, when
//     a replica slept through its own expiry.
//
// Sum of running requests ≤ cap then holds under loss, duplication and
// reordering for all replicas that never missed a lease's time to live.
package memstore
