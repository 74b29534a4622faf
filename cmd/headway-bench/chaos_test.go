package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/bench"
)

func TestChaosUsage(t *testing.T) {
	for args, says := range map[string]string{
		"chaos now":                                "unknown command",
		"chaos --cell redis_flood":                 `--cell "redis_flood"`,
		"chaos --cell redis_down --cell redis_do":  `--cell "redis_do"`,
		"chaos --tries 0":                          "--tries 0",
		"run redis-hang --on-outage fail_sideways": "--on-outage",
		"run replica-crash --replicas 1":           "others that stay",
	} {
		var stdout, stderr bytes.Buffer
		if got := run(t.Context(), strings.Fields(args), &stdout, &stderr); got != exitUsage {
			t.Errorf("%q exits %d; stderr %s", args, got, &stderr)
		}
		if !strings.Contains(stderr.String(), says) {
			t.Errorf("%q: stderr %q does not say %q", args, &stderr, says)
		}
	}
	var stdout, stderr bytes.Buffer
	if got := run(t.Context(), []string{"chaos", "--headway", "no/such"}, &stdout, &stderr); got != exitFailed {
		t.Errorf("without a headway program it exits %d; stderr %s", got, &stderr)
	}
}

func TestChosenCells(t *testing.T) {
	for _, c := range []struct {
		flags chaosFlags
		want  int
	}{
		{chaosFlags{}, len(bench.ChaosCells())},
		{chaosFlags{quick: true}, len(bench.QuickCells)},
		{chaosFlags{cells: []string{"redis_hang/"}}, len(bench.Policies)},
		{chaosFlags{cells: []string{"redis_hang/fail_open"}, quick: true}, 1},
		{chaosFlags{cells: []string{"redis_hang/fail_open", "redis_hang"}}, len(bench.Policies)},
	} {
		got, err := c.flags.chosen()
		if err != nil || len(got) != c.want {
			t.Errorf("%+v: %d cells, %v; want %d", c.flags, len(got), err, c.want)
		}
	}
}
