// Headway is a fleet limiter and gateway: many replicas of this program share
// one limit exactly and divide it fairly between tenants.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes of both programs.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // wrong flags or a wrong configuration
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program: results go to stdout, everything else to stderr.
// A cancelled ctx means that the process should drain and end.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := rootCommand()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var usage UsageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, err)
		return exitUsage
	case strings.HasPrefix(err.Error(), "unknown command"): // cobra has no type for it
		fmt.Fprintln(stderr, "headway:", err)
		return exitUsage
	}
	fmt.Fprintln(stderr, "headway:", err)
	return exitFailed
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "headway",
		Short: "A fleet limiter and gateway for LLM and API traffic",
		Long: `Headway limits a fleet of replicas exactly and shares the limit fairly between
tenants. Buckets and in-flight slots live in Redis; replicas tell each other
about their lines by gossip.`,
		Example: `  headway demo --duration 20s          three replicas, load and a live table, nothing to install
  headway serve                        one replica on loopback with a simulated provider
  headway serve --config headway.yaml  one replica of a fleet
  headway config validate headway.yaml
  headway explain --key web --model gpt-4o`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("headway {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return UsageError{fmt.Errorf("headway: %w\nSee '%s --help'", err, cmd.CommandPath())}
	})
	root.AddCommand(serveCommand(), demoCommand(), configCommand(), explainCommand(), topCommand(), versionCommand())
	for _, c := range root.Commands() {
		requireKnownArgs(c)
	}
	return root
}

// requireKnownArgs makes stray arguments of cmd and its children usage errors.
func requireKnownArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return UsageError{fmt.Errorf("headway: %w\nSee '%s --help'", err, c.CommandPath())}
			}
			return nil
		}
	}
	for _, child := range cmd.Commands() {
		requireKnownArgs(child)
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), "headway", version()) },
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
