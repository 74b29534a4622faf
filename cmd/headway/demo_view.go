package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/headway-limiter/headway/bench"
)

// How often each kind of view is renewed.
const (
	redrawEvery = 500 * time.Millisecond
	lineEvery   = 2 * time.Second
)

// Terminal sequences (ECMA-48), the few that every terminal knows.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearBelow = "\x1b[J"
	bold       = "\x1b[1m"
	dim        = "\x1b[2m"
	red        = "\x1b[31m"
	green      = "\x1b[32m"
	plain      = "\x1b[0m"
)

// view shows a running demo on a terminal, redrawn in place, or as a line now
// and then where there is none.
type view struct {
	demo   *demo
	out    io.Writer
	live   bool
	colour bool
	width  func() int // columns of the terminal
	drawn  int        // lines of the table on the screen
}

func newView(d *demo, out io.Writer) *view {
	v := &view{demo: d, out: out, width: func() int { return 80 }}
	f, ok := out.(*os.File)
	if ok && !d.options.json && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		v.live, v.colour = true, os.Getenv("NO_COLOR") == ""
		v.width = func() int {
			if w, _, err := term.GetSize(int(f.Fd())); err == nil {
				return w
			}
			return 80
		}
	}
	return v
}

// until shows the demo until over is closed. From stopping on, nothing new is
// shown: requests are being cut off.
func (v *view) until(over, stopping <-chan struct{}) {
	every := lineEvery
	if v.live {
		every = redrawEvery
		fmt.Fprint(v.out, hideCursor)
		defer fmt.Fprint(v.out, showCursor)
	}
	v.addresses()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-over:
			if v.live {
				v.redraw()
			}
			return
		case <-stopping:
			stopping = nil
			tick.Stop()
		case <-tick.C:
			v.show()
		}
	}
}

// addresses says where everything listens.
func (v *view) addresses() {
	d := v.demo
	for i, r := range d.replicas {
		fmt.Fprintf(v.out, "replica %d   gateway %s   admin %s/metrics   gossip %s\n", i+1, r.URL(), r.AdminURL(), r.GossipAddr())
	}
	fmt.Fprintf(v.out, "provider    %s/ledger\n", d.provider.URL)
}

func (v *view) show() {
	if v.live {
		v.redraw()
		return
	}
	r := v.demo.report()
	fmt.Fprintf(v.out, "%5.1fs members %v store %s admitted %d of %.0f allowed, waiting %d, received/entitled:",
		r.DurationS, r.Members, v.demo.storeState(), r.Judge.Admitted, r.Judge.Allowed, v.demo.waiting())
	for _, t := range r.Tenants {
		fmt.Fprintf(v.out, " %s %s/%s", t.Name, bench.Percent(t.ReceivedShare), bench.Percent(t.EntitledShare))
	}
	fmt.Fprintln(v.out)
}

// waiting is how many requests stand in the lines of all replicas.
func (d *demo) waiting() (n int) {
	for _, r := range d.replicas {
		n += r.Waiting()
	}
	return n
}

// redraw replaces the table on the screen by a new one, in one write so that
// it does not flicker.
func (v *view) redraw() {
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r%s", v.drawn, clearBelow)
	}
	lines := v.lines()
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	v.drawn = len(lines)
	io.WriteString(v.out, b.String())
}

// lines is the screen, none wider than the terminal: a wrapped line could not
// be taken back.
func (v *view) lines() []string {
	d, r := v.demo, v.demo.report()
	store := v.paint(green, "ok")
	if state := d.storeState(); state != "ok" {
		store = v.paint(red, state)
	}
	head := []string{
		"",
		fmt.Sprintf("%s  %.1fs  %d requests/s for all, burst %d, by weight", v.paint(bold, "headway demo"), r.DurationS, r.Limit.Requests, r.Limit.Burst),
		fmt.Sprintf("members %s   redis %s %s, calls per grant %.2f, all %.2f   waiting %d",
			strings.Trim(fmt.Sprint(r.Members), "[]"), r.Redis, store, r.RedisCallsPerGrant, d.callsPerGrant(r.Judge.Admitted).total, d.waiting()),
		fmt.Sprintf("judge   %d admitted of %.0f allowed   at most %d at once per tenant, cap %d   Jain %.3f",
			r.Judge.Admitted, r.Judge.Allowed, r.Judge.PeakInflight, r.Judge.InflightCap, r.Jain),
		"",
	}
	table := strings.Split(strings.TrimRight(bench.Table(v.rows(r)), "\n"), "\n")
	table[0] = v.paint(dim, table[0])
	lines := append(head, table...)
	for i, line := range lines {
		lines[i] = cut(line, v.width())
	}
	return lines
}

// rows is the table of tenants. What has not been answered and does not run at
// the provider is waiting.
func (v *view) rows(r *bench.Report) [][]string {
	stats, seen := v.demo.driver.Stats(), v.demo.provider.Ledger().Snapshot()
	rows := [][]string{{"tenant", "weight", "offered", "entitled", "received", "waiting", "refused", "wait p50", "p99"}}
	for i, t := range r.Tenants {
		waiting := max(stats[i].Outstanding-seen.Tenants[t.Name].InFlight, 0)
		rows = append(rows, []string{
			t.Name, fmt.Sprint(t.Weight), fmt.Sprint(stats[i].Offered), bench.Percent(t.EntitledShare), bench.Percent(t.ReceivedShare),
			fmt.Sprint(waiting), fmt.Sprint(t.Refused), bench.Millis(t.WaitMS.P50), bench.Millis(t.WaitMS.P99),
		})
	}
	return rows
}

// paint colours text where colours are wanted.
func (v *view) paint(colour, text string) string {
	if !v.colour {
		return text
	}
	return colour + text + plain
}

// cut shortens a line to width columns. Sequences take no column and are kept,
// so that a colour that was begun also ends.
func cut(line string, width int) string {
	var b strings.Builder
	escape, columns := false, 0
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = !(r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z')
			b.WriteRune(r)
			continue
		default:
			if columns++; columns > width {
				continue
			}
		}
		b.WriteRune(r)
	}
	return b.String()
}
