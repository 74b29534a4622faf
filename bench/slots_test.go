package bench

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestSlotsAreJudged(t *testing.T) {
	begin := time.Unix(1000, 0)
	at := func(s float64) time.Time { return begin.Add(time.Duration(s * float64(time.Second))) }
	trial := &Trial{
		Scenario: "long-streams", Scope: "replica", Replicas: 1, Begin: begin, Since: begin, Warm: time.Second, Measured: 4 * time.Second,
		Limit:   LimitReport{Requests: 100, PerS: 1, Burst: 10},
		Tenants: []Tenant{{Load: Load{Tenant: "a", Weight: 1}, Class: Small}, {Load: Load{Tenant: "b", Weight: 1}, Class: Small}},
		SlotCap: 2, LeaseTTL: 500 * time.Millisecond, Peaks: map[string]int64{"a": 3, "b": 1, "nobody": 9},
		Events: []Event{
			{Tenant: 0, Due: at(0.5), Wait: 500 * time.Millisecond, End: at(3), Kind: Admitted}, // 2 s of the measured part
			{Tenant: 0, Due: at(2), End: at(9), Kind: Aborted},                                  // 3 s, until its end
			{Tenant: 1, Due: at(0), End: at(0.5), Kind: Admitted},                               // before it
			{Tenant: 1, Due: at(2), End: at(4), Kind: Refused, Reason: "inflight"},
		},
	}
	run := trial.Run()
	if want := (Slots{Cap: 2, Peak: 3, Utilisation: round(5.0/16, 4), LongestS: 2, TTLs: 4}); run.Slots == nil || *run.Slots != want {
		t.Errorf("%+v, want %+v", run.Slots, want)
	}
	var text bytes.Buffer
	if err := (Comparison{run}).WriteText(&text); err != nil || !strings.Contains(text.String(), "3 of 2") {
		t.Errorf("%v in\n%s", err, &text)
	}
	if trial.SlotCap = 0; trial.Run().Slots != nil {
		t.Error("slots without a cap")
	}
}
