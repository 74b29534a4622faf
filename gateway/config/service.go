package config

import (
	"fmt"
	"slices"

	"github.com/headway-limiter/headway/limiter"
)

// RateLimitService is the gRPC service that Envoy and its kin ask. Off without
// a listener.
type RateLimitService struct {
	Listen     string            `yaml:"listen" help:"host:port of the gRPC service envoy.service.ratelimit.v3; empty: none"`
	TLS        ListenerTLS       `yaml:"tls" help:"files for TLS at the gRPC service"`
	Levels     string            `yaml:"levels" enum:"own|all" help:"which levels answers tell: own, of API keys and descriptors; all, of buckets that many share too"`
	Identities []MappedEntry     `yaml:"identities" help:"descriptor entries that name an identity: the limits of rate_limiting apply to it"`
	Limits     []DescriptorLimit `yaml:"limits" help:"limits on descriptors themselves; the first that matches applies"`
}

// MappedEntry maps the descriptor entries of one key to a dimension.
type MappedEntry struct {
	Key       string `yaml:"key" help:"key of the entry; its value is the identity"`
	Dimension string `yaml:"dimension" enum:"global|client|api_key|user|team|model|backend" help:"whose limits apply"`
	Charge    string `yaml:"charge" enum:"requests|tokens|spent" help:"what hits_addend counts: requests; tokens about to be used; spent, tokens used already, which are charged in any case"`
}

// DescriptorLimit limits the descriptors that it matches.
type DescriptorLimit struct {
	Domain   string            `yaml:"domain" help:"of the proxy's configuration; empty: any"`
	Entries  []DescriptorEntry `yaml:"entries" help:"all entries of the descriptor, in order"`
	Requests *Rate             `yaml:"requests" help:"hits per period"`
}

// DescriptorEntry is one entry of a descriptor.
type DescriptorEntry struct {
	Key   string `yaml:"key" help:"key of the entry"`
	Value string `yaml:"value" help:"its value; empty: any, each with a bucket of its own"`
}

// defaultMappedEntry is what an entry of identities starts from.
func defaultMappedEntry() MappedEntry { return MappedEntry{Charge: "requests"} }

// maps reports whether the service is on and proxies bring identities of the
// dimension, without any key of ours.
func (s RateLimitService) maps(d limiter.Dimension) bool {
	return s.Listen != "" && slices.ContainsFunc(s.Identities, func(e MappedEntry) bool { return e.Dimension == string(d) })
}

// alone reports whether there is nothing but the service: it is on, and nobody
// has described a gateway, which then answers 401 or 404 to everything.
func (k *checker) alone() bool {
	return (k.RateLimitService.Listen != "" || k.unread("rate_limit_service.listen")) &&
		len(k.Routes)+len(k.Upstreams) == 0
}

// rateLimitService checks the listener, and that every question has an answer
// that means something.
func (k *checker) rateLimitService() {
	const at = "rate_limit_service"
	s := k.RateLimitService
	if s.Listen == "" {
		if len(s.Identities)+len(s.Limits) > 0 || s.TLS.On() {
			k.warn(at, "set rate_limit_service.listen, or remove it", "has no effect without a listener")
		}
		return
	}
	k.hostPort(at+".listen", s.Listen, true)
	k.listenerTLS(at+".tls", s.TLS)
	if k.Redis.Layout == LayoutTenant {
		k.wrong(at+".listen", "set redis.layout: single, or remove the service",
			"with redis.layout tenant a descriptor's user would need a team to be found by")
	}
	if len(s.Identities)+len(s.Limits) == 0 {
		k.warn(at, "add identities or limits", "limits only descriptors that bring a limit along")
	}
	for i, e := range s.Identities {
		k.mappedEntry(fmt.Sprintf("%s.identities[%d]", at, i), e)
	}
	for i, l := range s.Limits {
		k.descriptorLimit(fmt.Sprintf("%s.limits[%d]", at, i), l)
	}
}

// mappedEntry checks that something limits the identities of e.
func (k *checker) mappedEntry(at string, e MappedEntry) {
	if e.Key == "" {
		k.wrong(at+".key", "write the key of a descriptor entry, such as remote_address", "the key is missing")
	}
	i := slices.Index(limiter.Dimensions[:], limiter.Dimension(e.Dimension))
	if i < 0 {
		return // told already
	}
	d, class := k.RateLimiting.dimensions()[i], "requests"
	limited := d.limit.Requests != nil
	if e.Charge != "requests" {
		class, limited = "tokens", d.limit.Tokens != nil
	}
	if !limited && len(d.limit.Overrides) == 0 {
		k.warn(at, "add "+class+" to rate_limiting."+d.name, "has no effect: nothing limits %s there", class)
	}
}

func (k *checker) descriptorLimit(at string, l DescriptorLimit) {
	if len(l.Entries) == 0 {
		k.wrong(at+".entries", "write the descriptor's entries, such as [{key: generic_key}]", "there are no entries")
	}
	for i, e := range l.Entries {
		if e.Key == "" {
			k.wrong(fmt.Sprintf("%s.entries[%d].key", at, i), "write the key of the entry", "the key is missing")
		}
	}
	if l.Requests == nil {
		k.wrong(at+".requests", "write a limit, such as {limit: 10, per: 1s}", "the limit is missing")
	}
	k.rate(at+".requests", l.Requests)
}
