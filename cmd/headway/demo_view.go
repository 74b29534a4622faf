package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headway-limiter/headway/bench"
)

// How often each kind of view is renewed.
const (
	redrawEvery = 500 * time.Millisecond
	lineEvery   = 2 * time.Second
)

// view shows a running demo on a terminal, redrawn in place, or as a line now
// and then where there is none.
type view struct {
	terminal
	demo *demo
}

func newView(d *demo, out io.Writer) *view {
	return &view{newTerminal(out, !d.options.json), d}
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
				v.draw(v.lines())
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
	fmt.Fprintf(v.out, "console     %s of replica 1, which shows the fleet\n", d.replicas[0].ConsoleURL())
}

func (v *view) show() {
	if v.live {
		v.draw(v.lines())
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
		fmt.Sprintf("driver  late %s (p99)   store timeouts %d, refused for want of it %d", v.late(r.DriverLateP99MS, r.Warning() != ""), r.StoreTimeouts, r.Unavailable),
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

// late is how late the driver was, in red if that is too late for times to mean much.
func (v *view) late(ms float64, tooLate bool) string {
	if tooLate {
		return v.paint(red, bench.Millis(ms))
	}
	return bench.Millis(ms)
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
