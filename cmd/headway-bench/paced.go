package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/bench/stage"
)

// pacedScenario is the name of the run against a provider's quota, which is no
// fairness scenario: nobody has a share.
const pacedScenario = "provider-429"

const pacedHelp = `
provider-429 is another kind of run: batch work that never ends and 15 %
interactive requests, against a provider that gives 600 requests per 6 s, in
fixed windows and by continuous refill. Headway's throttle is compared with a
naive one that each replica keeps by itself. Of the settings it takes
--replicas, --duration, --warm-up, --seed and --json.
`

const (
	pacedWarm     = 12 * time.Second // two windows
	pacedMeasured = 30 * time.Second
)

// paced runs the scenario for both kinds of quota, naive and with Headway.
func (f *fairnessFlags) paced(cmd *cobra.Command) error {
	if f.replicas < 1 || f.replicas > maxReplicas {
		return misuse(cmd, fmt.Errorf("--replicas %d is not in 1..%d", f.replicas, maxReplicas))
	}
	o := stage.PacedOptions{Replicas: f.replicas, Seed: f.seed, Warm: pacedWarm, Measured: pacedMeasured, Logs: cmd.ErrOrStderr()}
	if f.duration > 0 {
		o.Measured = f.duration
	}
	if f.warm > 0 {
		o.Warm = f.warm
	}
	var table bench.PacedTable
	for _, o.Fixed = range []bool{true, false} {
		for _, o.Naive = range []bool{true, false} {
			r, err := stage.RunPaced(cmd.Context(), o)
			if errors.Is(err, context.Canceled) {
				return errors.New("interrupted")
			} else if err != nil {
				return fmt.Errorf("%s: %w", pacedScenario, err)
			}
			table = append(table, r)
		}
	}
	if f.json {
		return table.WriteJSON(cmd.OutOrStdout())
	}
	return table.WriteMarkdown(cmd.OutOrStdout())
}
