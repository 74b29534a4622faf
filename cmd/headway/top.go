package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
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
	// defaultAdmin is where a replica's admin listener is unless it was moved.
	defaultAdmin = "http://127.0.0.1:9090"
)

func topCommand() *cobra.Command {
	var admin, token string
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
--admin-token names as '${NAME}'.`,
		Example: `  headway top
  headway top --once --admin http://10.0.0.7:9090`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := newTop(admin, token)
			if err != nil {
				return err
			}
			return t.run(cmd.Context(), cmd.OutOrStdout(), once)
		},
	}
	cmd.Flags().StringVar(&admin, "admin", defaultAdmin, "address of a replica's admin listener")
	cmd.Flags().StringVar(&token, "admin-token", "${"+adminTokenName+"}", "variable with the admin token, as '${NAME}'")
	cmd.Flags().BoolVar(&once, "once", false, "write one frame, with the rates of one second, and end")
	return cmd
}

// top asks one replica again and again.
type top struct {
	base  *url.URL
	token string
}

func newTop(admin, token string) (*top, error) {
	base, err := url.Parse(admin)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, UsageError{errors.New("headway: --admin is not like " + defaultAdmin)}
	}
	name := reference.FindStringSubmatch(token)
	if name == nil {
		return nil, UsageError{errors.New("headway: --admin-token is not like '${NAME}': a token typed here would be seen by others")}
	}
	return &top{base, os.Getenv(name[1])}, nil
}

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
		if err := t.get(ctx, path, into); err != nil {
			return live, fmt.Errorf("top: %w", err)
		}
	}
	return live, nil
}

// get reads one document of the API.
func (t *top) get(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.base.JoinPath("api", path).String(), nil)
	if err != nil {
		return err
	}
	if t.token != "" {
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return explainFailure(resp.StatusCode, data)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("the answer of %s is no document of Headway: %w", t.base.Host, err)
	}
	return nil
}
