// Package replica assembles one Headway replica from its configuration: the
// store, gossip, the limiter, the HTTP edge and the listeners. It contains no
// policy of its own; both programs and the fleet tests start replicas through
// it, so that what is tested is what runs.
//
// # Life of a replica
//
// [Start] opens everything and returns once the listeners accept. A store that
// is down does not stop a replica from starting: it says so in /readyz and
// heals by itself. [Replica.Shutdown] leaves in order:
//
//  1. readiness turns 503 and every waiter is refused with "draining";
//  2. the configured delay passes, in which load balancers take notice;
//  3. the listener closes, running requests finish inside the grace;
//  4. in-flight slots are given back, gossip says goodbye, the admin listener
//     closes last.
package replica
