package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headway-limiter/headway/gateway"
)

// printExplanation writes an explanation for people.
func printExplanation(out io.Writer, e gateway.Explanation) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n", e.Verdict, requestLine(e))
	if len(e.Exempt) > 0 {
		fmt.Fprintf(&b, "exempt from %s\n", strings.Join(e.Exempt, ", "))
	}
	if e.Turn != "" {
		fmt.Fprintf(&b, "\nestimate  %d tokens for the dearest way through the steps\n", e.Estimate.Total)
	} else {
		fmt.Fprintf(&b, "\nestimate  %d tokens: %d input (%s) + %d output\n", e.Estimate.Total, e.Estimate.Input, e.Estimate.How, e.Estimate.Output)
	}
	fmt.Fprintf(&b, "          %s\n\n", strings.ReplaceAll(e.Estimate.Why, "; ", "\n          "))
	if rows := limitRows(e); len(rows) == 1 {
		fmt.Fprintln(&b, "no limit applies")
	} else if err := writeRows(&b, rows); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\n%s\n", queueLine(e))
	if a := e.Queue.Agents; a != nil {
		fmt.Fprintln(&b, agentsLine(a, e.Live))
	}
	for _, rows := range [][][]string{stepRows(e), upstreamRows(e)} {
		if len(rows) == 1 {
			continue
		}
		fmt.Fprintln(&b)
		if err := writeRows(&b, rows); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// requestLine says what is explained.
func requestLine(e gateway.Explanation) string {
	text := "key " + cmp.Or(e.Key, "(none)")
	if e.Client != "" {
		text += ", client " + e.Client
	}
	if e.Turn != "" {
		text += ", turn " + e.Turn
	} else {
		text += fmt.Sprintf(", model %q", e.Model)
	}
	text += ", " + e.Method + " " + e.Path
	if e.Place != "" {
		text += " (" + e.Place + ")"
	}
	return text
}

// writeRows aligns rows.
func writeRows(out io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// limitRows is the table of limits, under its head.
func limitRows(e gateway.Explanation) [][]string {
	rows := [][]string{{"LIMIT", "CLASS", "RULE", "COST", "LEFT", "IF REFUSED", "ON OUTAGE"}}
	for _, l := range e.Limits {
		name := l.Dimension
		if name == "client" && e.Client == "" {
			name = "client (each address)"
		}
		rows = append(rows, limitRow(name, l))
	}
	backends := func(ups []gateway.ShownUpstream, of string) {
		for _, up := range ups {
			for _, l := range up.Limits {
				rows = append(rows, limitRow("backend "+up.Name+of, l))
			}
		}
	}
	backends(e.Upstream, "")
	for _, s := range e.Steps {
		of := ", step " + s.Name
		for _, l := range s.Limits {
			rows = append(rows, limitRow(l.Dimension+" "+s.Model+of, l))
		}
		backends(s.Upstream, of)
	}
	return rows
}

func limitRow(name string, l gateway.ShownLimit) []string {
	rule, left := fmt.Sprintf("%d at once", l.Limit), "-"
	if l.PerS > 0 {
		rule = fmt.Sprintf("%d per %s, burst %d", l.Limit, gateway.Brief(time.Duration(l.PerS*float64(time.Second))), l.Burst)
	}
	if l.Left != nil {
		left = fmt.Sprint(*l.Left)
	}
	if l.MissingS > 0 {
		left += fmt.Sprintf(" (enough in %.3f s)", l.MissingS)
	}
	if l.Never != "" {
		left = "never enough: " + l.Never
	}
	return []string{name, l.Class, rule, fmt.Sprint(l.Cost), left, l.Refused, l.OnOutage}
}

// queueLine says where the request would wait for its limits.
func queueLine(e gateway.Explanation) string {
	q := e.Queue
	switch {
	case !q.Enabled:
		return "queue     none for limits: their refusals are answered at once"
	case q.Tenant == "":
		return "queue     none for limits of this request: it has no tenant"
	}
	text := fmt.Sprintf("queue     tenant %s (%s), weight %g, scope %s, waits up to %s",
		q.Tenant, q.Dimension, q.Weight, q.Scope, gateway.Brief(time.Duration(q.MaxWaitMS)*time.Millisecond))
	if e.Live {
		text += fmt.Sprintf("; waiting at this replica: %d, of this tenant %d", q.Waiting, q.Own)
	}
	return text
}

// agentsLine says how the request would wait for a slot.
func agentsLine(a *gateway.ShownAgents, live bool) string {
	text := "agents    " + strings.Join(a.Names, " or ") + ": "
	if a.Waits {
		text += fmt.Sprintf("waits for a slot up to %s, tenant %s, weight %g", gateway.Brief(time.Duration(a.MaxWaitMS)*time.Millisecond), a.Tenant, a.Weight)
	} else {
		text += "refused at once where no slot is free"
	}
	text += " (" + a.Why + ")"
	if live {
		text += fmt.Sprintf("; %d of %s held, waiting at this replica: %d, elsewhere %d", a.Held, count(a.Slots, "slot"), a.Waiting, a.Elsewhere)
	}
	return text
}

// stepRows is the table of a turn's steps, under its head.
func stepRows(e gateway.Explanation) [][]string {
	rows := [][]string{{"STEP", "KIND", "MODEL", "COST", "THEN"}}
	for _, s := range e.Steps {
		rows = append(rows, []string{s.Name, s.Kind, s.Model, fmt.Sprint(s.Tokens), cmp.Or(s.Then, "fails")})
	}
	return rows
}

// upstreamRows is the table of upstreams, under its head.
func upstreamRows(e gateway.Explanation) [][]string {
	rows := [][]string{{"UPSTREAM", "SERVES IT", "AGENT", "PROVIDER"}}
	if len(e.Steps) > 0 {
		rows[0][0] += " (STEP)"
	}
	for _, up := range e.Upstream {
		rows = append(rows, upstreamRow(up.Name, up))
	}
	for _, s := range e.Steps {
		for _, up := range s.Upstream {
			rows = append(rows, upstreamRow(up.Name+" ("+s.Name+")", up))
		}
	}
	return rows
}

func upstreamRow(name string, up gateway.ShownUpstream) []string {
	serves, agent, provider := "yes", "-", "-"
	if !up.Serves {
		serves = "no"
	}
	if up.Slots > 0 {
		if agent = count(up.Slots, "slot"); up.Healthy != nil {
			state := "well"
			if !*up.Healthy {
				state = "failing"
			}
			agent += fmt.Sprintf(", %d held, %d waiting here, %s", up.Held, up.Waiting, state)
		}
	}
	if up.Throttle != "" {
		provider = up.Throttle
	}
	if up.State != "" {
		provider += "; " + up.State
	}
	for _, q := range up.Quota {
		provider += "; " + q
	}
	return []string{name, serves, agent, provider}
}

// count is n of something.
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
