package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/headway-limiter/headway/gateway"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/cost"
)

const (
	// explainWithin bounds the question to a replica.
	explainWithin = 10 * time.Second
	// maxExplanation bounds its answer, in bytes.
	maxExplanation = 16 << 20
)

// explainFlags are the settings of headway explain as they are typed.
type explainFlags struct {
	question   gateway.Question
	key        string
	file       string
	admin      adminFlags
	promptFile string
	json       bool
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
variable that --admin-token names as '${NAME}'. --ca names the authority of a listener
with TLS, --client-cert and --client-key a certificate where it asks for one.

--path is that of the request as clients send it: also of a workspace, project or
agent, of a turn, or of the Batch API. Limits of clients are those of each address,
unless --client says which.

--prompt-file is a text, or the JSON body of a request; - is standard input.`,
		Example: `  headway explain --key web --model gpt-4o
  headway explain --key web --model gpt-4o --config headway.yaml --prompt-file prompt.txt
  headway explain --key '${API_KEY}' --model gpt-4o --admin http://127.0.0.1:9090 --tokens 2000
  headway explain --key web --model gpt-4o --path /workspaces/acme/v1/chat/completions
  headway explain --key importer --model gpt-4o --batch --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.key, "key", "k", "", "id of an API key, or '${NAME}' for the key itself")
	flags.StringVarP(&f.question.Model, "model", "m", "", "model that the request names")
	flags.StringVar(&f.question.Path, "path", gateway.DefaultPath, "path that it is sent to")
	flags.StringVar(&f.question.Method, "method", http.MethodPost, "method of the request")
	flags.StringVar(&f.question.Client, "client", "", "IP address that it comes from, for that client's limits and levels")
	flags.StringVarP(&f.file, "config", "c", "", "configuration file (default "+defaultConfigFile+")")
	f.admin.register(cmd, "")
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
	if f.admin.address != "" {
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
	case f.file != "" && f.admin.address != "":
		return UsageError{errors.New("headway: give --config or --admin, not both")}
	case f.admin.address == "" && f.admin.files != (adminFiles{}):
		return UsageError{errors.New("headway: --ca, --client-cert and --client-key are for a replica's listener: name it with --admin")}
	case f.promptFile != "" && f.question.Tokens != 0:
		return UsageError{errors.New("headway: give --prompt-file or --tokens, not both")}
	case f.question.Tokens < 0:
		return UsageError{fmt.Errorf("headway: --tokens: %d is fewer than none", f.question.Tokens)}
	case f.question.MaxTokens < 0:
		return UsageError{fmt.Errorf("headway: --max-tokens: %d is fewer than none", f.question.MaxTokens)}
	}
	f.question.KeyID = f.key
	if name := reference.FindStringSubmatch(f.key); name != nil {
		f.question.KeyID = ""
		if f.question.RawKey = os.Getenv(name[1]); f.question.RawKey == "" {
			return UsageError{fmt.Errorf("headway: --key: the variable %s is not set; export %[1]s=VALUE", name[1])}
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
	cfg, err := config.Load(cmp.Or(f.file, defaultConfigFile))
	switch {
	case f.file == "" && errors.Is(err, fs.ErrNotExist):
		return gateway.Explanation{}, UsageError{errors.New("headway: there is no " + defaultConfigFile + " here: name a file with --config, or a running replica with --admin")}
	case err != nil:
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
	replica, err := f.admin.listener()
	if err != nil {
		return e, err
	}
	body, err := json.Marshal(f.question)
	if err != nil {
		return e, err
	}
	ctx, cancel := context.WithTimeout(ctx, explainWithin)
	defer cancel()
	err = replica.ask(ctx, "explain", bytes.NewReader(body), maxExplanation, &e)
	return e, err
}
