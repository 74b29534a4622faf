// Package near decides what a replica may decide without asking the store. Its
// Store decorates a limiter.Store and is one itself: the same limits, fewer
// calls. Neither half ever admits more than the store would have:
//
//   - the deny cache refuses what the store has just refused, until its instant;
//   - prefetch takes tokens of busy buckets in advance, debited before they are
//     used, and grants from them.
//
// # The deny cache
//
// From a refusal of cost c with wait w, heard at t, follows how much the bucket
// can hold at most at any later time, if nothing comes back: the line through c
// tokens at t + w that rises with the limit. The same line answers for other
// costs, dearer and cheaper ones, and to the microsecond for waits: a wait told
// from memory is what is left of the first one. Calls under way count as taken
// until they are answered, so callers that wake together do not ask together. Each
// reply moves the line. What this replica gives back (Settle) raises it at once.
//
// A replica that was refused does not ask again for 5 to 15 ms (10 ms ± 50 %,
// at most half of the time in which the bucket would overflow), for this cost
// or a dearer one. N replicas so ask in vain at most N/10 ms times, however much
// is offered. Refusals tell a wait of at least 15 ms (or that half), which
// covers the pause of every other replica: a caller that sleeps exactly what it
// was told and returns alone is admitted, wherever it returns. Who has its turn
// in a line (limiter.Take.Waited) is told the bucket's own wait and passes the
// pause: lines pace themselves, and lost 3 % of a bucket to it.
//
// A Take is refused from memory only if the store's word on all of its buckets
// is fresh: the told wait must cover all of them, also where no more than the
// whole tokens of one are known. It is fresh for 1 s on an empty bucket of
// requests, from which nobody can take, and for 100 ms on all others and on
// token budgets, which are charged afterwards too. After that one caller asks
// and the others go on believing, for 100 ms at most.
//
// Never from memory: what can never pass, full slots, claims on turns
// (Contended), and verdicts of an outage's local share. Takes with slots may be
// refused for their buckets; such a verdict calls no slot full.
//
// So a refusal that the store would not have given is at most: 15 ms long after
// the store refused here; 1.1 s after something came back through another
// replica, or an operator changed the store; as long as a call of this replica
// that might take the same tokens is under way; 1 µs of rounding. A wait may be
// told too short by what others took in the last 200 ms, if this replica's
// memory is older than that. Remaining, as told with such a refusal, is the
// bucket's by the same line: it fits the wait, and errs like it.
//
// # Prefetch
//
// A call for a bucket takes a chunk instead of one cost, whose rest is a lease:
//
//	chunk = clamp(floor(rate here · 100 ms), 1, min(2·found/3N, burst/2N))
//	        1 where the last call left less than 2N
//
// for N replicas, with found what the last call found in the bucket. (Algorithms
// in the literature divide what is left by 2N; as N chunks are half used on
// average, a bucket that looks 3/4 full is full, and 2/3N corrects for that.)
// Near empty and on small buckets nothing is taken in advance. A bucket costs at
// most a call per 100 ms and replica.
//
// Exactness. Tokens are debited before use, so what is spent from the birth of a
// bucket is at most burst + limit·t (P1), whatever is lost. In a sliding window
// the excess is at most the leases kept when it begins, ≤ burst/2 for a true N.
// Loss only admits less: leases of a crashed replica, and leases older than 1 s
// since the store last gave (it may have been replaced, or the limit lowered).
// Leftovers go back, once, after 250 ms without use, at Close, before Turns at
// the bucket, and when the store refuses the Take, which may come back to a
// replica that has no lease.
//
// A Take is granted here only as a whole: no slots, and every charge covered.
// Only such Takes are topped up, all their buckets by one call; if the store
// refuses that call, the plain cost is asked for at once, so that prefetch never
// refuses what would have passed. While such a call is under way, others that
// need it wait for it rather than ask. Buckets of one tenant (api_key, user,
// team, client) always qualify, shared ones and pools of turns only after a
// second without a refusal, claims or turns.
//
// Remaining, as told with a local grant, is what the store had left when it was
// last asked. Tokens kept by any replica are not in it, this one included, nor
// are the refill or others' takes since then: on average it is too low.
//
// # Outages
//
// A store that cannot answer makes this package step aside: leases are used up
// to their second, what was just refused stays refused for as long as it is
// believed, everything else gets the store's error or its local share.
package near
