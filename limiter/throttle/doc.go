// Package throttle paces starts by what a provider says is left of its quota. A
// [Throttle] stands for one account and model at one replica. It is pure: the
// caller holds a lock and brings the time.
//
// # What is left
//
// Snapshots are merged so that their order does not matter, because responses
// overtake one another and replicas hear of them late. A quota that flows in all
// the time is kept as the instant at which it is full again (a theoretical arrival
// time, as in GCRA), and the latest one wins:
//
//	full = observed + reset            level(now) = limit - limit·(full - now)/period
//
// A quota that is renewed at once is kept as the end of its window and what
// remains of it. A later window wins; ends less than half a period apart, or two
// seconds where the period is not known, are one window, whose least remainder
// and latest end hold. Both merges are commutative, associative and idempotent,
// and neither ever raises a level within a window: a late response cannot give
// back what has been started since.
//
// Where a dialect leaves open which of the two a quota is, its resets tell: the end
// of a window stays where it is, while the time until all is there again grows with
// what is missing. Each response is a vote. A first one is taken for a flow if the
// period that follows from it is at most 90 s.
//
// From a level is subtracted what this replica has started after the request whose
// answer told of it, and the provider has not answered yet: headers tell of the
// time when a request was counted, not of what was sent since.
//
// # Pace
//
// With N replicas, each starts at 1/N of
//
//	window:      (remaining - reserve) / (time until two fifths of it are over)
//	continuous:  limit / period, from what is above the reserve
//
// so that batch work has had its share early and the rest of a window belongs to
// interactive work, whose arrivals nobody plans. The time in the first is at least
// 1.2 s (a fifth of short windows): spent faster than answers return, what is left
// is not known, and 32 replicas overshoot a window of 6 s far into its reserve.
// Each has a burst of a twentieth of the limit.
//
// Unpaced, all that a window brings is started in its first instant, by everybody:
// simulated, that costs 118 refusals a minute with 8 replicas and 473 with 32,
// against none when paced. When a window ends, nobody knows the next one yet: starts go on from no burst at half of
// limit/period until a response tells, then rise to the full pace over a twentieth
// of the period. So no more than a tenth of a limit of ten seconds or longer is
// started within a second of the reset.
//
// Batch work starts only while the level stays above the reserve, a fifth of the
// limit unless configured. Interactive work may use the reserve, and goes before:
// what it starts is taken from the pace of batch work, down to one burst of debt.
//
// # Refusals
//
// A refusal of quota pauses every start until its Retry-After, or the reset, or
// for a second that doubles while refusals go on; the latest end of a pause wins
// everywhere. After it one replica, elected by the caller, sends one probe, and
// the others wait for its answer, at most two seconds. An overload of the provider
// is a short pause of its own. An account without money stops, with one try a
// minute, until a response is served.
//
// # Without a word
//
// Before the first response a small window of starts is allowed, which doubles
// with every answer. A provider that never says what is left is paced by additive
// increase and multiplicative decrease of a rate: none before its first refusal,
// then 0.7 of what was started in that second, a tenth more for each second in
// which the rate was used and nothing refused, and 0.7 of it after a refusal, at
// most once a second.
//
// Source of the rules and figures: simulation of ten minutes of 600 requests a
// minute with saturating batch work; order-free merging follows the join
// semilattices of replicated data types, pacing the leaky bucket as a meter.
package throttle
