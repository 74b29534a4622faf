package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// Goals of the chaos table. All that is measured in time can be missed because
// of a machine that is busy with something else.
const (
	goalDetectMS = 500
	goalHealMS   = 2000
	goalFirstMS  = 50 // the store's deadline
	goalRestMS   = 10 // what "as before" may differ by
	goalShareMin = 0.7
	goalShareMax = 1.2
	// lateBound is how late the driver may be, in the 99th percentile, for its
	// figures of time to mean anything: a fifth of the store's deadline.
	lateBound = 10 // ms
)

// Chaos is the reports of several cells, each with one trouble that takes the
// store away.
type Chaos []*Run

// WriteJSON writes one object keyed by cell.
func (c Chaos) WriteJSON(w io.Writer) error {
	byCell := make(map[string]*Run, len(c))
	for _, r := range c {
		byCell[r.Scenario] = r
	}
	return json.NewEncoder(w).Encode(byCell)
}

// Lateness is how late the driver was around the troubles that took something
// away, in ms: the 99th percentile of the worst part of them; 0 without any.
func (r *Run) Lateness() (ms float64) {
	for _, f := range r.Faults {
		if f.Outage != nil {
			ms = max(ms, f.Outage.DriverLateP99MS, f.Outage.DriverLateFirstP99MS, f.Outage.DriverLateRestP99MS)
		}
	}
	return ms
}

// Late reports whether the driver was too late for times of the run to say much
// about the fleet.
func (r *Run) Late() bool { return r.Lateness() > lateBound }

// outageHead is the first row of what outageCells makes.
var outageHead = []string{"", "policy", "away", "admitted ÷ limit", "worst second", "refused", "p99 before", "first second", "rest", "detected", "healed", "driver late"}

// outageCells is one trouble as a row.
func outageCells(r *Run, f FaultReport) []string {
	o := f.Outage
	return []string{
		strings.TrimPrefix(f.Kind, "redis_"), r.OnOutage, fmt.Sprintf("%.1fs", f.ForS),
		fmt.Sprintf("%.2f", o.LimitRatio), fmt.Sprintf("%.2f", f.OverAdmissionRatio),
		Percent(float64(o.Refused+o.Unavailable) / math.Max(float64(o.Offered), 1)),
		Millis(o.BaseP99MS), added(o.AddedFirstP99MS) + mark(o.DriverLateFirstP99MS), added(o.AddedRestP99MS) + mark(o.DriverLateRestP99MS),
		unlessNone(f.DetectMS), unlessNone(f.HealMS), Millis(o.DriverLateP99MS) + mark(o.DriverLateP99MS),
	}
}

// added writes a difference in ms with its sign.
func added(ms float64) string { return fmt.Sprintf("%+.0fms", ms) }

// mark marks figures of a time in which the driver was too late.
func mark(lateMS float64) string {
	if lateMS > lateBound {
		return " *"
	}
	return ""
}

// outages are the rows of all troubles of the runs that took the store or a
// replica away, with their head.
func outages(runs []*Run) [][]string {
	cells := [][]string{outageHead}
	for _, r := range runs {
		for _, f := range r.Faults {
			if f.Outage != nil {
				cells = append(cells, outageCells(r, f))
			}
		}
	}
	return cells
}

// outageLegend explains outageHead.
var outageLegend = fmt.Sprintf(`Admitted ÷ limit: requests that reached the provider while the store was away, of rate × time. Worst second: of burst + rate,
from the begin until %g s after the return. P99 before: of the time to an answer, in the 3 s before; first second, rest: what the outage added to it.
Detected: every replica answers by policy and nobody waits for the store any more. Healed: from the store's return until every
replica admits by it alone. Driver late: 99th percentile; where it is beyond %d ms (*), times say more about the machine than about the fleet.`,
	recoverySpan.Seconds(), lateBound)

// Heading says what was run where.
func (c Chaos) Heading() string {
	r := c[0]
	return fmt.Sprintf("%d replicas (processes), a limit of %g requests/s (burst %d), %g times as many offered, seed %d; Redis %s, %s, version %s. %s",
		r.Replicas, r.LimitPerS, r.Burst, outageLoad, r.Seed, r.RedisVersion, r.Machine, r.Version, conditions(c))
}

// conditions says how good a driver the machine allowed for, and warns of times
// that mean little.
func conditions(runs []*Run) string {
	late, others := 0.0, -1.0
	for _, r := range runs {
		late, others = max(late, r.DriverLateP99MS), max(others, r.Load.Others)
	}
	text := fmt.Sprintf("The driver was late by at most %s (p99 of a run)", Millis(late))
	if others >= 0 {
		text += fmt.Sprintf("; other programs used up to %.1f of %g CPUs", others, runs[0].Load.CPUs)
	}
	if late > lateBound {
		text += fmt.Sprintf(". Beyond %d ms (*), times say more about the machine than about the fleet", lateBound)
	}
	return text
}

// WriteText writes the table for a terminal.
func (c Chaos) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "%s.\n\n%s\n%s\n", c.Heading(), Table(outages(c)), outageLegend)
	return err
}

// WriteMarkdown writes it as a part of a document. date says when it was
// measured.
func (c Chaos) WriteMarkdown(w io.Writer, date string) error {
	var b strings.Builder
	markdown(&b, outages(c))
	fmt.Fprintf(&b, "\n%s\n\nMeasured %s: %s.\n", outageLegend, date, c.Heading())
	if missed := c.Missed(); len(missed) > 0 {
		b.WriteString("\nGoals missed in this run:\n\n")
		for _, m := range missed {
			fmt.Fprintf(&b, "- %s\n", m)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// promise is something that an outage must not break, or a goal that it should
// reach.
type promise struct {
	policies []string // empty: all
	says     string
	value    func(FaultReport) float64
	least    float64
	most     float64
}

// firm are the promises that no noise of the machine excuses.
var firm = []promise{
	{[]string{"fail_closed"}, "admitted once the outage must be known",
		func(f FaultReport) float64 { return float64(f.Outage.AdmittedLate) }, 0, 0},
	{[]string{"local_share"}, "admitted ÷ (burst + limit)",
		func(f FaultReport) float64 { return f.Outage.OverAdmissionRatio }, 0, goalShareMax},
	{nil, "time to the first admission by the store in ms (-1: never)",
		func(f FaultReport) float64 { return f.Outage.RecoveredMS }, 0, math.Inf(1)},
}

// goals are those that a busy machine can miss.
var goals = []promise{
	{[]string{"local_share"}, "admitted ÷ limit",
		func(f FaultReport) float64 { return f.Outage.LimitRatio }, goalShareMin, goalShareMax},
	{nil, "time to detect in ms",
		func(f FaultReport) float64 { return f.DetectMS }, 0, goalDetectMS},
	{nil, "time to heal in ms",
		func(f FaultReport) float64 { return f.HealMS }, 0, goalHealMS},
	{nil, "added to p99 in the first second, in ms",
		func(f FaultReport) float64 { return f.Outage.AddedFirstP99MS }, math.Inf(-1), goalFirstMS},
	{nil, "added to p99 in the rest of the outage, in ms",
		func(f FaultReport) float64 { return f.Outage.AddedRestP99MS }, math.Inf(-1), goalRestMS},
	{nil, "failed requests",
		func(f FaultReport) float64 { return float64(f.Outage.Failed) }, 0, 0},
}

// broken lists the outages of r that break p.
func (p promise) broken(r *Run) (list []string) {
	if len(p.policies) > 0 && !slices.Contains(p.policies, r.OnOutage) {
		return nil
	}
	for _, f := range r.Faults {
		if !TroubleKind(f.Kind).TakesStore() {
			continue
		}
		if v := p.value(f); v < p.least || v > p.most {
			list = append(list, fmt.Sprintf("%s: %s: %.4g, not %s%s", r.Scenario, p.says, v, p.bounds(), mark(r.Lateness())))
		}
	}
	return list
}

func (p promise) bounds() string {
	switch {
	case math.IsInf(p.least, -1):
		return fmt.Sprintf("at most %g", p.most)
	case math.IsInf(p.most, 1):
		return fmt.Sprintf("at least %g", p.least)
	case p.least == p.most:
		return fmt.Sprint(p.least)
	}
	return fmt.Sprintf("in %g..%g", p.least, p.most)
}

// all lists what the cells break of promises.
func (c Chaos) all(promises []promise) (list []string) {
	for _, r := range c {
		for _, p := range promises {
			list = append(list, p.broken(r)...)
		}
	}
	return list
}

// Missed lists the goals that were not reached, for readers: a busy machine is
// one reason.
func (c Chaos) Missed() []string { return c.all(goals) }

// Check is an error about every promise that was broken: one that no noise of
// the machine excuses.
func (c Chaos) Check() error {
	var errs []error
	for _, text := range c.all(firm) {
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// Marks of the generated part of a document.
const (
	chaosBegin = "<!-- chaos table: begin, generated by make chaos -->"
	chaosEnd   = "<!-- chaos table: end -->"
)

// Splice puts the table between the marks of a document and returns it.
func (c Chaos) Splice(document []byte, date string) ([]byte, error) {
	before, rest, begins := strings.Cut(string(document), chaosBegin)
	_, after, ends := strings.Cut(rest, chaosEnd)
	if !begins || !ends {
		return nil, fmt.Errorf("bench: the document has no lines %q and %q to put the table between", chaosBegin, chaosEnd)
	}
	var b strings.Builder
	if err := c.WriteMarkdown(&b, date); err != nil {
		return nil, err
	}
	return []byte(before + chaosBegin + "\n" + b.String() + chaosEnd + after), nil
}
