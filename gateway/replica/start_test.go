package replica

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// TestStartClosesWhatItOpened: whatever cannot be opened, Start says so and
// leaves nothing behind.
func TestStartClosesWhatItOpened(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for what, text := range map[string]string{
		"fleet.bind":                "fleet: {bind: %q}\nredis: {mode: standalone, address: \"127.0.0.1:1\"}",
		"server.listen":             "server: {listen: %q}",
		"server.admin_listen":       "server: {listen: \"127.0.0.1:0\", admin_listen: %q}",
		"rate_limit_service.listen": "rate_limit_service: {listen: %q}",
	} {
		text = fmt.Sprintf(text, taken.Addr().String()) + `
anonymous: true
upstreams: [{name: u, url: "http://127.0.0.1:1"}]
routes: [{path: "/*", upstream: u}]
`
		cfg, err := config.Parse([]byte(text), os.LookupEnv)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if r, err := Start(context.Background(), cfg, Options{}); err == nil {
			t.Errorf("%s: started on a taken port", what)
			r.Shutdown(context.Background())
		} else if !strings.Contains(err.Error(), "replica: "+what+": ") || !strings.HasSuffix(err.Error(), "; end what listens there, or write another port") {
			t.Errorf("%s: got %v, want the field and a fix", what, err)
		}
	}
}

// TestStopWithoutAStore: a store that is away, or refuses, is no reason for a stop to
// fail; what could not be given back is told.
func TestStopWithoutAStore(t *testing.T) {
	locked := redisproc.Start(t)
	locked.Do("CONFIG", "SET", "requirepass", "hunter2")
	for name, c := range map[string]struct{ addr, why string }{
		"away":        {"127.0.0.1:1", "connection refused"},
		"no password": {locked.Addr(), "redis.password"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := config.Parse(fmt.Appendf(nil, `
server: {listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0", drain: {delay: 0s}}
redis: {mode: standalone, address: %q}
fleet: {bind: "127.0.0.1:0"}
anonymous: true
upstreams: [{name: u, url: "http://127.0.0.1:1"}]
routes: [{path: "/*", upstream: u}]
`, c.addr), os.LookupEnv)
			if err != nil {
				t.Fatal(err)
			}
			var log safeBuffer
			r, err := Start(t.Context(), cfg, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Shutdown(context.Background()); err != nil {
				t.Errorf("got %v, want a clean stop", err)
			}
			if text := log.String(); !strings.Contains(text, "the store could not be told") || !strings.Contains(text, c.why) {
				t.Errorf("the log names no slots, or not %q:\n%s", c.why, text)
			}
		})
	}
}

// TestEmbeddedStoreIsGivenTime: it runs scripts in this process, and the first of a
// busy machine took longer than the 50 ms that a server has by default.
func TestEmbeddedStoreIsGivenTime(t *testing.T) {
	for _, c := range []struct {
		redis config.Redis
		want  time.Duration
	}{
		{config.Redis{Mode: config.ModeEmbedded, Timeout: 50 * time.Millisecond}, time.Second},
		{config.Redis{Mode: config.ModeEmbedded, Timeout: 2 * time.Second}, 2 * time.Second},
		{config.Redis{Mode: config.ModeStandalone, Timeout: 50 * time.Millisecond}, 50 * time.Millisecond},
	} {
		if got := storeTimeout(c.redis); got != c.want {
			t.Errorf("%s with %v: %v, want %v", c.redis.Mode, c.redis.Timeout, got, c.want)
		}
	}
}
