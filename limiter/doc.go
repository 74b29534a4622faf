// Package limiter decides, for every request of every tenant, whether it may
// start now, must wait its turn, or is refused, so that one limit shared by a
// whole fleet of replicas is never exceeded and is divided fairly.
//
// A request makes two calls: [Limiter.Admit] before it starts and
// [Grant.Done] when it has ended.
//
//	grant, err := l.Admit(ctx, request)
//	var refusal *limiter.Refusal
//	switch {
//	case errors.As(err, &refusal):              // not now: refusal says why and when
//	case errors.Is(err, limiter.ErrUnavailable): // the store is out, and the policy is fail closed
//	case err != nil:                            // ctx ended while asking or waiting
//	default:
//		defer grant.Done(limiter.Outcome{Tokens: used})
//	}
//
// # What is decided where
//
// Buckets and in-flight slots live in a [Store] and are taken all or nothing
// in one call, by the store's clock; several replicas share one store exactly.
// A refused request has taken nothing anywhere. What other replicas gossip (a
// [Fleet]) only improves estimates; a wrong or missing view never lets more
// through than the store allows.
//
// # Which refusal is named
//
// A request may be refused by several limits at once. The answer names the
// dimensions before authentication (global, client) first, then the class in
// the order requests, tokens, in-flight, then the longest wait. Its RetryAfter
// is the longest over all that refuse, so that a caller who sleeps exactly
// that long and retries alone is admitted.
//
// # Backends
//
// Which server does the work is known only after admission. [Grant.Select] takes
// what the [Backend] limits of the first server that covers the request ask for,
// in a call of its own; a server that is exhausted is passed over, and only when
// all are the request is refused, until the first of them would pass. What
// admission took is then given back (Outcome.Void). Nobody waits in line for a
// server.
//
// # Exemptions
//
// [Request].Skip names classes that do not apply to a request, in any dimension.
// A request that skips the wait line asks the store past those who wait and is
// refused rather than held. With [Config].LocalSlots in-flight caps hold for each
// replica by itself: they are counted here, and stores never see a slot. A
// refusal for want of one is decided before the store is asked, so that it is
// named even where a bucket would refuse, too.
//
// # The wait line
//
// With [FairConfig] enabled, a request refused by request counts alone, in a
// dimension that identifies somebody, is held in a line instead of being
// refused. There is one line per exhausted bucket, so that waiters of an empty
// one never block those of another; a request that several buckets refuse
// stands in the line of the widest (model before team before user before key),
// because that is where tenants compete. Inside a line smooth weighted round
// robin ([github.com/headway-limiter/headway/limiter/fairq]) picks whose turn
// it is. A waiter holds nothing in the store: on its turn its own goroutine
// asks the store again for everything at once.
//
// While a line has waiters, a newcomer that needs its bucket joins the line
// without asking; otherwise it would steal the refill that others wait for.
// Refused again by the line's bucket, the whole line rests until the bucket's
// next refill, and the same waiter is first. Refused by a narrower bucket of
// its own, only its tenant rests, taking no turns and saving no credit.
//
// A store that does not answer costs a waiter its place only after a while
// (180 ms): who waits anyway need not suffer from a hiccup.
//
// There is no dispatcher goroutine. One mutex guards all lines; one function,
// pump, restores the invariant "nobody ready sleeps while there is room to
// ask" after every change; timers only call pump.
//
// # Token budgets, and work that may wait
//
// There are two more sets of lines, of the same kind and with the same function
// pump. They are this replica's own: between replicas waiters race for a bucket,
// as under FairReplica.
//
// With [DeferralConfig] enabled, a request refused by token budgets alone is held
// until they cover its estimate: first come, first served, one asking at a time, so
// that a large request is not overtaken by small ones for ever. Newcomers who need a
// bucket that somebody is held for join the line without asking, and so do those
// whose turn comes in the wait line. Only a tenant whose own narrower bucket is empty
// steps aside meanwhile. One whose wait does not fit its budget is refused at once;
// the wait is that of the refill which all before it need, and it:
//
//	wait = until the first can be served + (costs between + its own)·Per/Limit
//
// A request that both its request count and its tokens refuse has its turn at the
// former first, then waits for the latter; both waits end with its Deadline.
//
// Batch work ([Request].Batch) waits at every limit that time will lift, slots
// included, until its Deadline, and stands back while anybody else waits for what it
// needs. Its lines take turns by cost between tenants, deficit round robin, and settle
// real costs. A slot that becomes free here wakes who waits for it; of one that does
// elsewhere it hears within a quarter of a second.
//
// # Whose turn it is, over the fleet
//
// N replicas that share one bucket fairly each by itself are not fair together:
// they race, each gets 1/N of the bucket, and a tenant present on all of them N
// times the share of one that meets a single replica. FairConfig.Scope says
// what is done about it, for buckets that more than one tenant draws from:
//
//   - FairReplica: nothing. How many waiters of one line ask at once starts at
//     one, doubles with each grant up to MaxInFlight and falls back to one at a
//     refusal; an empty bucket costs one refused call per refill and replica.
//   - FairGossip: replicas tell each other what they served to whom, as absolute
//     counters. Each orders its tenants by what they got anywhere, per weight,
//     and a tenant that leads the poorest elsewhere by more than the error of
//     gossip rests in proportion. Fair in the long run, for at most some dozens
//     of replicas; within the age of gossip all push the same poor tenant.
//   - FairExact: the store keeps everybody's place (start-time fair queueing,
//     Goyal et al. 1996). Each line asks with one call at a time for up to eight
//     waiters; the script that takes the bucket's tokens also decides whose turn
//     it is, by a finish tag per tenant and one claim per replica on behalf of
//     the first waiter it could not serve. Two tenants that both wait never
//     differ by more than about one call's grants, whichever replicas they meet.
//     While claims stand, a newcomer anywhere is refused as contended, and
//     joins the line.
//
// # Without the store
//
// ErrUnavailable from the store is decided by the outage policies of the
// request's dimensions: one that fails closed refuses it, else those that fail
// open are skipped. A store that can decide by shares of the limits (package
// [github.com/headway-limiter/headway/limiter/localshare]) returns verdicts
// marked Local instead, and lines go on: then turns are ordered by what gossip
// tells of service elsewhere, since the store's tags are out of reach.
//
// # Estimates
//
// In a line of turns the wait is the distance of the waiter's finish tag from
// virtual time, divided by the measured speed of virtual time. Elsewhere, and
// until that speed is measured anew after a pause of a second, it is the
// limiter's own wait plus one grant spacing for each waiter ahead. It is
// never below the bucket's own wait. A request whose budget that wait does not fit
// is refused at once rather than at the end of it, and so is one whose estimate by
// virtual time, times 1.5, does not: the others may be off by more than that.
package limiter
