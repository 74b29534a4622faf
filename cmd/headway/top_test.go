package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/gateway/console"
)

// One frame of a real replica, and what is said where there is none or where it
// wants a token.
func TestTop(t *testing.T) {
	o := demoOptions{replicas: 2, scenario: "even", limit: 80, burst: 20, tenantCap: 16, latency: "5ms", balance: "round_robin", scope: "exact"}
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	d, err := startDemo(t.Context(), o, io.Discard)
	defer d.close()
	if err != nil {
		t.Fatal(err)
	}
	code, out, stderr := headway("top", "--once", "--admin", d.replicas[0].AdminURL())
	for _, want := range []string{"headway top  demo-", "ready\nmembers 2   store up (standalone)\nrunning 0   waiting 0 of 4096   admitted 0.0/s"} {
		if code != exitOK || !strings.Contains(out, want) || strings.Contains(out, "\x1b") {
			t.Errorf("exit %d, want a frame with %q, got\n%s%s", code, want, out, stderr)
		}
	}
	locked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer right" {
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"error":{"message":"Sign in."}}`)
			return
		}
		io.WriteString(w, "{}")
	}))
	defer locked.Close()
	t.Setenv("HEADWAY_TEST_TOKEN", "right")
	t.Setenv("HEADWAY_ADMIN_TOKEN", "")
	for _, test := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, "is not like http", []string{"--admin", "localhost"}},
		{exitUsage, "would be seen", []string{"--admin-token", "right"}},
		{exitUsage, "Sign in. (status 401); the admin token (server.admin_token) is taken from HEADWAY_ADMIN_TOKEN, which is not set; --admin-token", []string{"--admin", locked.URL}},
		{exitUsage, "the variable NOPE is not set", []string{"--admin", locked.URL, "--admin-token", "${NOPE}"}},
		{exitFailed, "with server.console on?", []string{"--admin", d.replicas[0].URL()}},
		{exitOK, "members 0", []string{"--admin", locked.URL, "--admin-token", "${HEADWAY_TEST_TOKEN}"}},
		{exitFailed, "nothing listens on 127.0.0.1:1; --admin is", []string{"--admin", "http://127.0.0.1:1"}},
	} {
		code, out, stderr := headway(append([]string{"top", "--once"}, test.args...)...)
		if code != test.code || !strings.Contains(out+stderr, test.want) {
			t.Errorf("top %q: exit %d, want %d and %q: %s%s", test.args, code, test.code, test.want, out, stderr)
		}
	}
}

// What a frame says of two looks, and that nothing in it moves a cursor.
func TestTopFrame(t *testing.T) {
	at := time.Unix(1000, 0)
	tenant := func(received float64, refused uint64) console.Tenants {
		return console.Tenants{List: []console.Tenant{
			{ID: strings.Repeat("b", 32), Name: "web\x1b[2J", Weight: 3, Entitled: received + 2, Received: received, Waiting: 2, Elsewhere: 3, Refused: refused},
			{ID: strings.Repeat("a", 32), Weight: 1},
		}}
	}
	before := console.Live{Overview: console.Overview{At: at, Decisions: map[string]int64{"admitted": 10}}, Tenants: tenant(10, 1)}
	now := console.Live{
		Overview: console.Overview{
			At: at.Add(2 * time.Second), Replica: "r1", Decisions: map[string]int64{"admitted": 30, "refused": 4, "overloaded": 1},
			Fleet: console.Fleet{Members: 3}, Store: console.Store{State: "timeout"}, Reasons: []string{"store: timeout"},
			Providers: []console.Provider{{Upstream: "openai", Model: "gpt", State: "paused", UntilMS: 1500, Quotas: []console.Quota{
				{Unit: "requests", Limit: 100, Left: 90}, {Unit: "tokens", Limit: 1000, Left: 10},
			}}},
		},
		Tenants: tenant(30, 5),
		Queues:  console.Queues{Lines: []console.Line{{Dimension: "model", ID: "x", Name: "gpt", Waiting: 2, Elsewhere: 3, SpacingMS: 50, Tenants: []console.LineTenant{{Position: 1, WaitedMS: 1200}}}}},
		Agents:  console.Agents{List: []console.Agent{{Name: "gpu", Slots: 4, Here: 1, Fleet: 3}}},
	}
	frame := strings.Join(topLines(&terminal{width: func() int { return 100 }}, before, now), "\n")
	for _, want := range []string{
		"not ready: store: timeout", "members 3 not all heard of   store timeout", "admitted 10.0/s   refused 2.5/s",
		"web?[2J         3        10.0        10.0        5        2.0        5", "aaaaaaaa…",
		"model gpt     2          3            50ms         1.2s", "gpu        3     1      4        0  failing",
		"openai gpt  paused 1.5s    10  1000  tokens",
	} {
		if !strings.Contains(frame, want) {
			t.Errorf("the frame lacks %q:\n%s", want, frame)
		}
	}
	if strings.Contains(frame, "\x1b") {
		t.Errorf("a name moves the cursor: %q", frame)
	}
}

// What is no terminal gets one frame after the other, and no sequences.
func TestFramesInAFile(t *testing.T) {
	var file strings.Builder
	screen := newTerminal(&file, true)
	screen.draw([]string{"one"})
	screen.draw([]string{"two", "lines"})
	if got := file.String(); got != "one\ntwo\nlines\n" {
		t.Errorf("a file has %q", got)
	}
	file.Reset()
	screen.live = true
	screen.draw([]string{"three"})
	if got := file.String(); got != "\x1b[2A\r"+clearBelow+"three\n" {
		t.Errorf("a terminal is sent %q", got)
	}
}
