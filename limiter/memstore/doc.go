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
// # Limits that change
//
// A bucket names the burst b and the rate r that stand. A replica asks with its
// own (B, R):
//
//   - (B, R) is what stands: the bucket is used as it is, and a hold, if there is
//     one, is struck out (at the next grant, or when less than half of it is left).
//   - B < b or R < r: min(B, b) and min(R, r) stand at once, whether the ask is
//     granted or not. A level above 0 becomes floor(level * B/b) where B < b.
//   - else it asks for more. It says so, by a hold at now + 1 s, and is served by
//     what stands until then. From a hold on that is over and was not struck out,
//     it is served by its own, starting with what the bucket held at the hold.
//
// Bound. Let replica s with (b, r), the smaller in both, ask at t0 and then at
// least once in every half second until t1. What all replicas are charged in
// [t0, t1] is at most b + r*(t1-t0).
//
// Proof. The ask at t0 makes (b, r) stand with a level of at most b: either it was
// clamped there, or it was scaled to at most b. A larger rate is used only when a
// hold h is over at its asker's now, h was written at h - 1 s as the first hold
// since the last strike, and no strike came in between. But s asks at least once
// in [h - 1/2 s, h), finds the hold with less than half of it left, and strikes
// it out. So in [t0, t1] every grant is of the bucket (b, r), whose level starts
// at most at b and grows by at most r*dt: the textbook bound. With one more ask
// per second, not per half, a grant of s has to be among them, as it strikes out
// any hold. (Charges that make debts, and refunds, are outside of it, as in B1.)
//
// The flow at the larger rate begins at the hold, so a raise gives nothing for the
// time before it, also to a bucket that was asked for the last time long ago: the
// first ask with more says so, the next ones a second later have it. A refusal tells
// the wait by both rates, tight as ever.
//
// Limits that go up and down gain nothing: a level is only ever scaled down, and the
// key lives for span longer than what stands needs to fill it, where span is the longest
// time to fill of any rate seen. If it expires at time e after the last write at w
// with level x, then e - w >= (b-x)/r + B/R, so that (B, R) would have filled it,
// too: forgotten means full for everybody. A key lives for a hold's length at
// least, so that one who asks for more never finds the smaller forgotten earlier
// than it would have had to wait.
//
// Two limits that are not comparable (B > b but R < r) leave the smaller of each. Both
// ask for more then and nobody strikes out: after a second the one that asks first
// has its own until the other asks. Limit 0 refuses and writes nothing.
//
// The textbook (and algorithms that store a time instead of tokens) have no word
// for this; a usual way is to clamp to the new burst, which makes a bucket of 100
// with 50 left full when it is lowered to 50, and empty never.
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
