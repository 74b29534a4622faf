package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/bench"
)

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		exit int
		says string // on stdout when exit is 0, else on stderr
	}{
		{"", exitOK, "Usage:"},
		{"--help", exitOK, "headway-bench upstream"},
		{"upstream --help", exitOK, "Examples:"},
		{"version", exitOK, "headway-bench "},
		{"--version", exitOK, "headway-bench "},
		{"completion bash", exitOK, "bash completion"},
		{"nonsense", exitUsage, "nonsense"},
		{"upstream stray", exitUsage, "stray"},
		{"upstream --no-such-flag", exitUsage, "no-such-flag"},
		{"upstream --latency fast", exitUsage, "fast"},
		{"upstream --quota 5", exitUsage, "600/1m"},
		{"upstream --fault burn:1", exitUsage, "burn"},
		{"upstream --dialect x", exitUsage, `"x"`},
		{"upstream --window 0s", exitUsage, "window"},
		{"upstream --listen 256.0.0.1:0", exitFailed, "provider"},
	} {
		var stdout, stderr bytes.Buffer
		if got := run(t.Context(), strings.Fields(c.args), &stdout, &stderr); got != c.exit {
			t.Errorf("%q exits %d, want %d; stderr %s", c.args, got, c.exit, &stderr)
		}
		text := stderr.String()
		if c.exit == exitOK {
			text = stdout.String()
		}
		if !strings.Contains(text, c.says) {
			t.Errorf("%q does not say %q but\n%s", c.args, c.says, text)
		}
	}
}

// upstream runs the command, calls its provider once and ends it; it returns
// the first line and the rest of what was printed.
func upstream(t *testing.T, args ...string) (first, rest string) {
	t.Helper()
	ctx, signal := context.WithCancel(t.Context())
	defer signal()
	out, in := io.Pipe()
	exit := make(chan int, 1)
	go func() {
		exit <- run(ctx, append([]string{"upstream"}, args...), in, io.Discard)
		in.Close()
	}()
	lines := bufio.NewReader(out)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.Trim(first[strings.Index(first, "http"):], "\"}\n")
	resp, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(`{"user":"ann","model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	signal()
	data, err := io.ReadAll(lines)
	if code := <-exit; err != nil || code != exitOK {
		t.Fatalf("exit %d, error %v, want 0 and none", code, err)
	}
	return first, string(data)
}

func TestUpstreamJSON(t *testing.T) {
	first, rest := upstream(t, "--json", "--tokens", "4")
	var begin struct{ URL string }
	if err := json.Unmarshal([]byte(first), &begin); err != nil || begin.URL == "" {
		t.Errorf("first line %q: %v", first, err)
	}
	var s bench.Snapshot
	if err := json.Unmarshal([]byte(rest), &s); err != nil {
		t.Fatalf("ledger %q: %v", rest, err)
	}
	if s.Tenants["ann"].Starts != 1 || s.Models["m"].Cost != 5 || s.Total.InFlight != 0 {
		t.Errorf("ledger %s, want one start of ann, cost 5", rest)
	}
}

func TestUpstreamText(t *testing.T) {
	first, rest := upstream(t)
	if !strings.HasPrefix(first, "simulated provider on http://127.0.0.1:") {
		t.Errorf("first line %q", first)
	}
	for _, want := range []string{"tenant \"ann\"", "model \"m\"", "0 refused by its own quota"} {
		if !strings.Contains(rest, want) {
			t.Errorf("ledger does not say %q but\n%s", want, rest)
		}
	}
}
