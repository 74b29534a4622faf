// Package gateway is Headway's HTTP edge: it takes a request in, finds out who
// asks and what it costs, has the limiter decide, passes it on to an upstream
// and streams the answer back.
//
// # One request
//
//	observe      request id, total timeout, panics, metrics       (observe.go)
//	route        which upstream                                   (route.go)
//	identify     API key and client address to hashed identities  (identity.go)
//	estimate     model and token cost from a bounded body         (estimate.go)
//	Admit        the limiter grants, holds or refuses             (admit.go)
//	forward      the upstream's answer, byte by byte              (forward.go, stream.go)
//	Done         settle the cost, free the slots                  (admit.go)
//
// Admit and Done stand in one function, so that no path, a panic included, can
// start what it does not end.
//
// # Bytes
//
// Responses are passed on as they arrive: every read from the upstream is one
// write and one flush to the client. What Headway wants to know of them (the
// usage a provider reports) is read in passing by a scanner that keeps a few
// bytes of state, never by holding data back. A response that breaks in the
// middle is never ended as if it were whole: an event stream gets an error
// event, and the connection is cut. Request bodies are buffered only where
// model and cost stand in them, up to server.max_body.
//
// # What callers are told
//
// Errors have the shape of OpenAI's API, so that its SDKs raise their own
// exceptions. 429 means the caller's own limit, 503 that Headway cannot serve
// right now. Retry-After is in whole seconds, rounded up: a caller that sleeps
// exactly so long and retries alone is admitted. Callers are told the levels
// of their own API key's buckets and no others: a level of a shared bucket
// would tell about strangers.
//
// # What stays inside
//
// Raw keys, users and teams are hashed in identity.go and exist nowhere
// behind it. The caller's credential never goes upstream, the upstream's never
// comes back, and error texts name no addresses.
//
// Echo carries the listeners' routing and is known to edge.go and admin.go
// alone; everything else is net/http.
package gateway
