package gossip

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestLoopback is the one test on real sockets: bound to free ports, joined by
// address and by name, encrypted.
func TestLoopback(t *testing.T) {
	quiet := slog.New(slog.NewTextHandler(&logs{}, nil))
	start := func(join ...string) *Node {
		n, err := Start(Config{Bind: "127.0.0.1:0", Join: join, Keys: [][]byte{bytes.Repeat([]byte{7}, 32)}, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	a := start()
	b := start(a.Addr())
	c := start(strings.Replace(a.Addr(), "127.0.0.1", "localhost", 1))
	if a.Name() == b.Name() || a.Name() == "" {
		t.Errorf("names %q and %q", a.Name(), b.Name())
	}
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !all([]*Node{a, b, c}, 3)() {
		select {
		case <-deadline:
			t.Fatalf("members %d %d %d", a.Members(), b.Members(), c.Members())
		case <-tick.C:
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, n := range []*Node{c, b, a} {
		if err := n.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func TestStartRefuses(t *testing.T) {
	free, err := Start(Config{Bind: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close(dead)
	reg := prometheus.NewRegistry()
	if _, err := newMetrics(reg); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		cfg  Config
		want []string
	}{
		{"no bind", Config{}, []string{`gossip: bind: "" is not host:port`}},
		{"bind without port", Config{Bind: "127.0.0.1"}, []string{`"127.0.0.1" is not host:port`}},
		{"bind with a named port", Config{Bind: "127.0.0.1:http"}, []string{"port is not a number"}},
		{"everything wrong", Config{
			Name: strings.Repeat("x", 200), Bind: "127.0.0.1:0", Advertise: ":5", Join: []string{"a:1", "b", "c:0"},
			Keys: [][]byte{make([]byte, 16), make([]byte, 5)}, RejoinMin: 2, RejoinMax: 1,
		}, []string{"name of 200 bytes, at most 128", `advertise ":5"`, `join: "b"`, `join: "c:0"`, "key 2 has 5 bytes, want 16, 24 or 32", "rejoin 2ns to 1ns"}},
		{"port in use", Config{Bind: free.Addr()}, []string{"gossip: listen on " + free.Addr()}},
		{"metrics taken", Config{Bind: "127.0.0.1:0", Registerer: reg}, []string{"gossip: metrics"}},
		{"unknown host", Config{Bind: "no.such.host.invalid:0"}, []string{"gossip: bind"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Logger = slog.New(slog.DiscardHandler)
			n, err := Start(tt.cfg)
			if err == nil {
				n.Close(dead)
				t.Fatal("started")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

// TestLog checks that memberlist's lines keep their level and lose their stamps.
func TestLog(t *testing.T) {
	tests := []struct{ line, level, msg string }{
		{"2026/01/01 00:00:00 [DEBUG] memberlist: Stream connection from=1.2.3.4\n", "DEBUG", "gossip: memberlist: Stream connection from=1.2.3.4"},
		{"2026/01/01 00:00:00 [WARN] memberlist: Refuting [x]\n", "WARN", "gossip: memberlist: Refuting [x]"},
		{"2026/01/01 00:00:00 [ERR] memberlist: Failed\n", "WARN", "gossip: memberlist: Failed"},
		{"[ERR] Failed to shutdown transport: x\n", "WARN", "gossip: memberlist: Failed to shutdown transport: x"},
		{"something else [odd] text\n", "INFO", "gossip: memberlist: something else [odd] text"},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		n, err := logWriter{untimed(&out)}.Write([]byte(tt.line))
		if n != len(tt.line) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
		if want := fmt.Sprintf("level=%s msg=%q\n", tt.level, tt.msg); out.String() != want {
			t.Errorf("%q became %q, want %q", tt.line, out.String(), want)
		}
	}
}

// untimed logs to w, without time stamps.
func untimed(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// TestPause: attempts are eager while they can help and spread out otherwise.
func TestPause(t *testing.T) {
	alone := &Node{cfg: Config{RejoinMin: 8 * time.Second, RejoinMax: 16 * time.Second}}
	joined := &Node{cfg: alone.cfg, peers: map[string]string{"a": "b"}}
	tests := []struct {
		name      string
		n         *Node
		hurried   int
		low, high time.Duration
	}{
		{"alone", alone, 0, 500 * time.Millisecond, 1500 * time.Millisecond},
		{"member", joined, 0, 8 * time.Second, 16 * time.Second},
		{"contact made", joined, 1, 500 * time.Millisecond, 1500 * time.Millisecond},
		{"contact made again and again", joined, 6, 8 * time.Second, 16 * time.Second},
	}
	for _, tt := range tests {
		least, most := time.Hour, time.Duration(0)
		for range 1000 {
			p := tt.n.pause(tt.hurried)
			least, most = min(least, p), max(most, p)
		}
		if spread := (tt.high - tt.low) / 2; least < tt.low || most > tt.high || most-least < spread {
			t.Errorf("%s: pauses from %v to %v, want them spread over %v to %v", tt.name, least, most, tt.low, tt.high)
		}
	}
}

// A name that does not resolve yet makes Start fail, and leaves nothing behind that
// would make the next try fail, too.
func TestStartCanBeTriedAgain(t *testing.T) {
	quiet, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	cfg := Config{Bind: "127.0.0.1:0", Advertise: "no such host:7946", Logger: quiet, Registerer: registry}
	if _, err := Start(cfg); err == nil {
		t.Fatal("advertised a name that does not resolve")
	}
	cfg.Advertise = ""
	n, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Close(context.Background())
}
