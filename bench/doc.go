// Package bench judges a fleet from outside. It plays the provider behind the
// replicas, offers the load in front of them, knows what every tenant is
// entitled to, and compares. Nothing here asks a replica how it is doing: a
// limiter's own counters prove nothing about what it let through.
//
// # The judge
//
// [Provider] is a simulated model provider. Its [Ledger] writes down every
// request that arrives: how many of each tenant, how many at once, at what
// instants, at what cost. A request counts from the moment its handler runs
// until just before the last byte of its answer is written. A replica may free
// the slot only after that byte, so what the ledger sees at once is never more
// than what the fleet thought it had let through at once, and a peak above a
// cap is the fleet's fault alone.
//
// A bucket of rate r and burst b lets at most b + r·T requests through in any
// stretch of length T. [Ledger.Snapshot] and [Judge] hold the whole run against
// that bound, with T from before the first request was sent to the last
// arrival; [WorstWindow] holds every stretch of it against the bound.
//
// # Entitlement
//
// A tenant is entitled to its weighted max-min fair share of the capacity,
// given what it really asked for: nobody gets more than it asks for, and
// nobody could get more without taking from somebody who has less per weight.
// [Entitled] computes it by water filling: there is one level λ such that
// tenant i gets min(demand_i, λ·weight_i), and λ is as high as the capacity
// allows. [Jain] puts all received/entitled ratios x into one number,
// (Σx)²/(n·Σx²): 1 when all are equal, 1/n when one tenant has everything.
//
// # Open loop
//
// [Driver] sends each request at the instant a seeded clock says, whether or
// not earlier ones have been answered, and counts its latency from that
// instant. A closed loop would stop asking while the fleet stalls and so hide
// the stall. The number of outstanding requests is bounded all the same; an
// arrival past the bound is not sent, is never late, and is counted as dropped.
//
// The wait of a request is the time from its intended start to the head of its
// answer, less the time that the provider says it took itself
// ([HeaderServiceTime]). It contains what the client, the network, the
// balancer and the replica added, and so it is an upper bound of the wait in
// line that the replica admits to. How late the driver itself was is kept of
// every request, and a report says so: what it adds is never subtracted.
//
// # Without the store
//
// An [Outage] has three instants that matter: when the store was taken away,
// until when it was away beyond doubt, and when it could answer again. What the
// ledger counts between the first and the last is divided by rate·T, which
// shows a share, and by burst + rate·T, which is the bound.
//
// An outage is detected when every replica has answered by policy, and nobody
// waits for about the store's deadline any more: the last of a series of such
// waits without a gap, so that a stall of the machine later on is not taken for
// one. It is healed when every replica has admitted a request by the store with
// no answer by policy in the second after it. On a busy machine a single call
// may miss its deadline at any time; such answers are counted as strays.
package bench
