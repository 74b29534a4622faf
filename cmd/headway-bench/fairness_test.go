package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/bench"
)

func TestFairnessUsage(t *testing.T) {
	for args, says := range map[string]string{
		"run":                                                            "accepts 1 arg",
		"run quiet":                                                      `"quiet" is not one of`,
		"run even --scope galaxy":                                        `"galaxy" is not one of fifo, replica, gossip, exact`,
		"compare even --scope replica,galaxy":                            `"galaxy"`,
		"compare even --replicas 0":                                      "--replicas 0",
		"compare even --replicas 0 --limit -1":                           "--limit -1",
		"compare even --duration 1500ms":                                 "--duration 1.5s",
		"compare even --warm-up 1ms":                                     "--warm-up 1ms",
		"compare even --tenants -1":                                      "--tenants -1",
		"compare even --processes":                                       "--processes needs --redis",
		"compare even --headway x":                                       "--headway has no effect",
		"compare join-leave --replicas 1":                                "others that stay",
		"compare even --assert exact.jain":                               "exact.jain>=0.99",
		"run even --assert jain>=1":                                      "exact.jain>=0.99",
		"compare even --assert exact.jane>=0.99":                         `no number "jane"; there is jain, jain_1s_p10, jain_cost`,
		"run even --assert exact.scope>=1":                               `no number "scope"; there is s`,
		"run even --assert exact.Jain>=1":                                "there is all_calls_per_grant, ",
		"run even --scope exact --assert replica.jain>=1":                `scope "replica" is not run; there is exact`,
		"run provider-429 --assert exact.utilisation>=1":                 "there is headway, naive",
		"run provider-429 --assert headway.p99<=1":                       "there is per_s, provider_429_per_min",
		"run importer --assert durable.small_within<=1":                  "there is held",
		"run importer --path durable --assert durable.small<=1":          "there is small_tenants, small_within",
		"compare even --no-such-flag":                                    "no-such-flag",
		"run provider-429 --replicas 0":                                  "--replicas 0",
		"run provider-429 --late 2:1s":                                   "share 2",
		"run provider-429 --processes":                                   "--processes needs --redis",
		"run provider-429 --assert jain>=1":                              "exact.jain>=0.99",
		"compare even --redis 127.0.0.1:1 --processes --headway no/such": "",
	} {
		var stdout, stderr bytes.Buffer
		want := exitUsage
		if says == "" {
			want, says = exitFailed, "no headway program"
		}
		if got := run(t.Context(), strings.Fields(args), &stdout, &stderr); got != want {
			t.Errorf("%q exits %d, want %d; stderr %s", args, got, want, &stderr)
		}
		if !strings.Contains(stderr.String(), says) || stdout.Len() > 0 {
			t.Errorf("%q: stderr %q does not say %q, or stdout is not empty: %q", args, &stderr, says, &stdout)
		}
	}
}

// TestUnknownScenario: the error names all that there are, and nothing that only
// follows from it.
func TestUnknownScenario(t *testing.T) {
	var stderr bytes.Buffer
	if got := run(t.Context(), []string{"run", "nosuch", "--processes", "--headway", "x"}, &bytes.Buffer{}, &stderr); got != exitUsage {
		t.Errorf("exit %d", got)
	}
	for _, name := range []string{"heavyall", "redis-hang", bench.PacedScenario, bench.ImporterScenario} {
		if !strings.Contains(stderr.String(), name) {
			t.Errorf("%s does not name %s", &stderr, name)
		}
	}
	for _, flag := range []string{"--duration", "--processes", "--headway"} {
		if strings.Contains(stderr.String(), flag+" ") {
			t.Errorf("%s complains of %s", &stderr, flag)
		}
	}
}

func TestHelpNamesScenarios(t *testing.T) {
	for _, cmd := range []string{"run", "compare"} {
		var stdout bytes.Buffer
		run(t.Context(), []string{cmd, "--help"}, &stdout, &bytes.Buffer{})
		for _, s := range bench.Scenarios {
			if !strings.Contains(stdout.String(), s.Name+" ") {
				t.Errorf("%s --help does not name %s", cmd, s.Name)
			}
		}
	}
}

func TestCompareWritesItsReport(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"compare", "heavyall", "--replicas", "2", "--tenants", "10", "--limit", "40", "--warm-up", "1s", "--duration", "2s",
		"--scope", "replica,exact", "--json", "--out", dir, "--assert", "exact.tenants_count>=10", "--assert", "replica.jain>=1.5",
	}, &stdout, &stderr)
	if code != exitFailed || !strings.Contains(stderr.String(), "replica.jain>=1.5 does not hold") || strings.Contains(stderr.String(), "tenants_count") {
		t.Errorf("exit %d, stderr %s", code, &stderr)
	}
	var byScope map[string]bench.Run
	if err := json.Unmarshal(stdout.Bytes(), &byScope); err != nil {
		t.Fatal(err)
	}
	if len(byScope) != 2 || byScope["exact"].TenantsCount != 10 || byScope["replica"].Scope != "replica" {
		t.Errorf("stdout %s", &stdout)
	}
	for ext, want := range map[string]string{"json": `"jain"`, "md": "| Jain", "html": "</svg>"} {
		data, err := os.ReadFile(filepath.Join(dir, "heavyall-2."+ext))
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("%s: %v, %d bytes without %q", ext, err, len(data), want)
		}
	}
}

func TestRunPrintsOneObject(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{
		"run", "even", "--replicas", "1", "--tenants", "10", "--limit", "40", "--warm-up", "1s", "--duration", "1s", "--json",
	}, &stdout, &stderr)
	var r bench.Run
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil || code != exitOK || r.Scope != "exact" || r.Scenario != "even" {
		t.Errorf("exit %d, %v: %s; stderr %s", code, err, &stdout, &stderr)
	}
}

func TestAssertions(t *testing.T) {
	runs := bench.Comparison{{Scope: "exact", Jain: 0.5}}
	for text, says := range map[string]string{
		"exact.jain>=0.5":   "",
		"exact.jain<=0.5":   "",
		"exact.jain>=0.51":  "does not hold: it is 0.5",
		"exact.jain<=0.4":   "does not hold: it is 0.5",
		"exact.scope>=1":    "no number scope",
		"exact.nothing>=1":  "no number nothing",
		"replica.jain>=0.1": "replica was not run",
	} {
		f := fairnessFlags{asserts: []string{text}}
		err := f.check(runs)
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

func TestAssertionsOfWhatWasNotMeasured(t *testing.T) {
	r := bench.Importer{Path: "held", NotMeasured: []string{"small_within", "interleave_positions"}}
	for _, text := range []string{"held.small_within<=1.1", "held.small_within>=0"} {
		f := fairnessFlags{asserts: []string{text}}
		if err := f.hold([]scoped{{r.Path, r}}); err == nil || !strings.Contains(err.Error(), "not measured") {
			t.Errorf("%s: %v", text, err)
		}
	}
	f := fairnessFlags{asserts: []string{"held.missing<=0"}}
	if err := f.hold([]scoped{{r.Path, r}}); err != nil {
		t.Error(err)
	}
}
