// Package redisstore is the limiter.Store of a fleet: buckets and in-flight
// slots in Redis, decided by the scripts of package lua, over rueidis.
//
// # Hung is not down
//
// A client that pipelines cannot take back what it has sent: a server that
// wakes after a freeze runs every call, also those whose callers have long been
// answered with an error. And rueidis ignores contexts once its ring is full.
// So a caller never touches the client. It puts its call into a short queue and
// waits for the reply or its own deadline, whichever is first; a fixed set of
// workers takes calls from the queue in batches and sends each batch as one
// pipeline. A worker returns only when rueidis does, hence at most
//
//	workers × batch + queue ≈ 1,000
//
// calls are outstanding, whatever the number of callers, and a frozen server
// costs each of them exactly its deadline. Batching is also what makes up for
// the two hand-offs between goroutines.
//
// Three things keep a call whose caller has gone from taking anything:
//
//   - The fence. Every call carries a Redis time after which its script takes
//     nothing. The offset between Redis time and the monotonic clock is bounded
//     by every reply from both sides: redis - received ≤ offset ≤ redis - sent.
//     The store keeps the greatest lower bound of the last 10 to 20 s, drops it
//     when an upper bound contradicts it (the server's clock went back) or a
//     connection is made (perhaps to another server), and then asks TIME first.
//     Being a lower bound, it makes fences early, never late.
//   - Give-back. A reply that arrives too late and says granted is undone.
//   - The sequence of slots (package limiter/memstore has that theory): the next
//     statement of the replica's true count heals whatever was lost.
//
// Nothing is sent twice unless the reply proves that nothing ran (NOSCRIPT, an
// overtaken slot, a fence that came too early). Settlements are the exception,
// by rules of their own: see lua/settle.lua.
//
// # Slots of one replica
//
// want = held + pending, drawn together with its sequence under one lock. A
// call that would bring the replica alone past the cap cannot be granted while
// the calls before it are; it asks for cap+1, gets levels and a refusal, and is
// not counted as pending, so that a flood of refused calls never keeps a freed
// slot from being taken. Releases are coalesced: one sync is on its way at a
// time, and states whatever has changed since the one before.
//
// # Settlements
//
// Settle changes the replica's own table and returns; the outbox tells Redis.
// Its first attempt corrects the buckets and states the slots in one script. If
// no answer comes, the attempt may have run or may still run, so the next waits
// until the first one's fence has passed and carries the first one's sequence:
// stored with the slots, that sequence proves which of them ran. Without a slot,
// or when later calls have overwritten the sequence, a charge is made again and
// a refund is not. So
//
//	level ≤ burst - Σ taken + Σ refunds at most once - Σ charges at least once
//
// whatever is lost, and equality when nothing is. A settlement that cannot be
// delivered for 30 s is dropped and counted; slots need no such limit, because
// stating them again is always right.
//
// # Outages and data loss
//
// A replica that was cut off for longer than the ttl finds its entries expired
// and perhaps taken by others. Its next statement puts them back, above the cap
// if need be: the requests do run, and admitting nobody until they have ended is
// the only way back under the cap. The same happens, within a renewal, after
// Redis lost its data. Buckets come back full then; nothing in a replica knows
// how full they were.
//
// Redis must not evict: a bucket that is evicted is full again. Set
// maxmemory-policy noeviction, under which a full server is an outage that the
// outage policy decides about.
//
// # Breaker
//
// Open after 3 failures of the server (a timeout, a connection lost or refused,
// LOADING, READONLY and the like) with no success between them, or when half of
// at least 20 calls within a second failed in any way. While it is open every
// call fails at once. One probe at a time, which writes, so that a read-only or
// full server is not taken for a healthy one, closes it, if it is answered in
// time. The first goes out at once, and another whenever one is answered late:
// a hang of 200 ms ends with the hang, and a server that stays slow stays out.
// Without any answer they go out after 0.25 s, then twice a second. The same probe
// runs when nothing has succeeded for a while, so that trouble shows without
// traffic.
package redisstore
