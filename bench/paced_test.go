package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// direct sends a request straight to p.
func direct(p *Provider) func(ctx context.Context) (int, http.Header) {
	return func(ctx context.Context) (int, http.Header) {
		w := httptest.NewRecorder()
		body := strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
		p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", body))
		if ctx.Err() != nil {
			return 0, nil
		}
		return w.Code, w.Header()
	}
}

// TestNaiveThrottleRushes: the load and the judge show what is wrong with clients
// that trust a reset, and what is right with one that asks slowly.
func TestNaiveThrottleRushes(t *testing.T) {
	quota := QuotaConfig{Requests: QuotaRate{60, 6 * time.Second}, Fixed: true}
	run := func(t *testing.T, ask func(p *Provider) func(context.Context, int, bool) int) Paced {
		p, err := NewProvider(ProviderConfig{Seed: 1, Latency: Uniform(0.2, 0.6), Quota: quota})
		if err != nil {
			t.Fatal(err)
		}
		l := PacedLoad{Replicas: 4, Quota: quota, Warm: 7 * time.Second, Measured: 24 * time.Second, Seed: 1, Batchers: 60, Ask: ask(p)}
		return l.Run(t.Context(), p)
	}
	synctest.Test(t, func(t *testing.T) {
		r := run(t, func(p *Provider) func(context.Context, int, bool) int {
			var all [4]Naive
			for i := range all {
				all[i].Send = direct(p)
			}
			return func(ctx context.Context, i int, batch bool) int { return all[i].Ask(ctx, batch) }
		})
		if r.Provider429PerMin < 20 || r.FirstSecond < 0.9 || r.InteractiveRefused < 0.1 || r.Utilisation < 0.9 {
			t.Errorf("naive: %+v", r)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		turns := make(chan struct{}, 1) // one start per 150 ms, of 100 that the quota allows
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			for rest(ctx, 150*time.Millisecond); ctx.Err() == nil; rest(ctx, 150*time.Millisecond) {
				select {
				case turns <- struct{}{}:
				default:
				}
			}
		}()
		r := run(t, func(p *Provider) func(context.Context, int, bool) int {
			return func(ctx context.Context, _ int, batch bool) int {
				if !batch {
					status, _ := direct(p)(ctx)
					return status
				}
				select {
				case <-turns:
				case <-ctx.Done():
					return 0
				}
				status, _ := direct(p)(ctx)
				return status
			}
		})
		stop()
		if r.Provider429PerMin != 0 || r.FirstSecond > 0.25 || r.InteractiveRefused != 0 || r.Utilisation < 0.75 || r.Utilisation > 1 || r.Interactive < 20 {
			t.Errorf("one at a time: %+v", r)
		}
	})
}

func TestFirstSecond(t *testing.T) {
	q := QuotaRate{10, 10 * time.Second}
	ms := func(list ...int) (out []time.Duration) {
		for _, n := range list {
			out = append(out, time.Duration(n)*time.Millisecond)
		}
		return out
	}
	arrivals := ms(500, 501, 502, 9000, 10_499, 10_500, 11_000, 11_499, 11_500, 20_500)
	for _, c := range []struct {
		from, to time.Duration
		want     float64
	}{{0, time.Minute, 0.3}, {15 * time.Second, time.Minute, 0.1}, {0, 10 * time.Second, 0}} {
		if got := firstSecond(arrivals, q, c.from, c.to); got != c.want {
			t.Errorf("from %v to %v: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

func TestPacedTable(t *testing.T) {
	var out strings.Builder
	table := PacedTable{
		{Throttle: "naive", Replicas: 8, Quota: "fixed", Provider429PerMin: 118.04, Interactive: 300, InteractiveRefused: 0.81, InteractiveP99: 1499.6, FirstSecond: 0.995, Utilisation: 0.99},
		{Throttle: "headway", Replicas: 8, Quota: "continuous", Interactive: 300, Utilisation: 1},
	}
	if err := table.WriteMarkdown(&out); err != nil {
		t.Fatal(err)
	}
	want := `| replicas | quota | throttle | 429s/min | interactive refused | interactive p99 | first second after a reset | utilisation |
|---:|---|---|---:|---:|---:|---:|---:|
| 8 | fixed | naive | 118.0 | 81.00 % of 300 | 1500 ms | 99.5 % | 0.990 |
| 8 | continuous | headway | 0.0 | 0.00 % of 300 | 0 ms | – | 1.000 |
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
