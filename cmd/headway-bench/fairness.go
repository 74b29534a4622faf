package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/bench/stage"
)

const (
	// defaultReplicas is the fleet that the figures of bench/README.md are of.
	defaultReplicas = 8
	maxReplicas     = 64
	// embeddedLimit is what the embedded store can show beside everything else on
	// two cores, in requests per second.
	embeddedLimit = 60
	// quickWarm and quickMeasured make four runs fit into a minute.
	quickWarm     = 2 * time.Second
	quickMeasured = 8 * time.Second
	quickTenants  = 300 // at most
)

// fairnessFlags are the settings of run and compare as they are typed.
type fairnessFlags struct {
	replicas, tenants int
	duration, warm    time.Duration
	seed              uint64
	limit             int64
	scope             string
	redis             string
	onOutage          string
	processes         bool
	headway           string
	quick, json       bool
	out               string
	late, path        string
	asserts           []string
}

const fairnessHelp = `
The fleet is real: replicas with listeners, gossip and Redis connections of
their own, in this process or, with --processes, "headway serve" processes. The
load is open-loop and seeded: one tenant floods, 30 % want three times their
share, all others want little. Every figure about limits and shares comes from
what the simulated provider behind the replicas saw.

Scopes: fifo (one line for all), replica, gossip, exact (fairness_scope).
`

func runCommand() *cobra.Command {
	var f fairnessFlags
	cmd := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Run a scenario against a fleet and report how fair it was",
		Long:  "Run a scenario against a fleet and report how fair it was.\n" + fairnessHelp + scenarioHelp() + pacedHelp + importerHelp,
		Example: `  headway-bench run heavyall --scope exact --quick
  headway-bench run provider-429 --replicas 8
  headway-bench run importer --replicas 2 --path durable --quick
  headway-bench run weights --scope exact --redis 127.0.0.1:6379 --processes --out reports`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case bench.PacedScenario:
				return f.paced(cmd)
			case bench.ImporterScenario:
				return f.importer(cmd)
			}
			return f.execute(cmd, args[0], []string{f.scope})
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVar(&f.path, "path", stage.PathHeld, "how jobs come: "+stage.PathHeld+" or "+stage.PathDurable+" (importer)")
	cmd.Flags().StringVar(&f.late, "late", "", "SHARE:DURATION of the provider's answers that tell of the past or come late (provider-429)")
	cmd.Flags().StringVar(&f.scope, "scope", "exact", "how far fairness reaches: "+strings.Join(stage.Scopes, ", "))
	return cmd
}

func compareCommand() *cobra.Command {
	var f fairnessFlags
	cmd := &cobra.Command{
		Use:   "compare SCENARIO",
		Short: "Run a scenario once per scope and print the figures side by side",
		Long:  "Run a scenario once per scope, with one seed, and print the figures side by side.\n" + fairnessHelp + scenarioHelp(),
		Example: `  headway-bench compare heavyall --quick
  headway-bench compare heavyall --redis 127.0.0.1:6379 --processes --out reports
  headway-bench compare heavyall --quick --assert 'exact.jain>=0.99'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.execute(cmd, args[0], f.scopes()) },
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVar(&f.scope, "scope", "", "scopes to compare, with commas; empty: all that this version has")
	return cmd
}

func (f *fairnessFlags) register(flags *pflag.FlagSet) {
	flags.IntVar(&f.replicas, "replicas", defaultReplicas, "replicas of the fleet")
	flags.IntVar(&f.tenants, "tenants", 0, "tenants; 0: the scenario's own number")
	flags.DurationVar(&f.duration, "duration", 0, "of the measured part, in whole seconds; 0: the scenario's own")
	flags.DurationVar(&f.warm, "warm-up", 0, "load before the measured part, in whole seconds; 0: the scenario's own")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of everything that is drawn")
	flags.Int64Var(&f.limit, "limit", 0, "shared limit in requests per second; 0: the scenario's own, 60 with the embedded store")
	flags.StringVar(&f.redis, "redis", "embedded", "embedded, or host:port of a server; its other data is left alone")
	flags.StringVar(&f.onOutage, "on-outage", "", "what replicas do without a usable store: "+strings.Join(bench.Policies, ", ")+"; empty: the scenario's own")
	flags.BoolVar(&f.processes, "processes", false, "start replicas as processes of their own; needs --redis, but not in scenarios that have a Redis of their own")
	flags.StringVar(&f.headway, "headway", "", "the headway program for --processes; empty: the one beside this program, or a fresh build")
	flags.BoolVar(&f.quick, "quick", false, "a shorter run: about 13 s per scope")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.StringVar(&f.out, "out", "", "directory to write the report to, as JSON, Markdown and HTML")
	flags.StringArrayVar(&f.asserts, "assert", nil, "SCOPE.KEY>=NUMBER (or <=) about a number of the JSON report: exit 1 if it does not hold; repeatable")
}

// scopes are those to compare.
func (f *fairnessFlags) scopes() []string {
	if f.scope != "" {
		return strings.Split(f.scope, ",")
	}
	return slices.DeleteFunc(slices.Clone(stage.Scopes), func(s string) bool { return !stage.Known(s) })
}

// options reads what was typed; the error names every mistake.
func (f *fairnessFlags) options(name string, scopes []string) (o stage.Options, err error) {
	s, err := bench.FindScenario(name)
	known := err == nil // or what was typed cannot be held against it
	if !known {
		err = fmt.Errorf("%w; run also has %s and %s", err, bench.PacedScenario, bench.ImporterScenario)
	}
	errs := []error{err}
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	o = stage.Options{
		Scenario: s, Replicas: f.replicas, Seed: f.seed, Version: version(),
		Tenants: cmp.Or(f.tenants, s.Tenants), Limit: cmp.Or(f.limit, s.Rate),
		Warm: cmp.Or(f.warm, s.Warm), Measured: cmp.Or(f.duration, s.Measured), OnOutage: f.onOutage,
	}
	if f.redis == "embedded" && !s.OwnsRedis() && f.limit == 0 && !s.Immediate {
		o.Limit = embeddedLimit
	}
	if f.redis != "embedded" {
		o.Redis = f.redis
	}
	if f.quick {
		o.Warm, o.Measured = cmp.Or(f.warm, quickWarm), cmp.Or(f.duration, quickMeasured)
		o.Tenants = cmp.Or(f.tenants, min(s.Tenants, quickTenants))
	}
	for _, scope := range scopes {
		wrong(!slices.Contains(stage.Scopes, scope), "--scope %q is not one of %s", scope, strings.Join(stage.Scopes, ", "))
		wrong(slices.Contains(stage.Scopes, scope) && !stage.Known(scope), "--scope %s: this version of headway does not have it", scope)
	}
	wrong(f.replicas < 1 || f.replicas > maxReplicas, "--replicas %d is not in 1..%d", f.replicas, maxReplicas)
	wrong(f.onOutage != "" && !slices.Contains(bench.Policies, f.onOutage), "--on-outage %q is not one of %s", f.onOutage, strings.Join(bench.Policies, ", "))
	wrong(f.replicas == 1 && (s.Has(bench.Leave) || s.Has(bench.GossipCut) || s.Has(bench.Crash)), "--replicas 1: %s needs others that stay", s.Name)
	wrong(f.tenants < 0 || f.tenants > 100_000, "--tenants %d is not in 0..100000", f.tenants)
	wrong(f.limit < 0, "--limit %d is negative", f.limit)
	wrong(known && o.Measured < time.Second || o.Measured%time.Second != 0, "--duration %v is not a number of whole seconds", f.duration)
	wrong(o.Warm < 0 || o.Warm%time.Second != 0, "--warm-up %v is not a number of whole seconds", f.warm)
	wrong(known && f.processes && f.redis == "embedded" && !s.OwnsRedis(), "--processes needs --redis HOST:PORT: the embedded store is in this process")
	wrong(known && f.headway != "" && !f.processes && !s.NeedsProcesses(), "--headway has no effect without --processes")
	errs = append(errs, f.assertable(scopes, &bench.Run{}))
	return o, errors.Join(errs...)
}

// execute runs the scenario in every scope and reports.
func (f *fairnessFlags) execute(cmd *cobra.Command, name string, scopes []string) error {
	o, err := f.options(name, scopes)
	if err != nil {
		return misuse(cmd, err)
	}
	ctx, logs := cmd.Context(), cmd.ErrOrStderr()
	if f.processes || o.Scenario.NeedsProcesses() {
		dir, err := os.MkdirTemp("", "headway-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if o.Headway, err = stage.FindHeadway(ctx, f.headway, dir); err != nil {
			return err
		}
	}
	o.Logs = logs
	show := newProgress(logs)
	o.Progress = show.update
	var runs bench.Comparison
	for _, scope := range scopes {
		o.Scope = scope
		r, err := stage.Run(ctx, o)
		show.clear()
		if errors.Is(err, context.Canceled) {
			return errors.New("interrupted")
		} else if err != nil {
			return fmt.Errorf("%s, scope %s: %w", name, scope, err)
		}
		fmt.Fprintf(logs, "%s: Jain %.4f, utilisation %.3f, %.2f calls per grant\n", scope, r.Jain, r.Utilisation, r.CallsPerGrant)
		runs = append(runs, r)
	}
	if err := f.report(cmd.OutOrStdout(), runs, cmd.Name() == "run"); err != nil {
		return err
	}
	return f.check(runs)
}

// report prints the figures and writes the files.
func (f *fairnessFlags) report(out io.Writer, runs bench.Comparison, single bool) error {
	write := runs.WriteText
	data := runs.WriteJSON
	if single {
		data = runs[0].WriteJSON
	}
	if f.json {
		write = data
	}
	if err := write(out); err != nil || f.out == "" {
		return err
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	base := filepath.Join(f.out, fmt.Sprintf("%s-%d", runs[0].Scenario, runs[0].Replicas))
	for ext, write := range map[string]func(io.Writer) error{".json": data, ".md": runs.WriteMarkdown, ".html": runs.WriteHTML} {
		if err := writeFile(base+ext, write); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// scenarioHelp lists all scenarios.
func scenarioHelp() string {
	cells := [][]string{}
	for _, s := range bench.Scenarios {
		cells = append(cells, []string{s.Name, s.Help})
	}
	var b strings.Builder
	b.WriteString("\nScenarios:\n")
	for _, c := range cells {
		fmt.Fprintf(&b, "  %-13s %s\n", c[0], c[1])
	}
	return b.String()
}

// progress is one line on a terminal, and nothing elsewhere.
type progress struct {
	out  io.Writer
	live bool
}

func newProgress(out io.Writer) *progress {
	f, ok := out.(*os.File)
	return &progress{out: out, live: ok && term.IsTerminal(int(f.Fd()))}
}

const barWidth = 30

func (p *progress) update(at stage.Progress) {
	if !p.live {
		return
	}
	done := min(int(barWidth*at.Elapsed/max(at.Total, 1)), barWidth)
	fmt.Fprintf(p.out, "\r\x1b[K%-8s [%s%s] %.0f of %.0f s, %d requests served", at.Scope,
		strings.Repeat("#", done), strings.Repeat(".", barWidth-done), at.Elapsed.Seconds(), at.Total.Seconds(), at.Starts)
}

func (p *progress) clear() {
	if p.live {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
