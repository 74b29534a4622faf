package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/bench/stage"
)

const pacedHelp = `
provider-429 is another kind of run: batch work that never ends and 15 %
interactive requests, against a provider that gives 600 requests per 6 s, in
fixed windows and by continuous refill. Headway's throttle is compared with a
naive one that each replica keeps by itself. Of the settings it takes
--replicas, --duration, --warm-up, --seed, --redis, --processes, --headway,
--late, --json, --out and --assert, whose SCOPE is headway or naive there and
holds for both kinds of quota.
`

const (
	pacedWarm     = 12 * time.Second // two windows
	pacedMeasured = 30 * time.Second
)

// pacedOptions reads what was typed; the error names every mistake.
func (f *fairnessFlags) pacedOptions() (o stage.PacedOptions, err error) {
	o = stage.PacedOptions{
		Replicas: f.replicas, Seed: f.seed,
		Warm: cmp.Or(f.warm, pacedWarm), Measured: cmp.Or(f.duration, pacedMeasured),
	}
	var errs [3]error
	o.Redis, errs[0] = f.fleet()
	errs[2] = f.assertable([]string{"headway", "naive"}, bench.Paced{})
	if f.late != "" {
		o.Late, errs[1] = bench.ParseLate(f.late)
	}
	return o, errors.Join(errs[:]...)
}

// fleet reads what runs that are no fairness scenarios take in common: how many
// replicas, and on which store (empty: an embedded one). The error names every mistake.
func (f *fairnessFlags) fleet() (redis string, err error) {
	var errs []error
	if f.replicas < 1 || f.replicas > maxReplicas {
		errs = append(errs, fmt.Errorf("--replicas %d is not in 1..%d", f.replicas, maxReplicas))
	}
	if f.redis != "embedded" {
		redis = f.redis
	} else if f.processes {
		errs = append(errs, errors.New("--processes needs --redis HOST:PORT: the embedded store is in this process"))
	}
	return redis, errors.Join(errs...)
}

// paced runs the scenario for both kinds of quota, naive and with Headway.
func (f *fairnessFlags) paced(cmd *cobra.Command) error {
	o, err := f.pacedOptions()
	if err != nil {
		return misuse(cmd, err)
	}
	o.Logs = cmd.ErrOrStderr()
	end, err := f.program(cmd.Context(), &o.Headway)
	defer end()
	if err != nil {
		return err
	}
	var table bench.PacedTable
	for _, o.Fixed = range []bool{true, false} {
		for _, o.Naive = range []bool{true, false} {
			r, err := stage.RunPaced(cmd.Context(), o)
			if errors.Is(err, context.Canceled) {
				return errors.New("interrupted")
			} else if err != nil {
				return fmt.Errorf("%s: %w", bench.PacedScenario, err)
			}
			table = append(table, r)
		}
	}
	write := table.WriteMarkdown
	if f.json {
		write = table.WriteJSON
	}
	if err := write(cmd.OutOrStdout()); err != nil {
		return err
	}
	if err := f.keep(fmt.Sprintf("%s-%d", bench.PacedScenario, f.replicas), map[string]writer{".json": table.WriteJSON, ".md": table.WriteMarkdown}); err != nil {
		return err
	}
	var rows []scoped
	for _, r := range table {
		rows = append(rows, scoped{r.Throttle, r})
	}
	return f.hold(rows)
}

// program finds the program for --processes; end removes what was built for it.
func (f *fairnessFlags) program(ctx context.Context, headway *string) (end func(), err error) {
	end = func() {}
	if !f.processes {
		return end, nil
	}
	dir, err := os.MkdirTemp("", "headway-bench-")
	if err != nil {
		return end, err
	}
	*headway, err = stage.FindHeadway(ctx, f.headway, dir)
	return func() { os.RemoveAll(dir) }, err
}

// keep writes a report into --out, if there is one, a file for each ending.
func (f *fairnessFlags) keep(name string, files map[string]writer) error {
	if f.out == "" {
		return nil
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return err
	}
	for ending, write := range files {
		if err := writeFile(filepath.Join(f.out, name+ending), write); err != nil {
			return err
		}
	}
	return nil
}
