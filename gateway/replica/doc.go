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
//  4. its address is taken out of the store, by which replicas find each other's
//     gossip, in-flight slots are given back, gossip says goodbye, the admin listener
//     closes last.
//
// # Change
//
// [Replica.Reload] reads the configuration again; SIGHUP, POST /-/reload and a
// change of the file call it. The file is looked at by name every 200 ms, and read
// when it was the same twice, so that a change is in force after 200 to 400 ms,
// whatever way it was made; a file that is gone for a second is told like a wrong one,
// until it is back. One reload runs at a time: parse and check, put back
// what needs a restart (package config says what), check the result, then replace
// the limiter's and the gateway's configuration, each as a whole, and tell gossip the
// new hash. Whatever fails before that leaves everything as it was. There is no
// instant at which all replicas change: buckets settle what that means (package
// memstore).
//
// # TLS
//
// The files of listeners with TLS are watched like the configuration, and read with it
// by each reload: a certificate that is of no use is a wrong configuration, and changes
// nothing. They are read before the gateway is changed, and put in force after, so that
// both change or none. A handshake takes the files of that moment (GetConfigForClient);
// a connection keeps what it was opened with. A session is resumed only if the
// authorities of that moment still vouch for its client.
package replica
