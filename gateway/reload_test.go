package gateway

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
)

// ask sends a GET with a key and returns status and body.
func (r *rig) ask(path, key string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://gateway.test"+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// TestReloadReplacesEverythingAtOnce: keys, routes, credentials, limits. What is
// under way ends as it began.
func TestReloadReplacesEverythingAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		r := newRig(t, "", func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/slow") {
				<-slow
			}
			io.WriteString(w, r.URL.Path+" "+r.Header.Get("Authorization"))
		})
		body := make(chan string)
		go func() {
			status, text := r.ask("/v1/slow", "secret-a")
			body <- http.StatusText(status) + " " + text
		}()
		synctest.Wait()
		next, err := config.Parse([]byte(strings.NewReplacer(
			"secret-a", "secret-a2", "upstream-secret", "new-secret", "/plain/*", "/simple/*",
		).Replace(keysAndRoutes)+"rate_limiting: {per_api_key: {requests: {limit: 1, per: 1h}}}\nserver: {max_concurrent_requests: 50}\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if kept, err := r.Reload(next, next.Limiter()); err != nil || len(kept) > 0 {
			t.Fatalf("reload: kept %v, %v", kept, err)
		}
		for _, c := range []struct {
			path, key string
			status    int
			body      string
		}{
			{"/v1/models", "secret-a", 401, "invalid_api_key"},
			{"/v1/models", "secret-a2", 200, "Bearer new-secret"},
			{"/v1/models", "secret-a2", 429, "rate_limit"},
			{"/plain/x", "secret-b", 404, ""},
			{"/simple/x", "secret-b", 200, "/simple/x"},
		} {
			if status, text := r.ask(c.path, c.key); status != c.status || !strings.Contains(text, c.body) {
				t.Errorf("%s with %s: %d %s, want %d with %q", c.path, c.key, status, text, c.status, c.body)
			}
		}
		close(slow)
		if got := <-body; got != "OK /base/v1/slow Bearer upstream-secret" {
			t.Errorf("a request that was under way: %s", got)
		}
	})
}

// TestReloadWrongChangesNothing: neither tables nor limits.
func TestReloadWrongChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })
		next := *r.tables.Load().cfg
		next.Keys = nil
		limits := next.Limiter()
		limits.Fair.MaxWait = -time.Second
		if _, err := r.Reload(&next, limits); err == nil {
			t.Fatal("a wrong limit was put in force")
		}
		if status, _ := r.ask("/plain/x", "secret-a"); status != 200 {
			t.Fatalf("a key of the configuration in force: %d", status)
		}
	})
}

// TestReloadPage: POST only, with the admin token, and the mistakes are told.
func TestReloadPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "server: {admin_token: admin-secret}\n", nil)
		wrong, waiting := error(nil), []string(nil)
		r.opts.Reload = func() ([]string, error) { return waiting, wrong }
		r.admin = r.adminEdge()
		for _, c := range []struct {
			method, token string
			wrong         error
			waiting       []string
			status        int
			body          string
		}{
			{"POST", "admin-secret", nil, nil, 200, `{"reloaded":true}`},
			{"POST", "admin-secret", nil, []string{"redis.timeout", "server.listen"}, 200, `{"reloaded":true,"restart_pending":["redis.timeout","server.listen"]}`},
			{"POST", "admin-secret", errors.New("line 3: keys[0].id: is empty"), nil, 422, `{"reloaded":false,"error":"line 3: keys[0].id: is empty"}`},
			{"POST", "", nil, nil, 401, "invalid_admin_token"},
			{"GET", "admin-secret", nil, nil, 405, ""},
		} {
			wrong, waiting = c.wrong, c.waiting
			w := httptest.NewRecorder()
			req, _ := http.NewRequest(c.method, "http://admin.test/-/reload", nil)
			req.Header.Set("Authorization", "Bearer "+c.token)
			r.Admin().ServeHTTP(w, req)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.body) {
				t.Errorf("%s with %q: %d %s, want %d with %s", c.method, c.token, w.Code, w.Body, c.status, c.body)
			}
		}
	})
}

// TestReloadPageWithoutAFile says that there is none, to those whom it would obey.
func TestReloadPageWithoutAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "server: {admin_token: admin-secret}\n", nil)
		for token, want := range map[string]struct {
			status int
			body   string
		}{
			"admin-secret": {409, `{"reloaded":false,"error":"there is no configuration file to read again: this replica was started without one"}`},
			"":             {401, "invalid_admin_token"},
		} {
			w := httptest.NewRecorder()
			req, _ := http.NewRequest(http.MethodPost, "http://admin.test/-/reload", nil)
			req.Header.Set("Authorization", "Bearer "+token)
			r.Admin().ServeHTTP(w, req)
			if w.Code != want.status || !strings.Contains(w.Body.String(), want.body) {
				t.Errorf("with %q: %d %s, want %d with %s", token, w.Code, w.Body, want.status, want.body)
			}
		}
	})
}

// TestReloadFromElsewhere: without a token no page of another site reloads anything,
// programs do.
func TestReloadFromElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			settings, host, header, value string
			status                        int
			code                          string
		}{
			{"", "127.0.0.1:9090", "", "", 200, ""}, // curl
			{"", "localhost:9090", "Sec-Fetch-Site", "same-origin", 200, ""},
			{"", "127.0.0.1:9090", "Origin", "http://127.0.0.1:9090", 200, ""},
			{"", "127.0.0.1:9090", "Origin", "http://elsewhere.test", 403, "cross_site"},
			{"", "127.0.0.1:9090", "Sec-Fetch-Site", "cross-site", 403, "cross_site"},
			{"", "elsewhere.test", "Sec-Fetch-Site", "same-origin", 403, "foreign_host"},
			{"server: {admin_token: admin-secret}", "elsewhere.test", "Authorization", "Bearer admin-secret", 200, ""},
		} {
			r := newRig(t, c.settings, nil)
			reloaded := 0
			r.opts.Reload = func() ([]string, error) { reloaded++; return nil, nil }
			r.admin = r.adminEdge()
			req, _ := http.NewRequest(http.MethodPost, "http://"+c.host+"/-/reload", nil)
			if c.header != "" {
				req.Header.Set(c.header, c.value)
			}
			w := httptest.NewRecorder()
			r.Admin().ServeHTTP(w, req)
			if w.Code != c.status || !strings.Contains(w.Body.String(), c.code) || (reloaded == 1) != (c.status == 200) {
				t.Errorf("%+v: %d %s, reloaded %d times", c, w.Code, w.Body, reloaded)
			}
		}
	})
}
