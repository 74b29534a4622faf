package fleettest

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

const reloadConfig = `
redis: {mode: standalone, address: "REDIS", timeout: 2s}
rate_limiting:
  per_api_key: {requests: {limit: 400, per: 24h}}
`

// file is the configuration that the replica was started with.
func (r *replica) file() string { return filepath.Join(filepath.Dir(r.log), "headway.yaml") }

// edit replaces text in the configuration as an editor does: by a rename.
func (r *replica) edit(t *testing.T, pairs ...string) {
	t.Helper()
	text, err := os.ReadFile(r.file())
	if err != nil {
		t.Fatal(err)
	}
	next := strings.NewReplacer(pairs...).Replace(string(text))
	if next == string(text) {
		t.Fatalf("nothing in the configuration is %q", pairs[0])
	}
	r.replace(t, func(name string) error { return os.WriteFile(name, []byte(next), 0o600) })
}

// replace puts what write makes in the place of the configuration.
func (r *replica) replace(t *testing.T, write func(name string) error) {
	t.Helper()
	name := r.file() + ".new"
	if err := write(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name, r.file()); err != nil {
		t.Fatal(err)
	}
}

// logged counts the lines of the log that have all parts.
func (r *replica) logged(t *testing.T, parts ...string) (n int) {
	t.Helper()
	text, err := os.ReadFile(r.log)
	if err != nil {
		t.Fatal(err)
	}
lines:
	for line := range strings.Lines(string(text)) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		n++
	}
	return n
}

// limits waits until every replica answers with a limit, and returns how long that
// took. Waiting costs what the replicas admit.
func limits(t *testing.T, fleet []*replica, want string) time.Duration {
	t.Helper()
	return eventually(t, 5*time.Second, "every replica has a limit of "+want, func() bool {
		for _, r := range fleet {
			if a := ask(t.Context(), r, 0); a.header.Get("x-ratelimit-limit-requests") != want {
				return false
			}
		}
		return true
	})
}

// TestReloadOfARunningFleet changes the files of replicas that serve: by rename, in
// place and through a swapped symbolic link.
func TestReloadOfARunningFleet(t *testing.T) {
	redis, provider := redisproc.Start(t), startProvider(t)
	fleet := startFleet(t, 2, redis.Addr(), provider.URL, reloadConfig)
	limits(t, fleet, "400")

	// Half of the level is left in half of the bucket, on every replica.
	for range 150 {
		ask(t.Context(), fleet[0], 0)
	}
	for _, r := range fleet {
		r.edit(t, "limit: 400", "limit: 100")
	}
	t.Logf("lowered by rename: in force after %v", limits(t, fleet, "100"))
	if a := ask(t.Context(), fleet[1], 0); a.status != http.StatusOK {
		t.Errorf("three fifths of the larger bucket were left: %v", a)
	}
	refused := 0
	for range 70 {
		if ask(t.Context(), fleet[1], 0).status == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 {
		t.Error("a bucket of 100, of which two fifths were used, let through 70 and more")
	}

	// One replica differs: all see it. Its file is written in place.
	text, err := os.ReadFile(fleet[0].file())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(fleet[0].file(), []byte(strings.Replace(string(text), "limit: 100", "limit: 90", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	limits(t, fleet[:1], "90")
	drift := func(n float64) {
		eventually(t, 5*time.Second, "all replicas know of the drift", func() bool {
			return fleet[0].metric(t, "headway_fleet_configurations") == n && fleet[1].metric(t, "headway_fleet_configurations") == n
		})
	}
	drift(2)

	// As Kubernetes mounts a ConfigMap: the file is a link through a directory that
	// is a link, which is swapped.
	dir := filepath.Dir(fleet[0].file())
	version := func(name, limit string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "headway.yaml"), []byte(strings.Replace(string(text), "limit: 100", limit, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", "limit: 90")
	version("..2", "limit: 100")
	if err := os.Symlink("..1", filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	fleet[0].replace(t, func(name string) error { return os.Symlink("..data/headway.yaml", name) })
	if err := os.Symlink("..2", filepath.Join(dir, "..next")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	t.Logf("swapped: in force after %v", limits(t, fleet, "100"))
	drift(1)
}

// TestReloadOnDemand: a signal and a request read the file again; a wrong file
// changes nothing, and what needs a restart is named.
func TestReloadOnDemand(t *testing.T) {
	redis, provider := redisproc.Start(t), startProvider(t)
	fleet := startFleet(t, 1, redis.Addr(), provider.URL, reloadConfig)
	r := fleet[0]
	const inForce = `"configuration in force"`
	r.signal(t, syscall.SIGHUP)
	eventually(t, 5*time.Second, "a hangup reads the file", func() bool { return r.logged(t, inForce) == 1 })
	post := func() (int, string) {
		res, err := client.Post(r.admin+"/-/reload", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	if status, body := post(); status != http.StatusOK || r.logged(t, inForce) != 2 {
		t.Errorf("POST /-/reload: %d %s", status, body)
	}

	r.edit(t, "limit: 400", "limit: -3", "path:", "pat:")
	eventually(t, 5*time.Second, "a wrong file is told", func() bool {
		return r.metric(t, "headway_config_last_reload_successful") == 0 && r.logged(t, "stays", "limit", "-3", "pat") > 0
	})
	if status, body := post(); status != http.StatusUnprocessableEntity || !strings.Contains(body, "-3") {
		t.Errorf("POST /-/reload of a wrong file: %d %s", status, body)
	}
	limits(t, fleet, "400")

	r.edit(t, "limit: -3", "limit: 300", "pat:", "path:", "timeout: 2s", "timeout: 3s", "sk-test", "sk-other")
	eventually(t, 5*time.Second, "a right file is in force", func() bool {
		return r.metric(t, "headway_config_last_reload_successful") == 1
	})
	if a := ask(t.Context(), r, 0); a.status != http.StatusUnauthorized {
		t.Errorf("a key that is gone: %v", a)
	}
	if r.logged(t, "restart needed", "redis.timeout") != 1 || r.metric(t, "headway_config_restart_pending_fields") != 1 {
		t.Error("a store timeout that waits for a restart is not named")
	}
}
