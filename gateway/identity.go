package gateway

import (
	"cmp"
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
	names           bool // may name another user
	batch           bool // its requests are batch work
	skip            limiter.Skip

	id        string            // of the key, as configured: for audit lines, not for limits
	roles     map[string]string // by workspace
	workspace string            // of requests to plain paths; empty: none
}

// principals hashes everything there is to know about the configured keys.
func principals(cfg *config.Config) (map[[32]byte]principal, error) {
	out := make(map[[32]byte]principal, len(cfg.Keys))
	skips := map[string]limiter.Skip{}
	for _, e := range cfg.RateLimiting.BypassKeys {
		skips[e.ID] = e.Skips()
	}
	var errs []error
	for _, k := range cfg.Keys {
		sum, err := k.Sum()
		errs = append(errs, err)
		out[sum] = principal{
			key:   limiter.Hash(limiter.APIKey, k.ID),
			user:  limiter.Hash(limiter.User, k.User),
			team:  limiter.Hash(limiter.Team, k.TeamID()),
			names: k.MayNameUser,
			batch: k.Batch,
			skip:  skips[k.ID],

			id: k.ID, roles: roles(k), workspace: k.Home(),
		}
	}
	return out, errors.Join(errs...)
}

// roles is what a key is in each of its workspaces.
func roles(k config.Key) map[string]string {
	out := make(map[string]string, len(k.Workspaces))
	for _, m := range k.Workspaces {
		out[m.ID] = m.Role
	}
	return out
}

// home is beside whose keys those of the user are kept in layout tenant.
func (p principal) home(user limiter.ID) limiter.ID { return cmp.Or(p.team, user, p.key) }

// exemption is a range of clients that some limits do not apply to.
type exemption struct {
	clients netip.Prefix
	skip    limiter.Skip
}

// exemptions parses the whitelist.
func exemptions(list []config.ExemptAddr) ([]exemption, error) {
	var out []exemption
	var errs []error
	for _, e := range list {
		p, err := config.ParsePrefix(e.CIDR)
		out, errs = append(out, exemption{p, e.Skips()}), append(errs, err)
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

// caller is who asks.
type caller struct {
	limiter.Identities
	standing standing
	skip     limiter.Skip // what does not apply to it
	by       principal    // of its key; zero: no key of ours
}

// identify finds out who asks. Keys are compared by looking up their digest,
// which takes the same time however much of a guess is right. With anonymous
// access a credential that is not ours is the upstream's business.
func (t *tables) identify(r *http.Request) (caller, *failure) {
	if who, ok := t.own(r); ok {
		return who, nil
	}
	addr, sure := clientAddr(r, t.trusted)
	who := caller{Identities: limiter.Identities{Client: limiter.Hash(limiter.Client, config.ClientIdentity(addr))}}
	for _, e := range t.exempt {
		if sure && e.clients.Contains(addr) {
			who.skip |= e.skip
		}
	}
	var p principal
	for _, name := range keyHeaders {
		var ours bool
		if p, ours = t.principal(r.Header.Get(name)); ours {
			who.standing = known
			break
		}
	}
	user, wrong := t.named(r.Header, p)
	if wrong != nil {
		return who, wrong
	}
	if who.standing == known {
		who.APIKey, who.User, who.Team = p.key, user, p.team
		who.skip |= p.skip
		who.by = p
	} else if t.cfg.Anonymous {
		who.standing = anonymous
	}
	return who, nil
}

// maxUser bounds the name of a user in a header, in bytes.
const maxUser = 256

// named returns the user of a request with p's key: p's own, or the one that
// the user header names. Where p may not name anybody, the header is removed,
// so that no upstream believes it either.
func (t *tables) named(h http.Header, p principal) (limiter.ID, *failure) {
	name := t.cfg.RateLimiting.UserHeader
	if name == "" {
		return p.user, nil
	}
	if !p.names {
		h.Del(name)
		return p.user, nil
	}
	values := h.Values(name)
	if len(values) == 0 || len(values) == 1 && strings.TrimSpace(values[0]) == "" {
		return p.user, nil
	}
	if len(values) > 1 || len(values[0]) > maxUser {
		f := badUser(name)
		return "", &f
	}
	user := limiter.Hash(limiter.User, strings.TrimSpace(values[0]))
	if home, ours := t.homes[user]; ours && home != p.home(user) {
		return "", &othersUser
	}
	return user, nil
}

// homes tells where the budgets of the configured users are kept, if the store
// keeps tenants apart: there, a user has one home.
func homes(cfg *config.Config, keys map[[32]byte]principal) map[limiter.ID]limiter.ID {
	if cfg.Redis.Layout != config.LayoutTenant {
		return nil
	}
	out := map[limiter.ID]limiter.ID{}
	for _, p := range keys {
		if p.user != "" {
			out[p.user] = p.home(p.user)
		}
	}
	return out
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
// be believed. Then it is the last proxy's, which says who to limit, not who to
// exempt: sure is false. The zero Addr stands for a peer without an IP address.
func clientAddr(r *http.Request, trusted []netip.Prefix) (peer netip.Addr, sure bool) {
	peer = peerAddr(r)
	if !contains(trusted, peer) || len(r.Header.Values("X-Forwarded-For")) == 0 {
		return peer, true
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		ip, ok := parseHop(strings.TrimSpace(hop))
		if !ok {
			return peer, false
		}
		peer = ip
		if !contains(trusted, ip) {
			break
		}
	}
	return peer, true
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
