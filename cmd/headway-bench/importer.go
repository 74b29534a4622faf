package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/bench/stage"
)

const importerHelp = `
importer is another kind, too: one tenant brings 10,000 batch jobs (1,000 with
--quick) to a provider's quota that 20 small tenants and interactive requests
use as well. It says by the provider's ledger whether turns, tokens and weights
are shared, and what became of interactive requests and of the reserve. With
--path held jobs are requests that wait on their connections, with --path
durable they are files and batches. It takes --replicas, --seed, --quick,
--redis, --processes, --headway, --json, --out and --assert, whose SCOPE is the
path.
`

// importerOptions reads what was typed; the error names every mistake.
func (f *fairnessFlags) importerOptions() (o stage.ImporterOptions, err error) {
	o = stage.ImporterOptions{Path: f.path, Replicas: f.replicas, Quick: f.quick, Seed: f.seed}
	var errs [3]error
	o.Redis, errs[0] = f.fleet()
	errs[2] = f.assertable([]string{o.Path}, bench.Importer{})
	if o.Path != stage.PathHeld && o.Path != stage.PathDurable {
		errs[1] = fmt.Errorf("--path %q is not %s or %s", o.Path, stage.PathHeld, stage.PathDurable)
	}
	return o, errors.Join(errs[:]...)
}

// importer runs the scenario.
func (f *fairnessFlags) importer(cmd *cobra.Command) error {
	o, err := f.importerOptions()
	if err != nil {
		return misuse(cmd, err)
	}
	o.Logs = cmd.ErrOrStderr()
	end, err := f.program(cmd.Context(), &o.Headway)
	defer end()
	if err != nil {
		return err
	}
	r, err := stage.RunImporter(cmd.Context(), o)
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	} else if err != nil {
		return fmt.Errorf("%s: %w", bench.ImporterScenario, err)
	}
	write := r.WriteMarkdown
	if f.json {
		write = r.WriteJSON
	}
	if err := write(cmd.OutOrStdout()); err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%s-%d", bench.ImporterScenario, r.Path, r.Replicas)
	if err := f.keep(name, map[string]writer{".json": r.WriteJSON, ".md": r.WriteMarkdown}); err != nil {
		return err
	}
	return f.hold([]scoped{{r.Path, r}})
}
