// Package localshare lets a replica go on limiting while the store is out of
// reach: each decides alone, by its share of every limit whose outage policy is
// limiter.LocalShare. It wraps a limiter.Store and is one itself; while the
// store answers, all it does is to watch.
//
// # Shares
//
// A fleet of N replicas that share a bucket of limit R and burst B equally is
// within the limit whatever the network does, as long as nobody counts fewer
// than there are:
//
//	Σ admitted ≤ N · (B/N + R/N · t) = B + R·t
//
// A share is kept as what the whole fleet's bucket would hold if everybody
// behaved as this replica does: its level is in tokens of the fleet, it refills
// at R up to B, and a request of cost c takes N·c. So N may change at any time,
// and no rate has to be divided.
//
// The buckets are warm: every answer of the store tells the level of the bucket
// that it decided on, and the share continues from there. At the moment of the
// outage the shares together hold what the bucket held, as far as everybody has
// seen it lately, so that the switch adds no burst. A bucket that this replica
// has not met is full.
//
// Where N·c > B a share never holds enough. It may then rise above B, but only
// by what flows in during the outage: the sum above stays as it is, counted
// from the beginning of the outage. (In a window within it, it is then
// R·w + max(B, N·c).) A small limit thus admits rarely rather than too often:
// 5 a minute on 8 replicas is one request per replica in 96 s.
//
// In-flight slots: a new one while fewer than floor(cap/N) are held here. Those
// that run are never cut, and a cap below N admits nobody.
//
// # Divisor
//
//	N = max(replicas alive now, most that were alive for 5 s in the last 5 min)
//
// where alive is the greater of what gossip sees and what the store counts. The
// store knows when gossip is cut; while it is out, a cut of the fleet into any
// parts leaves the sum of shares at the limit or below, because each part still
// counts everybody. So the five minutes do not pass during an outage: who cannot
// reach the store may not reach its peers either, for as long as that lasts.
// A replica that left costs its share until then, and its slots in the store are
// counted until their ttl is over.
//
// A replica has no share before its own count was the same for 5 s, the time in
// which all others have come to count it: by gossip, or by the store. Without
// gossip it has none before it has met the store once. An outage that it begins
// with is passed on as the error it is, for no limit is used up, and Informed
// tells readiness.
//
// What this does not cover: a replica cut off alone from a store that serves
// the others adds its share to the whole, (1 + 1/N) · R.
//
// # Recovery
//
// When the store is back, its buckets are full: time has passed, or memory is
// lost. What was spent meanwhile must not be spent again, so each replica once
// per outage charges each bucket, as a correction, with
//
//	min(spent here during the outage, (B - level)/N)
//
// The second term is what this share lacks of being full; it forgets spending
// as fast as the bucket refills, and the sum over replicas is what the fleet's
// bucket would lack. Hence in the first B/R seconds the fleet admits at most
// B - Σ debts + R·t. Corrections are delivered at least once.
//
// Slots granted during the outage are held in the store's own table from the
// start and stated with its next word, above the cap if need be. If the store
// had forgotten this replica (its ttl is over, or its memory lost), it may have
// forgotten others that are a second behind; so for one second more, takes with
// slots are still decided by the share. A replica that did not notice admits by what
// the store counts; turns at slots are exact even then, for the store refuses them.
//
// Of turns at slots the first two failures in a row of a usable store are passed on:
// a share of few slots is often none, and to ask again costs less.
//
// # Several dimensions
//
// One of fail_closed makes the outage everybody's: the error is passed on. Those
// of fail_open are skipped, and if there are no others, the error is passed on
// too, for the limiter to say so. Everything else is decided by the dimensions
// of local_share; all or nothing, as ever.
//
// Turns at a pool are given in the order of the bids; the limiter orders them by
// what gossip tells of service elsewhere.
//
// This is the scheme of rule 5 in "rate limit quota service" of Envoy (fallback
// after an expired assignment), with the shares of a fleet instead of assigned
// ones, and debts.
package localshare
