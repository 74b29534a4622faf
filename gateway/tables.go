package gateway

import (
	"errors"
	"net/http"
	"net/netip"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// tables are what the gateway works out from one configuration. They never
// change, but are replaced as a whole, and a request keeps those it began with.
type tables struct {
	cfg     *config.Config
	keys    map[[32]byte]principal // by SHA-256 of the raw key
	trusted []netip.Prefix         // proxies whose X-Forwarded-For is believed
	exempt  []exemption
	homes   map[limiter.ID]limiter.ID // of users; nil: none has one
	outage  outage
	routes  []route
	ups     map[string]*upstream // by name
	turns   map[string]*turn     // by path
	fair    limiter.FairConfig   // whose turn it is at agents

	spaces   map[string]bool   // beginnings of paths that name a place
	projects map[string]string // their workspaces
	names    names             // for people
}

// newTables returns the tables of cfg. shared carries requests to all
// upstreams; nil: a connection pool for each. The error lists every mistake.
func newTables(cfg *config.Config, shared http.RoundTripper) (*tables, error) {
	t := &tables{cfg: cfg, spaces: spaces(cfg), projects: projects(cfg), names: namesOf(cfg)}
	var errs [5]error
	t.keys, errs[0] = principals(cfg)
	t.homes, t.outage = homes(cfg, t.keys), outageOf(cfg)
	t.trusted, errs[1] = prefixes(cfg.Server.TrustedProxies)
	t.exempt, errs[3] = exemptions(cfg.RateLimiting.Whitelist)
	t.ups, errs[4] = upstreamsOf(cfg, shared)
	t.routes, errs[2] = routes(cfg, t.ups)
	t.turns = turnsOf(cfg, t.ups)
	t.fair = cfg.Limiter().Fair
	return t, errors.Join(errs[:]...)
}

// prefixes parses address ranges, all of them before it says which are wrong.
func prefixes(texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	var errs []error
	for _, text := range texts {
		p, err := config.ParsePrefix(text)
		out, errs = append(out, p), append(errs, err)
	}
	return out, errors.Join(errs...)
}
