// Package simnet is a network in memory for whole fleets in one test: packets
// with latency and loss, streams, hosts that vanish and links that are cut.
//
// It exists because tests of a fleet need time to pass without waiting. Inside a
// testing/synctest bubble time advances once every goroutine is blocked on
// something of the bubble; real sockets are outside it, so nothing ever advances.
// Memberlist's own mock transport hands packets over on an unbuffered channel:
// the first packet to a dead member blocks its sender for ever, which is a
// deadlock that the bubble reports. Here a packet is delivered by a timer into a
// buffer, and dropped when the buffer is full, as a kernel does. A network must be
// made inside the bubble that uses it.
//
// Packets may be lost, reordered (by jitter) and cut short of delivery when the
// link is cut while they travel. Streams are [net.Pipe]s: reliable, in order, no
// buffer; latency is paid once, by the dial. A cut breaks the streams that cross
// it. A dial into a cut or to a host that is down takes its whole timeout; a dial
// to an address where nobody listens is refused at once.
//
// Randomness comes from the seed, but goroutines of a bubble may run in any
// order, so two runs need not be the same: assert bounds, not instants.
package simnet
