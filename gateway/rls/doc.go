// Package rls answers Envoy's questions: it is a rate limit service of the
// public API envoy.service.ratelimit.v3 on the limiter of a replica, so that
// Envoy and what is built on it (Istio, Contour, kgateway and others) share the
// fleet's limits without a change to the proxy.
//
// # What a descriptor means
//
// A proxy sends descriptors, lists of key and value. Three things can limit one:
//
//   - An entry whose key the configuration maps to a dimension names an identity
//     in it: the limits of that dimension apply, the very buckets that the
//     gateway draws from. An entry may stand for requests, for tokens, or for
//     tokens already spent.
//   - A configured limit matches the domain and the keys in their order; an empty
//     value in it stands for any, and each value has a bucket of its own.
//   - A limit that the descriptor brings along replaces a configured one and
//     whatever its entries are mapped to. Its bucket is the descriptor's.
//
// A descriptor that nothing limits is OK, as in the reference service.
//
// # What is taken
//
// All buckets of all descriptors of a request are decided in one step, and taken
// together or not at all: a request that a narrow limit refuses does not drain a
// wide one, which is what the reference service is most complained of for. Hits
// are hits_addend of the descriptor, else of the request, else 1. Zero hits look
// without taking. Negative hits give back, at most once, whatever happens to the
// message; so a proxy can reserve an estimate of tokens and return the rest when
// the response ends. Spent tokens are charged even to an empty budget, which
// then owes them; the answer says whether the budget was in debt before.
//
// # What it cannot do
//
// A decision is immediate: Envoy's question has no end of a request, so nothing
// waits in line here and no in-flight slots are held. Nobody who waits at the
// gateway is overtaken: a pool with waiters refuses.
//
// While the store cannot decide, fail_open answers OK with the header
// x-headway-degraded, local_share decides locally, and fail_closed is the gRPC
// status UNAVAILABLE, about which the proxy decides in its turn: set
// failure_mode_deny there to stay closed. Envoy waits 20 ms by default; give it
// at least redis.timeout.
package rls
