// Package fairq decides whose turn it is: which of many tenants that wait for
// one capacity is served next. It holds waiters, not time or limits; the
// caller owns the lock, the clock and every bound on how much may wait.
//
// # Order
//
// The order is smooth weighted round robin by turns. The textbook keeps a
// counter per tenant; on each turn every tenant i in the round adds its
// weight w_i, the largest counter wins, and the winner pays W = Σ w. A tenant
// of weight 3 is served three times as often as one of weight 1, its turns
// spread evenly over the round rather than in a burst.
//
// That costs O(tenants) per turn. Here the counter is kept divided by W, so
// that its unit is one turn, and split in two: what every tenant of a weight
// has earned by being in the round (one number per distinct weight), less
// what this tenant has spent (one number per tenant):
//
//	credit_i = earned(w_i) − spent_i    earned(w) += w/W per turn,  spent_i += 1 when served
//
// Tenants of one weight then differ in spent_i alone, and the one that is
// served moves from the least of them to the most: a first-in first-out ring
// per distinct weight, whose front is the only candidate of that weight. A
// turn compares the fronts: O(K) for K distinct weights in the round, however
// many tenants there are. K is the number of different weights an operator
// configured, not something a caller can raise. Credits are 64-bit fixed-point
// numbers (2⁻⁴⁸ of a turn) that wrap around harmlessly, since only differences
// are compared and those stay small (below); nothing is ever rebased.
//
// # Exactness and bounds
//
// While nobody joins, leaves or changes weight, the order is exactly that of
// the textbook. Ties are declared: credits closer than 2⁻²⁰ of a turn are
// equal; the heavier tenant goes first, and among equal weights the one that
// has waited longest since it joined or was served.
//
// Serving the fullest of n cups while one unit is poured per turn, in any
// way, keeps every cup below O(log n) units; so credits stay within a few
// turns, and a backlogged tenant is never more than that behind its exact
// share, over any stretch of time.
//
// # Joining and leaving (where this differs from the textbook)
//
//   - A tenant joins with credit 0, and behind every tenant of its weight: it
//     waits at most one turn of each of them, so tenants that come and go gain
//     nothing over equals that stay. An emptied tenant is forgotten, so that
//     idle tenants cost no memory, and its debt with it; one that is alone in
//     its weight can use that. But what it did not pay raises the credit of all
//     others over its own: its gain is at most about one turn per tenant in the
//     round, once, and not a share.
//   - The textbook's counters are in units of weight, so a tenant served when W
//     was 100 would wait ten rounds after W fell to 10. In units of turns it
//     waits one.
//   - A turn that was taken and then denied is given back whole: what the tenant
//     spent and what everybody earned by it, so that any number of denials
//     leaves the order as it was. Until it is granted or dropped a pick is
//     committed: nobody else is charged for it.
//   - A tenant whose head cannot be served before some instant leaves the round.
//     It earns nothing meanwhile and returns behind its equals with no credit
//     above 0; a debt it keeps.
//   - A new weight applies from the tenant's next turn on.
//
// # Cost
//
// Push, Requeue and Remove are O(1) but for tenants that leave the round,
// O(log of those out of it). Nothing allocates but the first appearance of a
// tenant, and that draws from a free-list of tenants that emptied.
package fairq
