package gateway

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/workspace"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// placedRig is a gateway for placed and more, whose documents are in a Redis.
func placedRig(t *testing.T, more string, upstream http.HandlerFunc) (*rig, *storetest.Link) {
	t.Helper()
	cfg, err := config.Parse([]byte(placed+more), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRigOf(t, cfg, upstream)
	b := storetest.NewBubble(t)
	link := b.Link()
	store, err := redisstore.New(redisstore.Options{
		Address: storetest.BubbleAddress, DialCtxFn: link.Dial, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.workspaces = workspace.New(workspace.Options{Redis: store, Seeds: workspace.Seeds(cfg), Logger: r.Gateway.log})
	t.Cleanup(func() {
		r.workspaces.Close()
		last, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		store.Close(last)
	})
	time.Sleep(time.Second)
	return r, link
}

// reply is what is looked at of an answer.
type reply struct {
	status int
	header http.Header
	body   string
	json   struct {
		workspaceView
		Error struct{ Code, Message string } `json:"error"`
		Data  json.RawMessage                `json:"data"`
	}
}

// call sends a request to the API, or with key admin to the admin listener.
func (r *rig) call(method, path, key, body string, headers ...header) (out reply) {
	r.t.Helper()
	req := r.request(context.Background(), path, body, headers...)
	req.Method = method
	if key != "" && key != "admin" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if key == "admin" {
		w := httptest.NewRecorder()
		req.Host = "127.0.0.1"
		r.Admin().ServeHTTP(w, req)
		out = reply{status: w.Code, header: w.Header(), body: w.Body.String()}
	} else {
		resp, text := r.send(req)
		out = reply{status: resp.StatusCode, header: resp.Header, body: text}
	}
	if strings.HasPrefix(out.body, "{") {
		if err := json.Unmarshal([]byte(out.body), &out.json); err != nil {
			r.t.Fatalf("%s %s: %v in %s", method, path, err, out.body)
		}
	}
	return out
}

// Everybody's rights, by role, method and what the document and the precondition say.
func TestRolesAndMethods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := placedRig(t, `
  - {path: /v1/images/*, upstream: llm}
`, ok)
		set := `{"inference_queueing_enabled": false}`
		const stale = `"1-000000000000"`
		for _, c := range []struct {
			method, path, key, body string
			match, none             string // {tag} is the present one
			status                  int
			code                    string
		}{
			{"GET", "acme", "secret-a", "", "", "", 200, ""},
			{"HEAD", "acme", "secret-a", "", "", "", 200, ""},
			{"GET", "acme", "secret-a", "", "", "{tag}", 304, ""},
			{"GET", "acme", "secret-a", "", "", "W/{tag}", 304, ""},
			{"GET", "acme", "secret-a", "", "", `"x", {tag}`, 304, ""},
			{"GET", "acme", "secret-a", "", "", "*", 304, ""},
			{"GET", "acme", "secret-a", "", "", stale, 200, ""},
			{"GET", "acme", "secret-a", "", stale, "", 412, "precondition_failed"},
			{"GET", "acme", "secret-a", "", "{tag}", "", 200, ""},
			{"PATCH", "acme", "secret-a", set, "", "", 200, ""},
			{"PATCH", "acme", "secret-a", `{"name": "A"}`, "{tag}", "", 200, ""},
			{"PATCH", "acme", "secret-a", `{"name": "B"}`, `"x", {tag}`, "", 200, ""},
			{"PATCH", "acme", "secret-a", `{"name": "C"}`, "*", "", 200, ""},
			{"PATCH", "acme", "secret-a", `{"name": "D"}`, stale, "", 412, "precondition_failed"},
			{"PATCH", "acme", "secret-a", `{"name": "D"}`, "W/{tag}", "", 412, "precondition_failed"},
			{"PATCH", "acme", "secret-a", `{}`, stale, "", 412, "precondition_failed"},
			{"PATCH", "acme", "secret-a", `{}`, "", "", 200, ""},
			{"PATCH", "acme", "secret-m", `{"name": "M"}`, "{tag}", "", 200, ""},
			{"GET", "acme", "secret-m", "", "", "", 200, ""},
			{"GET", "other", "secret-a", "", "", "", 200, ""},
			{"GET", "other", "secret-b", "", "", "", 200, ""},
			{"PATCH", "other", "secret-a", set, "", "", 403, "role_not_allowed"},
			{"PATCH", "other", "secret-b", set, "{tag}", "", 403, "role_not_allowed"},
			{"PATCH", "other", "secret-b", `{`, stale, "", 403, "role_not_allowed"},
			{"GET", "acme", "secret-b", "", "", "", 404, "workspace_not_found"},
			{"PATCH", "acme", "secret-b", set, "", "", 404, "workspace_not_found"},
			{"GET", "acme", "secret-c", "", "", "", 404, "workspace_not_found"},
			{"GET", "none", "secret-a", "", "", "", 404, "workspace_not_found"},
			{"PATCH", "none", "secret-a", set, "", "", 404, "workspace_not_found"},
			{"GET", "none", "admin", "", "", "", 404, "workspace_not_found"},
			{"GET", "acme", "wrong", "", "", "", 401, "invalid_api_key"},
			{"PATCH", "acme", "", set, "", "", 401, "invalid_api_key"},
			{"GET", "none", "", "", "", "", 401, "invalid_api_key"},
			{"GET", "acme", "admin", "", "", "", 200, ""},
			{"PATCH", "other", "admin", set, "{tag}", "", 200, ""},
			{"PATCH", "acme", "admin", `{"name": "by an operator"}`, stale, "", 412, "precondition_failed"},
			{"PUT", "acme", "secret-a", set, "", "", 405, "method_not_allowed"},
			{"DELETE", "acme", "secret-a", "", "", "", 405, "method_not_allowed"},
			{"POST", "", "secret-a", set, "", "", 405, "method_not_allowed"},
			{"PATCH", "acme/changes", "secret-a", set, "", "", 405, "method_not_allowed"},
			{"OPTIONS", "acme", "admin", "", "", "", 405, "method_not_allowed"},
			{"GET", "acme/", "secret-a", "", "", "", 404, "unknown_url"},
			{"GET", "acme/changes/", "secret-a", "", "", "", 404, "unknown_url"},
			{"GET", "%61cme", "secret-a", "", "", "", 404, "workspace_not_found"},
			{"GET", "acme%2Fchanges", "secret-a", "", "", "", 404, "workspace_not_found"},
			{"GET", "..", "secret-a", "", "", "", 404, "workspace_not_found"},
			{"GET", "/changes", "admin", "", "", "", 404, "workspace_not_found"},
			{"GET", "acme/changes", "secret-a", "", "", "", 200, ""},
			{"GET", "other/changes", "secret-b", "", "", "", 200, ""},
			{"GET", "acme/changes", "secret-b", "", "", "", 404, "workspace_not_found"},
		} {
			id, _, _ := strings.Cut(c.path, "/")
			tag := r.call("GET", "/api/workspaces/"+id, "admin", "").header.Get("ETag")
			var headers []header
			for name, value := range map[string]string{"If-Match": c.match, "If-None-Match": c.none} {
				if value != "" {
					headers = append(headers, header{name, strings.ReplaceAll(value, "{tag}", tag)})
				}
			}
			path := "/api/workspaces"
			if c.path != "" {
				path += "/" + c.path
			}
			got := r.call(c.method, path, c.key, c.body, headers...)
			if got.status != c.status || got.json.Error.Code != c.code {
				t.Errorf("%s %s by %q, If-Match %s, If-None-Match %s: %d %s, want %d %s", c.method, path, c.key, c.match, c.none, got.status, got.body, c.status, c.code)
			}
			if shown := got.header.Get("ETag"); (got.status == 200 || got.status == 304) && c.path == id && (shown == "" || c.method == "GET" && shown != tag) {
				t.Errorf("%s %s: ETag %s, want %s", c.method, path, shown, tag)
			}
			if (c.method == "HEAD" || c.status == 304) && got.body != "" {
				t.Errorf("%s %s: body %s", c.method, path, got.body)
			}
			if c.status == 405 && got.header.Get("Allow") == "" {
				t.Errorf("%s %s: no Allow", c.method, path)
			}
		}
	})
}

// What a document looks like, for whom, and who is told to have changed it.
func TestDocuments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, link := placedRig(t, "", ok)
		golden(t, "workspaces/list", r.call("GET", "/api/workspaces", "secret-a", "").body)
		golden(t, "workspaces/none", r.call("GET", "/api/workspaces", "secret-c", "").body)
		time.Sleep(3 * time.Second)
		golden(t, "workspaces/patched", r.call("PATCH", "/api/workspaces/acme", "secret-a",
			`{"name": "Acme \u0026 Söhne", "inference_queueing_enabled": false, "zero_data_retention": true}`).body)
		r.call("PATCH", "/api/workspaces/acme", "admin", `{"inference_queueing_enabled": null, "published": true}`)
		golden(t, "workspaces/admin", r.call("GET", "/api/workspaces", "admin", "").body)
		golden(t, "workspaces/changes", r.call("GET", "/api/workspaces/acme/changes", "secret-a", "").body)
		golden(t, "workspaces/project", r.call("GET", "/api/projects/p1", "secret-a", "").body)
		for _, path := range []string{"/api/projects/p1", "/api/projects/none", "/api/projects/p1/x", "/api/projects/"} {
			if got := r.call("GET", path, "secret-b", ""); got.status != 404 {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
		log := r.log.String()
		for _, want := range []string{"by=key:a", "by=admin", "version=2", "workspace=acme", "zero_data_retention"} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %s:\n%s", want, log)
			}
		}
		link.Cut()
		for _, c := range [][2]string{{"GET", "/api/workspaces"}, {"GET", "/api/workspaces/acme"}, {"PATCH", "/api/workspaces/acme"}, {"GET", "/api/workspaces/acme/changes"}} {
			if got := r.call(c[0], c[1], "secret-a", `{"name": "x"}`); got.status != 503 || got.json.Error.Code != "workspaces_unavailable" || got.header.Get("Retry-After") != "1" {
				t.Errorf("%v without Redis: %d %s", c, got.status, got.body)
			}
		}
		r.must(http.StatusOK, "/workspaces/acme/v1/completions", completion, as("secret-a")) // requests go on
	})
}

// Mistakes in a patch, each with the field it is in.
func TestPatchMistakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := placedRig(t, "", ok)
		for _, c := range []struct{ body, code, names string }{
			{`{"inference_queueing": false}`, "unknown_field", "inference_queueing"},
			{`{"Name": "x"}`, "unknown_field", "Name"},
			{`{"": 1}`, "unknown_field", `""`},
			{`{"id": "x"}`, "read_only_field", "id"},
			{`{"version": 7, "name": "x"}`, "read_only_field", "version"},
			{`{"published": "true"}`, "invalid_field", "published"},
			{`{"zero_data_retention": 1}`, "invalid_field", "zero_data_retention"},
			{`{"inference_queueing_enabled": {}}`, "invalid_field", "inference_queueing_enabled"},
			{`{"name": ""}`, "invalid_field", "name"},
			{`{"name": 5}`, "invalid_field", "name"},
			{`{"name": "a\nb"}`, "invalid_field", "name"},
			{`{"name": "` + strings.Repeat("ö", 129) + `"}`, "invalid_field", "name"},
			{`{"published": true, "published": false}`, "invalid_json", "published"},
			{`[{"op": "replace"}]`, "invalid_json", "object"},
			{`null`, "invalid_json", "object"}, {`"x"`, "invalid_json", "object"}, {` `, "invalid_json", "object"},
			{`{"name": "x"} {}`, "invalid_json", "object"}, {`{"name": "x"`, "invalid_json", "object"}, {`{"name"}`, "invalid_json", "object"},
		} {
			got := r.call("PATCH", "/api/workspaces/acme", "secret-a", c.body)
			if got.status != 400 || got.json.Error.Code != c.code || !strings.Contains(got.json.Error.Message, c.names) {
				t.Errorf("%s: %d %s", c.body, got.status, got.body)
			}
		}
		for kind, status := range map[string]int{"application/merge-patch+json; charset=utf-8": 200, "application/json-patch+json": 415, "text/plain": 415, "": 200} {
			if got := r.call("PATCH", "/api/workspaces/acme", "secret-a", `{}`, header{"Content-Type", kind}); got.status != status {
				t.Errorf("type %q: %d %s", kind, got.status, got.body)
			}
		}
		if got := r.call("PATCH", "/api/workspaces/acme", "secret-a", `{"name": "`+strings.Repeat("x", 64<<10)+`"}`); got.status != 413 {
			t.Errorf("a large patch: %d %s", got.status, got.body)
		}
		if got := r.call("GET", "/api/workspaces/acme", "secret-a", ""); got.json.Version != 1 || got.json.Name != "Acme" {
			t.Errorf("mistakes have changed it: %s", got.body)
		}
	})
}

// The manifest is closed until it is published, and tells no secrets.
func TestManifest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, link := placedRig(t, `
rate_limiting:
  per_api_key: {requests: {limit: 60, per: 1m, burst: 10}}
  per_user: {max_in_flight_requests: 3, overrides: {ann: {max_in_flight_requests: 99}}}
  per_model: {overrides: {m: {tokens: {limit: 1000, per: 1s}}}}
`, ok)
		const path = "/workspaces/acme/manifest"
		check := func(when string, want map[string]int) {
			t.Helper()
			for key, status := range want {
				if got := r.call("GET", path, key, ""); got.status != status {
					t.Errorf("%s, %q: %d %s", when, key, got.status, got.body)
				}
			}
		}
		check("at first", map[string]int{"": 401, "wrong": 401, "secret-a": 200, "secret-m": 200, "secret-b": 404, "secret-c": 404})
		r.call("PATCH", "/api/workspaces/acme", "secret-a", `{"published": true}`)
		check("published", map[string]int{"": 200, "wrong": 200, "secret-a": 200, "secret-b": 200})
		got := r.call("GET", path, "", "")
		golden(t, "workspaces/manifest", got.body)
		for _, secret := range []string{"upstream.test", "secret", "99", "ann", "plain"} {
			if strings.Contains(got.body, secret) {
				t.Errorf("the manifest tells %q", secret)
			}
		}
		tag := got.header.Get("ETag")
		if again := r.call("GET", path, "", "", header{"If-None-Match", tag}); again.status != 304 || again.body != "" || again.header.Get("ETag") != tag {
			t.Errorf("known: %d %s", again.status, again.body)
		}
		if other := r.call("HEAD", path, "", ""); other.status != 200 || other.body != "" || other.header.Get("ETag") != tag {
			t.Errorf("HEAD: %d %s", other.status, other.body)
		}
		if other := r.call("POST", path, "secret-a", "{}"); other.status != 405 {
			t.Errorf("POST: %d", other.status)
		}
		r.call("PATCH", "/api/workspaces/acme", "secret-a", `{"name": "New"}`)
		if other := r.call("GET", path, "", ""); other.header.Get("ETag") == tag {
			t.Error("the tag stays while the name changes")
		}
		for _, strange := range []string{"/workspaces/none/manifest", "/workspaces/acme/manifest/", "/workspaces/acme%2Fmanifest", "/workspaces/%61cme/manifest", "/workspaces//manifest"} {
			if other := r.call("GET", strange, "secret-a", ""); other.status != 404 {
				t.Errorf("%s: %d", strange, other.status)
			}
		}
		link.Cut()
		time.Sleep(3 * time.Second)
		check("without Redis", map[string]int{"": 200})
		link.Mend()
		time.Sleep(3 * time.Second)
		r.call("PATCH", "/api/workspaces/acme", "secret-a", `{"published": null}`)
		check("withdrawn", map[string]int{"": 401, "secret-b": 404, "secret-a": 200})
	})
}

// Limits before authentication hold for all of it, those of keys do not.
func TestManagingIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := placedRig(t, `
rate_limiting:
  per_client: {requests: {limit: 3, per: 1m}}
  per_api_key: {requests: {limit: 0, per: 1m}}
`, ok)
		for n, path := range []string{"/api/workspaces/acme", "/workspaces/acme/manifest", "/api/projects/p1", "/api/workspaces"} {
			if got, want := r.call("GET", path, "secret-a", "").status, []int{200, 200, 200, 429}[n]; got != want {
				t.Errorf("request %d: %d, want %d", n, got, want)
			}
		}
		if got := r.call("GET", "/workspaces/acme/manifest", "", ""); got.status != 429 {
			t.Errorf("without a key: %d", got.status)
		}
		if got := r.call("GET", "/api/workspaces", "admin", ""); got.status != 200 {
			t.Errorf("an operator: %d", got.status)
		}
	})
}

// Without workspaces in the configuration their paths are nothing special.
func TestNoWorkspaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := ""
		r := newRig(t, `  - {path: /*, upstream: plain}
`, func(w http.ResponseWriter, q *http.Request) { seen = q.URL.Path; io.Copy(io.Discard, q.Body) })
		for _, path := range []string{"/workspaces/acme/v1/models", "/projects/7", "/direct/llm/v1/x", "/api/workspaces", "/api/workspaces/acme"} {
			if r.must(http.StatusOK, path, "", as("secret-a")); seen != path {
				t.Errorf("%s is %s at the upstream", path, seen)
			}
		}
		if got := r.call("GET", "/api/workspaces", "admin", ""); got.status != 200 || string(got.json.Data) != "[]" {
			t.Errorf("an operator: %d %s", got.status, got.body)
		}
	})
}

// The switch decides whether a request may wait.
func TestQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, link := placedRig(t, "", ok)
		queues := func(p place) bool { return r.queues(t.Context(), &exchange{place: p}) }
		check := func(when string, acme bool) {
			t.Helper()
			if got := queues(place{workspace: "acme"}); got != acme {
				t.Errorf("%s: acme %v", when, got)
			}
			if !queues(place{}) || !queues(place{workspace: "other"}) || queues(place{direct: "llm", workspace: "other"}) {
				t.Errorf("%s: the others", when)
			}
		}
		check("never said", true)
		r.call("PATCH", "/api/workspaces/acme", "secret-a", `{"inference_queueing_enabled": false}`)
		check("off", false)
		link.Cut()
		time.Sleep(10 * time.Second)
		check("unreadable", true)
		link.Mend()
		time.Sleep(10 * time.Second)
		check("off again", false)
		r.call("PATCH", "/api/workspaces/acme", "secret-a", `{"inference_queueing_enabled": null}`)
		check("as if never said", true)
	})
}
