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
// # Breaker
//
// Open after 3 failures of the server (a timeout, a connection lost or refused,
// LOADING, READONLY and the like) with no success between them, or when half of
// at least 20 calls within a second failed in any way. While it is open every
// call fails at once. One probe at a time, which writes, so that a read-only or
// full server is not taken for a healthy one, closes it: after 0.5 s, then each
// second. The same probe runs when nothing has succeeded for a while, so that
// trouble shows without traffic.
package redisstore
