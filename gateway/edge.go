package gateway

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"
)

// edge mounts the API. All that Echo does for it is here: to swap Echo for its
// next version, or for nothing, is to change this file and the routes in
// admin.go. Which paths exist is the configuration's business, so
// Echo passes every path and method to one handler.
func (g *Gateway) edge(api http.Handler) http.Handler {
	e := g.newEcho()
	e.RouteNotFound("/*", echo.WrapHandler(api))
	return e
}

// newEcho returns an Echo that believes no forwarding header by itself and
// answers its own errors in our shape.
func (g *Gateway) newEcho() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.IPExtractor = func(r *http.Request) string {
		addr, _ := clientAddr(r, g.tables.Load().trusted)
		return addr.String()
	}
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		f := failure{status: http.StatusInternalServerError, kind: kindServer, code: "internal_error", message: "Internal error."}
		if h := (*echo.HTTPError)(nil); errors.As(err, &h) && h.Code < http.StatusInternalServerError {
			f = failure{status: h.Code, kind: kindInvalid, code: "unknown_url", message: http.StatusText(h.Code) + "."}
			if h.Code == http.StatusMethodNotAllowed { // Echo has set Allow
				f.code = "method_not_allowed"
			}
		}
		f.write(c.Response(), c.Request())
	}
	return e
}
