package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/replica"
)

func serveCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one gateway replica",
		Long: `Run one gateway replica until SIGTERM or SIGINT, which drain it; a second
signal ends it at once. SIGHUP, or a change of the file, puts what the file says
in force; a wrong file changes nothing.

Without --config the file is ` + defaultConfigFile + `, as for the other commands. Where there is
none, it serves on 127.0.0.1:8080 with an embedded store and a simulated provider,
for a first look. The only API key is "demo-key".`,
		Example: `  headway serve
  headway serve --config /etc/headway/headway.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := newLogger(cmd.ErrOrStderr())
			if path == "" {
				path = hereConfig(log)
			}
			cfg, cleanup, err := serveConfig(path, log)
			if err != nil {
				return err
			}
			defer cleanup()
			return serve(cmd.Context(), cfg, path, log)
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "configuration file (default "+defaultConfigFile+", if there is one)")
	return cmd
}

// hereConfig is the configuration that is taken where none is named; empty: there is
// no such file.
func hereConfig(log *slog.Logger) string {
	if _, err := os.Stat(defaultConfigFile); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	log.Info("no --config: the file in the working directory", "file", defaultConfigFile)
	return defaultConfigFile
}

// serveConfig loads path, or makes up a first look when there is none.
func serveConfig(path string, log *slog.Logger) (cfg *config.Config, cleanup func(), err error) {
	if path == "" {
		return firstLook(log)
	}
	cfg, err = config.Load(path)
	if err != nil {
		return nil, nil, UsageError{err}
	}
	for _, w := range cfg.Warnings() {
		log.Warn("configuration", "warning", w.String())
	}
	return cfg, func() {}, nil
}

// serve runs one replica until ctx ends or a listener fails. A change of the file
// at path, if there is one, or SIGHUP puts what it says in force.
func serve(ctx context.Context, cfg *config.Config, path string, log *slog.Logger) error {
	opts := replica.Options{Logger: log, Build: version(), File: path}
	if path != "" {
		opts.Load = func() (*config.Config, error) { return config.Load(path) }
	}
	r, err := replica.Start(ctx, cfg, opts)
	if path == "" && errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: write a "+defaultConfigFile+" with server.listen: 127.0.0.1:PORT (or server.admin_listen), and the rest as in deploy/examples/minimal.yaml", err)
	}
	if err != nil {
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // a closed terminal cuts no stream
	defer close(hangup)
	defer signal.Stop(hangup) // runs first
	go func() {
		for range hangup {
			_ = r.Reload() // it says itself what is wrong
		}
	}()
	select {
	case <-ctx.Done():
		drain := r.Config().Server.Drain
		log.Info("draining", "delay", drain.Delay.String(), "grace", drain.Grace.String())
	case err = <-r.Failed():
		log.Error("a listener failed", "error", err)
	}
	drain := r.Config().Server.Drain
	last, cancel := context.WithTimeout(context.Background(), drain.Delay+drain.Grace+5*time.Second)
	defer cancel()
	return errors.Join(err, r.Shutdown(last))
}

// newLogger logs text for people and JSON for machines, in both durations with their
// units.
func newLogger(w io.Writer) *slog.Logger {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: withUnit}))
}

// withUnit writes durations as "1s", which would be nanoseconds in JSON.
func withUnit(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// firstLookKey is the API key of a replica that runs without a configuration.
const firstLookKey = "demo-key"

// firstLook is the configuration of a replica without one: a simulated
// provider behind it, some limits to run into.
func firstLook(log *slog.Logger) (*config.Config, func(), error) {
	provider, err := startProvider()
	if err != nil {
		return nil, nil, err
	}
	text := fmt.Sprintf(`
server: {listen: "127.0.0.1:8080"}
redis: {timeout: 1s} # the embedded store shares this process's processors
keys: [{id: demo, key: %s, user: demo}]
upstreams: [{name: simulated, url: "%s"}]
routes: [{path: "/v1/*", upstream: simulated}]
rate_limiting:
  per_api_key: {requests: {limit: 5, per: 1s, burst: 10}, max_in_flight_requests: 32}
`, firstLookKey, provider.URL)
	cfg, err := config.Parse([]byte(text), os.LookupEnv)
	if err != nil {
		provider.Close()
		return nil, nil, fmt.Errorf("built-in configuration: %w", err)
	}
	log.Warn("no --config and no "+defaultConfigFile+": embedded store, simulated provider, loopback only", "key", firstLookKey, "provider", provider.URL)
	return cfg, provider.Close, nil
}
