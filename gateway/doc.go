// Package gateway is Headway's HTTP edge: it takes a request in, finds out who
// asks and what it costs, has the limiter decide, passes it on to an upstream
// and streams the answer back.
//
// # One request
//
//	observe      request id, total timeout, panics, metrics       (observe.go)
//	locate       workspace, project or agent that the path names  (place.go)
//	route        which upstream                                   (route.go)
//	identify     API key and client address to hashed identities  (identity.go)
//	enter        whether the key has a role there                 (place.go)
//	estimate     model and token cost from a bounded body         (estimate.go)
//	Admit        the limiter grants, holds or refuses             (admit.go)
//	slot         of an agent, if its upstreams are some           (agent.go)
//	dispatch     the first upstream with room that can be reached (dispatch.go, throttle.go)
//	forward      its answer, byte by byte                         (forward.go, stream.go)
//	Done         settle the cost, free the slots                  (admit.go)
//
// Admit and Done stand in one function, so that no path, a panic included, can
// start what it does not end.
//
// What is worked out from the configuration stands in one value (tables.go) that
// a request keeps from its first byte to its last.
//
// Some paths have a way of their own (own.go): turns, which take several of these
// ways one after the other (turn.go); realtime sessions, whose utterances each take a
// slot (realtime.go); and the list of models (models.go).
//
// # Upstreams in order
//
// A route may list upstreams. Which of them takes a request is decided after
// admission: the first that serves the model, whose own limits cover the request,
// and that can be reached. Only a request of which no byte was sent goes to the
// next one; whether one was is known from the transport, which tells when it has
// a connection. What an upstream's limits took is given back where it was not
// reached, and what admission took where every upstream is exhausted.
//
// With a throttle, an upstream's provider is asked only when package pace allows
// it. A request waits for that after admission, for at most max_wait, and then goes
// to the next upstream. What providers say is read when an answer begins; the body
// of an error, which may say more, is overheard while it is passed on, up to 64 KiB
// (throttle.go). No answer is held back for it, but for a provider's refusal of a
// request that may go elsewhere: the next upstream is tried with the same body, and
// the latest refusal is passed on if there is none (tour.go).
//
// Batch work (patience.go) asks all of its upstreams whether it could start at once,
// then waits for the one that can be asked first, until its deadline; one that
// refuses it is asked again when its pause is over.
//
// # Agents
//
// An upstream with slots is an agent (package agents): who is sent there has a slot of it
// first, and frees it before the client's last byte, or, where that broke off, once the
// connection to the agent is closed (agent.go). Candidates of a route that stand in a
// row and are agents are asked together, the least loaded first, and waited for only if
// no upstream without a bound follows. What its own limits say is looked at with the slot
// in hand; one that is used up gives it back. A request whose wait ends in vain has
// started nothing, and is given back all that admission took (saturated.go has the
// answers). Connections refused, statuses of 500 and more, and answers that break off on
// the agent's side count against its health.
//
// # Places
//
// A path may begin with a workspace, a project or an agent; routes and upstreams see
// what follows. The beginning is compared as it was escaped, ids have letters that
// need no escape, and what begins like a place and is none is never passed on: so no
// proxy can read another place than we do. Existence and roles are configuration and
// hold without a store. What holds in a workspace is a document in package workspace,
// which requests never wait for (workspaces.go changes it, manifest.go tells of it,
// retention.go says what may be kept).
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
// Errors have the shape of OpenAI's API, or of Anthropic's to its callers
// (anthropic.go), so that SDKs raise their own exceptions. 429 means the caller's own limit, 503 that Headway cannot serve
// right now. Retry-After is in whole seconds, rounded up: a caller that sleeps
// exactly so long and retries alone is admitted. Callers are told the levels
// of their own API key's buckets and no others: a level of a shared bucket
// would tell about strangers.
//
// Two answers are not in that shape, because net/http writes them before any
// handler runs: 431 for headers above server.max_header, and 400 for what is no
// HTTP.
//
// # What a request has cost
//
// An answer's usage is read from its frames or its object (meter.go), whatever
// its status says: a provider that opens a stream with 200 and then tells nothing
// but an error has failed, and the tokens are given back. Once it has told
// anything else, an error or a cut leaves the estimate, or what was told if that
// is more: the rest was used, too.
//
// Before, it is estimated (ask.go, package cost). What answers tell of their prompts
// is compared with the estimate, and teaches it (learn.go).
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
