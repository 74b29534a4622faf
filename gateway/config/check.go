package config

import (
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Validate checks a configuration that was built in Go. The error is an
// [*Error] with every mistake. [Parse] has validated already.
func (c *Config) Validate() error {
	if problems := c.check(func(string) bool { return false }); len(problems) > 0 {
		return &Error{Problems: problems}
	}
	return nil
}

// Warnings lists settings that are allowed and do nothing, or less than they
// seem to. It is filled by Parse and Validate.
func (c *Config) Warnings() []Problem { return c.warnings }

// check looks at meaning, section by section, and replaces the warnings. unread
// tells fields that stand in the file and could not be read: what they mean is
// unknown, and no reason to complain of another field.
func (c *Config) check(unread func(path string) bool) []Problem {
	k := &checker{Config: c, unread: unread}
	k.enums(reflect.ValueOf(c).Elem(), "")
	k.server()
	k.redis()
	k.fleet()
	k.keys()
	k.homes()
	k.workspaces()
	k.upstreams()
	k.routes()
	k.rateLimiting()
	k.exempt()
	k.userHeader()
	k.queueing()
	k.turns()
	k.rateLimitService()
	k.batch()
	k.deferredAdmission()
	sortProblems(k.problems)
	sortProblems(k.warned)
	c.warnings = k.warned
	return k.problems
}

// checker collects what is wrong with one configuration. Its methods look at
// one section each and never stop at the first mistake.
type checker struct {
	*Config
	unread   func(path string) bool
	problems []Problem
	warned   []Problem
}

// wrong records a mistake in the field at path. The text says what is wrong
// with the value, fix what to write instead, in the imperative.
func (k *checker) wrong(path, fix, format string, args ...any) {
	k.problems = append(k.problems, Problem{Line: k.line(path), Path: path, What: fmt.Sprintf(format, args...), Fix: fix})
}

// warn records a setting that is allowed and has no effect.
func (k *checker) warn(path, fix, format string, args ...any) {
	k.warned = append(k.warned, Problem{Line: k.line(path), Path: path, What: fmt.Sprintf(format, args...), Fix: fix})
}

// line finds where a field stands, or the nearest section around it.
func (k *checker) line(path string) int {
	for path != "" {
		if n, ok := k.lines[path]; ok {
			return n
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 0
}

// written reports whether a field stands in the file. Nothing does when the
// configuration was built in Go, where zero is as good as absent.
func (k *checker) written(path string) bool { return k.lines[path] > 0 }

// enums checks every field that has an enum tag. A field may be empty where
// its zero value means "not set".
func (k *checker) enums(v reflect.Value, path string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			k.enums(v.Elem(), path)
		}
	case reflect.Slice:
		for i := range v.Len() {
			k.enums(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Struct:
		for _, f := range fieldsOf(v.Type()) {
			at, value := join(path, f.name), v.FieldByIndex(f.index)
			choices, ok := f.tag.Lookup("enum")
			switch {
			case !ok:
				k.enums(value, at)
			case value.Kind() == reflect.Slice:
				for i := range value.Len() {
					k.enum(fmt.Sprintf("%s[%d]", at, i), choices, value.Index(i).String(), false)
				}
			default:
				k.enum(at, choices, value.String(), v.Type() == reflect.TypeFor[Limit]() && !k.written(at))
			}
		}
	}
}

// enum checks one value against the known ones, which are separated by bars.
func (k *checker) enum(path, choices, got string, optional bool) {
	known := strings.Split(choices, "|")
	if !slices.Contains(known, got) && (got != "" || !optional) {
		k.wrong(path, "write "+strings.Join(known, " or "), "%q is not supported", got)
	}
}

// positive checks a timeout: zero would mean either at once or never, and the
// standard library means now the one, now the other.
func (k *checker) positive(path string, d time.Duration) {
	if d <= 0 {
		k.wrong(path, "write a duration above zero", "%v is not above zero", d)
	}
}

// atLeast checks a count or size against its lower bound.
func (k *checker) atLeast(path string, n, least int64) {
	if n < least {
		k.wrong(path, fmt.Sprintf("write %d or more", least), "%d is below %d", n, least)
	}
}

// hostPort checks an address and reports whether it is one. A listener's host
// may be empty (all interfaces) and its port 0 (any that is free); a server
// that is to be reached needs both.
func (k *checker) hostPort(path, addr string, listener bool) bool {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && (listener || host != "") {
		if n, perr := strconv.Atoi(port); perr == nil && n >= 0 && n <= 65535 && (listener || n > 0) {
			return true
		}
	}
	if strings.ContainsAny(addr, "@/?") { // perhaps a URL with a password in it
		k.wrong(path, "write host:port, such as 127.0.0.1:8080", "not an address")
		return false
	}
	k.wrong(path, "write host:port, such as 127.0.0.1:8080", "%q is not an address", addr)
	return false
}

// server checks the listeners and the bounds on what they accept.
func (k *checker) server() {
	s := k.Server
	k.hostPort("server.listen", s.Listen, true)
	if k.hostPort("server.admin_listen", s.AdminListen, true) && !Loopback(s.AdminListen) &&
		s.AdminToken == "" && !k.unread("server.admin_token") {
		k.wrong("server.admin_listen", "set server.admin_token, or listen on 127.0.0.1", "%s can be reached from outside without a token", s.AdminListen)
	}
	k.listenerTLS("server.tls", s.TLS)
	k.listenerTLS("server.admin_tls", s.AdminTLS)
	k.listeners()
	for i, p := range s.TrustedProxies {
		if _, err := ParsePrefix(p); err != nil {
			k.wrong(fmt.Sprintf("server.trusted_proxies[%d]", i), "write an address or CIDR, such as 10.0.0.0/8", "%q is not an address range", p)
		}
	}
	k.atLeast("server.max_concurrent_requests", int64(s.MaxConcurrentRequests), 0)
	k.atLeast("server.max_body", int64(s.MaxBody), 1)
	k.atLeast("server.max_upload", int64(s.MaxUpload), 1)
	k.atLeast("server.max_header", int64(s.MaxHeader), 1024)
	k.positive("server.timeouts.read_header", s.Timeouts.ReadHeader)
	k.positive("server.timeouts.total", s.Timeouts.Total)
	k.positive("server.timeouts.idle", s.Timeouts.Idle)
	for name, d := range map[string]time.Duration{"delay": s.Drain.Delay, "grace": s.Drain.Grace} {
		if d < 0 {
			k.wrong("server.drain."+name, "write 0s or more", "%v is negative", d)
		}
	}
}

// listeners checks that no two of them are on one address: the second could not be
// opened. Port 0 is another one each time, and gossip takes its port for TCP, too.
func (k *checker) listeners() {
	taken := map[string]string{}
	for _, l := range [...]struct{ path, addr string }{
		{"server.listen", k.Server.Listen}, {"server.admin_listen", k.Server.AdminListen},
		{"rate_limit_service.listen", k.RateLimitService.Listen}, {"fleet.bind", k.Fleet.Bind},
	} {
		_, port, err := net.SplitHostPort(l.addr)
		if n, perr := strconv.Atoi(port); err != nil || perr != nil || n == 0 {
			continue // told elsewhere, or nothing to tell
		}
		if first, twice := taken[l.addr]; twice {
			k.wrong(l.path, "give each listener a port of its own", "%s listens on %s already", first, l.addr)
			continue
		}
		taken[l.addr] = l.path
	}
}

// Loopback reports whether a listener's address can be reached from this
// machine only. A host name other than localhost is not looked up, and so is
// taken to be reachable from outside.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip, perr := netip.ParseAddr(host)
	return err == nil && (host == "localhost" || perr == nil && ip.Unmap().IsLoopback())
}

// ParsePrefix reads a CIDR, or a single address as the range of itself alone.
// Host bits are dropped, and IPv4 in IPv6 notation becomes IPv4.
func ParsePrefix(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}

// keys checks that each key has a name and a secret of its own: with two names
// for one secret the first or the last would win, by chance of the order.
func (k *checker) keys() {
	if len(k.Keys) == 0 && !k.Anonymous && !k.alone() {
		k.wrong("keys", "add a key, or set anonymous: true", "there are no keys, so every request would be refused")
	}
	ids, digests := map[string]int{}, map[[32]byte]int{}
	for i, key := range k.Keys {
		at := fmt.Sprintf("keys[%d]", i)
		if key.ID == "" {
			k.wrong(at+".id", "give the key a stable name", "the id is missing")
		} else if first, twice := ids[key.ID]; twice {
			k.wrong(at+".id", "give each key its own id", "%q is also the id of keys[%d]", key.ID, first)
		} else {
			ids[key.ID] = i
		}
		k.secretOf(key, i, at, digests)
		if key.RateLimit != nil {
			k.rule(at+".rate_limit", *key.RateLimit, inFlightOK, true)
			if k.RateLimiting.bypasses(key.ID) {
				k.warn(at+".rate_limit", "remove it, or let bypass_keys skip less", "has no effect: bypass_keys exempts %q from all limits", key.ID)
			}
		}
		if key.MayNameUser && k.RateLimiting.UserHeader == "" && !k.unread("rate_limiting.user_header") {
			k.wrong(at+".may_name_user", "set rate_limiting.user_header, or remove it", "there is no header to name a user in")
		}
	}
}

// secretOf checks that a key has one usable secret that no other key has. A
// digest that is none is not quoted: people paste raw keys there.
func (k *checker) secretOf(key Key, i int, at string, digests map[[32]byte]int) {
	switch {
	case key.Key != "" && key.Digest != "":
		k.wrong(at+".digest", "remove one of them", "key and digest are both set")
		return
	case key.Key == "" && key.Digest == "":
		k.wrong(at+".key", "set key: ${NAME} or digest: sha256:<64 hex digits>", "neither key nor digest is set")
		return
	}
	sum, err := key.Sum()
	if err != nil {
		k.wrong(at+".digest", "write sha256: and the output of: printf %s \"$KEY\" | sha256sum", "not sha256: and 64 hex digits")
		return
	}
	if first, twice := digests[sum]; twice {
		k.wrong(at, "give each id its own key", "the same key as keys[%d]", first)
		return
	}
	digests[sum] = i
}
