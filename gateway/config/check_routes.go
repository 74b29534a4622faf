package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

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
		k.throttle(at+".throttle", u.Throttle)
		k.agent(at, u)
		routed := slices.ContainsFunc(k.Routes, func(r Route) bool { return slices.Contains(r.Candidates(), u.Name) })
		if !routed && u.Name != "" && !k.turnsAsk(i) {
			k.warn(at, "add a route with upstream: "+u.Name, "no route leads to %q", u.Name)
		}
	}
}

// throttle checks the pace of an upstream. One built in Go may leave all of it out.
func (k *checker) throttle(at string, t Throttle) {
	if t == (Throttle{}) && !k.written(at) {
		return
	}
	if !(t.Reserve >= 0 && t.Reserve <= 0.9) {
		k.wrong(at+".reserve", "write a part from 0 to 0.9", "%v is no part that leaves anything to batch requests", t.Reserve)
	}
	if t.MaxWait < 0 {
		k.wrong(at+".max_wait", "write a duration of 0s or more", "%v is below 0s", t.MaxWait)
	}
	if k.written(at) && !t.Enabled && !k.written(at+".enabled") {
		k.warn(at, "add enabled: true, or remove it", "has no effect: the throttle is not enabled")
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
	if len(k.Routes) == 0 && !k.alone() {
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
		k.candidates(at, r, names)
		k.tagged(at, r)
		k.overlap(at, i, r, taken)
	}
}

// candidates checks the upstreams of a route. They have to be of one kind: it
// decides how a request is read, before anything is selected.
func (k *checker) candidates(at string, r Route, names []string) {
	several := k.written(at+".upstreams") || len(r.Upstreams) > 0
	switch {
	case several && r.Upstream != "":
		k.wrong(at+".upstreams", "remove one of them", "upstream and upstreams are both set")
		return
	case several && len(r.Upstreams) == 0 && !k.unread(at+".upstreams"):
		k.wrong(at+".upstreams", "write the names of upstreams, best first", "the list is empty")
		return
	case !several && r.Upstream == "":
		if !k.unread(at + ".upstream") {
			k.wrong(at+".upstream", "write the name of an upstream", "the upstream is missing")
		}
		return
	case !several:
		k.upstreamNamed(at+".upstream", r.Upstream, names)
		return
	}
	kind := ""
	for i, name := range r.Upstreams {
		path := fmt.Sprintf("%s.upstreams[%d]", at, i)
		if first := slices.Index(r.Upstreams, name); first < i {
			k.wrong(path, "remove one of them", "%q is already upstreams[%d]", name, first)
			continue
		}
		j := k.upstreamNamed(path, name, names)
		if j < 0 {
			continue
		}
		if u := k.Upstreams[j]; kind == "" {
			kind = u.Kind
		} else if u.Kind != kind {
			k.wrong(path, "give it a route of its own, or the same kind", "%q is of kind %s, those before it of kind %s", name, u.Kind, kind)
		}
	}
}

// upstreamNamed finds an upstream, and complains where there is none (-1).
func (k *checker) upstreamNamed(path, name string, names []string) int {
	i := slices.Index(names, name)
	if i < 0 {
		fix := "add upstreams first"
		if len(names) > 0 {
			fix = didYouMean(name, names)
		}
		k.wrong(path, fix, "there is no upstream %q", name)
	}
	return i
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
