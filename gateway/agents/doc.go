// Package agents hands out the slots of agents: upstreams that take a bounded number
// of requests at once, over the whole fleet.
//
// # Slots
//
// The slots of an agent are a pool in the store, given out by limiter.Store.Turns:
// start-time fair queueing between tenants, over all replicas, decided in one step with
// the count of what is held. A Set asks for slots and gives them back; the store keeps
// them alive while the replica lives, and frees them when its lease is over. A slot is
// free before the client has its last byte, so the count is never below what the agent
// sees, but for the instant in which it notices that a client has left.
//
// # Any agent that can serve
//
// A request names all agents that could serve it. As each agent is a pool of its own,
// with tags of its own, a waiter stands in the order of every one of them, and holds
// nothing. Two rules keep it from being granted twice:
//
//   - one call per agent is under way, for up to eight waiters, the best by their tags
//     there, that no call to another agent bids for at this moment;
//   - who is granted a slot leaves all orders under the same lock, and claims for
//     nobody are withdrawn at once.
//
// A newcomer first asks one agent after the other, the least loaded first: held and
// waiting divided by slots, as far as replicas have told each other lately. An agent
// whose line is known to be busy it does not ask, it only takes its place. Once it has
// been everywhere it is shed, or it waits: in the line with most room, for counting
// alone, as queue_depth is a bound per agent. So n agents with lines of d hold n·d.
//
// Of one tenant's requests a later one may so be served some milliseconds before an
// earlier one, which was being asked for elsewhere. Between tenants each agent is fair;
// in total they are, as every pool that two tenants share is.
//
// # Batch work
//
// It stands in the order as a tenant of its own beside the one that it is of, of a 64th
// of the weight. So a caller who waits now is not behind anybody's batch work, but for
// the first of each tenant, which has the tag of one who has just come; and where there
// is nothing else, batch work has all slots, fair between tenants. A quarter of each line
// is kept for callers, so that batch work does not leave them without a place.
//
// # Who may not wait
//
// It bids like everybody, in one call per agent, with the tags of its tenant: it does
// not overtake those who wait. Told to wait, it goes, and if it was alone the claim that
// the store made for it is withdrawn by a second call. It costs two calls per saturated
// agent; those that come together share them.
//
// # How late a free slot is noticed
//
// The replica that frees a slot asks again at once. If the turn is another's, that one
// has to come and ask: the store tells when, half of what can be expected, and here at
// most 20 ms, against 40 ms of the store's own:
//
//	idle time of a slot ≤ 20 ms + a call, in the mean about half of it
//	busy ≥ 1 - 10 ms/h for requests of length h
//
// Polls cost 50 calls a second and replica for each agent with waiters there, of some
// 40 µs. A nudge by gossip would save part of that, but is a second way to be told. With
// four slots, requests of 300 ms, 40 waiters and calls of 1 ms, in virtual time
// (TestFairAndBusy):
//
//	replicas   free slot taken after, median   p99     busy    calls per grant
//	1          1 ms                            1 ms    0.997   4
//	3          1 ms                            20 ms   0.984   12
//	8          11 ms                           21 ms   0.964   32
//
// A slot that comes free while a call is under way is unknown to that call, so another
// follows at once.
//
// # How long one waits
//
// At most Config.Timeout from when the request first began to wait, earlier waits of
// the same turn included, however often it was woken in vain. A client that leaves frees
// its place at once.
//
// Retry-After is when a slot can be expected for one who comes then: those in line and
// itself, at the pace at which slots come free when all are held, (line+1)·h/slots with
// h the smoothed time that requests hold a slot; 1 s to 60 s.
//
// # Health
//
// Three failures in a row take an agent out for a second, and each failure of the one
// request that is then on trial doubles that, up to half a minute. Once that begins to
// be answered, others may follow. An agent with probes is tried by these alone. It is
// what this replica has seen: others find out by themselves. While an agent is out nobody
// is sent there, unless on trial; those who wait for it go on waiting. Where all agents
// that could serve are out, newcomers are told so at once.
//
// # Without the store
//
// Each replica has floor(slots/N) slots of its share (package localshare, which also
// says what N is), so that the sum never exceeds slots, whatever the network does. What
// runs is never cut, so when the store goes out some hold more than their share: until
// none does, or nothing of then can run any more, nobody takes more than it had. An
// agent with fewer slots than there are replicas takes nobody new meanwhile. That holds
// for two seconds more when the store is back, for it may count too little until all have
// told it what they hold. Tenants are served in the order of what they were served here.
//
// So it is when the store has lost its data, also for a replica that saw nothing of it:
// the store refuses calls by who does not know that (limiter.ErrForgotten), and for two
// seconds those by who does. headway_agent_shares_total counts both.
//
// A call or two that fail while the store is usable change nothing: they are made again,
// also for those who may not wait. Only the third in a row is an outage.
//
// # Change
//
// More slots are used at once, fewer as running requests end. An agent that is removed
// still serves those who came for it before.
package agents
