package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// settings of one run.
type settings struct {
	seconds  float64        // of each row in each round, after a warm-up of a tenth
	rounds   int            // an odd number has a median of its own
	callers  int            // of the rows that do not name theirs
	rows     *regexp.Regexp // matches the names of rows to be measured
	markdown string         // a path; empty: standard output alone
}

func parse() (s settings, err error) {
	flag.Float64Var(&s.seconds, "seconds", 2, "how long each row is measured in each round")
	flag.IntVar(&s.rounds, "rounds", 3, "how often; the median counts")
	flag.IntVar(&s.callers, "callers", 64, "callers of the rows that name no number")
	rows := flag.String("rows", "", "only rows that match this regular expression, and those they are compared with")
	flag.StringVar(&s.markdown, "markdown", "", "write the tables to this file too")
	flag.Parse()
	if s.seconds <= 0 || s.rounds <= 0 || s.callers <= 0 {
		return s, fmt.Errorf("compare: -seconds %v, -rounds %d, -callers %d: want more than 0", s.seconds, s.rounds, s.callers)
	}
	s.rows, err = regexp.Compile(*rows)
	return s, err
}

func run(ctx context.Context) error {
	s, err := parse()
	if err != nil {
		return err
	}
	server, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	f, err := measureAll(ctx, server, s)
	if err != nil {
		return err
	}
	version, err := server.info(ctx, "server")
	if err != nil {
		return err
	}
	about := circumstances(version["redis_version"], s)
	fmt.Printf("%s\nload of the machine when the run ended: %s\n", about, load())
	for _, t := range f.tables() {
		t.text(os.Stdout)
	}
	if s.markdown == "" {
		return nil
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s\n\n%s. Load of the machine when the run ended: %s.\n", preface, about, load())
	for _, t := range f.tables() {
		t.markdown(&text)
	}
	return os.WriteFile(s.markdown, text.Bytes(), 0o644)
}

// preface begins the Markdown.
const preface = `# Headway beside other limiters

Written by ` + "`make compare`" + `; what each row is, and how it is measured, says the package comment
in ` + "`doc.go`" + `. Server and callers share the machine: compare rows, not absolute rates.`

// measureAll runs all parts, or those that rows names.
func measureAll(ctx context.Context, server *server, s settings) (f findings, err error) {
	if f.cells, err = rounds(ctx, server, s, chosen(cells(s.callers), s.rows)); err != nil {
		return f, err
	}
	d := time.Duration(s.seconds * float64(time.Second))
	for _, h := range hots(s.callers) {
		if !s.rows.MatchString("hot " + h.name) {
			continue
		}
		j, err := h.judge(ctx, server, 2*d)
		if err != nil {
			return f, err
		}
		f.hot = append(f.hot, j)
	}
	if s.rows.MatchString("prefetch") {
		p, err := prefetch(ctx, server, 2*d)
		if err != nil {
			return f, err
		}
		f.saved = &p
	}
	return f, ctx.Err()
}

// chosen keeps the rows that match, and those they are compared with.
func chosen(all []cell, rows *regexp.Regexp) (list []cell) {
	needed := map[string]bool{}
	for _, c := range all {
		if rows.MatchString(c.name) {
			needed[c.name], needed[c.base] = true, true
		}
	}
	for _, c := range all {
		if needed[c.name] {
			list = append(list, c)
		}
	}
	return list
}

// result is all readings of a cell, one a round.
type result struct {
	cell     cell
	readings []reading
}

// rounds measures every cell once a round.
func rounds(ctx context.Context, server *server, s settings, list []cell) ([]*result, error) {
	var results []*result
	keys := map[int][][]int{}
	for _, c := range list {
		results = append(results, &result{cell: c})
		if keys[c.callers] == nil {
			keys[c.callers] = draw(c.callers)
		}
	}
	// Rounds outside, cells inside: whatever slows the machine for a while hits all
	// cells of a round alike, and ratios within a round hardly feel it.
	for range s.rounds {
		for _, r := range results {
			m, err := measure(ctx, server, r.cell, keys[r.cell.callers], time.Duration(s.seconds*float64(time.Second)))
			if err != nil {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r.readings = append(r.readings, m)
		}
	}
	return results, nil
}
