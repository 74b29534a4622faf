// Package fairq decides whose turn it is: which of many tenants that wait for
// one capacity is served next. It holds waiters, not time or limits; the
// caller owns the lock, the clock and every bound on how much may wait.
//
// A [Queue] orders tenants by one of three disciplines; inside a tenant it is
// first come, first served. A [Tagged] orders the waiters of one replica by
// tags that are kept for the whole fleet elsewhere.
//
//	              fair by  unfairness ≤, per weight       one turn, of n tenants
//	swrr          turns    about 3 turns                  O(different weights)
//	drr           cost     2·quantum + c_i/w_i + c_j/w_j  O(log n)
//	sfq           cost     c_i/w_i + c_j/w_j              O(log n)
//
// Unfairness is how far |W_i/w_i − W_j/w_j| can get over any stretch of time in
// which i and j always have waiters: W is what they were served, w their
// weight, c their largest cost. None depends on the number of tenants. Choose
// swrr if requests are alike; sfq if they are not: it serves a tenant that
// asks seldom soonest; drr if service in blocks of a quantum is wanted.
//
// # Smooth weighted round robin
//
// The order is that of nginx's upstream balancer (its change 2c96914 of 2012).
// The textbook keeps a counter per tenant; on each turn every tenant i in the
// round adds its weight w_i, the largest counter wins, and the winner pays
// W = Σ w. A tenant of weight 3 is served three times as often as one of
// weight 1, its turns spread evenly over the round rather than in a burst.
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
// configured, not something a caller can raise.
//
// While nobody joins, leaves or changes weight, the order is exactly that of
// the textbook. Ties are declared: credits closer than 2⁻²⁰ of a turn are
// equal; the heavier tenant goes first, and among equal weights the one that
// has waited longest since it joined or was served.
//
// Serving the fullest of n cups while one unit is poured per turn, in any
// way, keeps every cup below O(log n) units; so credits stay within a few
// turns, and a backlogged tenant is never more than that behind its exact
// share, over any stretch of time. An emptied tenant is forgotten and its debt
// with it; one that is alone in its weight can use that. But what it did not
// pay raises the credit of all others over its own: its gain is at most about
// one turn per tenant in the round, once, and not a share. And where the
// textbook's counters are in units of weight, so that a tenant served when W
// was 100 waits ten rounds after W fell to 10, here it waits one.
//
// # Deficit round robin
//
// After Shreedhar and Varghese, "Efficient Fair Queuing using Deficit Round
// Robin" (SIGCOMM 1995). In each lap a tenant's deficit grows by quantum ×
// weight, once; on its turn its items are served while the deficit covers
// their cost. What is left is kept when the next costs more, and is lost when
// the tenant empties.
//
// The textbook visits every tenant in every lap, also those that still save
// up: a lone tenant of cost 10⁹ and quantum 1 takes 10⁹ visits. Here each
// tenant knows the lap in which its deficit will cover its head,
//
//	lap = last lap credited + ⌈(cost − deficit) / (quantum·w)⌉
//
// and a heap ordered by it, and inside one lap by who has waited longest since
// it joined or was served, says who is next. The deficit of everybody else is
// worked out when it is looked at. So a turn is O(log n) whatever the costs and
// weights, and there is no need for a quantum above the largest cost. With such
// a quantum the order is exactly the textbook's, tenants coming and going
// included, and so is its unfairness: one quantum less than above. With a
// smaller one the order inside a lap may differ.
//
// # Start-time fair queueing
//
// After Goyal, Vin and Cheng, "Start-time Fair Queueing" (SIGCOMM 1996). A
// tenant has a start tag S. The least tag is served, and moves on by
//
//	S += cost / w
//
// The virtual time V is the tag of the latest turn; a tenant that joins gets
// S = max(V, its own old tag). So who was idle has saved up nothing, and who
// empties and returns at once still owes what it used: its tag is remembered
// until V has passed it. The order holds for a capacity that changes, stalls or
// is not known, for V moves only with service. Equal tags are served in the
// order of joining or of the latest service.
//
// # What all have in common
//
//   - A tenant joins behind every tenant that is equal to it, with no credit, so
//     that coming and going gains nothing over staying.
//   - A turn that was taken and then denied is given back whole, so that any
//     number of denials leaves the order of those that stay as it was. Until it
//     is granted or dropped a pick is committed: nobody else is charged for it.
//   - A tenant whose head cannot be served before some instant leaves the round.
//     It earns nothing meanwhile and returns behind its equals with no credit; a
//     debt it keeps.
//   - Real costs may be settled later ([Queue.Correct]). The tenant then owes
//     service or is owed, and is remembered while it owes.
//   - Numbers that decide the order are 64-bit fixed point. They add and subtract
//     exactly, wrap around harmlessly since only differences are compared, and
//     are never rebased.
//
// # Estimates
//
// [Queue.Ahead] is by swrr, for equal weights and an item of a tenant that has
// just joined an undisturbed round, exact; else off by at most one round,
// Σ ⌈1 + w_j/w⌉. Under drr and sfq it takes the mean cost of each tenant's items
// for that of every one, which is exact to one item per tenant if they cost the
// same, and looks at no more than 256 tenants, each standing for its share of
// all. The work is bounded by that and by the items before it in its own
// tenant's queue (none for the first and the last).
//
// # Cost
//
// Push, Requeue and Remove are O(1) under swrr and O(log n) under drr and sfq;
// tenants that rest are in a heap. Nothing allocates but the first appearance of
// a tenant, and that draws from a free-list of tenants that emptied. Idle
// tenants cost no memory but for the debts that drr and sfq remember: those
// whose tag V has not reached, and at most 1,024 in a queue that is empty.
package fairq
