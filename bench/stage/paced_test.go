package stage

import (
	"testing"
	"time"
)

// TestRunPaced: a small fleet and a provider with a quota, for long enough to see
// that requests are counted. What comes out is judged by longer runs.
func TestRunPaced(t *testing.T) {
	r, err := RunPaced(t.Context(), PacedOptions{Replicas: 2, Fixed: true, Warm: time.Second, Measured: 2 * time.Second, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r.Throttle != "headway" || r.Replicas != 2 || r.Quota != "fixed" || r.Utilisation <= 0 || r.Interactive == 0 {
		t.Errorf("%+v", r)
	}
}
