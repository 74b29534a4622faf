package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
)

// TestFirstLookTellsItsLevels: answers tell the levels of keys alone, so the limit
// that a first look runs into has to be one of keys, and nothing else to limit.
func TestFirstLookTellsItsLevels(t *testing.T) {
	cfg, end, err := firstLook(slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if l := cfg.RateLimiting.PerAPIKey.Requests; l == nil || l.Limit != 5 || l.Burst != 10 {
		t.Errorf("per_api_key has requests %+v, want 5/s and a burst of 10, as README says", l)
	}
	if w := cfg.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %v", w)
	}
}

// TestTakenPortWithoutAConfiguration: the fix is a file, for there is none in which
// another port could be written.
func TestTakenPortWithoutAConfiguration(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, listen := range []string{"listen: %q", `listen: "127.0.0.1:0", admin_listen: %q`} {
		cfg, err := config.Parse(fmt.Appendf(nil, "server: {"+listen+"}\n"+rightConfig, taken.Addr().String()), nil)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]bool{"": true, "headway.yaml": false} {
			err := serve(t.Context(), cfg, path, slog.New(slog.NewTextHandler(io.Discard, nil)))
			if err == nil {
				t.Fatal("served on a taken port")
			}
			if got := strings.Contains(err.Error(), "write a headway.yaml with server.listen: "); got != want {
				t.Errorf("with the file %q: %v", path, err)
			}
		}
	}
}

// TestLoggedDurationsHaveUnits: also in groups and among the logger's own attributes.
func TestLoggedDurationsHaveUnits(t *testing.T) {
	var out bytes.Buffer
	newLogger(&out).With("own", time.Minute).Info("x", "pause", time.Second, slog.Group("g", "wait", 1500*time.Millisecond), "n", 7)
	for _, want := range []string{`"own":"1m0s"`, `"pause":"1s"`, `"wait":"1.5s"`, `"n":7`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s lacks %s", out.String(), want)
		}
	}
}
