package fleettest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Bounds of waiting for other processes. They are generous: a loaded machine
// is not what these tests are about. Bounds that are, stand in the tests.
const (
	startTimeout = 20 * time.Second
	poll         = 20 * time.Millisecond
)

// eventually waits until ok holds and fails the test if it does not in time.
// It returns how long that took.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for !ok() {
		if time.Since(start) > within {
			t.Fatalf("%s: not within %v", what, within)
		}
		<-ticker.C
	}
	return time.Since(start)
}

// replica is one `headway serve` process.
type replica struct {
	cmd    *exec.Cmd
	log    string        // file of its standard error
	exited chan struct{} // closed when it has ended
	url    string        // of its API
	admin  string        // of its admin listener
	gossip string        // host:port, empty without gossip
}

// startReplica starts a replica with the configuration and waits until it
// listens, on ports it picked itself. It is killed with the test at the latest.
func startReplica(t *testing.T, config string) *replica {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "headway.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &replica{log: filepath.Join(dir, "log"), exited: make(chan struct{})}
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // the process has its own handle
	r.cmd = exec.Command(headway, "serve", "--config", file)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.exited)
		r.cmd.Wait() // the tests read its state
	}()
	t.Cleanup(func() {
		r.kill()
		r.inspect(t)
	})
	eventually(t, startTimeout, "a replica listens", func() bool {
		select {
		case <-r.exited:
			t.Fatalf("the replica ended at its start: %v", r.cmd.ProcessState)
		default:
		}
		return r.addresses()
	})
	return r
}

// addresses reads from the log where the replica listens.
func (r *replica) addresses() bool {
	text, err := os.ReadFile(r.log)
	if err != nil {
		return false
	}
	for line := range bytes.Lines(text) {
		var entry struct{ Msg, Listen, Admin, Gossip string }
		if json.Unmarshal(line, &entry) == nil && entry.Msg == "replica started" {
			r.url, r.admin, r.gossip = entry.Listen, entry.Admin, entry.Gossip
			return true
		}
	}
	return false
}

// kill ends the process at once (SIGKILL), if it still runs.
func (r *replica) kill() {
	r.cmd.Process.Kill() // an error means that it has ended
	<-r.exited
}

// signal sends sig to a process that has to be running.
func (r *replica) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// inspect looks for races and panics in the log, and shows its end when the
// test has failed.
func (r *replica) inspect(t *testing.T) {
	text, err := os.ReadFile(r.log)
	if err != nil {
		t.Error(err)
		return
	}
	for _, bad := range []string{"WARNING: DATA RACE", "panic"} {
		if at := bytes.Index(text, []byte(bad)); at >= 0 {
			t.Errorf("the log of %s has:\n%s", r.url, text[at:min(len(text), at+4000)])
		}
	}
	if t.Failed() {
		t.Logf("the log of %s ends with:\n%s", r.url, text[max(0, len(text)-2000):])
	}
}

// fetch gets a page of the admin listener.
func (r *replica) fetch(t *testing.T, path string) (status int, body string) {
	t.Helper()
	res, err := client.Get(r.admin + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// ready reports whether the replica says that it is.
func (r *replica) ready(t *testing.T) bool {
	status, _ := r.fetch(t, "/readyz")
	return status == http.StatusOK
}

// metric reads one series, written as in the exposition format, without labels
// or with all of them. A series that is not there reads as 0.
func (r *replica) metric(t *testing.T, series string) float64 {
	t.Helper()
	_, text := r.fetch(t, "/metrics")
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			var f float64
			if _, err := fmt.Sscan(value, &f); err != nil {
				t.Fatalf("metric %s: %v", line, err)
			}
			return f
		}
	}
	return 0
}

// startFleet starts n replicas that gossip and share a store, and waits until
// each sees them all.
func startFleet(t *testing.T, n int, redis, provider, rest string) []*replica {
	t.Helper()
	return startFleetOf(t, n, func(join string) string { return configuration(redis, provider, join, rest) })
}

// startFleetOf is startFleet with the configurations that config returns, each of
// which joins the replica before; the first joins nobody.
func startFleetOf(t *testing.T, n int, config func(join string) string) []*replica {
	t.Helper()
	var fleet []*replica
	join := ""
	for range n {
		r := startReplica(t, config(join))
		fleet, join = append(fleet, r), r.gossip
	}
	eventually(t, startTimeout, "all replicas see each other and are ready", func() bool {
		for _, r := range fleet {
			if r.metric(t, "headway_fleet_members") != float64(n) || !r.ready(t) {
				return false
			}
		}
		return true
	})
	return fleet
}

// key is the API key that the tests use.
const key = "sk-test"

// configuration is that of one replica; rest is its rate_limiting section and
// what else the test sets on the top level.
func configuration(redis, provider, join, rest string) string {
	if join != "" {
		join = fmt.Sprintf(", join: [%q]", join)
	}
	return fmt.Sprintf(`
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0"}
fleet: {bind: "127.0.0.1:0"%s}
keys: [{id: test, key: %s, user: test}]
upstreams: [{name: provider, url: %q}]
routes: [{path: "/v1/*", upstream: provider}]
`, join, key, provider) + strings.ReplaceAll(rest, "REDIS", redis)
}
