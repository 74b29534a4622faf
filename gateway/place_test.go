package gateway

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-limiter/headway/gateway/config"
)

// placed declares two workspaces and a project. Key a is owner of the one and
// member of the other, key b a member of the other alone, c of none.
const placed = `
keys:
  - {id: a, key: secret-a, user: ann, workspaces: [{id: acme, role: owner}, {id: other, role: member}], workspace: other}
  - {id: b, key: secret-b, user: bob, workspaces: [{id: other, role: member}]}
  - {id: c, key: secret-c, user: cyd}
  - {id: m, key: secret-m, user: max, workspaces: [{id: acme, role: manager}]}
workspaces: [{id: acme, name: Acme}, {id: other}]
projects: [{id: p1, workspace: acme}, {id: p2, workspace: other}]
upstreams:
  - {name: llm, url: "http://upstream.test/base", credential: upstream-secret, slots: 4, models: [m, n]}
  - {name: plain, url: "http://upstream.test", kind: http}
routes:
  - {path: /v1/*, upstream: llm}
  - {path: /*, upstream: plain}
`

func placedTables(t testing.TB) *tables {
	t.Helper()
	cfg, err := config.Parse([]byte(placed), nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := newTables(cfg, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// located is what becomes of a request line's path.
func located(t testing.TB, tables *tables, path string) (*exchange, *http.Request, *failure) {
	t.Helper()
	u, err := url.ParseRequestURI(path)
	if err != nil {
		t.Fatalf("%q: %v", path, err)
	}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.URL = u
	x := &exchange{tables: tables, request: r}
	inner, wrong := x.locate(r)
	return x, inner, wrong
}

func TestPlaces(t *testing.T) {
	tables := placedTables(t)
	long := strings.Repeat("a", 64)
	for path, want := range map[string]place{
		"/v1/chat/completions":                            {path: "/v1/chat/completions"},
		"/workspaces/acme/v1/chat/completions":            {workspace: "acme", scoped: true, path: "/v1/chat/completions"},
		"/workspaces/acme/v1/models/a%2Fb?x=%2F":          {workspace: "acme", scoped: true, path: "/v1/models/a/b"},
		"/workspaces/acme/v1":                             {workspace: "acme", scoped: true, path: "/v1"},
		"/workspaces/acme/v1/":                            {workspace: "acme", scoped: true, path: "/v1/"},
		"/workspaces/unknown/v1/models":                   {workspace: "unknown", scoped: true, path: "/v1/models"},
		"/workspaces/" + long + "/v1/models":              {workspace: long, scoped: true, path: "/v1/models"},
		"/workspaces/acme/v1/workspaces/other/v1/x":       {workspace: "acme", scoped: true, path: "/v1/workspaces/other/v1/x"},
		"/projects/p2/v1/rerank":                          {workspace: "other", project: "p2", scoped: true, path: "/v1/rerank"},
		"/projects/acme/v1/rerank":                        {project: "acme", scoped: true, path: "/v1/rerank"},
		"/direct/llm/v1/score":                            {direct: "llm", path: "/v1/score"},
		"/Workspaces/acme/v1/models":                      {path: "/Workspaces/acme/v1/models"},
		"/v1/workspaces/acme/v1/models":                   {path: "/v1/workspaces/acme/v1/models"},
		"//workspaces/acme/v1/models":                     {path: "//workspaces/acme/v1/models"},
		"/workspacesacme/v1":                              {path: "/workspacesacme/v1"},
		"/workspaces%2Facme/v1/models":                    {path: "/workspaces/acme/v1/models"},
		"/x/../workspaces/acme/v1/models":                 {path: "/x/../workspaces/acme/v1/models"},
		"/workspaces/acme/v1/..%2F..%2F..%2Fapi%2Fadmin":  {workspace: "acme", scoped: true, path: "/v1/../../../api/admin"},
		"/workspaces/acme/v1/%2e%2e/%2e%2e/other/v1/chat": {workspace: "acme", scoped: true, path: "/v1/../../other/v1/chat"},
	} {
		x, inner, wrong := located(t, tables, path)
		if wrong != nil {
			t.Errorf("%s: %s", path, wrong.message)
			continue
		}
		if x.place != want {
			t.Errorf("%s: %+v, want %+v", path, x.place, want)
		}
		if inner.URL.Path != want.path || !strings.HasSuffix(path, inner.URL.RequestURI()) {
			t.Errorf("%s: routes see %s, upstreams %s", path, inner.URL.Path, inner.URL.RequestURI())
		}
		if strings.Contains(want.path, "..") {
			if rt, _ := x.route(inner); rt != nil {
				t.Errorf("%s is routed to %s", path, rt.path)
			}
		}
	}
	for _, path := range []string{
		"/workspaces", "/workspaces/", "/workspaces/acme", "/workspaces/acme/", "/workspaces/acme/v2/models", "/workspaces/acme/V1/models",
		"/workspaces//v1/models", "/workspaces/acme//v1/models", "/workspaces/acme/v1%2Fmodels", "/workspaces/%61cme/v1/models",
		"/%77orkspaces/acme/v1/models", "/workspaces/./v1/models", "/workspaces/../v1/models", "/workspaces/acme/../v1/models",
		"/workspaces/%2e%2e/v1/models", "/workspaces/acme%2Fv1/v1/models", "/workspaces/acme%00/v1/models", "/workspaces/acm%C3%A9/v1/models",
		"/workspaces/" + long + "a/v1/models", "/workspaces/acme;x/v1/models", "/workspaces/*/v1/models", "/workspaces/.acme/v1/models",
		"/projects//v1/models", "/projects/p1/manifest", "/direct//v1/models", "/direct/nobody/v1/models", "/direct/plain/v1/models", "/direct/llm/v2/models",
		"/direct/ll%6D/v1/models",
	} {
		if x, _, wrong := located(t, tables, path); wrong == nil || wrong.status != http.StatusNotFound {
			t.Errorf("%s is taken for %+v", path, x.place)
		}
	}
}

// FuzzPlace looks for paths that mean one place here and another to whoever
// reads them after us.
func FuzzPlace(f *testing.F) {
	tables := placedTables(f)
	for _, path := range []string{"/workspaces/acme/v1/models", "/projects/p1/v1/..%2f", "/direct/llm/v1//", "/%77orkspaces/acme/v1", "/workspaces/acme/v1/%zz", "//"} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || !strings.HasPrefix(u.Path, "/") {
			return
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL = u
		x := &exchange{tables: tables, request: r}
		inner, wrong := x.locate(r)
		if wrong != nil {
			return
		}
		p := x.place
		escaped := inner.URL.EscapedPath()
		if back, err := url.PathUnescape(escaped); err != nil || back != inner.URL.Path || p.path != inner.URL.Path {
			t.Fatalf("%q: routes see %q, upstreams %q", path, inner.URL.Path, escaped)
		}
		prefix := strings.TrimSuffix(u.EscapedPath(), escaped)
		switch {
		case p == place{path: u.Path} && prefix == "":
			if first, _, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/"); tables.spaces[first] && !strings.Contains(strings.ToLower(path), "%2f") {
				t.Fatalf("%q is not taken for a place", path)
			}
		case p.direct != "" && prefix == "/direct/"+p.direct && !p.scoped:
		case p.project != "" && prefix == "/projects/"+p.project && p.workspace == tables.projects[p.project] && p.scoped:
		case p.project == "" && p.workspace != "" && prefix == "/workspaces/"+p.workspace && p.scoped:
		default:
			t.Fatalf("%q is taken for %+v behind %q", path, p, prefix)
		}
	})
}

// Who may be where, and what an upstream sees of it.
func TestPlacesOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := config.Parse([]byte(placed), nil)
		if err != nil {
			t.Fatal(err)
		}
		seen := ""
		r := newRigOf(t, cfg, func(w http.ResponseWriter, q *http.Request) { seen = q.URL.Path; ok(w, q) })
		for _, c := range []struct {
			key, path string
			status    int
			code      string
		}{
			{"secret-a", "/v1/completions", 200, ""},
			{"secret-a", "/workspaces/acme/v1/completions", 200, ""},
			{"secret-a", "/projects/p1/v1/completions", 200, ""},
			{"secret-a", "/direct/llm/v1/completions", 200, ""},
			{"secret-b", "/workspaces/other/v1/completions", 200, ""},
			{"secret-b", "/projects/p2/v1/completions", 200, ""},
			{"secret-b", "/workspaces/acme/v1/completions", 404, "workspace_not_found"},
			{"secret-b", "/projects/p1/v1/completions", 404, "project_not_found"},
			{"secret-b", "/projects/none/v1/completions", 404, "project_not_found"},
			{"secret-a", "/workspaces/none/v1/completions", 404, "workspace_not_found"},
			{"secret-c", "/workspaces/acme/v1/completions", 404, "workspace_not_found"},
			{"secret-c", "/v1/completions", 200, ""},
			{"secret-c", "/direct/llm/v1/completions", 200, ""},
			{"secret-c", "/direct/none/v1/completions", 404, "agent_not_found"},
			{"wrong", "/workspaces/acme/v1/completions", 401, "invalid_api_key"},
			{"wrong", "/workspaces/none/v1/completions", 401, "invalid_api_key"},
			{"secret-a", "/workspaces/acme/v2/completions", 404, "unknown_url"},
		} {
			seen = ""
			_, body := r.must(c.status, c.path, completion, as(c.key))
			want := ""
			if c.status == 200 {
				want = "/base/v1/completions"
			}
			if !strings.Contains(body, c.code) || seen != want {
				t.Errorf("%s %s: the upstream saw %q, answer %s", c.key, c.path, seen, body)
			}
		}
	})
}
