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
	"github.com/headway-limiter/headway/limiter"
)

// route sends matching requests to one of its candidates.
type route struct {
	path       string // without the star
	prefix     bool   // path is the beginning only
	methods    []string
	kind       string      // of all candidates
	candidates []*upstream // best first, at least one
}

// serving lists the candidates that take requests for model.
func (rt *route) serving(model string) []*upstream {
	all := func(up *upstream) bool { return !up.serves(model) }
	if !slices.ContainsFunc(rt.candidates, all) {
		return rt.candidates
	}
	return slices.DeleteFunc(slices.Clone(rt.candidates), all)
}

// upstream is one server behind the gateway, with what is worked out once.
type upstream struct {
	config.Upstream
	id        limiter.ID // in per_backend
	base      *url.URL
	provider  string // whose dialect it speaks; empty: not known
	transport http.RoundTripper
}

// serves reports whether the upstream takes requests for model. Requests that
// name none (a list of models, say) are always taken.
func (u *upstream) serves(model string) bool {
	return model == "" || len(u.Models) == 0 || slices.Contains(u.Models, model)
}

// upstreamsOf makes the upstreams of cfg, by name.
func upstreamsOf(cfg *config.Config, shared http.RoundTripper) (map[string]*upstream, error) {
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
		up := &upstream{Upstream: u, id: limiter.Hash(limiter.Backend, u.Name), base: base, provider: providerOf(base.Hostname()), transport: shared}
		if shared == nil {
			up.transport = newTransport(u.Timeouts)
		}
		upstreams[u.Name] = up
	}
	return upstreams, errors.Join(errs...)
}

// routes builds the routing table, best match first: longer paths before
// shorter ones, an exact path before the same path as a prefix, and a route
// for some methods before one for all.
func routes(cfg *config.Config, upstreams map[string]*upstream) ([]route, error) {
	var errs []error
	var table []route
	for _, r := range cfg.Routes {
		path, prefix := strings.CutSuffix(r.Path, "*")
		rt := route{path: path, prefix: prefix, methods: r.Methods}
		for _, name := range r.Candidates() {
			up := upstreams[name]
			if up == nil {
				errs = append(errs, fmt.Errorf("route %s: there is no upstream %q", r.Path, name))
				continue
			}
			rt.kind = up.Kind
			if !slices.ContainsFunc(r.Tags, func(tag string) bool { return !up.HasTag(tag) }) {
				rt.candidates = append(rt.candidates, up)
			}
		}
		if len(rt.candidates) > 0 {
			table = append(table, rt)
		}
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

// route finds the route of a request. Paths with dot segments match nothing:
// the upstream would resolve them to a path that was never routed. A path that
// is routed for other methods alone says which.
func (t *tables) route(r *http.Request) (*route, *failure) {
	wrong := unknownURL(r)
	for segment := range strings.SplitSeq(r.URL.Path, "/") {
		if segment == "." || segment == ".." {
			return nil, &wrong
		}
	}
	var allowed []string
	for i := range t.routes {
		rt := &t.routes[i]
		if r.URL.Path != rt.path && !(rt.prefix && strings.HasPrefix(r.URL.Path, rt.path)) {
			continue
		}
		if len(rt.methods) == 0 || slices.Contains(rt.methods, r.Method) {
			return rt, nil
		}
		allowed = append(allowed, rt.methods...)
	}
	if len(allowed) > 0 {
		slices.Sort(allowed)
		wrong = wrongMethod(r, slices.Compact(allowed))
	}
	return nil, &wrong
}
