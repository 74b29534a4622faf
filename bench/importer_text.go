package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
)

// Goal is one thing that a run has to show. Holds is false of what was not measured.
type Goal struct {
	What, Want, Got string
	Measured, Holds bool
}

// Keys of figures that a run may have nothing to measure by, as in Importer.
const (
	keyPositions   = "interleave_positions"
	keySmall       = "small_within"
	keyTokens      = "token_ratio"
	keyWeights     = "weight_ratio"
	keyInteractive = "interactive_p99_ratio"
	keyRefused     = "interactive_refused_ratio"
	keyLeft        = "lowest_left"
	// These always are.
	key429s = "provider_429_per_min"
	keyJobs = "missing"
)

// lateReserve is how far below the reserve a batch start may find the quota because
// interactive requests overtook it on the way, as a part of the limit.
const lateReserve = 0.01

// Goals holds the run against what it has to show.
func (r Importer) Goals() []Goal {
	got := func(format string, args ...any) string { return fmt.Sprintf(format, args...) }
	want, turns := "2nd, 4th, 6th", alternate
	if r.Path == "durable" {
		want, turns = "within 6 places", together
	}
	goal := func(key, what, want, got string, holds bool) Goal {
		if slices.Contains(r.NotMeasured, key) {
			return Goal{What: what, Want: want, Got: "not measured"}
		}
		return Goal{What: what, Want: want, Got: got, Measured: true, Holds: holds}
	}
	return []Goal{
		goal(keyPositions, "three jobs behind a backlog", want, got("%v", r.Positions), turns(r.Positions)),
		goal(keySmall, "small tenants done, by equal turns", "<= 1.1", got("%.3f", r.SmallWithin), r.SmallWithin <= 1.1),
		goal(keyTokens, "tokens of 1,000- by 100-token jobs", "1 +- 0.02", got("%.4f", r.TokenRatio), math.Abs(r.TokenRatio-1) <= 0.02),
		goal(keyWeights, "weight 3 by weight 1", "3 +- 0.15", got("%.4f", r.WeightRatio), math.Abs(r.WeightRatio-3) <= 0.15),
		goal(keyInteractive, "interactive p99 with by without batch", "<= 1.1", got("%.3f (%.0f by %.0f ms)", r.InteractiveRatio, r.InteractiveP99, r.InteractiveAlone), r.InteractiveRatio <= 1.1),
		goal(keyRefused, "interactive refused", "<= 0.01", got("%.4f", r.InteractiveRefused), r.InteractiveRefused <= 0.01),
		goal(keyLeft, "least left of the quota by batch", got(">= %.2f", r.Reserve), got("%.4f", r.LowestLeft), r.LowestLeft >= r.Reserve-lateReserve),
		goal(key429s, "429s of the provider per minute", "<= 2.5", got("%.2f", r.Provider429PerMin), r.Provider429PerMin <= 2.5),
		goal(keyJobs, "jobs without, results too many", "0, 0", got("%d, %d", r.Missing, r.Doubled), r.Missing == 0 && r.Doubled == 0),
	}
}

// holds is the last cell of the goal's row.
func (g Goal) holds() string {
	switch {
	case !g.Measured:
		return "–"
	case g.Holds:
		return "yes"
	}
	return "**no**"
}

// alternate reports whether a tenant's starts were every second one. Two starts may be
// under way when the tenant comes.
func alternate(at []int) bool {
	const underWay = 2
	if len(at) != 3 || at[0] > 2+underWay {
		return false
	}
	return at[1]-at[0] == 2 && at[2]-at[1] == 2
}

// together reports whether a tenant's starts were every second one or so, once its turn had
// come. Durable jobs are claimed in turn, but those claimed before run first, and which
// of those claimed one after the other starts first is chance.
func together(at []int) bool { return len(at) == 3 && at[2]-at[0] <= 6 }

// WriteJSON writes the report as one line.
func (r Importer) WriteJSON(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(r); err != nil {
		return fmt.Errorf("bench: write report: %w", err)
	}
	return nil
}

// WriteMarkdown writes the goals as a table.
func (r Importer) WriteMarkdown(w io.Writer) error {
	text := fmt.Sprintf("%d jobs and %d small tenants over %d replicas, path %s: %.0f s, utilisation %.3f\n\n| what | goal | measured | holds |\n|---|---|---|---|\n",
		r.Jobs, r.Small, r.Replicas, r.Path, r.Seconds, r.Utilisation)
	for _, g := range r.Goals() {
		text += fmt.Sprintf("| %s | %s | %s | %s |\n", g.What, g.Want, g.Got, g.holds())
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("bench: write report: %w", err)
	}
	return nil
}
