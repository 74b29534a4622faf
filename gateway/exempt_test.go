package gateway

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// TestExemptions sends two requests, the first of which is still running, under
// a limit that one of them exhausts, and looks whether the second gets through.
func TestExemptions(t *testing.T) {
	limits := map[string]string{
		"requests": "requests: {limit: 1, per: 1h}",
		"tokens":   "tokens: {limit: 15, per: 1h}", // a completion is estimated at 10
		"inflight": "max_in_flight_requests: 1",
	}
	dimensions := map[string][]string{
		"global": {"requests", "tokens"}, "per_client": {"requests", "inflight"}, "per_api_key": {"requests", "tokens", "inflight"},
		"per_user": {"requests", "tokens", "inflight"}, "per_team": {"requests", "tokens", "inflight"},
		"per_model": {"requests", "tokens"}, "per_backend": {"requests", "tokens"},
	}
	for _, who := range []struct {
		name, text string // text with a place for a skip list
		skips      string // the classes, or all
	}{
		{"nobody", "", "none"},
		{"another address", "whitelist: [198.51.100.0/24]", "none"},
		{"another key", "bypass_keys: [b]", "none"},
		{"address", "whitelist: [192.0.2.0/24]", "all"},
		{"key", "bypass_keys: [a]", "all"},
		{"address, requests", "whitelist: [{cidr: 192.0.2.7, skip: [requests]}]", "requests"},
		{"key, tokens", "bypass_keys: [{id: a, skip: [tokens]}]", "tokens"},
		{"key, inflight", "bypass_keys: [{id: a, skip: [inflight]}]", "inflight"},
		{"address and key", "whitelist: [{cidr: 192.0.2.0/24, skip: [requests]}], bypass_keys: [{id: a, skip: [tokens]}]", "requests tokens"},
	} {
		for dimension, classes := range dimensions {
			for _, class := range classes {
				t.Run(strings.Join([]string{who.name, dimension, class}, "/"), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						rules := who.text
						if rules != "" {
							rules += ", "
						}
						r := newRig(t, "rate_limiting: {"+rules+dimension+": {"+limits[class]+"}}", slow(time.Second))
						busy(1, "secret-a")(t, r)
						want := http.StatusTooManyRequests
						if who.skips == "all" || strings.Contains(who.skips, class) {
							want = http.StatusOK
						}
						r.must(want, "/v1/completions", completion, as("secret-a"))
						time.Sleep(2 * time.Second)
					})
				})
			}
		}
	}
}

// An exemption spares limits, not the key, and covers what comes before keys.
func TestExemptAddressesNeedKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "rate_limiting: {per_client: {requests: {limit: 1, per: 1h}}, whitelist: [192.0.2.7]}", ok)
		for range 3 {
			r.must(http.StatusUnauthorized, "/v1/completions", completion, as("wrong"))
		}
		r.must(http.StatusOK, "/v1/completions", completion, as("secret-a"))
	})
}

// What an exempt request uses is charged to nobody, and holds nothing.
func TestExemptRequestsTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "rate_limiting: {per_user: {requests: {limit: 5, per: 100000h}, tokens: {limit: 500, per: 100000h}}, bypass_keys: [{id: a, skip: [tokens]}]}", ok)
		r.must(http.StatusOK, "/v1/completions", completion, as("secret-a"))
		if n, tokens := r.left(limiter.User, limiter.Requests, "ann", 5), r.left(limiter.User, limiter.Tokens, "ann", 500); n != 4 || tokens != 500 {
			t.Errorf("%d of 5 requests and %d of 500 tokens are left", n, tokens)
		}
	})
}

// Who is exempt from the wait line is answered at once, and is counted with the
// rest.
func TestExemptFromWaiting(t *testing.T) {
	for _, scope := range []string{"replica", "exact"} {
		synctest.Test(t, func(t *testing.T) {
			text := strings.Replace(lineOf(scope, ""), "rate_limiting: {", "rate_limiting: {bypass_keys: [{id: a, skip: [queue]}], ", 1)
			r := newRig(t, text, ok)
			spend(t, r)
			start := time.Now()
			r.must(http.StatusTooManyRequests, "/v1/completions", completion, as("secret-a"))
			if took := time.Since(start); took != 0 {
				t.Errorf("%s: answered after %v", scope, took)
			}
			r.must(http.StatusOK, "/v1/completions", completion, as("secret-b"))
			if took := time.Since(start); took < 900*time.Millisecond {
				t.Errorf("%s: another waited for %v only", scope, took)
			}
		})
	}
}

// TestForwardedClients: whatever a client writes into X-Forwarded-For, it is
// limited, and exempt, as the address that a trusted proxy saw.
func TestForwardedClients(t *testing.T) {
	for _, c := range []struct {
		name    string
		proxies string
		first   []string // X-Forwarded-For of a request that spends the limit
		second  []string // and of one that then comes
		passes  bool
	}{
		{"no proxy: a lie changes nothing", "", []string{"1.1.1.1"}, []string{"2.2.2.2"}, false},
		{"two clients of a proxy", "192.0.2.7", []string{"1.1.1.1"}, []string{"2.2.2.2"}, true},
		{"one client of a proxy", "192.0.2.7", []string{"1.1.1.1"}, []string{"1.1.1.1"}, false},
		{"a lie in front of what the proxy saw", "192.0.2.7", []string{"5.5.5.5, 1.1.1.1"}, []string{"6.6.6.6, 1.1.1.1"}, false},
		{"a lie in a field of its own", "192.0.2.7", []string{"5.5.5.5", "1.1.1.1"}, []string{"6.6.6.6", "1.1.1.1"}, false},
		{"one network of IPv6", "192.0.2.7", []string{"2001:db8:1:2::1"}, []string{"2001:db8:1:2:ffff::2"}, false},
		{"two networks of IPv6", "192.0.2.7", []string{"2001:db8:1:2::1"}, []string{"2001:db8:1:3::1"}, true},
		{"IPv4 in IPv6", "192.0.2.7", []string{"::ffff:1.1.1.1"}, []string{"1.1.1.1"}, false},
		{"a lie about an exempt address", "", []string{"10.9.9.9"}, []string{"10.9.9.9"}, false},
		{"a lie about one, through a proxy", "192.0.2.7", []string{"10.9.9.9, 1.1.1.1"}, []string{"10.9.9.9, 1.1.1.1"}, false},
		{"an exempt address", "192.0.2.7", []string{"10.9.9.9"}, []string{"10.9.9.9"}, true},
		{"nonsense: the proxy itself", "192.0.2.7", []string{"nonsense"}, []string{"1.1.1.1, more nonsense"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, fmt.Sprintf("server: {trusted_proxies: [%s]}\nrate_limiting: {per_client: {requests: {limit: 1, per: 1h}}, whitelist: [10.0.0.0/8]}", c.proxies), ok)
				send := func(hops []string) int {
					req := r.request(context.Background(), "/v1/completions", completion, as("secret-a"))
					req.Header["X-Forwarded-For"] = hops
					resp, _ := r.send(req)
					return resp.StatusCode
				}
				if status := send(c.first); status != http.StatusOK {
					t.Fatalf("the first is answered %d", status)
				}
				if status := send(c.second); (status == http.StatusOK) != c.passes {
					t.Errorf("the second is answered %d", status)
				}
			})
		})
	}
}

// users lets key p name users, and key a not. Each user has one request.
const users = `
keys:
  - {id: p, key: secret-p, user: portal, team: acme, may_name_user: true}
  - {id: a, key: secret-a, user: ann, team: %s}
upstreams: [{name: llm, url: "http://upstream.test"}]
routes: [{path: /v1/*, upstream: llm}]
redis: {layout: %s}
rate_limiting:
  user_header: X-User
  per_user: {requests: {limit: 1, per: 100000h}}
  per_team: {requests: {limit: 100, per: 100000h}}
`

// TestNamedUsers: who is charged for a request, by key and header.
func TestNamedUsers(t *testing.T) {
	long := strings.Repeat("x", maxUser)
	for _, c := range []struct {
		name    string
		layout  string
		key     string
		named   []string
		charged string // "": nobody
		status  int
		passed  string // what the upstream sees of the header
	}{
		{"a user of the portal", "single", "secret-p", []string{"zoe"}, "zoe", 200, "zoe"},
		{"with spaces around", "single", "secret-p", []string{" zoe "}, "zoe", 200, "zoe"},
		{"nobody named", "single", "secret-p", nil, "portal", 200, ""},
		{"an empty name", "single", "secret-p", []string{" "}, "portal", 200, ""},
		{"a key that may not", "single", "secret-a", []string{"zoe"}, "ann", 200, ""},
		{"two names", "single", "secret-p", []string{"zoe", "bob"}, "", 400, ""},
		{"the longest name", "single", "secret-p", []string{long}, long, 200, long},
		{"a longer one", "single", "secret-p", []string{long + "x"}, "", 400, ""},
		{"no key", "single", "wrong", []string{"zoe"}, "", 401, ""},
		{"a user with a key", "single", "secret-p", []string{"ann"}, "ann", 200, "ann"},
		{"a user of another team", "tenant", "secret-p", []string{"ann"}, "", 403, ""},
		{"a stranger, keys by tenant", "tenant", "secret-p", []string{"zoe"}, "zoe", 200, "zoe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, err := config.Parse(fmt.Appendf(nil, users, "umbrella", c.layout), nil)
				if err != nil {
					t.Fatal(err)
				}
				up := &seen{next: ok}
				r := newRigOf(t, cfg, up.handle)
				req := r.request(context.Background(), "/v1/completions", completion, as(c.key))
				req.Header["X-User"] = c.named
				if resp, text := r.send(req); resp.StatusCode != c.status {
					t.Fatalf("%d, want %d: %s", resp.StatusCode, c.status, text)
				}
				if up.last != nil && up.last.Header.Get("X-User") != c.passed {
					t.Errorf("the upstream sees %q", up.last.Header.Get("X-User"))
				}
				if c.layout == "tenant" {
					return // the bucket has a home, tested below
				}
				for _, user := range []string{"portal", "ann", "zoe", "bob", long} {
					left := r.left(limiter.User, limiter.Requests, user, 1)
					if charged := left == 0; charged != (user == c.charged) {
						t.Errorf("%.10s has %d of 1 left", user, left)
					}
				}
			})
		})
	}
}

// The budget of a named user is kept beside those of the key's team.
func TestNamedUsersLiveWithTheTeam(t *testing.T) {
	cfg, err := config.Parse(fmt.Appendf(nil, users, "acme", "tenant"), nil)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := newTables(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	acme := limiter.Hash(limiter.Team, "acme")
	for _, name := range []string{"zoe", "ann"} {
		who, wrong := tables.identify(&http.Request{Header: http.Header{"Authorization": {"secret-p"}, "X-User": {name}}})
		if wrong != nil || who.Team != acme || who.User != limiter.Hash(limiter.User, name) {
			t.Errorf("%s: %+v, %v", name, who, wrong)
		}
		if !cfg.Limiter().Homes {
			t.Error("the limiter does not know of homes")
		}
	}
	if got := tables.homes[limiter.Hash(limiter.User, "ann")]; got != acme {
		t.Errorf("ann's home is %s", got)
	}
}
