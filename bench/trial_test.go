package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// exampleTrial is 1 s of warm-up and 4 measured ones at 10/s: the flood and
// heavy want more than there is, small one request a second. Under scope exact
// all get what they are entitled to, under replica the flood gets it all.
func exampleTrial(scope string) *Trial {
	begin := time.Unix(1000, 0)
	t := &Trial{
		Scenario: "example", Scope: scope, Replicas: 2, Seed: 9, Redis: "embedded", Machine: "a machine", Version: "v0",
		Limit: LimitReport{Requests: 10, PerS: 1, Burst: 2}, Begin: begin, Since: begin,
		Warm: time.Second, Measured: 4 * time.Second, Refused: 1,
		Tenants: []Tenant{
			{Load: Load{Tenant: "flood", Weight: 1}, Class: Flood, Places: 20},
			{Load: Load{Tenant: "heavy", Weight: 2}, Class: Heavy, Settled: true, Places: 10},
			{Load: Load{Tenant: "small", Weight: 1}, Class: Small, Settled: true, Places: 10},
		},
		Cost:   map[string]int64{"flood": 120, "heavy": 240, "small": 40},
		Calls:  Calls{Admit: 10, Pool: 30, Total: 50},
		Used:   []Usage{{"everything", 1.5, 40}},
		Faults: []FaultReport{{Kind: string(GossipCut), AtS: 1, ForS: 1, DetectMS: -1, HealMS: -1}},
	}
	at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	for second := range 5 {
		s := float64(second)
		for n := range 10 { // the flood asks for 10 a second, heavy likewise
			due := at(s + float64(n)/10)
			t.Events = append(t.Events,
				Event{Tenant: 0, Due: due, End: due, Kind: Refused, Reason: "tenant_queue_full", Told: -1},
				Event{Tenant: 1, Due: due, End: due.Add(400 * time.Millisecond), Kind: Admitted, Wait: 400 * time.Millisecond, Told: time.Duration(100*n) * time.Millisecond, Fleet: second < 2})
		}
		t.Events = append(t.Events, Event{Tenant: 2, Due: at(s), End: at(s + 0.05), Kind: Admitted, Wait: 50 * time.Millisecond, Told: -1})
		got := map[string]int{"flood": 3, "heavy": 6, "small": 1}
		if scope == "replica" {
			got = map[string]int{"flood": 9, "small": 1}
		}
		arrival := time.Duration(second) * time.Second
		for _, name := range []string{"flood", "heavy", "small"} {
			for range got[name] {
				t.Starts = append(t.Starts, Arrival{At: arrival, Tenant: name})
				arrival += time.Millisecond
			}
		}
	}
	return t
}

func exampleComparison() Comparison {
	return Comparison{exampleTrial("replica").Run(), exampleTrial("exact").Run()}
}

func TestRunFigures(t *testing.T) {
	c := exampleComparison()
	unfair, fair := c[0], c[1]
	for _, f := range []struct {
		name      string
		got, want float64
	}{
		{"Jain of equal shares", fair.Jain, 1},
		{"Jain of one that has all", unfair.Jain, 0.5},
		{"worst share", fair.WorstShare, 1},
		{"worst share of one without", unfair.WorstShare, 0},
		{"nobody starves", float64(fair.Starved), 0},
		{"one starves", float64(unfair.Starved), 1},
		{"entitled flood", fair.Tenants[0].Entitled, 12},
		{"entitled heavy", fair.Tenants[1].Entitled, 24},
		{"entitled small", fair.Tenants[2].Entitled, 4},
		{"utilisation", fair.Utilisation, 1},
		{"calls per grant", fair.CallsPerGrant, 1},
		{"pool calls per grant", fair.PoolCallsPerGrant, 0.75},
		{"all calls per grant", fair.AllCallsPerGrant, 1.25},
		// Of ten estimates of 0 to 900 ms for 400 ms, those of 200 to 600 are good.
		{"estimates within 50 %", fair.EtaWithin50pct, 0.5},
		{"estimates", float64(fair.EtaWaits), 40},
		// Ten arrive within 9 ms: a second holds as many, and one of the next ten.
		{"worst second", fair.OverAdmissionRatio, 11.0 / 12},
		{"whole run", fair.OverAdmissionTotal, 50 / (2 + 10*4.009)},
		{"small p99", fair.SmallP99MS, 50},
		{"provider 429", fair.Provider429PerMin, 12},
		{"refused", fair.InteractiveRefusedRatio, round(40.0/84, 4)},
		{"gossip cut seen", fair.Faults[0].DetectMS, 0},
		{"gossip cut healed", fair.Faults[0].HealMS, 1900},
	} {
		if math.Abs(f.got-f.want) > 1e-3 {
			t.Errorf("%s: %v, want %v", f.name, f.got, f.want)
		}
	}
	if len(fair.JainSeries) != 5 || fair.Jain1sP10 != 1 {
		t.Errorf("Jain by second %v, p10 %v", fair.JainSeries, fair.Jain1sP10)
	}
}

func TestComparisonGolden(t *testing.T) {
	c := exampleComparison()
	for name, write := range map[string]func(*bytes.Buffer) error{
		"compare.txt":  func(b *bytes.Buffer) error { return c.WriteText(b) },
		"compare.md":   func(b *bytes.Buffer) error { return c.WriteMarkdown(b) },
		"compare.html": func(b *bytes.Buffer) error { return c.WriteHTML(b) },
		"run.json":     func(b *bytes.Buffer) error { return c[1].WriteJSON(b) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.Bytes())
	}
}

// TestRunHasItsStableKeys: programs read these.
func TestRunHasItsStableKeys(t *testing.T) {
	var b bytes.Buffer
	if err := exampleComparison().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var byScope map[string]map[string]any
	if err := json.Unmarshal(b.Bytes(), &byScope); err != nil {
		t.Fatal(err)
	}
	run := byScope["exact"]
	for _, key := range strings.Fields(`scenario scope replicas tenants_count seed duration_s redis jain jain_1s_p10 utilisation
		over_admission_ratio calls_per_grant small_p50_ms small_p99_ms worst_share eta_within_50pct eta_median_error
		provider_429_per_min interactive_refused_ratio interactive_p99_ms tenants faults replicas_used`) {
		if _, ok := run[key]; !ok {
			t.Errorf("the report lacks %s", key)
		}
	}
	has := func(list any, keys string) {
		for _, key := range strings.Fields(keys) {
			if _, ok := list.([]any)[0].(map[string]any)[key]; !ok {
				t.Errorf("an entry lacks %s: %v", key, list)
			}
		}
	}
	has(run["tenants"], "name weight entitled received admitted refused wait_ms")
	has(run["faults"], "kind at_s detect_ms heal_ms over_admission_ratio")
	has(run["replicas_used"], "cpu_s rss_mb")
}

func TestPageNeedsNothingFromOutside(t *testing.T) {
	var b bytes.Buffer
	if err := exampleComparison().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, bad := range []string{"<script", "http:", "https:", "url(", "@import", "<link", "NaN", "Inf", "ZgotmplZ"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if n := strings.Count(page, "<svg"); n != 4 || strings.Count(page, "</svg>") != n {
		t.Errorf("%d charts, want 4", n)
	}
	if !strings.Contains(page, "prefers-color-scheme: dark") {
		t.Error("the page has no dark colours")
	}
}

// TestComparisonMarksLateRuns: what a late machine may have done is marked, and what
// keeps the limit is not.
func TestComparisonMarksLateRuns(t *testing.T) {
	c := exampleComparison()
	for _, r := range c {
		r.OverAdmissionRatio, r.Faults[0].OverAdmissionRatio, r.DriverLateP99MS = 1.04, 1.04, lateBound
	}
	late := c[1]
	const note = "Beyond 10 ms (*), times say more"
	for _, d := range []struct {
		lateMS, ratio float64
		waits, second string
		marks         int
	}{
		{lateBound, 1.04, "50ms / 50ms", "1.040", 0},
		{lateBound + 1, 1.04, "50ms / 50ms *", "1.040 *", 3},
		{lateBound + 1, 1, "50ms / 50ms *", "1.000", 1},
	} {
		late.DriverLateP99MS, late.OverAdmissionRatio, late.Faults[0].OverAdmissionRatio = d.lateMS, d.ratio, d.ratio
		var b bytes.Buffer
		if err := c.WriteMarkdown(&b); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		for _, row := range []string{
			"| small tenants, p50 / p99 | 50ms / 50ms | " + d.waits + " |", "| worst second against the limit | 1.040 | " + d.second + " |",
		} {
			if !strings.Contains(text, row) {
				t.Errorf("late by %v ms: no row %q in\n%s", d.lateMS, row, text)
			}
		}
		if n := strings.Count(text, " * |"); n != d.marks || strings.Contains(text, note) != (d.marks > 0) {
			t.Errorf("late by %v ms: %d marks, want %d, or the note is wrong:\n%s", d.lateMS, n, d.marks, text)
		}
	}
}

// TestPageOfNothing: a run in which nothing happened can still be drawn.
func TestPageOfNothing(t *testing.T) {
	r := (&Trial{Scope: "exact", Measured: time.Second, Limit: LimitReport{Requests: 1, PerS: 1}}).Run()
	var b bytes.Buffer
	if err := (Comparison{r}).WriteHTML(&b); err != nil || strings.Contains(b.String(), "NaN") {
		t.Errorf("error %v, page %s", err, b.String())
	}
	if err := r.WriteJSON(&b); err != nil {
		t.Error(err)
	}
}

func TestQuantile(t *testing.T) {
	list := []float64{1, 2, 3, 4}
	for q, want := range map[float64]float64{0: 1, 0.25: 1, 0.26: 2, 0.5: 2, 0.99: 4, 1: 4} {
		if got := quantile(list, q); got != want {
			t.Errorf("quantile %v = %v, want %v", q, got, want)
		}
	}
}

func TestSteps(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   string
	}{{0, 36, "[0 5 10 15 20 25 30 35]"}, {0, 8, "[0 1 2 3 4 5 6 7 8]"}, {0, 120, "[0 20 40 60 80 100 120]"}} {
		if got := fmt.Sprint(steps(c.lo, c.hi, 8)); got != c.want {
			t.Errorf("steps(%v, %v) = %s, want %s", c.lo, c.hi, got, c.want)
		}
	}
}
