package replica

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// TestWatchTellsOfALostFile: once, after a second, and then it is read again however
// it comes back; a file that is away for less is renamed.
func TestWatchTellsOfALostFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	synctest.Test(t, func(t *testing.T) {
		w := watch{file: file}
		w.changed()
		stop, done := make(chan struct{}), make(chan struct{})
		var read, lost atomic.Int64
		go func() {
			w.run(stop, func() { read.Add(1) }, func(error) { lost.Add(1) })
			close(done)
		}()
		expect := func(what string, after time.Duration, reads, losses int64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if r, l := read.Load(), lost.Load(); r != reads || l != losses {
				t.Errorf("%s: read %d times and lost %d times, want %d and %d", what, r, l, reads, losses)
			}
		}
		expect("nothing happens", 5*time.Second+pollEvery/2, 0, 0)
		os.Remove(file)
		expect("renamed", 3*pollEvery, 0, 0)
		write("a")
		expect("as it was", time.Minute, 0, 0)
		os.Remove(file)
		expect("just gone", pollEvery*time.Duration(goneAfter-1), 0, 0)
		expect("gone for a second", pollEvery, 0, 1)
		expect("gone for long", time.Minute, 0, 1)
		write("a")
		expect("back as it was", time.Second, 1, 1)
		write("bb")
		expect("changed", time.Second, 2, 1)
		close(stop)
		<-done
	})
}

// TestLostFileShows: in the log and as headway_config_last_reload_successful, until
// it is back.
func TestLostFileShows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headway.yaml")
	const text = `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0", drain: {delay: 0s}}
anonymous: true
upstreams: [{name: u, url: "http://127.0.0.1:1"}]
routes: [{path: "/*", upstream: u}]
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func() (*config.Config, error) { return config.Load(file) }
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	var log safeBuffer
	r, err := Start(t.Context(), cfg, Options{File: file, Load: load, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Shutdown(context.Background())
	is := func(want float64) func() bool {
		return func() bool { return testutil.ToFloat64(r.reloads.metrics.successful) == want }
	}
	if !is(1)() {
		t.Fatal("the configuration it started with counts as wrong")
	}
	os.Remove(file)
	storetest.Eventually(t, 20*time.Second, "the lost file shows", is(0))
	if !strings.Contains(log.String(), "the configuration file cannot be read") {
		t.Errorf("the log does not say so: %s", log.String())
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, 20*time.Second, "it is back", is(1))
}

// TestReloadWithoutAFile: SIGHUP has no other answer than the log.
func TestReloadWithoutAFile(t *testing.T) {
	cfg, err := config.Parse([]byte(`
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0", drain: {delay: 0s}}
anonymous: true
upstreams: [{name: u, url: "http://127.0.0.1:1"}]
routes: [{path: "/*", upstream: u}]
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var log safeBuffer
	r, err := Start(t.Context(), cfg, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Shutdown(context.Background())
	if err := r.Reload(); err != errNoFile || !strings.Contains(log.String(), errNoFile.Error()) {
		t.Errorf("got %v, and the log %s", err, log.String())
	}
	if testutil.ToFloat64(r.reloads.metrics.successful) != 1 {
		t.Error("what it was started with counts as wrong")
	}
}
