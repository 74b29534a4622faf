// Package stage puts scenarios of package bench on: it starts a provider, a
// Redis, and replicas with gossip among them, offers the load, lets the
// scenario's troubles happen, ends everything, and returns the figures.
//
// # What is real
//
// Replicas are either `headway serve` processes or started in this process by
// gateway/replica, which is what those processes run too. In both cases they
// have listeners of their own on loopback, speak to Redis over connections of
// their own, and gossip over UDP and TCP. The provider and the load are in this
// process. The figures come from the provider's ledger, from what requests
// meet, and, for calls and CPU alone, from the replicas' own /metrics.
//
// # Scopes
//
// A scope is a way to run the same load through the same fleet:
//
//   - fifo: one line without tenants. There is no switch for it in the product:
//     every key belongs to one team, and turns are between teams.
//   - replica, gossip, exact: the values of fairness_scope.
//
// Equal seeds make equal requests at equal instants in all of them. The fair
// queue's bounds are raised until they do not decide anybody's share: what a
// bound refuses is only what would otherwise queue for ever.
//
// # Troubles
//
// A Redis that something is done to is always the run's own: killed and started
// again, stopped by SIGSTOP, made the replica of an address where nobody
// listens, left without memory, slowed down by a relay before it (answers come
// late, none is lost, and many may be under way at once), or one of two that
// three sentinels watch. Replicas are killed only as processes.
//
// Every run uses names that occur in no other (model, users, replicas), so that
// a shared Redis server needs no flush between them and is disturbed by none.
package stage
