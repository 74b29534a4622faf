package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/headway-limiter/headway/gateway/config"
)

// route sends matching requests to one upstream.
type route struct {
	path     string // without the star
	prefix   bool   // path is the beginning only
	methods  []string
	upstream *upstream
}

// upstream is one server behind the gateway, with what is worked out once.
type upstream struct {
	config.Upstream
	base      *url.URL
	transport http.RoundTripper
}

// serves reports whether the upstream takes requests for model. Requests that
// name none (a list of models, say) are always taken.
func (u *upstream) serves(model string) bool {
	return model == "" || len(u.Models) == 0 || slices.Contains(u.Models, model)
}

// routes builds the routing table, best match first: longer paths before
// shorter ones, an exact path before the same path as a prefix, and a route
// for some methods before one for all.
func routes(cfg *config.Config, shared http.RoundTripper) ([]route, error) {
	var errs []error
	upstreams := map[string]*upstream{}
	for _, u := range cfg.Upstreams {
		base, err := url.Parse(u.URL)
		if err != nil {
			errs = append(errs, fmt.Errorf("upstream %q: url is not a URL", u.Name))
			continue
		}
		base.Path = strings.TrimSuffix(base.Path, "/")
		base.RawPath = strings.TrimSuffix(base.RawPath, "/")
		up := &upstream{Upstream: u, base: base, transport: shared}
		if shared == nil {
			up.transport = newTransport(u.Timeouts)
		}
		upstreams[u.Name] = up
	}
	var table []route
	for _, r := range cfg.Routes {
		up := upstreams[r.Upstream]
		if up == nil {
			errs = append(errs, fmt.Errorf("route %s: there is no upstream %q", r.Path, r.Upstream))
			continue
		}
		path, prefix := strings.CutSuffix(r.Path, "*")
		table = append(table, route{path: path, prefix: prefix, methods: r.Methods, upstream: up})
	}
	slices.SortStableFunc(table, func(a, b route) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)),
			cmp.Compare(boolInt(a.prefix), boolInt(b.prefix)),
			cmp.Compare(boolInt(len(a.methods) == 0), boolInt(len(b.methods) == 0)))
	})
	return table, errors.Join(errs...)
}

// boolInt makes booleans sortable, false first.
func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// route finds the upstream for a request. Paths with dot segments match
// nothing: the upstream would resolve them to a path that was never routed.
func (t *tables) route(r *http.Request) (*upstream, bool) {
	for segment := range strings.SplitSeq(r.URL.Path, "/") {
		if segment == "." || segment == ".." {
			return nil, false
		}
	}
	for _, rt := range t.routes {
		hit := r.URL.Path == rt.path || rt.prefix && strings.HasPrefix(r.URL.Path, rt.path)
		if hit && (len(rt.methods) == 0 || slices.Contains(rt.methods, r.Method)) {
			return rt.upstream, true
		}
	}
	return nil, false
}
