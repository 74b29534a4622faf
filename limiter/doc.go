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
// How many waiters of one line may ask at once starts at one, doubles with
// each grant up to MaxInFlight and falls back to one at a refusal: a deep
// bucket is drained at the speed of the network, an empty one costs one
// refused call per refill and replica.
//
// There is no dispatcher goroutine. One mutex guards all lines; one function,
// pump, restores the invariant "nobody ready sleeps while there is room to
// ask" after every change; timers only call pump.
package limiter
