package gateway

import (
	"crypto/sha256"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// principal is who a known key speaks for, hashed.
type principal struct {
	key, user, team limiter.ID
}

// principals hashes everything there is to know about the configured keys.
func principals(keys []config.Key) (map[[32]byte]principal, error) {
	out := make(map[[32]byte]principal, len(keys))
	var errs []error
	for _, k := range keys {
		sum, err := k.Sum()
		errs = append(errs, err)
		out[sum] = principal{
			key:  limiter.Hash(limiter.APIKey, k.ID),
			user: limiter.Hash(limiter.User, k.User),
			team: limiter.Hash(limiter.Team, k.TeamID()),
		}
	}
	return out, errors.Join(errs...)
}

// standing is what a request's credential is worth.
type standing uint8

const (
	unknown   standing = iota // no key, or not one of ours: 401
	known                     // one of ours
	anonymous                 // no key of ours, and none needed
)

// identify finds out who asks. Keys are compared by looking up their digest,
// which takes the same time however much of a guess is right. With anonymous
// access a credential that is not ours is the upstream's business.
func (t *tables) identify(r *http.Request) (limiter.Identities, standing) {
	ids := limiter.Identities{
		Client: limiter.Hash(limiter.Client, config.ClientIdentity(clientAddr(r, t.trusted))),
	}
	for _, name := range keyHeaders {
		if p, ok := t.principal(r.Header.Get(name)); ok {
			ids.APIKey, ids.User, ids.Team = p.key, p.user, p.team
			return ids, known
		}
	}
	if t.cfg.Anonymous {
		return ids, anonymous
	}
	return ids, unknown
}

// keyHeaders are the headers that SDKs send keys in, in the order in which they
// are believed.
var keyHeaders = [...]string{"Authorization", "X-Api-Key", "Api-Key"}

// principal looks a header's key up.
func (t *tables) principal(value string) (principal, bool) {
	raw := bareKey(value)
	if raw == "" {
		return principal{}, false
	}
	p, ok := t.keys[sha256.Sum256([]byte(raw))]
	return p, ok
}

// bareKey strips a header's value to the key in it.
func bareKey(value string) string {
	const scheme = "bearer "
	if len(value) >= len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
		value = value[len(scheme):]
	}
	return strings.TrimSpace(value)
}

// presentsKey reports whether a request has anything that might be a key.
func presentsKey(h http.Header) bool {
	for _, name := range keyHeaders {
		if bareKey(h.Get(name)) != "" {
			return true
		}
	}
	return false
}

// clientAddr returns the address a request comes from: the peer's, or, when
// the peer is a trusted proxy, the rightmost address of X-Forwarded-For that
// is none. An entry that is no address ends the search: nothing left of it can
// be believed. The zero Addr stands for a peer without an IP address.
func clientAddr(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer := peerAddr(r)
	if !contains(trusted, peer) {
		return peer
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		ip, ok := parseHop(strings.TrimSpace(hop))
		if !ok {
			break
		}
		peer = ip
		if !contains(trusted, ip) {
			break
		}
	}
	return peer
}

// peerAddr is the other end of the connection. Zones are dropped and IPv4 in
// IPv6 notation becomes IPv4, so that one client has one spelling.
func peerAddr(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// parseHop reads an entry of X-Forwarded-For; some proxies add a port.
func parseHop(text string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	ip, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return ip.Unmap().WithZone(""), err == nil
}

// contains reports whether any range holds ip; the zero Addr is in none.
func contains(ranges []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(ip) })
}
