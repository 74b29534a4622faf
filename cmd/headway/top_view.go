package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/gateway/console"
)

// Rows of each table in a frame: a terminal has little room.
const (
	topTenants = 20
	topLinesOf = 8
)

// topLines is one frame, no line wider than the terminal.
func topLines(t *terminal, before, now console.Live) []string {
	lines := append([]string{""}, topHead(t, before.Overview, now.Overview)...)
	seconds := now.Overview.At.Sub(before.Overview.At).Seconds()
	for _, rows := range [][][]string{
		tenantRows(before.Tenants, now.Tenants, seconds), queueRows(now.Queues), agentRows(now.Agents), providerRows(now.Overview),
	} {
		if len(rows) < 2 {
			continue
		}
		table := strings.Split(strings.TrimRight(bench.Table(rows), "\n"), "\n")
		table[0] = t.paint(dim, table[0])
		lines = append(append(lines, ""), table...)
	}
	for i, line := range lines {
		lines[i] = cut(line, t.width())
	}
	return lines
}

// topHead is the replica as a whole.
func topHead(t *terminal, before, now console.Overview) []string {
	state, store := t.paint(green, "ready"), t.paint(green, "up")
	if !now.Ready {
		state = t.paint(red, "not ready: "+strings.Join(now.Reasons, ", "))
	}
	if !now.Store.Usable {
		store = t.paint(red, now.Store.State)
	}
	fresh := ""
	if !now.Fleet.Fresh {
		fresh = t.paint(red, " not all heard of")
	}
	seconds := now.At.Sub(before.At).Seconds()
	per := func(decisions ...string) string {
		sum := int64(0)
		for _, d := range decisions {
			sum += now.Decisions[d] - before.Decisions[d]
		}
		return perSecond(float64(sum), seconds)
	}
	return []string{
		fmt.Sprintf("%s  %s, build %s, configuration %s  %s", t.paint(bold, "headway top"), printable(now.Replica), printable(now.Build), now.Config, state),
		fmt.Sprintf("members %d%s   store %s (%s)", now.Fleet.Members, fresh, store, now.Store.Mode),
		fmt.Sprintf("running %d   waiting %d of %d   admitted %s/s   refused %s/s",
			now.Running, now.Waiting, now.Most, per("admitted"), per("refused", "unavailable", "overloaded")),
	}
}

// tenantRows are the tenants by name, so that rows stay where they are.
func tenantRows(before, now console.Tenants, seconds float64) [][]string {
	was := map[string]console.Tenant{}
	for _, t := range before.List {
		was[t.ID] = t
	}
	list := slices.Clone(now.List[:min(topTenants, len(now.List))])
	slices.SortFunc(list, func(a, b console.Tenant) int { return cmp.Compare(named(a.Name, a.ID), named(b.Name, b.ID)) })
	rows := [][]string{{"tenant", "weight", "entitled/s", "received/s", "waiting", "refused/s", "refused"}}
	for _, t := range list {
		b := was[t.ID]
		rows = append(rows, []string{
			named(t.Name, t.ID), fmt.Sprint(t.Weight), perSecond(t.Entitled-b.Entitled, seconds), perSecond(t.Received-b.Received, seconds),
			fmt.Sprint(t.Waiting + t.Elsewhere), perSecond(float64(t.Refused)-float64(b.Refused), seconds), fmt.Sprint(t.Refused),
		})
	}
	return rows
}

func queueRows(q console.Queues) [][]string {
	rows := [][]string{{"queue", "here", "elsewhere", "between grants", "first waits"}}
	for _, l := range q.Lines[:min(topLinesOf, len(q.Lines))] {
		first, gap := "-", "-"
		for _, t := range l.Tenants {
			if t.Position == 1 {
				first = (time.Duration(t.WaitedMS) * time.Millisecond).String()
			}
		}
		if l.SpacingMS > 0 {
			gap = fmt.Sprintf("%.0fms", l.SpacingMS)
		}
		rows = append(rows, []string{l.Dimension + " " + named(l.Name, l.ID), fmt.Sprint(l.Waiting), fmt.Sprint(l.Elsewhere), gap, first})
	}
	return rows
}

func agentRows(a console.Agents) [][]string {
	rows := [][]string{{"agent", "taken", "here", "slots", "waiting", "health"}}
	for _, g := range a.List {
		health := "ok"
		if !g.Healthy {
			health = "failing"
		}
		rows = append(rows, []string{printable(g.Name), fmt.Sprint(g.Fleet), fmt.Sprint(g.Here), fmt.Sprint(g.Slots), fmt.Sprint(g.Waiting), health})
	}
	return rows
}

// providerRows are the accounts with a throttle, by their scarcest quota.
func providerRows(o console.Overview) [][]string {
	rows := [][]string{{"provider", "state", "left", "of", "unit", "waiting", "batch"}}
	for _, p := range o.Providers {
		state, left, limit, unit := p.State, "-", "-", "-"
		if p.UntilMS > 0 {
			state += " " + (time.Duration(p.UntilMS) * time.Millisecond).Round(100*time.Millisecond).String()
		}
		if len(p.Quotas) > 0 {
			q := slices.MinFunc(p.Quotas, func(a, b console.Quota) int {
				return cmp.Compare(a.Left/float64(a.Limit), b.Left/float64(b.Limit))
			})
			left, limit, unit = fmt.Sprintf("%.0f", q.Left), fmt.Sprint(q.Limit), printable(q.Unit)
		}
		name := strings.TrimSpace(printable(p.Upstream) + " " + named(p.Model, p.Model))
		rows = append(rows, []string{name, state, left, limit, unit, fmt.Sprint(p.Waiting), fmt.Sprint(p.Batch)})
	}
	return rows
}

// perSecond writes a growth per second. What is given back a little counts as none.
func perSecond(n, seconds float64) string {
	if seconds <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", max(0, n/seconds))
}

// named is a configured name, or the beginning of a hash.
func named(name, id string) string {
	switch {
	case name != "" && name != id:
		return printable(name)
	case len(id) == 32:
		return id[:8] + "…"
	}
	return printable(id)
}

// printable is text that does nothing to a terminal but be shown.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
