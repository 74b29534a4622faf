package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Comparison is the same scenario and seed in several scopes, in the order of
// running.
type Comparison []*Run

// WriteJSON writes one object keyed by scope.
func (c Comparison) WriteJSON(w io.Writer) error {
	byScope := make(map[string]*Run, len(c))
	for _, r := range c {
		byScope[r.Scope] = r
	}
	return json.NewEncoder(w).Encode(byScope)
}

// row is one line of the table of figures: how a figure is called and written.
type row struct {
	name string
	text func(*Run) string
}

// rows are the figures side by side, the ones that decide first.
var rows = []row{
	{"Jain, backlogged tenants", func(r *Run) string { return fmt.Sprintf("%.4f", r.Jain) }},
	{"Jain of single seconds, p10", func(r *Run) string { return fmt.Sprintf("%.3f", r.Jain1sP10) }},
	{"worst and best share", func(r *Run) string { return fmt.Sprintf("%.2f, %.2f", r.WorstShare, r.BestShare) }},
	{"tenants below 0.9 of their share", func(r *Run) string { return fmt.Sprint(r.Starved) }},
	{"utilisation", func(r *Run) string { return fmt.Sprintf("%.3f", r.Utilisation) }},
	{"small tenants, p50 / p99", func(r *Run) string {
		if r.SmallWaits == 0 {
			return "–"
		}
		return Millis(r.SmallP50MS) + " / " + Millis(r.SmallP99MS) + mark(r.DriverLateP99MS)
	}},
	{"script calls per grant", func(r *Run) string { return fmt.Sprintf("%.2f", r.CallsPerGrant) }},
	{"waits within ±50 % of the estimate", func(r *Run) string {
		if r.EtaWaits == 0 {
			return "–"
		}
		return Percent(r.EtaWithin50pct)
	}},
	{"worst second against the limit", func(r *Run) string { return worst(r.OverAdmissionRatio, r) }},
}

// slotRows are more of them, where requests in flight are capped.
var slotRows = []row{
	{"most of one tenant in flight, of", func(r *Run) string { return fmt.Sprintf("%d of %d", r.Slots.Peak, r.Slots.Cap) }},
	{"slots in use", func(r *Run) string { return fmt.Sprintf("%.3f", r.Slots.Utilisation) }},
	{"longest answer, in leases", func(r *Run) string { return fmt.Sprintf("%.1f", r.Slots.TTLs) }},
}

// worst writes what the worst second had of the limit. Beyond 1 it is marked if the
// driver was late: a machine that is busy can hold requests up on their way from the
// replicas, and let them reach the provider together.
func worst(ratio float64, r *Run) string {
	text := fmt.Sprintf("%.3f", ratio)
	if ratio > 1 {
		text += mark(r.DriverLateP99MS)
	}
	return text
}

// table is the figures as cells: a column for every scope.
func (c Comparison) table() [][]string {
	head := []string{""}
	for _, r := range c {
		head = append(head, r.Scope)
	}
	cells := [][]string{head}
	shown := rows
	if c[0].Slots != nil {
		shown = append(slices.Clone(rows), slotRows...)
	}
	for _, row := range shown {
		line := []string{row.name}
		for _, r := range c {
			line = append(line, row.text(r))
		}
		cells = append(cells, line)
	}
	return cells
}

// Heading says what was run.
func (c Comparison) Heading() string {
	r := c[0]
	return fmt.Sprintf("%s: %d replicas, %d tenants, %g requests/s shared (burst %d), %g s after %g s of warm-up, seed %d, redis %s",
		r.Scenario, r.Replicas, r.TenantsCount, r.LimitPerS, r.Burst, r.DurationS, r.WarmS, r.Seed, kindOfRedis(r.Redis))
}

// kindOfRedis leaves out an address that means nothing to readers elsewhere.
func kindOfRedis(name string) string {
	if name == "embedded" {
		return name
	}
	return "server"
}

// WriteText writes the figures for a terminal.
func (c Comparison) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s", c.Heading(), Table(c.table()))
	if cells := c.faultTable(); len(cells) > 1 {
		fmt.Fprintf(&b, "\n%s", Table(cells))
	}
	if cells := outages(c); len(cells) > 1 {
		fmt.Fprintf(&b, "\n%s\n%s\n", Table(cells), outageLegend)
	}
	fmt.Fprintf(&b, "\n%s.\n", conditions(c))
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMarkdown writes the whole report as a document.
func (c Comparison) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s.\n%s; version %s. %s.\n\n", c[0].Scenario, c.Heading(), c[0].Machine, c[0].Version, conditions(c))
	markdown(&b, c.table())
	b.WriteString("\n## Tenants\n\nRequests received of those entitled to, by weighted max-min fairness over what each really asked for.\n\n")
	markdown(&b, c.tenantTable())
	b.WriteString("\n## Cost\n\n")
	markdown(&b, c.costTable())
	if cells := c.faultTable(); len(cells) > 1 {
		b.WriteString("\n## Troubles\n\n")
		markdown(&b, cells)
	}
	if cells := outages(c); len(cells) > 1 {
		fmt.Fprintf(&b, "\n## While it was away\n\n%s\n\n", outageLegend)
		markdown(&b, cells)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown writes cells as a table of a document: the first row is its head,
// the first column its left side.
func markdown(b *strings.Builder, cells [][]string) {
	for i, line := range cells {
		fmt.Fprintf(b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|---|%s\n", strings.Repeat("---:|", len(line)-1))
		}
	}
}

// shownTenants is how many tenants of each class a document shows.
const shownTenants = 10

// shown picks the tenants to show: of every class those that the first scope
// treats worst and best, which is where scopes differ.
func (c Comparison) shown() []int {
	var out []int
	for _, class := range []Class{Flood, Heavy, Small} {
		var of []int
		for i, t := range c[0].Tenants {
			if t.Class == class && t.Entitled > 0 {
				of = append(of, i)
			}
		}
		out = append(out, thin(of, shownTenants)...)
	}
	return out
}

// thin keeps at most n of list, evenly spread over it.
func thin(list []int, n int) []int {
	if len(list) <= n {
		return list
	}
	out := make([]int, n)
	for i := range out {
		out[i] = list[i*len(list)/n]
	}
	return out
}

func (c Comparison) tenantTable() [][]string {
	head := []string{"tenant", "weight", "offered"}
	for _, r := range c {
		head = append(head, r.Scope, r.Scope+" p99")
	}
	cells := [][]string{head}
	for _, i := range c.shown() {
		first := c[0].Tenants[i]
		line := []string{first.Name, fmt.Sprint(first.Weight), fmt.Sprint(first.Offered)}
		for _, r := range c {
			t := r.Tenants[i]
			line = append(line, fmt.Sprintf("%d of %.0f", t.Received, t.Entitled), Millis(t.WaitMS.P99))
		}
		cells = append(cells, line)
	}
	return cells
}

// costTable is what fairness costs.
func (c Comparison) costTable() [][]string {
	cells := [][]string{{"", "asking calls per grant", "of them in turns", "all calls per grant", "CPU s per process", "MB per process", "estimate's median error", "of how many waits", "the same, tenants on many replicas"}}
	for _, r := range c {
		var cpu, rss float64
		for _, u := range r.ReplicasUsed {
			cpu, rss = cpu+u.CPUS/float64(len(r.ReplicasUsed)), rss+u.RSSMB/float64(len(r.ReplicasUsed))
		}
		cells = append(cells, []string{
			r.Scope, fmt.Sprintf("%.2f", r.CallsPerGrant), fmt.Sprintf("%.2f", r.PoolCallsPerGrant), fmt.Sprintf("%.2f", r.AllCallsPerGrant),
			fmt.Sprintf("%.1f", cpu), fmt.Sprintf("%.0f", rss),
			fmt.Sprintf("%.2f", r.EtaMedianError), fmt.Sprint(r.EtaWaits),
			fmt.Sprintf("%s within ±50 %% of %d", Percent(r.EtaSpreadWithin50pct), r.EtaSpreadWaits),
		})
	}
	return cells
}

func (c Comparison) faultTable() [][]string {
	cells := [][]string{{"", "trouble", "at", "for", "seen after", "healed after", "worst second against the limit"}}
	for _, r := range c {
		for _, f := range r.Faults {
			cells = append(cells, []string{
				r.Scope, f.Kind, fmt.Sprintf("%.1fs", f.AtS), fmt.Sprintf("%.1fs", f.ForS),
				unlessNone(f.DetectMS), unlessNone(f.HealMS), worst(f.OverAdmissionRatio, r),
			})
		}
	}
	return cells
}

func unlessNone(ms float64) string {
	if ms < 0 {
		return "–"
	}
	return Millis(ms)
}
