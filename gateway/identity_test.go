package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

func TestClientAddr(t *testing.T) {
	trusted, err := prefixes([]string{"10.0.0.0/8", "2001:db8::/32", "192.0.2.9"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		peer string
		xff  []string
		want string
	}{
		{"203.0.113.5:80", nil, "203.0.113.5"},
		{"203.0.113.5:80", []string{"1.2.3.4"}, "203.0.113.5"}, // not a proxy of ours: a lie
		{"10.0.0.1:80", nil, "10.0.0.1"},
		{"10.0.0.1:80", []string{"1.2.3.4"}, "1.2.3.4"},
		{"10.0.0.1:80", []string{"6.6.6.6, 1.2.3.4"}, "1.2.3.4"}, // what stands left may be forged
		{"10.0.0.1:80", []string{"6.6.6.6", "1.2.3.4", "10.0.0.2"}, "1.2.3.4"},
		{"10.0.0.1:80", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3"}, // all ours: the outermost
		{"10.0.0.1:80", []string{"1.2.3.4, nonsense, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1:80", []string{"1.2.3.4, , 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1:80", []string{"1.2.3.4:5678"}, "1.2.3.4"},
		{"10.0.0.1:80", []string{"[2001:4860::1]:443"}, "2001:4860::1"},
		{"10.0.0.1:80", []string{"[2001:4860::1]"}, "2001:4860::1"},
		{"[::ffff:10.0.0.1]:80", []string{"1.2.3.4"}, "1.2.3.4"}, // IPv4 in IPv6
		{"[2001:db8::1]:80", []string{"::ffff:1.2.3.4"}, "1.2.3.4"},
		{"192.0.2.9:80", []string{"1.2.3.4"}, "1.2.3.4"},
		{"192.0.2.8:80", []string{"1.2.3.4"}, "192.0.2.8"},
		{"[fe80::1%eth0]:80", nil, "fe80::1"},
		{"@", []string{"1.2.3.4"}, "invalid IP"}, // a Unix socket
	} {
		r := &http.Request{RemoteAddr: test.peer, Header: http.Header{"X-Forwarded-For": test.xff}}
		got, sure := clientAddr(r, trusted)
		guess := strings.Contains(strings.Join(test.xff, ""), "nonsense") || strings.Contains(strings.Join(test.xff, ""), ", ,")
		if got.String() != test.want || sure == guess {
			t.Errorf("from %s with %q: %s, sure %v; want %s", test.peer, test.xff, got, sure, test.want)
		}
	}
}

// An exemption of a proxy's own address is not that of a client whose address
// nobody can read.
func TestUnreadableClientsAreNotExempt(t *testing.T) {
	cfg := config.Default()
	cfg.Anonymous = true
	cfg.Server.TrustedProxies = []string{"10.0.0.0/8"}
	cfg.RateLimiting.Whitelist = []config.ExemptAddr{{CIDR: "10.0.0.0/8"}, {CIDR: "192.0.2.0/24"}}
	g, err := newTables(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	for xff, exempt := range map[string]bool{
		"192.0.2.5": true, "203.0.113.1": false, "10.0.0.9": true,
		"nonsense": false, "unknown": false, "": false, "192.0.2.5, nonsense": false, "192.0.2.5, nonsense, 10.0.0.2": false,
	} {
		who, _ := g.identify(&http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{"X-Forwarded-For": {xff}}})
		if (who.skip == limiter.SkipAll) != exempt {
			t.Errorf("X-Forwarded-For %q: skips %v, want exempt: %v", xff, who.skip, exempt)
		}
	}
}

func TestBareKey(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "Bearer k": "k", "bearer  k ": "k", "Bearer ": "", "k": "k", "BEARER k": "k", "Basic k": "Basic k",
	} {
		if got := bareKey(value); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}

func TestIdentify(t *testing.T) {
	cfg := config.Default()
	cfg.Keys = []config.Key{
		{ID: "a", Key: "secret-a", User: "ann", Team: "acme"},
		{ID: "b", Digest: config.Digest("secret-b"), Team: "None"},
	}
	g, err := newTables(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *http.Request) (limiter.Identities, standing) {
		who, wrong := g.identify(r)
		if wrong != nil {
			t.Errorf("refused: %+v", wrong)
		}
		return who.Identities, who.standing
	}
	identify := func(key string) (limiter.Identities, standing) {
		return ask(&http.Request{RemoteAddr: "[2001:db8:0:1::5]:1", Header: http.Header{"Authorization": {"Bearer " + key}}})
	}
	client := limiter.Hash(limiter.Client, "2001:db8:0:1::/64")
	for _, test := range []struct {
		key  string
		want limiter.Identities
		who  standing
	}{
		{"secret-a", limiter.Identities{Client: client, APIKey: limiter.Hash(limiter.APIKey, "a"),
			User: limiter.Hash(limiter.User, "ann"), Team: limiter.Hash(limiter.Team, "acme")}, known},
		{"secret-b", limiter.Identities{Client: client, APIKey: limiter.Hash(limiter.APIKey, "b")}, known},
		{"secret-c", limiter.Identities{Client: client}, unknown},
		{"", limiter.Identities{Client: client}, unknown},
	} {
		if got, who := identify(test.key); got != test.want || who != test.who {
			t.Errorf("key %q: %+v, %d; want %+v, %d", test.key, got, who, test.want, test.who)
		}
	}
	both := http.Header{"Authorization": {"Bearer theirs"}, "X-Api-Key": {"secret-a"}, "Api-Key": {"secret-b"}}
	if got, who := ask(&http.Request{Header: both}); who != known || got.APIKey != limiter.Hash(limiter.APIKey, "a") {
		t.Errorf("a key beside another credential: %+v, %d", got, who)
	}
	g.setCredential(both, &upstream{})
	if len(both) != 0 {
		t.Errorf("%v goes upstream", both)
	}
	g.cfg.Anonymous = true
	both = http.Header{"Authorization": {"Bearer theirs"}, "X-Api-Key": {"secret-a"}}
	g.setCredential(both, &upstream{})
	if len(both) != 1 || both.Get("Authorization") != "Bearer theirs" {
		t.Errorf("%v goes upstream", both)
	}
	if got, who := identify("secret-c"); who != anonymous || got != (limiter.Identities{Client: client}) {
		t.Errorf("anonymous: %+v, %d", got, who)
	}
}

func TestRoutes(t *testing.T) {
	cfg := config.Default()
	for _, name := range []string{"all", "v1", "chat", "exact", "post", "base"} {
		u := config.DefaultUpstream()
		u.Name, u.URL = name, "http://"+name
		cfg.Upstreams = append(cfg.Upstreams, u)
	}
	cfg.Routes = []config.Route{
		{Path: "/*", Upstream: "all"}, {Path: "/v1/*", Upstream: "v1"}, {Path: "/v1/chat*", Upstream: "chat"},
		{Path: "/v1/chat", Upstream: "exact"}, {Path: "/v1/*", Methods: []string{"POST"}, Upstream: "post"},
	}
	ups, wrong := upstreamsOf(cfg, nil)
	if wrong != nil {
		t.Fatal(wrong)
	}
	table, err := routes(cfg, ups)
	if err != nil {
		t.Fatal(err)
	}
	g := &tables{routes: table}
	for _, test := range []struct{ method, path, want string }{
		{"GET", "/", "all"}, {"GET", "/v2", "all"}, {"GET", "/v1/", "v1"}, {"GET", "/v1", "all"},
		{"POST", "/v1/x", "post"}, {"GET", "/v1/chat", "exact"}, {"GET", "/v1/chat/completions", "chat"},
		{"GET", "/v1/../secret", ""}, {"GET", "/v1/./x", ""}, {"GET", "/v1/..x", "v1"}, {"GET", "/..", ""},
	} {
		r, err := http.NewRequest(test.method, "http://gateway"+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if rt, wrong := g.route(r); wrong == nil {
			got = rt.candidates[0].Name
		}
		if got != test.want {
			t.Errorf("%s %s goes to %q, want %q", test.method, test.path, got, test.want)
		}
	}
}

func TestRequestID(t *testing.T) {
	for id, keep := range map[string]bool{
		"abc-1.2_3": true, "": false, "a b": false, "a\"b": false, string(make([]byte, 129)): false,
		"2c1d4b0e-7a58-4e0b-9d70-b1d6a0e7f001": true,
	} {
		got := requestID(http.Header{"X-Request-Id": {id}})
		if (got == id) != keep || got == "" {
			t.Errorf("%q becomes %q", id, got)
		}
	}
	if a, b := requestID(nil), requestID(nil); a == b || len(a) != 32 {
		t.Errorf("new ids %q, %q", a, b)
	}
}
