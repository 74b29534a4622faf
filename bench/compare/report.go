package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"
	"time"
)

// table is what is printed, aligned or as Markdown.
type table struct {
	title string
	head  []string
	rows  [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// text prints a table in columns.
func (t *table) text(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n\n", t.title)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.head}, t.rows...) {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	tw.Flush()
}

func (t *table) markdown(w io.Writer) {
	fmt.Fprintf(w, "\n## %s\n\n| %s |\n|%s\n", t.title, strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for _, row := range t.rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
}

// tables spells all findings.
func (f findings) tables() (list []*table) {
	if len(f.cells) > 0 {
		list = append(list, f.speed())
	}
	if len(f.hot) > 0 {
		list = append(list, f.onHotKey())
	}
	if s := f.saved; s != nil {
		t := &table{title: "Tokens taken in advance: 8 replicas, one bucket of 2,000/s, burst 400, load 0.95",
			head: []string{"requests", "admitted", "calls", "fewer calls", "utilisation", "errors"}}
		t.add(fmt.Sprint(s.asked), fmt.Sprint(s.admitted), fmt.Sprint(s.calls),
			fmt.Sprintf("%.1f ×", s.fewer()), fmt.Sprintf("%.3f", s.used()), fmt.Sprint(s.errors))
		list = append(list, t)
	}
	goals := &table{title: "Goals", head: []string{"goal", "found", ""}}
	for _, g := range f.goals() {
		goals.add(g.text, g.found, map[bool]string{true: "met", false: "missed"}[g.met])
	}
	return append(list, goals)
}

// speed is the table of rates.
func (f findings) speed() *table {
	t := &table{title: "Rates and cost", head: []string{"", "callers", "decisions/s", "× bare", "by CPU", "p50 ms", "p99 ms",
		"Redis µs", "× bare", "script µs", "calls", "own µs", "errors"}}
	for _, r := range f.cells {
		m, base := r.median(), find(f.cells, r.cell.base)
		t.add(r.cell.name, fmt.Sprint(r.cell.callers), fmt.Sprintf("%.0f", m.rate), fmt.Sprintf("%.2f", over(r, base, rate)), fmt.Sprintf("%.2f", over(r, base, perCPU)),
			ms(m.p50), ms(m.p99), fmt.Sprintf("%.1f", m.redis), fmt.Sprintf("%.2f", over(r, base, redisCPU)),
			fmt.Sprintf("%.1f", m.script), fmt.Sprintf("%.2f", m.calls), fmt.Sprintf("%.1f", m.client),
			fmt.Sprintf("%.2f %%", 100*m.failed))
	}
	return t
}

func (f findings) onHotKey() *table {
	t := &table{title: "One hot key: 2,000/s, burst 2,000, asked for as fast as callers can",
		head: []string{"", "callers", "decisions/s", "admitted / allowed", "errors"}}
	for _, j := range f.hot {
		t.add(j.name, fmt.Sprint(j.callers), fmt.Sprintf("%.0f", j.rate), fmt.Sprintf("%.4f", j.admitted), fmt.Sprint(j.errors))
	}
	return t
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }

// compared are the modules whose versions belong to a result.
var compared = []string{
	"github.com/redis/rueidis", "github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "github.com/throttled/throttled/v2",
}

// circumstances names what ran where.
func circumstances(redisVersion string, s settings) string {
	parts := []string{
		fmt.Sprintf("%d × %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH), processor(),
		runtime.Version(), "Redis " + redisVersion,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, name := range compared {
			for _, m := range info.Deps {
				if m.Path == name {
					parts = append(parts, strings.TrimPrefix(name, "github.com/")+" "+m.Version)
				}
			}
		}
	}
	return fmt.Sprintf("%s; %d rounds of %v s a row, 10,000 keys, Zipf 1.1", strings.Join(parts, ", "), s.rounds, s.seconds)
}
