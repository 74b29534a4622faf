package gateway

import "net/http"

// serveOwn answers what the gateway serves itself, without a route or with a way of
// its own to its upstreams. False means that the request is to be passed on.
func (g *Gateway) serveOwn(x *exchange, r *http.Request) bool {
	t := x.turns[x.place.path]
	switch {
	case t != nil:
		g.serveTurn(x, r, t)
	case x.asksRealtime(r):
		g.serveRealtime(x, r)
	case x.asksModels(r):
		g.serveModels(x, r)
	default:
		return false
	}
	return true
}
