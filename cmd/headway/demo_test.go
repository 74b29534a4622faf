package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/gateway/config"
)

func TestDemoUsage(t *testing.T) {
	for args, says := range map[string]string{
		"--replicas 0":            "--replicas 0",
		"--replicas 99":           "--replicas 99",
		"--duration -1s":          "--duration -1s",
		"--scenario quiet":        `"quiet" is not one of even, heavy-tenant`,
		"--limit 500":             "give --redis",
		"--rate 500":              "give --redis",
		"--limit 0":               "--limit 0",
		"--latency slow":          "--latency",
		"--balance best":          "--balance",
		"--scope wide":            `"wide" is not replica, gossip or exact`,
		"--rate -5 --replicas 99": "--rate -5",
		"stray":                   "stray",
	} {
		var stdout, stderr bytes.Buffer
		if got := run(t.Context(), append([]string{"demo"}, strings.Fields(args)...), &stdout, &stderr); got != exitUsage {
			t.Errorf("demo %s exits %d, want %d", args, got, exitUsage)
		}
		if !strings.Contains(stderr.String(), says) || stdout.Len() > 0 {
			t.Errorf("demo %s: stderr %q does not say %q, or stdout is not empty: %q", args, &stderr, says, &stdout)
		}
	}
}

func TestScenariosAreValidConfigurations(t *testing.T) {
	for name, s := range scenarios {
		o := demoOptions{scenario: name, limit: 80, burst: 20, tenantCap: 16, rate: s.rate, scope: "exact"}
		cfg, err := config.Parse([]byte(demoConfig(o, "run", "127.0.0.1:1", "http://127.0.0.1:2")), os.LookupEnv)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if w := cfg.Warnings(); len(w) > 0 {
			t.Errorf("%s: warnings %v", name, w)
		}
		loads := s.loads(o, "run")
		var sum float64
		for i, l := range loads {
			sum += l.Rate
			if config.Digest(l.Key) != cfg.Keys[i].Digest {
				t.Errorf("%s: the key of %s is not that of the configuration", name, l.Tenant)
			}
		}
		if len(loads) != 4 || sum < s.rate*0.999 || sum > s.rate*1.001 {
			t.Errorf("%s: %d tenants offer %v, want 4 and %v", name, len(loads), sum, s.rate)
		}
	}
}

// runDemoFor runs the program and returns its report.
func runDemoFor(t *testing.T, args ...string) (r bench.Report, stderr string) {
	t.Helper()
	var stdout, logs bytes.Buffer
	if code := run(t.Context(), append([]string{"demo"}, args...), &stdout, &logs); code != exitOK {
		t.Fatalf("exit %d; stderr %s", code, &logs)
	}
	dec := json.NewDecoder(&stdout)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatalf("report: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Errorf("stdout holds more than one object")
	}
	return r, logs.String()
}

// TestDemo runs a whole fleet for a moment. What the judge counts has to be
// right at any length and on any machine.
func TestDemo(t *testing.T) {
	begin := time.Now()
	// A quarter of the usual load: the race detector makes the store slow.
	r, logs := runDemoFor(t, "--duration", "4s", "--json", "--limit", "15", "--burst", "5", "--rate", "50")
	if r.Replicas != 3 || len(r.Members) != 3 || r.Redis != "embedded" || r.DurationS != 4 {
		t.Errorf("%d replicas, members %v, redis %s, %vs", r.Replicas, r.Members, r.Redis, r.DurationS)
	}
	j := r.Judge
	if !j.OK() || j.Admitted == 0 || j.InflightCap != 32 || j.PeakInflight == 0 {
		t.Errorf("judge %+v", j)
	}
	if took := time.Since(begin).Seconds(); j.Allowed < 5 || j.Allowed > 5+15*took {
		t.Errorf("allowed %v, want at most 5 + 15 × %vs", j.Allowed, took)
	}
	var admitted int64
	var entitled, received float64
	for _, x := range r.Tenants {
		admitted, entitled, received = admitted+x.Admitted, entitled+x.EntitledShare, received+x.ReceivedShare
	}
	if admitted != j.Admitted || entitled < 0.99 || entitled > 1.01 || received < 0.99 || received > 1.01 {
		t.Errorf("tenants sum up to %d admitted of %d, shares %v and %v", admitted, j.Admitted, entitled, received)
	}
	if r.Tenants[0].Refused == 0 || r.RedisCallsPerGrant <= 0 {
		t.Errorf("the importer had %d refused, %v redis calls per grant", r.Tenants[0].Refused, r.RedisCallsPerGrant)
	}
	checkShares(t, r)
	for _, want := range []string{"replica 3", "/ledger", "received/entitled"} {
		if !strings.Contains(logs, want) {
			t.Errorf("stderr does not say %q but\n%s", want, logs)
		}
	}
}

// checkShares checks that nobody was lost and shares point the right way after
// a few seconds. They say something only if the limit was used up: a machine
// that stalls refuses for want of the store, and collects a burst again and
// again, which goes to whoever comes first.
func checkShares(t *testing.T, r bench.Report) {
	t.Helper()
	if r.Judge.OverAdmissionRatio < 0.95 {
		t.Logf("not used up (%v): shares are not judged", r.Judge.OverAdmissionRatio)
		return
	}
	if !slices.Equal(r.Members, []int{3, 3, 3}) {
		t.Errorf("members %v at the end", r.Members)
	}
	for _, x := range r.Tenants {
		if x.Admitted == 0 || x.WaitMS.Max < x.WaitMS.P50 {
			t.Errorf("tenant %+v", x)
		}
	}
	if importer, gold := r.Tenants[0], r.Tenants[1]; gold.Admitted <= importer.Admitted || r.Jain < 0.9 {
		t.Errorf("gold (weight 3) got %d, the importer %d, Jain %v", gold.Admitted, importer.Admitted, r.Jain)
	}
}

func TestDemoEndsWhenInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, in := io.Pipe()
	code := make(chan int, 1)
	var stdout bytes.Buffer
	go func() {
		code <- run(ctx, []string{"demo", "--replicas", "1", "--scenario", "even"}, &stdout, in)
		in.Close()
	}()
	// The first periodic line shows that load is under way.
	seen := make([]byte, 0, 4096)
	for buf := make([]byte, 512); !strings.Contains(string(seen), "admitted"); {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("ended too early: %s", seen)
		}
		seen = append(seen, buf[:n]...)
	}
	interrupt()
	rest, err := io.ReadAll(out)
	if err != nil || !strings.Contains(string(rest), "fairness Jain index") {
		t.Errorf("no report for people at the end: %s, %v", rest, err)
	}
	var r bench.Report
	if got := <-code; got != exitOK || json.Unmarshal(stdout.Bytes(), &r) != nil || r.Judge.Admitted == 0 {
		t.Errorf("exit %d, report %s", got, &stdout)
	}
}

func TestDemoSaysThatRedisIsMissing(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"demo", "--redis", "127.0.0.1:1", "--duration", "1s"}, &stdout, &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "redis at 127.0.0.1:1") || stdout.Len() > 0 {
		t.Errorf("exit %d, stderr %s, stdout %s", code, &stderr, &stdout)
	}
}

func TestLiveView(t *testing.T) {
	o := demoOptions{replicas: 2, scenario: "heavy-tenant", limit: 80, burst: 20, tenantCap: 16, latency: "5ms", balance: "round_robin", scope: "replica"}
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	d, err := startDemo(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	d.begin = time.Now()
	var screen bytes.Buffer
	v := &view{terminal{out: &screen, live: true, width: func() int { return 60 }}, d}
	v.draw(v.lines())
	first := screen.String()
	for _, want := range []string{"members 2 2", "redis embedded ok", "importer", "entitled", "driver  late 0.0ms (p99)   store timeouts "} {
		if !strings.Contains(first, want) {
			t.Errorf("the screen does not show %q but\n%s", want, first)
		}
	}
	for line := range strings.Lines(first) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > 60 {
			t.Errorf("%d columns on a terminal of 60: %q", n, line)
		}
	}
	if strings.Contains(first, "\x1b") {
		t.Errorf("no colour was wanted, and nothing was to be redrawn: %q", first)
	}
	screen.Reset()
	v.colour = true
	v.draw(v.lines())
	again := screen.String()
	if !strings.HasPrefix(again, "\x1b[11A\r"+clearBelow) || !strings.Contains(again, green+"ok"+plain) {
		t.Errorf("redrawn: %q", again)
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		line  string
		width int
		want  string
	}{
		{"short", 10, "short"},
		{"longer than that", 6, "longer"},
		{red + "down" + plain + " now", 6, red + "down" + plain + " n"},
		{"ab" + red + "cd" + plain, 1, "a" + red + plain},
	} {
		if got := cut(c.line, c.width); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.line, c.width, got, c.want)
		}
	}
}
