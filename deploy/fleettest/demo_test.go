package fleettest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// report is the part of the demo's report that makes a promise.
type report struct {
	Replicas int
	Members  []int
	Redis    string
	Judge    *struct {
		Admitted           int64
		Allowed            float64
		OverAdmissionRatio float64 `json:"over_admission_ratio"`
		PeakInFlight       int64   `json:"peak_inflight"`
		InFlightCap        int64   `json:"inflight_cap"`
	}
	Tenants []struct {
		Name          string
		EntitledShare float64 `json:"entitled_share"`
		ReceivedShare float64 `json:"received_share"`
	}
	Jain float64
}

// TestDemoKeepsItsPromises runs what the README tells a newcomer to run.
func TestDemoKeepsItsPromises(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { demo(t, "") })
	t.Run("redis-server", func(t *testing.T) { demo(t, redisproc.Start(t).Addr()) })
}

func demo(t *testing.T, redis string) {
	args := "--duration 10s --json"
	if redis != "" {
		args += " --redis " + redis
	}
	cmd := exec.Command("make", "--silent", "-C", "../..", "demo", "ARGS="+args)
	// A make that started this test must not tell the one below what to do.
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "MAKE") && !strings.HasPrefix(v, "MFLAGS") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("make demo ARGS=%q: %v\n%s", args, err, log.Bytes())
	}
	t.Logf("%s", out)
	var r report
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("standard output is not one JSON object: %v", err)
	}
	if r.Judge == nil || r.Replicas != 3 || len(r.Tenants) != 4 {
		t.Fatalf("got %d replicas, %d tenants, judge %v; want 3, 4 and a judge", r.Replicas, len(r.Tenants), r.Judge)
	}
	for _, n := range r.Members {
		if n != r.Replicas {
			t.Errorf("the replicas see %v members, want %d each", r.Members, r.Replicas)
		}
	}
	if r.Judge.Admitted == 0 || float64(r.Judge.Admitted) > r.Judge.Allowed || r.Judge.OverAdmissionRatio > 1 {
		t.Errorf("%d admitted of %.0f allowed, ratio %.3f; want some, and at most 1.00", r.Judge.Admitted, r.Judge.Allowed, r.Judge.OverAdmissionRatio)
	}
	if r.Judge.PeakInFlight == 0 || r.Judge.PeakInFlight > r.Judge.InFlightCap {
		t.Errorf("peak %d in flight, the cap is %d", r.Judge.PeakInFlight, r.Judge.InFlightCap)
	}
	if r.Jain < 0.98 {
		t.Errorf("Jain's index is %.4f, want at least 0.98: %+v", r.Jain, r.Tenants)
	}
}
