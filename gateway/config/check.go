package config

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"net/url"
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
	k.upstreams()
	k.routes()
	k.rateLimiting()
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
			if !ok {
				k.enums(value, at)
				continue
			}
			known, got := strings.Split(choices, "|"), value.String()
			optional := v.Type() == reflect.TypeFor[Limit]() && !k.written(at)
			if !slices.Contains(known, got) && (got != "" || !optional) {
				k.wrong(at, "write "+strings.Join(known, " or "), "%q is not supported", got)
			}
		}
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

// redis checks the store. Settings of a server are of no use to the embedded
// one; whoever wrote them probably meant the server.
func (k *checker) redis() {
	r := k.Redis
	k.positive("redis.timeout", r.Timeout)
	k.atLeast("redis.database", int64(r.Database), 0)
	if r.Mode != ModeEmbedded {
		k.hostPort("redis.address", r.Address, false)
		if r.Username != "" && r.Password == "" && !k.unread("redis.password") {
			k.wrong("redis.username", "set redis.password too", "a user name without a password does nothing")
		}
		return
	}
	for _, f := range [...]string{"address", "username", "password", "database", "tls"} {
		if k.written("redis." + f) {
			k.warn("redis."+f, "set redis.mode: standalone, or remove it", "has no effect on the embedded store")
		}
	}
}

// fleet checks the gossip. That replicas with a store each would enforce each
// limit once per replica is an error, because nothing would look wrong until
// the provider's bill.
func (k *checker) fleet() {
	f := k.Fleet
	if k.Redis.Mode == ModeEmbedded && len(f.Join) > 0 {
		k.wrong("fleet.join", "set redis.mode: standalone, or remove fleet.join", "an embedded store is not shared, so replicas that join would each enforce the limits alone")
	}
	for i, addr := range f.Join {
		k.hostPort(fmt.Sprintf("fleet.join[%d]", i), addr, false)
	}
	for i, key := range f.Keys {
		raw, err := base64.StdEncoding.DecodeString(key.Reveal())
		if n := len(raw); err != nil || n != 16 && n != 24 && n != 32 {
			k.wrong(fmt.Sprintf("fleet.keys[%d]", i), "make one with: openssl rand -base64 32", "not base64 of 16, 24 or 32 bytes")
		}
	}
	if f.Bind != "" {
		open := k.hostPort("fleet.bind", f.Bind, true) && !Loopback(f.Bind) && len(f.Keys) == 0
		if open {
			k.warn("fleet.bind", "set fleet.keys", "gossip on %s is not encrypted, and anybody may join", f.Bind)
		}
		if f.Advertise != "" {
			k.hostPort("fleet.advertise", f.Advertise, false)
		}
		return
	}
	if k.unread("fleet.bind") {
		return
	}
	if len(f.Join) > 0 {
		k.wrong("fleet.join", "set fleet.bind", "there is nothing to join with: fleet.bind is empty")
	}
	if f.Advertise != "" || len(f.Keys) > 0 {
		k.warn("fleet", "set fleet.bind", "advertise and keys have no effect without fleet.bind")
	}
}

// keys checks that each key has a name and a secret of its own: with two names
// for one secret the first or the last would win, by chance of the order.
func (k *checker) keys() {
	if len(k.Keys) == 0 && !k.Anonymous {
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

// upstreams checks where requests go. One without a route is only a warning:
// it may be there to be switched to.
func (k *checker) upstreams() {
	names := map[string]int{}
	for i, u := range k.Upstreams {
		at := fmt.Sprintf("upstreams[%d]", i)
		if u.Name == "" {
			k.wrong(at+".name", "give it a name for routes to refer to", "the name is missing")
		} else if first, twice := names[u.Name]; twice {
			k.wrong(at+".name", "give each upstream its own name", "%q is also the name of upstreams[%d]", u.Name, first)
		} else {
			names[u.Name] = i
		}
		k.upstreamURL(at+".url", u.URL)
		if strings.ContainsFunc(u.Credential.Reveal(), func(r rune) bool { return r < ' ' || r == 0x7f }) {
			k.wrong(at+".credential", "remove line breaks and other control characters", "no HTTP header can carry it")
		}
		if u.Kind == KindHTTP && len(u.Models) > 0 {
			k.wrong(at+".models", "set kind: openai, or remove models", "bodies of kind http are opaque, so no model is known")
		}
		k.positive(at+".timeouts.connect", u.Timeouts.Connect)
		k.positive(at+".timeouts.response_header", u.Timeouts.ResponseHeader)
		k.positive(at+".timeouts.idle", u.Timeouts.Idle)
		routed := slices.ContainsFunc(k.Routes, func(r Route) bool { return r.Upstream == u.Name })
		if !routed && u.Name != "" {
			k.warn(at, "add a route with upstream: "+u.Name, "no route leads to %q", u.Name)
		}
	}
}

// upstreamURL checks a base address. It is not quoted where it may hold a
// password.
func (k *checker) upstreamURL(path, text string) {
	u, err := url.Parse(text)
	switch fix := "write an address such as https://api.example.com"; {
	case text == "":
		k.wrong(path, fix, "the address is missing")
	case err != nil:
		k.wrong(path, fix, "not a URL")
	case u.User != nil:
		k.wrong(path, "move it to credential", "the address holds a user name or password")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		k.wrong(path, fix, "%q is not an http or https address", text)
	case u.RawQuery != "" || u.Fragment != "":
		k.wrong(path, fix, "%q holds a query or fragment", text)
	}
}

// routes checks the table. The order in the file means nothing (the longest
// match wins), so that two routes for the same requests are a mistake, never
// a fallback.
func (k *checker) routes() {
	if len(k.Routes) == 0 {
		k.wrong("routes", "add a route such as {path: /v1/*, upstream: NAME}", "there are no routes, so every request would be 404")
	}
	var names []string
	for _, u := range k.Upstreams {
		names = append(names, u.Name)
	}
	taken := map[string]int{}
	for i, r := range k.Routes {
		at := fmt.Sprintf("routes[%d]", i)
		if bare := strings.TrimSuffix(r.Path, "*"); !strings.HasPrefix(r.Path, "/") || strings.ContainsAny(bare, "*?#") {
			k.wrong(at+".path", "write a path such as /v1/models or /v1/*", "%q is neither a path nor a prefix that ends in *", r.Path)
		}
		for j, m := range r.Methods {
			if m == "" || strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
				k.wrong(fmt.Sprintf("%s.methods[%d]", at, j), "write it in capitals, such as POST", "%q is not an HTTP method", m)
			}
		}
		if !slices.Contains(names, r.Upstream) {
			fix := "add upstreams first"
			if len(names) > 0 {
				fix = didYouMean(r.Upstream, names)
			}
			k.wrong(at+".upstream", fix, "there is no upstream %q", r.Upstream)
		}
		k.overlap(at, i, r, taken)
	}
}

// overlap finds routes that can never be reached because an earlier one has
// the same path and method.
func (k *checker) overlap(at string, i int, r Route, taken map[string]int) {
	methods := r.Methods
	if len(methods) == 0 {
		methods = []string{"*"}
	}
	for _, m := range methods {
		if first, twice := taken[m+" "+r.Path]; twice {
			k.wrong(at, "remove one of them", "routes[%d] has the same path and method", first)
			return
		}
		taken[m+" "+r.Path] = i
	}
}
