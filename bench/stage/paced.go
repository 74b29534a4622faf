package stage

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/gateway/replica"
)

// PacedOptions say how a fleet is run against a provider's quota.
type PacedOptions struct {
	Replicas int  // > 0
	Fixed    bool // the quota is renewed at fixed instants
	// Naive has each replica be a client that keeps a naive throttle, straight to
	// the provider, to compare with.
	Naive          bool
	Warm, Measured time.Duration
	Seed           uint64
	Late           bench.LateRule // of the provider's answers
	// Redis is the host:port of a server; empty: an embedded one. Headway is the
	// program to start replicas with; empty: replicas in this process.
	Redis, Headway string
	Logs           io.Writer // errors of replicas in this process
}

// PacedQuota is what the provider of paced runs gives. Its windows are short, so
// that a run sees many resets; and the share of one replica of 32 is still some
// requests.
var PacedQuota = bench.QuotaRate{Limit: 600, Per: 6 * time.Second}

// batchDeadline is how long batch requests may wait at a replica.
const batchDeadline = 30 * time.Second

// RunPaced runs saturating batch work and some interactive requests against the
// provider's quota. Latencies are log-normal, so answers overtake one another, and
// what their headers tell is late and out of order.
func RunPaced(ctx context.Context, o PacedOptions) (p bench.Paced, err error) {
	quota := bench.QuotaConfig{Requests: PacedQuota, Fixed: o.Fixed}
	provider, err := bench.StartUpstream("127.0.0.1:0", bench.ProviderConfig{
		Seed: o.Seed, Latency: bench.LogNormal(0.4, 0.5), Tokens: bench.Constant(4), Quota: quota, Late: o.Late,
	})
	if err != nil {
		return p, err
	}
	defer provider.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConns: 2000, MaxIdleConnsPerHost: 1000}}
	defer client.CloseIdleConnections()
	load := bench.PacedLoad{Replicas: o.Replicas, Quota: quota, Warm: o.Warm, Measured: o.Measured, Seed: o.Seed, Batchers: int(PacedQuota.Limit)}
	if o.Naive {
		load.Ask = naive(client, provider.URL, o.Replicas)
	} else {
		ask, end, err := o.fleet(ctx, client, provider.URL)
		defer end()
		if err != nil {
			return p, err
		}
		load.Ask = ask
	}
	p = load.Run(ctx, provider.Provider)
	p.Throttle = map[bool]string{true: "naive", false: "headway"}[o.Naive]
	if err := ctx.Err(); err != nil {
		return p, err
	}
	return p, nil
}

// fleet starts the replicas, and returns how to ask them and how to end them.
func (o PacedOptions) fleet(ctx context.Context, client *http.Client, provider string) (ask func(context.Context, int, bool) int, end func(), err error) {
	s := setting{
		run: strings.ToLower(rand.Text()[:8]), scope: "replica", provider: provider,
		limit:  bench.LimitReport{Dimension: "model", Requests: 1e6, PerS: 1, Burst: 1e6}, // the provider's quota decides
		places: 1, tenants: []bench.Tenant{{Load: bench.Load{Tenant: "a", Weight: 1}}},
		immediate: true, timeout: storeTimeout, throttled: true,
	}
	f, end, err := startFleet(ctx, s, o.Replicas, o.Redis, o.Headway, o.Logs)
	if err != nil {
		return nil, end, err
	}
	targets := f.targets()
	return func(ctx context.Context, i int, batch bool) int {
		status, _ := post(ctx, client, targets[i], s.key(0), s.model(), batch)
		return status
	}, end, nil
}

// startFleet starts n replicas with a Redis, embedded if its address is empty, and in
// this process if there is no program. end ends them, also after an error.
func startFleet(ctx context.Context, s setting, n int, redis, headway string, logs io.Writer) (f *fleet, end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range slices.Backward(ends) {
			f()
		}
	}
	if s.redis = redis; redis == "" {
		embedded, err := replica.StartEmbedded()
		if err != nil {
			return nil, end, err
		}
		s.redis, ends = embedded.Addr(), append(ends, embedded.Close)
	} else if !ping(redis) {
		return nil, end, fmt.Errorf("stage: no Redis answers at %s", redis)
	}
	launch := launchLocal(cmp.Or(logs, io.Discard))
	if headway != "" {
		dir, err := os.MkdirTemp("", "headway-bench-")
		if err != nil {
			return nil, end, err
		}
		ends = append(ends, func() { os.RemoveAll(dir) })
		launch = launchProcess(headway, dir)
	}
	if f, err = newFleet(s, launch, n, false); err != nil {
		return nil, end, err
	}
	ends = append(ends, f.close)
	return f, end, f.start(ctx)
}

// naive is so many clients that know nothing of each other.
func naive(client *http.Client, provider string, n int) func(context.Context, int, bool) int {
	all := make([]*bench.Naive, n)
	for i := range all {
		all[i] = &bench.Naive{Send: func(ctx context.Context) (int, http.Header) {
			return post(ctx, client, provider, "", "m", false)
		}}
	}
	return func(ctx context.Context, i int, batch bool) int { return all[i].Ask(ctx, batch) }
}

// post sends one request, and returns the status of its answer; 0 without one.
func post(ctx context.Context, client *http.Client, target, key, model string, batch bool) (int, http.Header) {
	body := fmt.Sprintf(`{"model":%q,"max_tokens":4,"messages":[{"role":"user","content":"hello"}]}`, model)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target+"/v1/chat/completions", bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	if batch {
		r.Header.Set("X-Headway-Priority", "batch")
		r.Header.Set("X-Headway-Deadline-Ms", fmt.Sprint(batchDeadline.Milliseconds()))
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil && errors.Is(err, context.Canceled) {
		return 0, nil
	}
	return resp.StatusCode, resp.Header
}
