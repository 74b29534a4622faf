// Headway-bench measures Headway and whatever else limits requests: it plays
// the provider behind a fleet and judges what the fleet lets through.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes, the same as those of headway.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// usageError marks an error of whoever typed the command.
type usageError struct{ error }

// run is the whole program: results go to stdout, everything else to stderr.
// A cancelled ctx means that the command should finish and report.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(stderr, "headway-bench:", err)
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "headway-bench",
		Short: "Measure a fleet from outside",
		Long: `Headway-bench measures a fleet from outside. Its simulated provider keeps a
ledger of what reaches it: that ledger, not the fleet's own counters, is the
judge.`,
		Example: `  headway-bench run heavyall --scope exact --quick
  headway-bench compare heavyall --quick
  headway-bench chaos --quick
  headway-bench upstream --listen 127.0.0.1:9000 --latency 50ms
  headway-bench upstream --quota 600/1m --fault 529:0.01 --json`,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("headway-bench {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return misuse(cmd, err) })
	root.AddCommand(runCommand(), compareCommand(), chaosCommand(), upstreamCommand(), versionCommand())
	for _, cmd := range append(root.Commands(), root) {
		check := cmd.Args
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return misuse(cmd, err)
			}
			return nil
		}
	}
	return root
}

// misuse says what was typed wrong and where to read on.
func misuse(cmd *cobra.Command, err error) error {
	return usageError{fmt.Errorf("%w\nSee '%s --help'", err, cmd.CommandPath())}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), "headway-bench", version()) },
	}
}

// version is the module's version, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel+" + s.Value[:12]
		}
	}
	return "devel"
}
