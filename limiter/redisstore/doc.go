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
// calls are outstanding at a server, whatever the number of callers, and a frozen
// one costs each of them exactly its deadline. Batching is also what makes up for
// the two hand-offs between goroutines.
//
// Three things keep a call whose caller has gone from taking anything:
//
//   - The fence. Every call carries a Redis time after which its script takes
//     nothing. The offset between Redis time and the monotonic clock is bounded
//     by every reply from both sides: redis - received ≤ offset ≤ redis - sent.
//     The store keeps the greatest lower bound of the last 10 to 20 s, drops it
//     when an upper bound contradicts it (the server's clock went back) or a
//     connection ends (the next may lead to another server), and then asks TIME
//     first. Being a lower bound, it makes fences early, never late; a fence that
//     turns out too early changed nothing, and its call is sent again.
//   - Give-back. A reply that arrives too late and says granted is undone.
//   - The sequence of slots (package limiter/memstore has that theory): the next
//     statement of the replica's true count heals whatever was lost.
//
// Nothing is sent twice unless the reply proves that nothing ran: NOSCRIPT, an
// overtaken slot, a fence that came too early, and what servers say of keys that
// are elsewhere or not at hand, MOVED, ASK, TRYAGAIN, LOADING, CLUSTERDOWN. All of
// it happens inside the caller's one budget. Settlements are the exception, by
// rules of their own: see lua/settle.lua.
//
// # Together
//
// A script call costs Redis some µs before it decides anything, and each bucket
// more. So the decisions that a worker finds in the queue share calls, up to 16 of
// one shape (so many buckets, slots and claims, all in one slot of a cluster) and 64
// keys, for Redis does nothing else meanwhile. Nobody waits for company: a call
// takes what is outstanding already, and under light load that is one.
//
// Most are answered the short way (lua/prelude_plain.lua): alone for 10 µs of Redis
// with one bucket and 4 for each more, in a pair for 8 each, of 16 for 5 each, 2.5 if
// it is the same bucket. A call that has to go the long way, for one of its decisions
// if need be, costs about twice as much: limits have changed within the last second,
// or entries of a counter have expired.
//
// Each is decided by itself, in the order of the queue, under its own fence and
// sequence: it takes everything or nothing, and the reply says what it would have
// said alone (package storetest compares the two). A bucket that several of them
// name is read and written once, which is what makes hot keys cheap.
//
// What befalls a call befalls all its decisions: an answer that is lost, or comes
// too late, is each caller's own to clean up after. An error of the script itself
// proves that nothing ran, and that some key holds what no script wrote; then each
// decision is sent again alone, so that only those who name that key fail.
//
// # Several servers
//
// There are three modes: one server; the master that sentinels name; the masters
// of a Redis Cluster. The client library can do the latter two itself, but hides
// which server a call went to and blocks callers while it looks for another. Here
// it only ever serves one address. A router keeps a table of who decides what,
// and one client for each server: its own connection, queue, workers, fence and
// breaker. A server that hangs takes neither a worker nor time from the others,
// and
//
//   - the fence of a call is always made of the clock of the server it goes to.
//     Clocks of servers need not agree. A server that is promoted, or met for the
//     first time, has a client of its own, which knows nothing yet and asks TIME;
//   - the breaker is about one server. Of one that is dead, three callers or so
//     find out by waiting; from then on calls that need its keys fail at once, all
//     others pass, and its probe goes on. A breaker for the whole would either stop
//     everybody for one server or never open.
//
// A scout looks for changes on a goroutine of its own: each second, within 100 ms
// when a reply or a breaker tells of trouble, and every 100 ms while it lasts. Of
// a cluster it merges the views of up to four masters by the cluster's own rule:
// who claims a slot with the greatest configuration epoch owns it. So the old view
// of a master that wakes from a freeze counts for nothing. Of sentinels it takes
// the answer with the greatest epoch. A call that meets the old owner of a slot is
// told MOVED, which names the new one, and follows it at once.
//
// Health says unusable when no tenant can be served: in [LayoutSingle] when the
// server of the one slot is, in [LayoutTenant] when all servers are. Otherwise it
// is usable, and its state tells of the server in trouble.
//
// A failover loses what the old master had acknowledged and not yet replicated,
// about a network round trip's worth, and, where a master is cut off from the
// others but not from replicas of Headway, all it accepts until sentinels or
// nodes have replaced it and the scout has heard. min-replicas-to-write 1 bounds
// the latter to min-replicas-max-lag. Lost grants are grants too many, lost
// settlements charges too few; slots are stated again by every replica as soon as
// the table changes.
//
// # Two calls
//
// In [LayoutTenant] the keys of a tenant lie in a slot of their own (Home), those
// that tenants share in another, so that a cluster's masters share the work. A
// script reaches one slot, so a request that needs both is two calls inside one
// budget: first the tenant's part, then the shared part. If the second is refused
// or fails, the first is given back by a settlement: at once in this replica's own
// table, at most once in Redis, exactly once where it took a slot. With
// granted(first) ≥ granted(request) at every instant, and likewise for the second,
//
//	Σ admitted ≤ Σ taken - Σ given back ≤ burst + limit·t      on both sides
//
// whatever is lost: a lost give-back, like a request between its two calls, only
// admits less. The tenant's part comes first because its refusals are the more
// frequent ones, and cost nothing but one look at the shared part, without taking,
// to tell of the longest wait.
//
// Turns ([Store.Turns]) are taken first, together with what lies beside the pool;
// then each bid that had its turn takes the rest at its home. Where that refuses,
// the turn is given back, tokens and finish tag in one step.
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
// Redis may lose all data without anybody being cut off. hw:{hw}:epoch says since when
// it keeps what replicas hold, and each asks for it every 250 ms; told of another, it
// states all that it holds at once. A call for slots of a pool names the epoch that its
// replica knows, and is refused in the same step if that is over; and for 2 s more
// (restating) the replica makes none: [limiter.ErrForgotten]. So nobody takes what others
// still hold, if these reach Redis within the 2 s. Not covered are a replica that starts
// within them, for which every epoch is the first, a server that brings back an old copy,
// epoch included, and in-flight caps, which admit by what is stored: up to the cap once
// more, in the 250 ms and a call until all is stated.
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
// outage policy decides about. In a cluster set cluster-require-full-coverage no,
// or one dead master without a replica stops all others.
//
// A slot on its way to another master is torn apart for a while: calls whose keys
// are on both sides, or new, are answered TRYAGAIN, and fail when their budget is
// over. Nothing runs twice. In layout single that is every call, so move slot 3315
// (of {hw}) when it does not matter; the slot of a tenant takes a few ms.
//
// # Documents
//
// What else the fleet shares, jobs and workspaces, lies in the same Redis, and so
// has the same servers, table, breakers and connections: [Store.Eval] runs a script
// of package lua about keys of one slot, wherever that is. Such keys begin with
// hw:{hw-<what>}: so that each kind has a slot of its own. These calls wait in the same
// queue, never share a script call, and get a second instead of the admissions'
// budget, since no request is held up by them. What the rules above do for buckets
// and slots, no give-back and no sequence, a document's script must do by itself:
// a caller that was told of an error does not know whether it ran. Two ways are
// usual: let it be fenced, or write it so that running twice is running once.
//
// # Breaker
//
// One of each server. Open after 3 failures of the server (a timeout, a connection lost or refused,
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
