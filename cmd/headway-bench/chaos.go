package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/bench/stage"
)

// chaosReplicas is the fleet of the chaos table.
const chaosReplicas = 3

// chaosFlags are the settings of chaos as they are typed.
type chaosFlags struct {
	cells         []string
	seed          uint64
	headway       string
	quick, strict bool
	tries         int
	json          bool
	out, readme   string
}

func chaosCommand() *cobra.Command {
	var f chaosFlags
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Take the store away in every way, under every policy, and print what that does",
		Long: `Take the store away in every way, under every policy for that, and print what it
does: how much is let through, how soon replicas notice, how soon they recover,
what it adds to the time to an answer.

Three "headway serve" processes and a redis-server of the run's own for each
cell; open-loop, seeded load of one and a half times the limit. It exits 1 when
a promise is broken that a busy machine does not excuse: fail_closed admits
nothing once the outage must be known, local_share admits at most 1.2 times the
limit, and everything heals.

Cells:
` + cellHelp(),
		Example: `  headway-bench chaos --quick
  headway-bench chaos --cell redis_hang/fail_open --cell redis_down/
  headway-bench chaos --readme bench/README.md --out reports`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.execute(cmd) },
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.cells, "cell", nil, "a cell to run, or the begin of the names of several; repeatable; none: all")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of everything that is drawn")
	flags.StringVar(&f.headway, "headway", "", "the headway program; empty: the one beside this program, or a fresh build")
	flags.BoolVar(&f.quick, "quick", false, "few cells, a few seconds each")
	flags.BoolVar(&f.strict, "strict", false, "exit 1 also for goals that a busy machine can miss")
	flags.IntVar(&f.tries, "tries", 1, "how often to run a cell at most until its driver is on time; the run with the least late driver counts")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.StringVar(&f.out, "out", "", "directory to write chaos.json and chaos.md to")
	flags.StringVar(&f.readme, "readme", "", "document to put the table into, between its marks")
	return cmd
}

// cellHelp lists all cells, a kind a line.
func cellHelp() string {
	var b strings.Builder
	for _, k := range bench.OutageKinds {
		fmt.Fprintf(&b, "  %-16s", k)
		for _, p := range bench.Policies {
			fmt.Fprintf(&b, " %s", bench.Cell{Kind: k, Policy: p}.Name())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// chosen are the cells to run. The error names what fits none.
func (f *chaosFlags) chosen() (cells []bench.Cell, err error) {
	from := bench.ChaosCells()
	if f.quick && len(f.cells) == 0 {
		return bench.QuickCells, nil
	}
	if len(f.cells) == 0 {
		return from, nil
	}
	var errs []error
	for _, name := range f.cells {
		n := len(cells)
		for _, c := range from {
			if strings.HasPrefix(c.Name(), name) && !slices.Contains(cells, c) {
				cells = append(cells, c)
			}
		}
		if len(cells) == n {
			errs = append(errs, fmt.Errorf("--cell %q begins the name of no cell that is not chosen already", name))
		}
	}
	return cells, errors.Join(errs...)
}

func (f *chaosFlags) execute(cmd *cobra.Command) error {
	cells, err := f.chosen()
	if f.tries < 1 {
		err = errors.Join(err, fmt.Errorf("--tries %d is not 1 or more", f.tries))
	}
	if err != nil {
		return misuse(cmd, err)
	}
	ctx, logs := cmd.Context(), cmd.ErrOrStderr()
	dir, err := os.MkdirTemp("", "headway-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	headway, err := stage.FindHeadway(ctx, f.headway, dir)
	if err != nil {
		return err
	}
	show := newProgress(logs)
	var runs bench.Chaos
	for _, cell := range cells {
		if !stage.Possible(cell) {
			fmt.Fprintf(logs, "%s: this version of headway does not have it\n", cell.Name())
			continue
		}
		r, err := f.cell(ctx, cell, stage.Options{Headway: headway, Version: version(), Logs: logs, Progress: show.update})
		show.clear()
		if errors.Is(err, context.Canceled) {
			return errors.New("interrupted")
		} else if err != nil {
			return fmt.Errorf("%s: %w", cell.Name(), err)
		}
		runs = append(runs, r)
	}
	if len(runs) == 0 {
		return errors.New("nothing was run")
	}
	return f.report(cmd, runs)
}

// cell runs one cell, again while its driver is late. Which run counts depends
// on nothing but that, or it would be the luckiest.
func (f *chaosFlags) cell(ctx context.Context, cell bench.Cell, o stage.Options) (best *bench.Run, err error) {
	s := cell.Scenario(f.quick)
	o.Scenario, o.Scope, o.Replicas, o.Tenants, o.Seed = s, "replica", chaosReplicas, s.Tenants, f.seed
	o.Limit, o.Warm, o.Measured = s.Rate, s.Warm, s.Measured
	for range f.tries {
		r, err := stage.Run(ctx, o)
		if err != nil {
			return nil, err
		}
		if best == nil || r.Lateness() < best.Lateness() {
			best = r
		}
		if !best.Late() {
			break
		}
	}
	return best, nil
}

// report prints the table, writes the files, and holds the runs against what
// is promised.
func (f *chaosFlags) report(cmd *cobra.Command, runs bench.Chaos) error {
	write, logs := runs.WriteText, cmd.ErrOrStderr()
	if f.json {
		write = runs.WriteJSON
	}
	if err := write(cmd.OutOrStdout()); err != nil {
		return err
	}
	if err := f.files(runs); err != nil {
		return err
	}
	missed := runs.Missed()
	for _, text := range missed {
		fmt.Fprintln(logs, "goal missed:", text)
	}
	if err := runs.Check(); err != nil {
		return fmt.Errorf("promises broken:\n%w", err)
	}
	if f.strict && len(missed) > 0 {
		return fmt.Errorf("--strict: %d goals missed", len(missed))
	}
	return nil
}

// files writes what --out and --readme ask for.
func (f *chaosFlags) files(runs bench.Chaos) error {
	date := time.Now().Format(time.DateOnly)
	if f.readme != "" {
		text, err := os.ReadFile(f.readme)
		if err != nil {
			return err
		}
		if text, err = runs.Splice(text, date); err != nil {
			return fmt.Errorf("%s: %w", f.readme, err)
		}
		if err := os.WriteFile(f.readme, text, 0o644); err != nil {
			return err
		}
	}
	if f.out == "" {
		return nil
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	var md strings.Builder
	if err := runs.WriteMarkdown(&md, date); err != nil {
		return err
	}
	return errors.Join(
		writeFile(filepath.Join(f.out, "chaos.json"), runs.WriteJSON),
		os.WriteFile(filepath.Join(f.out, "chaos.md"), []byte("# Without the store\n\n"+md.String()), 0o644),
	)
}
