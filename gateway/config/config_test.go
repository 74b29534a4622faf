package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headway-limiter/headway/limiter"
)

var update = flag.Bool("update", false, "rewrite the expected texts in testdata")

// testEnv is the environment of the files in testdata.
func testEnv(name string) (string, bool) {
	v, ok := map[string]string{
		"HEADWAY_TEST_SECRET": "hunter2", "HEADWAY_TEST_EMPTY": "", "HEADWAY_TEST_NUMBER": "42",
		"HEADWAY_TEST_REFERENCE": "${HEADWAY_TEST_SECRET}",
	}[name]
	return v, ok
}

// golden compares got with the text beside a file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	beside := strings.TrimSuffix(file, ".yaml") + ".txt"
	if *update {
		if err := os.WriteFile(beside, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(beside)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n got %s\nwant %s", file, got, want)
	}
}

// eachFile runs f for every YAML file in a folder of testdata.
func eachFile(t *testing.T, folder string, f func(t *testing.T, file string, text []byte)) {
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files in %s: %v", folder, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			f(t, file, text)
		})
	}
}

// TestWrong has one file per mistake with the error's text beside it.
func TestWrong(t *testing.T) {
	eachFile(t, "wrong", func(t *testing.T, file string, text []byte) {
		c, err := Parse(text, testEnv)
		var wrong *Error
		if !errors.As(err, &wrong) || c != nil {
			t.Fatalf("got %v, %v; want an *Error alone", c, err)
		}
		for _, p := range wrong.Problems {
			if p.Line == 0 && p.Path != "keys" && p.Path != "routes" {
				t.Errorf("%v has no line", p)
			}
			if p.Fix == "" && p.What != "a field name has to be plain text" {
				t.Errorf("%v has no fix", p)
			}
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "secret-a") {
			t.Errorf("the error tells a secret: %v", err)
		}
		golden(t, file, err.Error()+"\n")
	})
}

// TestWarned has one file per setting that is allowed and does nothing.
func TestWarned(t *testing.T) {
	eachFile(t, "warned", func(t *testing.T, file string, text []byte) {
		c, err := Parse(text, testEnv)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Warnings()) == 0 {
			t.Fatal("no warning")
		}
		var out strings.Builder
		for _, w := range c.Warnings() {
			fmt.Fprintln(&out, w)
		}
		golden(t, file, out.String())
	})
}

const base = `
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams: [{name: up, url: "http://127.0.0.1:9000"}]
routes: [{path: /v1/*, upstream: up}]
`

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse([]byte(text), testEnv)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNobodyIsNamed: limits of users are no mistake where a key may name any.
func TestNobodyIsNamed(t *testing.T) {
	c := mustParse(t, strings.Replace(base, "user: ann, team: acme", "team: acme, may_name_user: true", 1)+`
server: {admin_token: "${HEADWAY_TEST_EMPTY:-}", listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
rate_limiting: {user_header: X-User-Id, per_user: {requests: {limit: 1, per: 1s}}, per_team: {requests: {limit: 1, per: 1s}}}
`)
	if w := c.Warnings(); len(w) > 0 || c.Server.AdminToken != "" {
		t.Errorf("warnings %v; want none, and no token", w)
	}
}

func TestDefaults(t *testing.T) {
	c := mustParse(t, base)
	want := Default()
	if !reflect.DeepEqual(c.Server, want.Server) || !reflect.DeepEqual(c.Redis, want.Redis) ||
		!reflect.DeepEqual(c.RateLimiting, want.RateLimiting) {
		t.Errorf("a file that sets nothing differs from Default: %+v", c)
	}
	if got := c.Upstreams[0].Timeouts; got != DefaultUpstream().Timeouts {
		t.Errorf("upstream timeouts %+v", got)
	}
	if len(c.Warnings()) > 0 {
		t.Errorf("warnings: %v", c.Warnings())
	}
	if got, want := c.Keys[0].Digest, Digest("secret-a"); got != want || c.Keys[0].Key != "" {
		t.Errorf("the raw key stayed, or its digest is %s, want %s", got, want)
	}
}

func TestExpand(t *testing.T) {
	for _, test := range []struct{ in, want, wrong string }{
		{"plain $ and }", "plain $ and }", ""},
		{"${HEADWAY_TEST_SECRET}", "hunter2", ""},
		{"a${HEADWAY_TEST_NUMBER}b${HEADWAY_TEST_NUMBER}", "a42b42", ""},
		{"${HEADWAY_TEST_EMPTY}", "", ""},
		{"${HEADWAY_TEST_EMPTY:-x}", "x", ""},
		{"${NONE:-}", "", ""},
		{"${NONE:-a:-b}", "a:-b", ""},
		{"${NONE:-${ALSO_NONE:-deep}}", "deep", ""},
		{"${NONE:-${HEADWAY_TEST_NUMBER}}!", "42!", ""},
		{"$${HEADWAY_TEST_SECRET}", "${HEADWAY_TEST_SECRET}", ""},
		{"${HEADWAY_TEST_REFERENCE}", "${HEADWAY_TEST_SECRET}", ""}, // not expanded again
		{"${NONE}", "", "environment variable NONE is not set"},
		{"${1X}", "", "${1X} does not name an environment variable"},
		{"${}", "", "${} does not name an environment variable"},
		{"${A", "", "${A has no closing brace"},
		{strings.Repeat("${A:-", 10) + strings.Repeat("}", 10), "", "references are nested deeper than 8"},
	} {
		got, err := expand(test.in, testEnv)
		if got != test.want || (err == nil) != (test.wrong == "") || err != nil && err.Error() != test.wrong {
			t.Errorf("expand(%q) = %q, %v; want %q, %s", test.in, got, err, test.want, test.wrong)
		}
	}
}

func TestValues(t *testing.T) {
	c := mustParse(t, base+`
server:
  max_body: ${NONE:-2MiB}
  timeouts: {total: 1m30s}
  drain: {delay: 0s}
anonymous: ${NONE:-true}
rate_limiting:
  default_completion_tokens: ${HEADWAY_TEST_NUMBER}
  per_user:
    requests: &r {limit: 5, per: 1d}
    overrides:
      ann: {requests: *r}
  fair_queuing: {enabled: true, default_weight: .5}
`)
	r := c.RateLimiting
	if c.Server.MaxBody != 2<<20 || c.Server.Timeouts.Total != 90*time.Second || !c.Anonymous ||
		r.DefaultCompletionTokens != 42 || r.FairQueuing.DefaultWeight != 0.5 {
		t.Errorf("got %+v", c)
	}
	if *r.PerUser.Requests != (Rate{Limit: 5, Per: 24 * time.Hour}) || *r.PerUser.Overrides["ann"].Requests != *r.PerUser.Requests {
		t.Errorf("per_user: %+v", r.PerUser)
	}
}

// TestManyValuesAreBounded visits more values than a file may hold, as nested
// aliases would.
func TestManyValuesAreBounded(t *testing.T) {
	text := base + "server: {trusted_proxies: &a [" + strings.Repeat("10.0.0.1, ", 1000) + "]}\nfleet:\n  keys: [" + strings.Repeat("*a, ", 10) + "]\n"
	if _, err := Parse([]byte(text), nil); err == nil || strings.Contains(err.Error(), "values") {
		t.Errorf("lists for texts give %v", err)
	}
	d := &decoder{nodes: maxNodes, lines: map[string]int{}}
	var v []string
	item := &yaml.Node{Kind: yaml.ScalarNode, Value: "x"}
	d.value(&yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{item, item}}, reflect.ValueOf(&v).Elem(), "x")
	if len(v) != 0 || len(d.problems) != 1 {
		t.Errorf("%q was read past the bound: %v", v, d.problems)
	}
}

func TestLimiter(t *testing.T) {
	c := mustParse(t, `
keys:
  - {id: a, key: secret-a, user: ann, team: acme}
  - {id: b, key: secret-b, user: bob, team: "-", rate_limit: {requests: {limit: 9, per: 1m, burst: 3}}}
upstreams: [{name: up, url: "http://127.0.0.1:9000"}]
routes: [{path: /v1/*, upstream: up}]
redis: {on_outage: fail_open}
rate_limiting:
  global: {requests: {limit: 100, per: 1s}, max_in_flight_requests: 7, on_outage: fail_closed}
  per_client: {overrides: {"2001:db8::1": {max_in_flight_requests: 2}, "10.0.0.1": {requests: {limit: 0, per: 1s}}}}
  per_model: {requests: {limit: 2, per: 1s, burst: 4}, tokens: {limit: 1000, per: 1m}}
  fair_queuing: {enabled: true, tenant_dimension: team, weights: [{identity: acme, weight: 3}], max_wait_ms: 250}
`)
	second := func(n int64) *limiter.Rate { return &limiter.Rate{Limit: n, Per: time.Second, Burst: n} }
	got := c.Limiter()
	want := limiter.Config{
		Limits: map[limiter.Dimension]limiter.Limit{
			limiter.Global: {Rule: limiter.Rule{Requests: second(100)}, Overrides: map[limiter.ID]limiter.Rule{}},
			limiter.Client: {Overrides: map[limiter.ID]limiter.Rule{
				limiter.Hash(limiter.Client, "2001:db8::/64"): {MaxInFlight: 2},
				limiter.Hash(limiter.Client, "10.0.0.1"):      {Requests: second(0)},
			}},
			limiter.APIKey: {Overrides: map[limiter.ID]limiter.Rule{
				limiter.Hash(limiter.APIKey, "b"): {Requests: &limiter.Rate{Limit: 9, Per: time.Minute, Burst: 3}},
			}},
			limiter.Model: {Rule: limiter.Rule{
				Requests: &limiter.Rate{Limit: 2, Per: time.Second, Burst: 4},
				Tokens:   &limiter.Rate{Limit: 1000, Per: time.Minute, Burst: 1000},
			}, Overrides: map[limiter.ID]limiter.Rule{}},
		},
		DefaultOutage: limiter.FailOpen,
		OnOutage:      map[limiter.Dimension]limiter.OutagePolicy{limiter.Global: limiter.FailClosed},
		Fair: limiter.FairConfig{
			Enabled: true, TenantDimension: limiter.Team, Scope: limiter.FairExact, Discipline: "swrr", DefaultWeight: 1,
			Weights:                map[limiter.ID]float64{limiter.Hash(limiter.Team, "acme"): 3},
			MaxQueueDepthPerTenant: 32, MaxTotalQueued: 4096, MaxTenants: 1024, MaxInFlight: 8,
			MaxWait: 250 * time.Millisecond,
		},
		Deferral:   limiter.DeferralConfig{MaxWait: 5 * time.Second, MaxHeld: 256},
		BatchDepth: 1000,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

// TestLimiterAccepts checks that what passes here passes there.
func TestLimiterAccepts(t *testing.T) {
	eachFile(t, "warned", func(t *testing.T, _ string, text []byte) {
		c, err := Parse(text, testEnv)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Limiter().Validate(); err != nil {
			t.Error(err)
		}
	})
}

// What the limiter does with slots and homes follows two settings.
func TestLimiterPlaces(t *testing.T) {
	for text, want := range map[string][2]bool{
		"": {false, false},
		"rate_limiting: {inflight_scope: replica, per_user: {max_in_flight_requests: 1}}": {true, false},
		"redis: {mode: cluster, addresses: ['127.0.0.1:1'], layout: tenant}":              {false, true},
	} {
		if got := mustParse(t, base+text).Limiter(); got.LocalSlots != want[0] || got.Homes != want[1] {
			t.Errorf("%s: local slots %v, homes %v", text, got.LocalSlots, got.Homes)
		}
	}
}

func TestExemptions(t *testing.T) {
	c := mustParse(t, base+`
rate_limiting:
  whitelist: ["${NONE:-10.1.2.3}", {cidr: 10.0.0.0/8}, {cidr: 11.0.0.0/8, skip: [requests, tokens]}]
  bypass_keys: [{id: a, skip: [inflight]}]
`)
	r := c.RateLimiting
	if r.Whitelist[0].CIDR != "10.1.2.3" || r.BypassKeys[0].ID != "a" {
		t.Errorf("got %+v, %+v", r.Whitelist, r.BypassKeys)
	}
	for i, want := range []limiter.Skip{limiter.SkipAll, limiter.SkipAll, limiter.SkipRequests | limiter.SkipTokens} {
		if got := r.Whitelist[i].Skips(); got != want {
			t.Errorf("whitelist[%d] skips %b, want %b", i, got, want)
		}
	}
	if got := r.BypassKeys[0].Skips(); got != limiter.SkipInFlight {
		t.Errorf("the key skips %b", got)
	}
	classes, _ := reflect.TypeFor[ExemptKey]().FieldByName("Skip")
	for _, word := range strings.Split(classes.Tag.Get("enum"), "|") {
		if skips[word] == 0 {
			t.Errorf("%q is accepted and skips nothing", word)
		}
	}
}

func TestClientIdentity(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.1":             "10.0.0.1",
		"::ffff:10.0.0.1":      "10.0.0.1",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"fe80::1%eth0":         "fe80::/64",
	} {
		if got := ClientIdentity(netip.MustParseAddr(in)); got != want {
			t.Errorf("ClientIdentity(%s) = %s, want %s", in, got, want)
		}
	}
}

func TestSecretNeverPrints(t *testing.T) {
	s := Secret("hunter2")
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "secret", s)
	asJSON, err := json.Marshal(struct{ S Secret }{s})
	if err != nil {
		t.Fatal(err)
	}
	out := fmt.Sprintf("%v %s %q %x %#v %d %+v", s, s, s, s, s, s, struct{ S Secret }{s}) + log.String() + string(asJSON)
	if strings.Contains(out, "hunter2") || strings.Contains(out, fmt.Sprintf("%x", "hunter2")) {
		t.Errorf("it does: %s", out)
	}
	if s.Reveal() != "hunter2" || Secret("").String() != "" {
		t.Error("Reveal or the empty secret is wrong")
	}
}

func TestSize(t *testing.T) {
	for in, want := range map[string]Size{"1B": 1, "64KiB": 65536, "10 MiB": 10 << 20, "2GiB": 2 << 30, "5kB": 5000, "1MB": 1e6, "3GB": 3e9} {
		if got, err := ParseSize(in); got != want || err != nil {
			t.Errorf("ParseSize(%q) = %d, %v", in, got, err)
		}
	}
	for in, want := range map[Size]string{0: "0B", 1: "1B", 1024: "1KiB", 1500: "1500B", 10 << 20: "10MiB", 3 << 30: "3GiB"} {
		if got := in.String(); got != want {
			t.Errorf("Size(%d) = %s, want %s", in, got, want)
		}
	}
}

func TestKeySum(t *testing.T) {
	for _, digest := range []string{"", "sha256:", "sha256:zz", "sha256:" + strings.Repeat("0", 63), "sha256:" + strings.Repeat("0", 66), "md5:" + strings.Repeat("0", 64)} {
		if _, err := (Key{ID: "a", Digest: digest}).Sum(); err == nil {
			t.Errorf("digest %q accepted", digest)
		}
	}
	raw, _ := Key{Key: "k"}.Sum()
	if sum, err := (Key{Digest: strings.ToUpper(Digest("k")[7:])}).Sum(); err == nil {
		t.Errorf("a digest without its hash's name is accepted: %x", sum)
	}
	if sum, err := (Key{Digest: Digest("k")}).Sum(); err != nil || sum != raw {
		t.Errorf("the digest of a key is %x, %v; want %x", sum, err, raw)
	}
}

func TestShowMasksSecretsAndReadsBack(t *testing.T) {
	c := mustParse(t, base+`
server: {admin_token: hunter2}
redis: {mode: sentinel, addresses: ["127.0.0.1:26379"], password: hunter2, sentinel: {master: m, password: hunter2}}
rate_limiting:
  whitelist: [10.0.0.0/8, {cidr: "2001:db8::/32", skip: [requests, queue]}]
  bypass_keys: [a]
  per_backend: {requests: {limit: 100, per: 1m}, on_outage: local_share}
  per_user:
    requests: {limit: 5, per: 1s}
    overrides: {ann: {tokens: {limit: 7, per: 1m, burst: 9}}}
`)
	c.Upstreams[0].Credential = "hunter2"
	out, err := c.Show()
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	if strings.Contains(text, "hunter2") || strings.Contains(text, Digest("secret-a")) {
		t.Errorf("secrets show:\n%s", text)
	}
	golden(t, "testdata/show.yaml", text)
	// Everything but the key's digest is accepted as it is shown.
	back := strings.Replace(text, c.Keys[0].shortDigest(), Digest("secret-a"), 1)
	again := mustParse(t, back)
	c.Server.AdminToken, c.Redis.Password, c.Redis.Sentinel.Password, c.Upstreams[0].Credential = Masked, Masked, Masked, Masked
	if !reflect.DeepEqual(c.Redis, again.Redis) || !reflect.DeepEqual(c.RateLimiting.Whitelist, again.RateLimiting.Whitelist) {
		t.Errorf("the store or exemptions changed:\n%+v\n%+v", c.Redis, again.Redis)
	}
	if a, b := c.Limiter(), again.Limiter(); !reflect.DeepEqual(a, b) {
		t.Errorf("limits changed: %+v, %+v", a, b)
	}
	if !reflect.DeepEqual(c.Server.Timeouts, again.Server.Timeouts) || !reflect.DeepEqual(c.Upstreams[0].Timeouts, again.Upstreams[0].Timeouts) {
		t.Error("timeouts changed")
	}
}

func TestHash(t *testing.T) {
	a, b := mustParse(t, base), mustParse(t, base+"server: {listen: ':1'}\nfleet: {name: other}\n")
	c := mustParse(t, base+"rate_limiting: {global: {requests: {limit: 1, per: 1s}}}\n")
	if a.Hash() != b.Hash() || a.Hash() == c.Hash() || len(a.Hash()) != 8 {
		t.Errorf("hashes %s, %s, %s", a.Hash(), b.Hash(), c.Hash())
	}
}

func TestSchema(t *testing.T) {
	out, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/schema.yaml", string(out))
	// Every field of the tree is in it, with a description.
	var undescribed []string
	var walk func(path string, node map[string]any)
	walk = func(path string, node map[string]any) {
		if items, ok := node["items"].(map[string]any); ok {
			walk(path+"[]", items)
		}
		if more, ok := node["additionalProperties"].(map[string]any); ok {
			walk(path+".*", more)
		}
		properties, _ := node["properties"].(map[string]any)
		for name, p := range properties {
			child := p.(map[string]any)
			if child["description"] == nil {
				undescribed = append(undescribed, path+"."+name)
			}
			walk(path+"."+name, child)
		}
	}
	var root map[string]any
	if err := json.Unmarshal(out, &root); err != nil {
		t.Fatal(err)
	}
	walk("", root)
	if len(undescribed) > 0 {
		t.Errorf("fields without a description: %v", undescribed)
	}
}

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headway.yaml")
	if err := os.WriteFile(file, []byte(base+"nonsense: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(file)
	var wrong *Error
	if !errors.As(err, &wrong) || wrong.File != file || !strings.Contains(err.Error(), file+" has 1 mistake") {
		t.Errorf("got %v", err)
	}
	if _, err := Load(file + ".not"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
	if err := os.WriteFile(file, bytes.Repeat([]byte("#\n"), maxFile/2+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "larger than 4MiB") {
		t.Errorf("a huge file gives %v", err)
	}
}

func TestValidateInGo(t *testing.T) {
	c := Default()
	c.Anonymous = true
	up := DefaultUpstream()
	up.Name, up.URL = "up", "http://127.0.0.1:1"
	c.Upstreams = []Upstream{up}
	c.Routes = []Route{{Path: "/*", Upstream: "up"}}
	c.RateLimiting.PerModel.Requests = &Rate{Limit: 5, Per: time.Second}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.RateLimiting.PerModel.Requests.Per = 0
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "rate_limiting.per_model.requests.per") {
		t.Errorf("got %v", err)
	}
}

func TestDidYouMean(t *testing.T) {
	known := []string{"listen", "admin_listen", "timeouts"}
	for in, want := range map[string]string{
		"listn": `did you mean "listen"?`, "Listen": `did you mean "listen"?`, "timeuots": `did you mean "timeouts"?`,
		"admin-listen": `did you mean "admin_listen"?`, "zzz": "known here: listen, admin_listen, timeouts",
	} {
		if got := didYouMean(in, known); got != want {
			t.Errorf("didYouMean(%q) = %s, want %s", in, got, want)
		}
	}
}

// FuzzParse looks for panics, for errors without content, and for accepted
// configurations that the limiter refuses.
func FuzzParse(f *testing.F) {
	for _, folder := range []string{"wrong", "warned"} {
		files, _ := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse(text, testEnv)
		if err != nil {
			if wrong := (*Error)(nil); !errors.As(err, &wrong) || len(wrong.Problems) == 0 {
				t.Fatalf("error without a problem: %v", err)
			}
			return
		}
		if err := c.Limiter().Validate(); err != nil {
			t.Fatalf("accepted here, refused by the limiter: %v", err)
		}
		if _, err := c.Show(); err != nil {
			t.Fatal(err)
		}
	})
}

// The rate limit service needs no gateway beside it, and its descriptors name
// identities that no key has.
func TestServiceAlone(t *testing.T) {
	for _, who := range []string{"", "anonymous: true\nupstreams: [{name: up, url: \"http://127.0.0.1:9000\"}]\nroutes: [{path: /v1/*, upstream: up}]\n"} {
		c := mustParse(t, who+`
rate_limiting:
  per_user: {requests: {limit: 1, per: 1s}, overrides: {ann: {requests: {limit: 2, per: 1s}}}}
  per_api_key: {overrides: {a: {requests: {limit: 2, per: 1s}}}}
rate_limit_service:
  listen: ":8081"
  identities: [{key: user, dimension: user}, {key: key, dimension: api_key}]
`)
		for _, w := range c.Warnings() {
			t.Errorf("%q: %v", who, w)
		}
	}
}
