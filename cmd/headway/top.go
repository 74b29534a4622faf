package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-limiter/headway/gateway/console"
)

const (
	// topEvery is how often a replica is asked, topWithin how long it may take.
	topEvery  = time.Second
	topWithin = 5 * time.Second
	// maxDocument bounds what it answers, in bytes.
	maxDocument = 4 << 20
)

func topCommand() *cobra.Command {
	var admin adminFlags
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show live what a replica and its fleet are doing",
		Long: `Show live what a replica and its fleet are doing: members, store, tenants with
what they are entitled to and what they receive, queues, agents and providers.
It is what the console shows, for terminals. Ctrl-C ends it.

On a terminal the view is drawn in place each second; without one, a frame is
written each second. NO_COLOR takes the colours away. The admin token, if the
listener asks for one, is in ` + adminTokenName + `, or in another variable that
--admin-token names as '${NAME}'. --ca names the authority of a listener with TLS,
--client-cert and --client-key a certificate where it asks for one.`,
		Example: `  headway top
  headway top --once --admin http://10.0.0.7:9090
  headway top --admin https://gateway.example.com:9090 --ca /etc/headway/ca.pem`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			replica, err := admin.listener()
			if err != nil {
				return err
			}
			return (&top{replica}).run(cmd.Context(), cmd.OutOrStdout(), once)
		},
	}
	admin.register(cmd, defaultAdmin)
	cmd.Flags().BoolVar(&once, "once", false, "write one frame, with the rates of one second, and end")
	return cmd
}

// top asks one replica again and again.
type top struct{ replica *listener }

// run shows frames until ctx ends, or one. The first needs two looks, for rates.
// Once it has shown one, a replica that does not answer is waited for.
func (t *top) run(ctx context.Context, out io.Writer, once bool) error {
	screen := newTerminal(out, !once)
	if !screen.live {
		screen.width = func() int { return math.MaxInt } // a file has no margin
	} else {
		fmt.Fprint(out, hideCursor)
		defer fmt.Fprint(out, showCursor)
	}
	before, err := t.look(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(topEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now, err := t.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (once || isUsage(err)):
			return err
		case err != nil:
			screen.draw([]string{"", screen.paint(red, cut(err.Error(), screen.width()))})
			continue
		}
		screen.draw(topLines(&screen, before, now))
		if before = now; once {
			return nil
		}
	}
}

// isUsage reports whether trying again is of no use.
func isUsage(err error) bool { var usage UsageError; return errors.As(err, &usage) }

// look asks for one snapshot.
func (t *top) look(ctx context.Context) (live console.Live, err error) {
	ctx, cancel := context.WithTimeout(ctx, topWithin)
	defer cancel()
	for path, into := range map[string]any{
		"overview": &live.Overview, "tenants": &live.Tenants, "queues": &live.Queues, "agents": &live.Agents,
	} {
		if err := t.replica.ask(ctx, path, nil, maxDocument, into); err != nil {
			return live, err
		}
	}
	return live, nil
}
