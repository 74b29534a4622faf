package quota

import (
	"net/http"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// ietf reads the RateLimit fields in the form of their draft -10, and those of
// its predecessors that are still sent: one dictionary (-07), and three fields
// (-00 to -06). A field that is malformed is ignored as a whole, as the draft
// asks.
func (r *reader) ietf(h http.Header) {
	policies := r.policies(h.Values("Ratelimit-Policy"))
	if values := h.Values("Ratelimit"); len(values) > 0 && !r.limits(values, policies) && !r.dictionary(values, policies) {
		r.doubt("ratelimit")
	}
	r.split(h, policies)
}

// policy is one item of RateLimit-Policy.
type policy struct {
	unit   Unit
	limit  int64
	window time.Duration // 0: not said
}

// policyUnits are the draft's own units, with the spelling of its registry.
var policyUnits = map[string]Unit{
	"requests": Requests, "request": Requests, "content-bytes": Bytes, "bytes": Bytes,
	"concurrent-requests": Concurrency, "tokens": Tokens,
}

// policies reads RateLimit-Policy, by name; the old form has its limit in the
// place of a name.
func (r *reader) policies(values []string) map[string]policy {
	out := map[string]policy{}
	if len(values) == 0 {
		return out
	}
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		r.doubt("ratelimit-policy")
		return out
	}
	for _, m := range list {
		item, ok := m.(httpsfv.Item)
		if !ok {
			r.doubt("ratelimit-policy")
			continue
		}
		p := policy{unit: Requests, limit: Absent}
		name, named := item.Value.(string)
		if limit, ok := item.Value.(int64); ok {
			p.limit = limit
		} else if !named {
			r.doubt("ratelimit-policy")
			return map[string]policy{}
		}
		if q, ok := integer(item.Params, "q"); ok {
			p.limit = q
		}
		if w, ok := integer(item.Params, "w"); ok && w > 0 && w <= int64(366*day/time.Second) {
			p.window = time.Duration(w) * time.Second
		}
		if qu, ok := item.Params.Get("qu"); ok {
			text, _ := qu.(string)
			if p.unit, ok = policyUnits[text]; !ok {
				p.unit = Unit(text) // its own; never taken for requests
			}
		}
		if _, twice := out[name]; !twice {
			out[name] = p
		}
	}
	return out
}

// limits reads the list of draft -10; false if it is none.
func (r *reader) limits(values []string, policies map[string]policy) bool {
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		return false
	}
	type line struct {
		k    key
		left int64
		t    time.Duration
		lim  int64
	}
	var lines []line
	for _, m := range list {
		item, ok := m.(httpsfv.Item)
		if !ok {
			return false
		}
		name, ok := item.Value.(string) // a token, unquoted, is malformed
		left, has := integer(item.Params, "r")
		if !ok || !has {
			return false
		}
		l := line{left: left, t: Unknown, lim: Absent}
		p, known := policies[name]
		if !known {
			p = policy{unit: Requests, limit: Absent}
		}
		l.k, l.lim = key{p.unit, p.window, name}, p.limit
		if t, given := item.Params.Get("t"); given {
			n, whole := t.(int64)
			d, sane := span(float64(n))
			if !whole || n < 0 {
				return false
			}
			if sane {
				l.t = d
			} else {
				r.doubt("ratelimit")
			}
		}
		lines = append(lines, l)
	}
	for _, l := range lines {
		o := r.at(l.k)
		o.Remaining, o.Reset, o.Limit, o.Refill = l.left, l.t, l.lim, RefillUnknown
	}
	return len(lines) > 0
}

// dictionary reads limit=100, remaining=50, reset=5 of draft -07.
func (r *reader) dictionary(values []string, policies map[string]policy) bool {
	d, err := httpsfv.UnmarshalDictionary(values)
	if err != nil {
		return false
	}
	get := func(name string) (int64, bool) {
		m, ok := d.Get(name)
		if !ok {
			return 0, false
		}
		item, ok := m.(httpsfv.Item)
		n, whole := item.Value.(int64)
		return n, ok && whole && n >= 0
	}
	left, ok := get("remaining")
	if !ok {
		return false
	}
	limit, ok := get("limit")
	if !ok {
		limit = Absent
	}
	o := r.at(key{Requests, windowOf(policies, limit), ""})
	o.Remaining, o.Limit, o.Refill = left, limit, RefillWindow
	if n, ok := get("reset"); ok {
		if t, sane := span(float64(n)); sane {
			o.Reset = t
		} else {
			r.doubt("ratelimit")
		}
	}
	return true
}

// split reads RateLimit-Limit, -Remaining and -Reset.
func (r *reader) split(h http.Header, policies map[string]policy) {
	limit := Absent
	if text := h.Get("Ratelimit-Limit"); text != "" {
		first, list, _ := strings.Cut(text, ",") // "10, 10;w=1, 50;w=60" in the oldest
		first, _, _ = strings.Cut(first, ";")
		n, ok := count(first)
		if !ok {
			r.doubt("ratelimit-limit")
		} else {
			limit = n
		}
		if list != "" && len(policies) == 0 {
			policies = r.policies([]string{list})
		}
	}
	left, has := Absent, h.Get("Ratelimit-Remaining") != ""
	if has {
		n, ok := count(h.Get("Ratelimit-Remaining"))
		if !ok {
			r.doubt("ratelimit-remaining")
		} else {
			left = n
		}
	}
	if limit == Absent && left == Absent {
		return
	}
	o := r.at(key{Requests, windowOf(policies, limit), ""})
	o.Limit, o.Remaining, o.Refill = limit, left, RefillWindow
	if text := h.Get("Ratelimit-Reset"); text != "" {
		if d, ok := wait(text, r.now); ok { // seconds; some send instants
			o.Reset = d
		} else {
			r.doubt("ratelimit-reset")
		}
	}
}

// windowOf is the window of the policy with this limit, or of the only one.
func windowOf(policies map[string]policy, limit int64) time.Duration {
	for _, p := range policies {
		if p.limit == limit || len(policies) == 1 {
			return p.window
		}
	}
	return 0
}

// integer is a parameter that is a whole number, zero or more.
func integer(p *httpsfv.Params, name string) (int64, bool) {
	if p == nil {
		return 0, false
	}
	v, ok := p.Get(name)
	n, whole := v.(int64)
	return n, ok && whole && n >= 0
}
