package config

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

const (
	// maxAmount bounds limits and bursts: in micro-tokens they stay below 2^53
	// and so exact in the store's arithmetic.
	maxAmount = 9_000_000_000
	// maxWeight is the largest weight of a tenant.
	maxWeight = 1000
	// maxWaitMS bounds max_wait_ms, in milliseconds: an hour.
	maxWaitMS = 3_600_000
)

// inFlight says what an in-flight cap means in a dimension.
type inFlight string

const (
	inFlightOK    inFlight = ""
	inFlightSlots inFlight = "bounds a tenant's requests, and a model is no tenant"
	inFlightWhole inFlight = "bounds a tenant's requests, and the whole fleet is no tenant"
	inFlightAgent inFlight = "bounds a tenant's requests, and an upstream is no tenant"
)

// dimension is one entry of rate_limiting as the checks see it.
type dimension struct {
	name   string
	limit  *Limit
	slots  inFlight
	tokens bool // whether a token budget means something
}

// keyed reports whether only requests with a key have dimension d.
func (d dimension) keyed() bool {
	return d.name != "global" && d.name != "per_client" && d.name != "per_backend"
}

// dimensions lists the entries of rate_limiting, in limiter.Dimensions' order.
func (r *RateLimiting) dimensions() []dimension {
	return []dimension{
		{"global", &r.Global, inFlightWhole, true},
		{"per_client", &r.PerClient, inFlightOK, false},
		{"per_api_key", &r.PerAPIKey, inFlightOK, true},
		{"per_user", &r.PerUser, inFlightOK, true},
		{"per_team", &r.PerTeam, inFlightOK, true},
		{"per_model", &r.PerModel, inFlightSlots, true},
		{"per_backend", &r.PerBackend, inFlightAgent, true},
	}
}

// rateLimiting checks the limits of every dimension, then the wait line.
func (k *checker) rateLimiting() {
	r := &k.RateLimiting
	k.atLeast("rate_limiting.default_completion_tokens", r.DefaultCompletionTokens, 0)
	if r.LeaseTTL < time.Second {
		k.wrong("rate_limiting.lease_ttl", "write 1s or more", "%v is too short to be renewed in time", r.LeaseTTL)
	}
	for i, d := range r.dimensions() {
		at := "rate_limiting." + d.name
		k.rule(at, d.limit.Rule, d.slots, d.tokens)
		for _, id := range slices.Sorted(maps.Keys(d.limit.Overrides)) {
			o := join(at+".overrides", id)
			k.rule(o, d.limit.Overrides[id], d.slots, d.tokens)
			if d.name == "global" || d.name == "per_client" || !k.RateLimitService.maps(limiter.Dimensions[i]) {
				k.override(d.name, o, id) // proxies may name anybody
			}
		}
		switch empty := d.limit.Rule == (Rule{}) && len(d.limit.Overrides) == 0; {
		case empty && d.limit.OnOutage != "":
			k.warn(at+".on_outage", "add a limit, or remove it", "has no effect: nothing is limited here")
		case !empty && d.keyed() && len(k.Keys) == 0 && (k.Anonymous || k.alone()) && !k.RateLimitService.maps(limiter.Dimensions[i]):
			fix := "add keys, or use global and per_client"
			if k.RateLimitService.Listen != "" {
				fix = "add keys, or map an entry to it in rate_limit_service.identities"
			}
			k.warn(at, fix, "has no effect: all requests are anonymous")
		case d.limit.Rule != (Rule{}) && len(k.Keys) > 0 && !k.RateLimitService.maps(limiter.Dimensions[i]):
			k.somebody(at, d.name)
		}
	}
	k.inflightScope()
	k.fairQueuing()
}

// rule checks the limits of one identity. slots and tokens say what makes sense
// in its dimension: a cap that is ignored is a warning, because configurations
// in use have it; a token budget before authentication is an error, because it
// would look as if it worked.
func (k *checker) rule(at string, r Rule, slots inFlight, tokens bool) {
	k.rate(at+".requests", r.Requests)
	k.rate(at+".tokens", r.Tokens)
	if r.Tokens != nil && !tokens {
		k.wrong(at+".tokens", "move it to per_api_key, per_user or per_team", "the cost of a request is not known before authentication")
	}
	if def := k.RateLimiting.DefaultCompletionTokens; r.Tokens != nil && r.Tokens.Limit > 0 && r.Tokens.most() < def {
		k.warn(at+".tokens", "raise its burst, or lower rate_limiting.default_completion_tokens",
			"holds at most %d, so a request that does not bound its completion (%d assumed) can never pass", r.Tokens.most(), def)
	}
	k.atLeast(at+".max_in_flight_requests", int64(r.MaxInFlightRequests), 0)
	if r.MaxInFlightRequests > 0 && slots != inFlightOK {
		k.warn(at+".max_in_flight_requests", "use server.max_concurrent_requests, or a cap per user, team or key", "is ignored: it %s", slots)
	}
}

// most is what the bucket holds when it is full.
func (r *Rate) most() int64 {
	if r.Burst == 0 {
		return r.Limit
	}
	return r.Burst
}

// rate checks one bucket's shape. A missing limit is a mistake, not a zero: a
// limit of 0 blocks everything and has to be written.
func (k *checker) rate(at string, r *Rate) {
	if r == nil {
		return
	}
	if k.lines != nil && !k.written(at+".limit") {
		k.wrong(at+".limit", "write how many are allowed per period; 0 blocks everything", "the limit is missing")
		return
	}
	if r.Limit < 0 || r.Limit > maxAmount {
		k.wrong(at+".limit", "remove the whole entry for no limit, or write 0 to block", "%d is not in 0..%d", r.Limit, int64(maxAmount))
	}
	switch {
	case k.lines != nil && !k.written(at+".per"):
		k.wrong(at+".per", "write the period, such as 1s or 1m", "the period is missing")
	case r.Per < time.Microsecond:
		k.wrong(at+".per", "write a period such as 1s or 1m", "%v is not a period", r.Per)
	}
	switch zero := r.Burst == 0 && k.written(at+".burst"); {
	case r.Burst < 0 || r.Burst > maxAmount || zero && r.Limit > 0:
		k.wrong(at+".burst", "write 1 or more, or remove it for a burst of limit", "%d is not in 1..%d", r.Burst, int64(maxAmount))
	case r.Limit == 0 && r.Burst > 0:
		k.warn(at+".burst", "remove it", "has no effect: limit 0 blocks everything")
	}
}

// override checks that an override's identity can occur at all. Keys are all
// in this file, so an unknown one is an error. Users, teams and models may
// come later with a key or a model list: a warning.
func (k *checker) override(dimension, at, id string) {
	switch dimension {
	case "global":
		k.wrong(at, "remove it", "the whole fleet is one identity and has no overrides")
	case "per_client":
		if _, err := parseClient(id); err != nil {
			k.wrong(at, "write one address, such as 10.0.0.1 or 2001:db8::/64", "%q is not a client address", id)
		}
	case "per_api_key":
		i := slices.IndexFunc(k.Keys, func(key Key) bool { return key.ID == id })
		if i < 0 {
			k.wrong(at, "use the id of one of keys", "no key has the id %q", id)
		} else if k.Keys[i].RateLimit != nil {
			k.wrong(at, "remove one of them", "keys[%d].rate_limit sets the limits of %q too", i, id)
		}
	case "per_user":
		k.someKey(at, "user", id, func(key Key) string { return key.User })
	case "per_team":
		k.someKey(at, "team", id, Key.TeamID)
	case "per_backend":
		if !slices.ContainsFunc(k.Upstreams, func(u Upstream) bool { return u.Name == id }) {
			k.wrong(at, "use the name of one of upstreams", "there is no upstream %q", id)
		}
	case "per_model":
		open := slices.ContainsFunc(k.Upstreams, func(u Upstream) bool {
			return u.Kind == KindOpenAI && (len(u.Models) == 0 || slices.Contains(u.Models, id))
		})
		if !open {
			k.warn(at, "add it to an upstream's models, or remove it", "has no effect: no upstream serves %q", id)
		}
	}
}

// somebody warns of a rule for a dimension that no key has an identity in.
func (k *checker) somebody(at, dimension string) {
	switch {
	case dimension == "per_user" && !slices.ContainsFunc(k.Keys, func(key Key) bool { return key.User != "" || key.MayNameUser }):
		k.warn(at, "give keys a user, or use per_api_key", "applies to nobody: no key has a user, or may name one")
	case dimension == "per_team" && !slices.ContainsFunc(k.Keys, func(key Key) bool { return key.TeamID() != "" }):
		k.warn(at, "give keys a team, or use per_api_key", "applies to nobody: no key has a team")
	}
}

// someKey warns of an identity that no key has. Where requests may name users,
// any user may come.
func (k *checker) someKey(at, what, id string, of func(Key) string) {
	if what == "user" && slices.ContainsFunc(k.Keys, func(key Key) bool { return key.MayNameUser }) {
		return
	}
	if !slices.ContainsFunc(k.Keys, func(key Key) bool { return of(key) == id }) {
		k.warn(at, "use the "+what+" of one of keys, or remove it", "has no effect: no key has the %s %q", what, id)
	}
}

// fairQueuing checks the wait line, and that it is of any use: its settings
// while it is off, or a line that no limit sends anybody to, are warnings.
func (k *checker) fairQueuing() {
	const at = "rate_limiting.fair_queuing"
	f := k.RateLimiting.FairQueuing
	k.weights(at, f)
	for name, n := range map[string]int{
		"max_queue_depth_per_tenant": f.MaxQueueDepthPerTenant, "max_total_queued": f.MaxTotalQueued,
		"max_tenants": f.MaxTenants, "max_in_flight": f.MaxInFlight, "max_wait_ms": f.MaxWaitMS,
	} {
		k.atLeast(at+"."+name, int64(n), 1)
	}
	if f.MaxWaitMS > maxWaitMS {
		k.wrong(at+".max_wait_ms", fmt.Sprintf("write %d or less", maxWaitMS), "%d ms is longer than an hour", f.MaxWaitMS)
	}
	if !f.Enabled {
		for _, field := range fieldNames(fieldsOf(fairQueuingType)) {
			if field != "enabled" && k.written(at+"."+field) && !(sharing[field] && k.shares()) {
				k.warn(at+"."+field, "set fair_queuing.enabled: true, or remove it", "has no effect while fair queuing is off")
			}
		}
		return
	}
	if f.FairnessScope != ScopeReplica && k.written(at+".discipline") {
		k.warn(at+".discipline", "remove it, or set fairness_scope: replica", "has no effect under fairness_scope %s, which orders the whole fleet by what tenants were served", f.FairnessScope)
	}
	if f.MaxWait() > k.Server.Timeouts.Total {
		k.warn(at+".max_wait_ms", "lower it, or raise server.timeouts.total", "no request lives longer than server.timeouts.total, %v", k.Server.Timeouts.Total)
	}
	if !k.somethingWaits() {
		k.warn(at, "add requests limits to per_api_key, per_user, per_team or per_model", "nothing ever waits: only requests refused by those limits do")
	}
	if k.Anonymous && len(k.Keys) == 0 {
		k.warn(at, "add keys", "nothing ever waits: anonymous requests have no tenant")
	}
}

// weights checks the shares, and that their tenants exist.
func (k *checker) weights(at string, f FairQueuing) {
	bad := func(w float64) bool { return !(w > 0 && w <= maxWeight) || math.IsNaN(w) }
	if bad(f.DefaultWeight) {
		k.wrong(at+".default_weight", "write a number above 0 and up to 1000", "%v is not in (0, 1000]", f.DefaultWeight)
	}
	of, known := tenantOf[f.TenantDimension]
	seen := map[string]int{}
	for i, w := range f.Weights {
		w0 := fmt.Sprintf("%s.weights[%d]", at, i)
		if bad(w.Weight) {
			k.wrong(w0+".weight", "write a number above 0 and up to 1000", "%v is not in (0, 1000]", w.Weight)
		}
		first, twice := seen[w.Identity]
		switch {
		case w.Identity == "":
			k.wrong(w0+".identity", "write the tenant's name", "the identity is missing")
			continue
		case twice:
			k.wrong(w0+".identity", "remove one of them", "%q has a weight already, in weights[%d]", w.Identity, first)
		case known:
			k.someKey(w0+".identity", f.TenantDimension, w.Identity, of)
		}
		seen[w.Identity] = i
	}
}

// tenantOf gives a key's identity in each tenant dimension.
var tenantOf = map[string]func(Key) string{
	"user":    func(k Key) string { return k.User },
	"team":    Key.TeamID,
	"api_key": func(k Key) string { return k.ID },
}

// somethingWaits reports whether any limit can put a request into the line:
// only refusals on request count, by a dimension that says who is asking, do.
func (k *checker) somethingWaits() bool {
	r := k.RateLimiting
	for _, l := range [...]Limit{r.PerAPIKey, r.PerUser, r.PerTeam, r.PerModel} {
		if l.Requests != nil {
			return true
		}
		for _, o := range l.Overrides {
			if o.Requests != nil {
				return true
			}
		}
	}
	return slices.ContainsFunc(k.Keys, func(key Key) bool { return key.RateLimit != nil && key.RateLimit.Requests != nil })
}

// clientBits is how much of an IPv6 address names a client: providers give
// each customer a /64 at least.
const clientBits = 64

// ClientIdentity is the text that per_client limits go by: an IPv4 address, or
// the /64 network of an IPv6 address.
func ClientIdentity(ip netip.Addr) string {
	ip = ip.Unmap().WithZone("")
	if ip.Is4() || !ip.IsValid() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, clientBits).Masked().String()
}

// parseClient reads an override's address and gives its identity. A network is
// accepted only where it is one client's, an IPv6 /64: an override of a wider
// one would never match.
func parseClient(text string) (string, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return ClientIdentity(ip), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return "", err
	}
	if p.Addr().Is4() && p.Bits() != 32 || p.Addr().Is6() && p.Bits() != clientBits {
		return "", fmt.Errorf("config: %s is a range, not one client", text)
	}
	return ClientIdentity(p.Addr()), nil
}
