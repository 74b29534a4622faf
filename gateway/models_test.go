package gateway

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// rigOf starts a gateway for a whole configuration.
func rigOf(t *testing.T, text string, upstream http.HandlerFunc) *rig {
	t.Helper()
	cfg, err := config.Parse([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return newRigOf(t, cfg, upstream)
}

const twoWithModels = `
keys: [{id: a, key: secret-a, user: ann, team: acme}]
upstreams:
  - {name: one, url: "http://one.test", slots: 4, models: [small, "org/big"]}
  - {name: two, url: "http://two.test", slots: 4, models: [small, other]}
  - {name: any, url: "http://any.test"}
  - {name: plain, url: "http://plain.test", kind: http}
`

const modelsOfTwo = `{"object":"list","data":[` +
	`{"id":"org/big","object":"model","created":0,"owned_by":"headway"},` +
	`{"id":"other","object":"model","created":0,"owned_by":"headway"},` +
	`{"id":"small","object":"model","created":0,"owned_by":"headway"}]}` + "\n"

// TestModels: where all models are known, no upstream is asked.
func TestModelList(t *testing.T) {
	theirs := func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("theirs " + r.URL.Path)) }
	const small = `{"id":"small","object":"model","created":0,"owned_by":"headway"}` + "\n"
	for _, c := range []struct {
		name, routes, path string
		status             int
		want               string // empty: not looked at
	}{
		{"all routes", "[{path: /v1/a*, upstream: one}, {path: /v1/b*, upstreams: [two]}]", "/v1/models", 200, modelsOfTwo},
		{"one model", "[{path: /v1/*, upstreams: [one, two]}]", "/v1/models/small", 200, small},
		{"a name with a slash", "[{path: /v1/*, upstreams: [one, two]}]", "/v1/models/org/big", 200, ""},
		{"none of that name", "[{path: /v1/*, upstreams: [one, two]}]", "/v1/models/big", 404, ""},
		{"at one agent", "[{path: /v1/*, upstreams: [one, two]}]", "/direct/two/v1/models/org/big", 404, ""},
		{"another at one agent", "[{path: /v1/*, upstreams: [one, any]}]", "/direct/one/v1/models/small", 200, small},
		{"the route takes any", "[{path: /v1/models*, upstreams: [any]}, {path: /v1/*, upstreams: [one, two]}]", "/v1/models", 200, "theirs /v1/models"},
		{"one of the route takes any", "[{path: /v1/*, upstreams: [one, any]}]", "/v1/models/small", 200, "theirs /v1/models/small"},
		{"another route takes any", "[{path: /v1/x, upstreams: [any]}, {path: /v1/*, upstreams: [one, two]}]", "/v1/models", 200, modelsOfTwo},
		{"not a list", "[{path: /v1/*, upstreams: [one, two]}]", "/v1/modelsx", 200, "theirs /v1/modelsx"},
		{"no models at all", "[{path: /plain/*, upstream: plain}]", "/v1/models", 404, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				r := rigOf(t, twoWithModels+"routes: "+c.routes+"\n", func(w http.ResponseWriter, r *http.Request) { asked++; theirs(w, r) })
				_, text := r.must(c.status, c.path, "", as("secret-a"))
				if c.want != "" && text != c.want {
					t.Errorf("got %s, want %s", text, c.want)
				}
				if ours := c.want == "" || c.want[0] == '{'; ours != (asked == 0) {
					t.Errorf("the upstream was asked %d times", asked)
				}
			})
		})
	}
}

// TestModelsAreLimited: asking for the list needs a key and counts as a request.
func TestModelsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigOf(t, twoWithModels+"routes: [{path: /v1/*, upstreams: [one, two]}]\n"+
			"rate_limiting: {per_user: {requests: {limit: 2, per: 100000h}, tokens: {limit: 9, per: 100000h}}}", ok)
		r.must(http.StatusUnauthorized, "/v1/models", "")
		r.must(http.StatusOK, "/v1/models", "", as("secret-a"))
		r.must(http.StatusOK, "/v1/models", "", as("secret-a"))
		r.must(http.StatusTooManyRequests, "/v1/models", "", as("secret-a"))
		if n := r.left(limiter.User, limiter.Tokens, "ann", 9); n != 9 {
			t.Errorf("%d tokens are left of 9", n)
		}
		req := r.request(t.Context(), "/v1/models", `{"model":"small"}`, as("secret-a"))
		if resp, _ := r.send(req); resp.StatusCode != http.StatusTooManyRequests {
			t.Errorf("a POST is answered %d: it is for the upstream, and limited", resp.StatusCode)
		}
	})
}
