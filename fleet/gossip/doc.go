// Package gossip moves the digests of package fleet between replicas, with
// hashicorp/memberlist for membership and transport.
//
// # How a digest travels
//
// Every interval (200 ms) a node sends its digest as one packet straight to every
// member, to at most 64 of them: memberlist's own broadcasts reach a given member
// only with some probability (five of six nodes with the LAN preset), late, and
// are not passed on by those who receive them. Beyond 64 members the direct sends
// rotate, and what was heard first-hand or second-hand and is news is queued once
// more as a broadcast, so that it spreads like a rumour. Whatever got lost is
// carried by the push/pull exchange of whole tables, at every join and every 30 s.
//
// A [Source] has its say in every digest, and can have one sent at once: that a
// provider refuses has to be known everywhere before the next interval.
//
// # Membership
//
// Memberlist never heals a cut longer than 30 s by itself: each side declares the
// other dead and stops talking to it. A node therefore tries the addresses that it
// was configured with, or told to join, again and again: those that are not live
// members, every 8 to 16 s, names resolved anew each time; every second as long as
// it is alone, and after a contact that has not made the other a member yet.
//
// Lists of addresses go stale: replicas that were all restarted elsewhere, or were
// replaced while they were cut off, are at none of those that the others have. A
// registry ([Config].Registry) is not stale: the store that the fleet shares keeps
// the addresses of all who renewed theirs within a minute. Each attempt tries those
// besides its own list, which may then be empty. They are not remembered, so who has
// crashed is tried in vain for a minute. While the store is out, the lists serve.
//
// The LAN preset is used on loopback too, with a probe every 500 ms: the preset
// for one machine spreads each message to half as many. A crash is noticed after 2
// to 8 s; until then the dead member makes the view stale, so that estimates fall
// back to this replica, and nothing else depends on it.
//
// # Traps of memberlist that this package steps around
//
//   - A broadcast that does not fit a packet (about 1,398 bytes less encryption)
//     stays queued for ever, silently: digests are cut to fleet.MaxDatagram.
//   - Node metadata above 512 bytes panics: none is used.
//   - A buffer given to NotifyMsg is reused after it returns: decoding copies.
//   - Event callbacks run with memberlist's lock held: they take only this
//     package's lock and call nothing of memberlist.
//   - Names with a dot are looked up by a TCP query of type ANY: addresses are
//     resolved here, by the standard resolver.
//   - A member that restarts under its old name at another address is refused
//     until the old one was declared dead: the default name ends in random digits.
//
// Gossip is advice. Without any of it a replica admits exactly as much.
package gossip
