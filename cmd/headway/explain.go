package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-limiter/headway/gateway"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/cost"
)

const (
	// adminTokenName is the variable with the token of the admin listener.
	adminTokenName = "HEADWAY_ADMIN_TOKEN"
	// explainWithin bounds the question to a replica.
	explainWithin = 10 * time.Second
	// maxExplanation bounds its answer, in bytes.
	maxExplanation = 16 << 20
)

// explainFlags are the settings of headway explain as they are typed.
type explainFlags struct {
	question           gateway.Question
	key                string
	file, admin, token string
	promptFile         string
	json               bool
}

func explainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Say which limits, queue and upstreams a request would meet, and why",
		Long: `Say what a request would meet: what it is taken to cost and why, which limits
apply to it, where it would wait and with which weight, and which upstreams and
agents may serve it. Nothing is taken and nothing is sent upstream.

With --config the answer is that of the file. With --admin a running replica
answers, with what its buckets, lines, agents and providers have now.

--key is the id of an API key, or '${NAME}' for the key itself in a variable; it
is never printed. The admin token is in ` + adminTokenName + `, or in another
variable that --admin-token names as '${NAME}'.

--prompt-file is a text, or the JSON body of a request; - is standard input.`,
		Example: `  headway explain --key web --model gpt-4o
  headway explain --key web --model gpt-4o --config headway.yaml --prompt-file prompt.txt
  headway explain --key '${API_KEY}' --model gpt-4o --admin http://127.0.0.1:9090 --tokens 2000
  headway explain --key importer --model gpt-4o --batch --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.key, "key", "k", "", "id of an API key, or '${NAME}' for the key itself")
	flags.StringVarP(&f.question.Model, "model", "m", "", "model that the request names")
	flags.StringVar(&f.question.Path, "path", gateway.DefaultPath, "path that it is sent to")
	flags.StringVarP(&f.file, "config", "c", "", "configuration file (default "+defaultConfigFile+")")
	flags.StringVar(&f.admin, "admin", "", "address of a replica's admin listener, such as http://127.0.0.1:9090")
	flags.StringVar(&f.token, "admin-token", "${"+adminTokenName+"}", "variable with the admin token, as '${NAME}'")
	flags.StringVar(&f.promptFile, "prompt-file", "", "file with the prompt, or with the request's JSON body")
	flags.Int64Var(&f.question.Tokens, "tokens", 0, "tokens of the prompt, in place of a file")
	flags.Int64Var(&f.question.MaxTokens, "max-tokens", 0, "bound on the completion in tokens; 0: none")
	flags.BoolVar(&f.question.Batch, "batch", false, "a batch request (x-headway-priority: batch)")
	flags.BoolVar(&f.json, "json", false, "print one JSON object")
	return cmd
}

// reference is a variable, as it is written in configurations.
var reference = regexp.MustCompile(`^\$\{([A-Za-z_][A-Za-z0-9_]*)\}$`)

// run asks, and prints the answer.
func (f *explainFlags) run(cmd *cobra.Command) error {
	if err := f.read(cmd.InOrStdin()); err != nil {
		return err
	}
	var e gateway.Explanation
	var err error
	if f.admin != "" {
		e, err = f.ask(cmd.Context())
	} else {
		e, err = f.workOut()
	}
	if err != nil {
		return err
	}
	if f.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(e)
	}
	return printExplanation(cmd.OutOrStdout(), e)
}

// read makes the question from the flags.
func (f *explainFlags) read(stdin io.Reader) error {
	switch {
	case f.file != "" && f.admin != "":
		return UsageError{errors.New("headway: give --config or --admin, not both")}
	case f.promptFile != "" && f.question.Tokens != 0:
		return UsageError{errors.New("headway: give --prompt-file or --tokens, not both")}
	}
	f.question.KeyID = f.key
	if name := reference.FindStringSubmatch(f.key); name != nil {
		f.question.KeyID = ""
		if f.question.RawKey = os.Getenv(name[1]); f.question.RawKey == "" {
			return UsageError{fmt.Errorf("headway: --key: the variable %s is not set", name[1])}
		}
	}
	if f.promptFile == "" {
		return nil
	}
	var text []byte
	var err error
	if f.promptFile == "-" {
		text, err = io.ReadAll(stdin)
	} else {
		text, err = os.ReadFile(f.promptFile)
	}
	if err != nil {
		return UsageError{fmt.Errorf("headway: --prompt-file: %w", err)}
	}
	if trimmed := bytes.TrimSpace(text); json.Valid(trimmed) && len(trimmed) > 0 && trimmed[0] == '{' {
		f.question.Body = trimmed
		return nil
	}
	f.question.Body, err = json.Marshal(map[string]any{"messages": []any{map[string]string{"role": "user", "content": string(text)}}})
	return err
}

// workOut answers by a configuration alone.
func (f *explainFlags) workOut() (gateway.Explanation, error) {
	if f.file == "" {
		f.file = defaultConfigFile
	}
	cfg, err := config.Load(f.file)
	if err != nil {
		return gateway.Explanation{}, UsageError{err}
	}
	estimator := cost.New(true)
	defer estimator.Close()
	e, err := gateway.Explain(cfg, f.question, estimator)
	if err != nil {
		return e, UsageError{err}
	}
	return e, nil
}

// ask has a running replica answer.
func (f *explainFlags) ask(ctx context.Context) (e gateway.Explanation, err error) {
	base, err := url.Parse(f.admin)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return e, UsageError{errors.New("headway: --admin is not like http://127.0.0.1:9090")}
	}
	name := reference.FindStringSubmatch(f.token)
	if name == nil {
		return e, UsageError{errors.New("headway: --admin-token is not like '${NAME}': a token typed here would be seen by others")}
	}
	body, err := json.Marshal(f.question)
	if err != nil {
		return e, err
	}
	ctx, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base.JoinPath("api/explain").String(), bytes.NewReader(body))
	if err != nil {
		return e, err
	}
	r.Header.Set("Content-Type", "application/json")
	if token := os.Getenv(name[1]); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return e, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxExplanation))
	if err != nil {
		return e, err
	}
	if resp.StatusCode != http.StatusOK {
		return e, explainFailure(resp.StatusCode, data)
	}
	if err = json.Unmarshal(data, &e); err != nil {
		err = fmt.Errorf("the answer of %s is no explanation: %w", base.Host, err)
	}
	return e, err
}

// explainFailure is what a replica says of a question that it cannot answer.
func explainFailure(status int, body []byte) error {
	var said struct {
		Error struct{ Message string }
	}
	if json.Unmarshal(body, &said) != nil || said.Error.Message == "" {
		said.Error.Message = "no Headway admin listener?"
	}
	err := fmt.Errorf("headway: %s (status %d)", said.Error.Message, status)
	if status == http.StatusUnprocessableEntity || status == http.StatusUnauthorized {
		return UsageError{err}
	}
	return err
}

// printExplanation writes an explanation for people.
func printExplanation(out io.Writer, e gateway.Explanation) error {
	var b strings.Builder
	who := e.Key
	if who == "" {
		who = "(none)"
	}
	fmt.Fprintf(&b, "%s\n\nkey %s, model %q, POST %s\n", e.Verdict, who, e.Model, e.Path)
	if len(e.Exempt) > 0 {
		fmt.Fprintf(&b, "exempt from %s\n", strings.Join(e.Exempt, ", "))
	}
	fmt.Fprintf(&b, "\nestimate  %d tokens: %d input (%s) + %d output\n", e.Estimate.Total, e.Estimate.Input, e.Estimate.How, e.Estimate.Output)
	fmt.Fprintf(&b, "          %s\n\n", strings.ReplaceAll(e.Estimate.Why, "; ", "\n          "))
	rows := [][]string{{"LIMIT", "CLASS", "RULE", "COST", "LEFT", "IF REFUSED", "ON OUTAGE"}}
	for _, l := range e.Limits {
		rows = append(rows, limitRow(l.Dimension, l))
	}
	for _, up := range e.Upstream {
		for _, l := range up.Limits {
			rows = append(rows, limitRow("backend "+up.Name, l))
		}
	}
	if len(rows) == 1 {
		fmt.Fprintln(&b, "no limit applies")
	} else if err := writeRows(&b, rows); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\n%s\n\n", queueLine(e))
	rows = [][]string{{"UPSTREAM", "SERVES IT", "AGENT", "PROVIDER"}}
	for _, up := range e.Upstream {
		rows = append(rows, upstreamRow(up))
	}
	if err := writeRows(&b, rows); err != nil {
		return err
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// writeRows aligns rows.
func writeRows(out io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

func limitRow(name string, l gateway.ShownLimit) []string {
	rule, left := fmt.Sprintf("%d at once", l.Limit), "-"
	if l.PerS > 0 {
		rule = fmt.Sprintf("%d per %v, burst %d", l.Limit, time.Duration(l.PerS*float64(time.Second)), l.Burst)
	}
	if l.Left != nil {
		left = fmt.Sprint(*l.Left)
	}
	if l.MissingS > 0 {
		left += fmt.Sprintf(" (enough in %.3f s)", l.MissingS)
	}
	if l.Never != "" {
		left = "never enough: " + l.Never
	}
	return []string{name, l.Class, rule, fmt.Sprint(l.Cost), left, l.Refused, l.OnOutage}
}

// queueLine says where the request would wait.
func queueLine(e gateway.Explanation) string {
	q := e.Queue
	switch {
	case !q.Enabled:
		return "queue     none: refusals are answered at once"
	case q.Tenant == "":
		return "queue     none for this request: it has no tenant"
	}
	text := fmt.Sprintf("queue     tenant %s (%s), weight %g, scope %s, waits up to %v",
		q.Tenant, q.Dimension, q.Weight, q.Scope, time.Duration(q.MaxWaitMS)*time.Millisecond)
	if e.Live {
		text += fmt.Sprintf("; waiting at this replica: %d, of this tenant %d", q.Waiting, q.Own)
	}
	return text
}

func upstreamRow(up gateway.ShownUpstream) []string {
	serves, agent, provider := "yes", "-", "-"
	if !up.Serves {
		serves = "no"
	}
	if up.Slots > 0 {
		if agent = fmt.Sprintf("%d slots", up.Slots); up.Healthy != nil {
			agent += fmt.Sprintf(", %d held, %d waiting here, healthy %v", up.Held, up.Waiting, *up.Healthy)
		}
	}
	if up.Throttle != "" {
		provider = up.Throttle
	}
	if up.State != "" {
		provider += "; " + up.State
	}
	for _, q := range up.Quota {
		provider += "; " + q
	}
	return []string{up.Name, serves, agent, provider}
}
