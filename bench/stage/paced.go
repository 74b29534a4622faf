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
	"strings"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/gateway/replica"
)

// PacedOptions say how a fleet is run against a provider's quota.
type PacedOptions struct {
	Replicas int  // > 0, in this process
	Fixed    bool // the quota is renewed at fixed instants
	// Naive has each replica be a client that keeps a naive throttle, straight to
	// the provider, to compare with.
	Naive          bool
	Warm, Measured time.Duration
	Seed           uint64
	Logs           io.Writer // errors of replicas
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
		Seed: o.Seed, Latency: bench.LogNormal(0.4, 0.5), Tokens: bench.Constant(4), Quota: quota,
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
	end = func() {}
	redis, err := replica.StartEmbedded()
	if err != nil {
		return nil, end, err
	}
	s := setting{
		run: strings.ToLower(rand.Text()[:8]), scope: "replica", redis: redis.Addr(), provider: provider,
		limit:  bench.LimitReport{Dimension: "model", Requests: 1e6, PerS: 1, Burst: 1e6}, // the provider's quota decides
		places: 1, tenants: []bench.Tenant{{Load: bench.Load{Tenant: "a", Weight: 1}}},
		immediate: true, timeout: storeTimeout, throttled: true,
	}
	f, err := newFleet(s, launchLocal(cmp.Or(o.Logs, io.Discard)), o.Replicas, false)
	if err != nil {
		redis.Close()
		return nil, end, err
	}
	end = func() { f.close(); redis.Close() }
	if err := f.start(ctx); err != nil {
		return nil, end, err
	}
	targets := f.targets()
	return func(ctx context.Context, i int, batch bool) int {
		status, _ := post(ctx, client, targets[i], s.key(0), s.model(), batch)
		return status
	}, end, nil
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
