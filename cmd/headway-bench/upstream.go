package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headway-limiter/headway/bench"
)

// upstreamFlags are the settings of a provider as they are typed.
type upstreamFlags struct {
	listen                             string
	latency, tokenGap, tokens, padding string
	quota, tokenQuota, dialect, late   string
	fixed                              bool
	faults, models                     []string
	seed                               uint64
	window                             time.Duration
	json                               bool
}

func upstreamCommand() *cobra.Command {
	var f upstreamFlags
	cmd := &cobra.Command{
		Use:   "upstream",
		Short: "Run the simulated provider until a signal, then print its ledger",
		Long: `Run a simulated provider until SIGTERM or SIGINT, then print its ledger: starts,
most requests at once and cost, per tenant and per model.

It answers /v1/chat/completions and /v1/completions (JSON, or a stream up to
[DONE]), /v1/embeddings, /v1/models, and any other path with a small JSON echo.
GET /ledger shows the ledger while it runs, POST /ledger/reset begins a new page.
A request is written down under its ` + bench.HeaderTenant + ` header, else under the user
field of its body.

Distributions: 50ms (always), uniform:10ms,90ms, exp:50ms (mean),
lognormal:50ms,0.5 (median, sigma). Faults: hang, reset, cut, 429, 500, 503, 529;
one request asks for one with the header ` + bench.HeaderFault + `.`,
		Example: `  headway-bench upstream --listen 127.0.0.1:9000 --latency lognormal:400ms,0.5
  headway-bench upstream --latency 50ms --quota 600/1m --token-quota 90000/1m
  headway-bench upstream --fault 529:0.01 --fault hang:0.001 --seed 7 --json
  headway-bench upstream --quota 600/1m --dialect anthropic --late 0.2:500ms
  curl -s 127.0.0.1:9000/ledger`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.config()
			if err != nil {
				return misuse(cmd, err)
			}
			return runUpstream(cmd, f, cfg)
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *upstreamFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.listen, "listen", "127.0.0.1:0", "host:port to listen on; port 0 picks a free one")
	flags.StringVar(&f.latency, "latency", "0s", "distribution of the time to the first byte")
	flags.StringVar(&f.tokenGap, "token-gap", "0s", "distribution of the pause between tokens of a stream")
	flags.StringVar(&f.tokens, "tokens", "16", "distribution of the tokens of an answer; max_tokens cuts it")
	flags.StringVar(&f.padding, "padding", "0", "distribution of the bytes added to answers of plain paths")
	flags.StringVar(&f.quota, "quota", "", "requests that it takes per period, as in 600/1m; 429 beyond; empty: any number")
	flags.StringVar(&f.tokenQuota, "token-quota", "", "tokens that it takes per period, as in 90000/1m")
	flags.BoolVar(&f.fixed, "quota-fixed-window", false, "renew quotas at fixed instants, not continuously")
	flags.StringVar(&f.dialect, "dialect", "openai", "quota headers: "+strings.Join(bench.DialectNames(), ", "))
	flags.StringVar(&f.late, "late", "", "SHARE:DURATION of answers whose quota headers are of up to so long ago, or that come so much later, as in 0.2:300ms")
	flags.StringArrayVar(&f.faults, "fault", nil, "KIND:PROBABILITY of a spoiled answer; repeatable")
	flags.StringSliceVar(&f.models, "models", []string{"simulated-model"}, "names that /v1/models lists; every model is served")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of latencies, sizes and faults")
	flags.DurationVar(&f.window, "window", time.Second, "length of the windows in which the ledger counts starts")
	flags.BoolVar(&f.json, "json", false, `print {"url":…} first and the ledger last, one JSON object per line`)
}

// config reads what was typed; the error names every mistake.
func (f upstreamFlags) config() (cfg bench.ProviderConfig, err error) {
	var errs []error
	parse := func(d *bench.Dist, text string, read func(string) (bench.Dist, error)) {
		var err error
		*d, err = read(text)
		errs = append(errs, err)
	}
	parse(&cfg.Latency, f.latency, bench.ParseLatency)
	parse(&cfg.TokenGap, f.tokenGap, bench.ParseLatency)
	parse(&cfg.Tokens, f.tokens, bench.ParseSize)
	parse(&cfg.Padding, f.padding, bench.ParseSize)
	for r, text := range map[*bench.QuotaRate]string{&cfg.Quota.Requests: f.quota, &cfg.Quota.Tokens: f.tokenQuota} {
		if text != "" {
			var err error
			*r, err = bench.ParseQuotaRate(text)
			errs = append(errs, err)
		}
	}
	if f.late != "" {
		var err error
		cfg.Late, err = bench.ParseLate(f.late)
		errs = append(errs, err)
	}
	for _, text := range f.faults {
		rule, err := bench.ParseFault(text)
		cfg.Faults, errs = append(cfg.Faults, rule), append(errs, err)
	}
	if f.window <= 0 {
		errs = append(errs, fmt.Errorf("window %v must be above 0", f.window))
	}
	cfg.Quota.Fixed, cfg.Quota.Dialect = f.fixed, f.dialect
	cfg.Models, cfg.Seed, cfg.Window = f.models, f.seed, f.window
	if err = errors.Join(errs...); err == nil {
		_, err = bench.NewProvider(cfg) // finds what a single flag does not show
	}
	return cfg, err
}

// runUpstream serves until the command's context ends.
func runUpstream(cmd *cobra.Command, f upstreamFlags, cfg bench.ProviderConfig) error {
	u, err := bench.StartUpstream(f.listen, cfg)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f.json {
		err = json.NewEncoder(out).Encode(map[string]string{"url": u.URL})
	} else {
		_, err = fmt.Fprintln(out, "simulated provider on", u.URL)
	}
	if err == nil {
		<-cmd.Context().Done()
	}
	// The page is closed before the connections are, so that requests that are
	// cut off now do not look as if they had ended.
	s := u.Ledger().Snapshot()
	u.Close()
	if err == nil && f.json {
		err = json.NewEncoder(out).Encode(s)
	} else if err == nil {
		err = printLedger(out, s)
	}
	return err
}

// printLedger writes a ledger for people.
func printLedger(out io.Writer, s bench.Snapshot) error {
	rows := [][]string{{"", "starts", "in flight", "at once", fmt.Sprintf("per %gs", s.WindowS), "cost"}}
	row := func(name string, a bench.Account) {
		rows = append(rows, []string{
			name, fmt.Sprint(a.Starts), fmt.Sprint(a.InFlight), fmt.Sprint(a.Peak), fmt.Sprint(a.PeakWindow), fmt.Sprint(a.Cost),
		})
	}
	row("all", s.Total)
	for kind, accounts := range map[string]map[string]bench.Account{"tenant": s.Tenants, "model": s.Models} {
		for _, name := range slices.Sorted(maps.Keys(accounts)) {
			row(fmt.Sprintf("%s %q", kind, name), accounts[name])
		}
	}
	slices.SortFunc(rows[2:], func(a, b []string) int { return slices.Compare(b[:1], a[:1]) })
	_, err := fmt.Fprintf(out, "%s%d refused by its own quota, %d spoiled on purpose, %.1f s\n",
		bench.Table(rows), s.Refused, sum(s.Faults), s.ElapsedS)
	return err
}

func sum(faults map[bench.Fault]int64) (n int64) {
	for _, v := range faults {
		n += v
	}
	return n
}
