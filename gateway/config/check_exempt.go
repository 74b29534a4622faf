package config

import (
	"fmt"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
)

// exempt checks who limits do not apply to.
func (k *checker) exempt() {
	r := &k.RateLimiting
	seen := map[string]int{}
	for i, e := range r.Whitelist {
		at := fmt.Sprintf("rate_limiting.whitelist[%d]", i)
		k.skip(at, e.Skip)
		p, err := ParsePrefix(e.CIDR)
		switch first, twice := seen[p.String()]; {
		case err != nil:
			k.wrong(at, "write an address or CIDR, such as 10.0.0.0/8", "%q is not an address range", e.CIDR)
		case twice:
			k.wrong(at, "remove one of them", "the same range as whitelist[%d]", first)
		case hostBits(e.CIDR, p):
			k.wrong(at, fmt.Sprintf("write %s for the range, or %s for the one address", p, strings.SplitN(e.CIDR, "/", 2)[0]),
				"%q names one address and a range around it", e.CIDR)
		case p.Bits() == 0:
			k.warn(at, "write a narrower range, or remove the limits", "%s is every address: nobody is limited", p)
		}
		seen[p.String()] = i
	}
	clear(seen)
	for i, e := range r.BypassKeys {
		at := fmt.Sprintf("rate_limiting.bypass_keys[%d]", i)
		k.skip(at, e.Skip)
		if first, twice := seen[e.ID]; twice {
			k.wrong(at, "remove one of them", "%q is already bypass_keys[%d]", e.ID, first)
		} else if !slices.ContainsFunc(k.Keys, func(key Key) bool { return key.ID == e.ID }) {
			k.wrong(at, "use the id of one of keys", "no key has the id %q", e.ID)
		}
		seen[e.ID] = i
	}
}

// hostBits reports whether text has bits set that its range p drops: of an
// exemption nobody should have to guess which of the two was meant.
func hostBits(text string, p netip.Prefix) bool {
	q, err := netip.ParsePrefix(text)
	return err == nil && q.Addr() != p.Addr()
}

// skip checks the classes of one exemption.
func (k *checker) skip(at string, words []string) {
	if k.written(at+".skip") && len(words) == 0 && !k.unread(at+".skip") {
		k.wrong(at+".skip", "name classes, or remove skip for all of them", "the list is empty")
	}
	for i, w := range words {
		path := fmt.Sprintf("%s.skip[%d]", at, i)
		if first := slices.Index(words, w); first < i {
			k.wrong(path, "remove one of them", "%q is already skip[%d]", w, first)
		} else if w == "queue" && !k.RateLimiting.FairQueuing.Enabled {
			k.warn(path, "set fair_queuing.enabled: true, or remove it", "has no effect: nobody waits while fair queuing is off")
		}
	}
}

// taken are headers that mean something else to a gateway or an upstream.
var taken = []string{
	"Authorization", "X-Api-Key", "Api-Key", "Host", "Content-Type", "Content-Length", "Content-Encoding", "Connection", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade", "Keep-Alive", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host",
	"X-Forwarded-Proto", "X-Real-Ip", "X-Request-Id", "Cookie",
}

// userHeader checks the header that names users, and that some key may use it.
func (k *checker) userHeader() {
	const at = "rate_limiting.user_header"
	name := k.RateLimiting.UserHeader
	switch fix := "write a header name such as X-User-Id"; {
	case name == "":
	case strings.Trim(name, headerChars) != "":
		k.wrong(at, fix, "%q is not the name of a header", name)
	case slices.Contains(taken, textproto.CanonicalMIMEHeaderKey(name)):
		k.wrong(at, fix, "%s means something else", name)
	case !slices.ContainsFunc(k.Keys, func(key Key) bool { return key.MayNameUser }):
		k.warn(at, "set may_name_user: true for the keys of programs that serve users", "has no effect: no key may name a user")
	}
}

// headerChars are the characters of header names (RFC 9110 §5.6.2).
const headerChars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// inflightScope warns of a scope that there is nothing to apply to.
func (k *checker) inflightScope() {
	if k.written("rate_limiting.inflight_scope") && !slices.ContainsFunc(k.RateLimiting.dimensions(), func(d dimension) bool {
		if d.slots != inFlightOK {
			return false
		}
		if d.limit.MaxInFlightRequests > 0 {
			return true
		}
		for _, o := range d.limit.Overrides {
			if o.MaxInFlightRequests > 0 {
				return true
			}
		}
		return d.name == "per_api_key" && slices.ContainsFunc(k.Keys, func(key Key) bool {
			return key.RateLimit != nil && key.RateLimit.MaxInFlightRequests > 0
		})
	}) {
		k.warn("rate_limiting.inflight_scope", "set max_in_flight_requests of some dimension, or remove it", "has no effect: nothing caps requests in flight")
	}
}
