package stage

import (
	"testing"
	"time"
)

// TestRunImporter: a few jobs by both paths, for long enough to see that all of them
// are counted. On a slow machine a job may be handed in, or run, twice. What comes out is
// judged by longer runs.
func TestRunImporter(t *testing.T) {
	for _, path := range []string{PathHeld, PathDurable} {
		o := ImporterOptions{Path: path, Replicas: 2, Seed: 1}
		l := o.load()
		l.Backlog, l.Thousand, l.Weighted, l.Jobs, l.Small, l.Each, l.Alone = 40, 3, 6, 30, 2, 3, 200*time.Millisecond
		r, err := o.run(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		if r.Path != path || r.Jobs != 30 || len(r.Positions) < 3 || r.Missing != 0 || r.Doubled != 0 || r.Utilisation <= 0 || r.LowestLeft <= 0 {
			t.Errorf("%+v", r)
		}
	}
}
