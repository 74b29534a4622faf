package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (go test -update rewrites it). Got:\n%s\nwant:\n%s", name, got, want)
	}
}

// exampleReport is a run of 10 s at 80/s with burst 20: the heavy tenant and
// the one of weight 3 want more than there is.
func exampleReport() *Report {
	begin := time.Unix(1000, 0)
	seen := Snapshot{
		Since: begin, LastS: 10, Total: Account{Starts: 800, Peak: 31},
		Tenants: map[string]Account{
			"importer": {Starts: 200, Peak: 9}, "gold": {Starts: 440, Peak: 12},
			"small-a": {Starts: 80, Peak: 2}, "small-b": {Starts: 80, Peak: 3},
		},
	}
	r := &Report{
		Replicas: 3, Members: []int{3, 3, 3}, Redis: "embedded", DurationS: 10,
		Limit: LimitReport{Dimension: "model", Requests: 80, PerS: 1, Burst: 20}, RedisCallsPerGrant: 1.25,
		StoreTimeouts: 2, DriverLateP99MS: 3.25, DriverLateMaxMS: 21,
	}
	r.Judge = Judge(seen, r.Limit, begin, 16)
	r.Share([]TenantStats{
		{Tenant: "importer", Weight: 1, Offered: 2000, Refused: map[string]int64{"tenant_queue_full": 1797, "deadline_exceeded": 1, reasonUnavailable: 3}, Wait: WaitStats{900, 1000, 1200.5, 1333}},
		{Tenant: "gold", Weight: 3, Offered: 600, Wait: WaitStats{300, 400, 600, 700}},
		{Tenant: "small-a", Weight: 1, Offered: 80, Wait: WaitStats{9.5, 40, 60, 70}},
		{Tenant: "small-b", Weight: 1, Offered: 80, Wait: WaitStats{10, 40, 60, 12345}},
	}, seen)
	return r
}

func TestReportGolden(t *testing.T) {
	r := exampleReport()
	var text, line bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.txt", text.Bytes())
	if err := r.WriteJSON(&line); err != nil {
		t.Fatal(err)
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, line.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", pretty.Bytes())
}

func TestReportWarnsOfALateDriver(t *testing.T) {
	for late, want := range map[float64]string{
		0: "", lateBound: "",
		lateBound + 1: "the driver was late by 11ms (p99): beyond 10 ms, times say more about the machine than about the fleet",
	} {
		if got := (&Report{DriverLateP99MS: late}).Warning(); got != want {
			t.Errorf("late by %v ms: %q, want %q", late, got, want)
		}
	}
}

func TestJudge(t *testing.T) {
	begin := time.Unix(1000, 0)
	limit := LimitReport{Requests: 120, PerS: 60, Burst: 10} // 2 per second
	for _, c := range []struct {
		name   string
		starts int64
		last   float64
		peak   int64
		ratio  float64
		ok     bool
	}{
		{"just allowed", 30, 10, 5, 1, true},
		{"one too many", 31, 10, 5, 1.0334, false},
		{"a hair too many", 200_011, 100_000, 5, 1.0001, false},
		{"too many at once", 30, 10, 6, 1, false},
		{"nothing came", 0, 0, 0, 0, true},
	} {
		s := Snapshot{Since: begin, LastS: c.last, Total: Account{Starts: c.starts}, Tenants: map[string]Account{"a": {Peak: c.peak}}}
		j := Judge(s, limit, begin, 5)
		if j.OverAdmissionRatio != c.ratio || j.OK() != c.ok {
			t.Errorf("%s: %+v, ok %v; want ratio %v, ok %v", c.name, j, j.OK(), c.ratio, c.ok)
		}
	}
}

func TestJudgeCountsTimeFromBegin(t *testing.T) {
	// The ledger is older than the run: its idle time earns nothing.
	begin := time.Unix(1000, 0)
	s := Snapshot{Since: begin.Add(-time.Hour), LastS: 3600 + 10, Total: Account{Starts: 30}}
	if j := Judge(s, LimitReport{Requests: 2, PerS: 1, Burst: 10}, begin, 0); j.Allowed != 30 || !j.OK() {
		t.Errorf("%+v, want 30 allowed", j)
	}
}
