package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// clerk lets jobs start one after the other, a little below the quota's rate, and in
// the order that pick says.
type clerk struct {
	provider *Provider
	weights  map[string]float64
	pick     func(c *clerk) string // a tenant with jobs

	mu      sync.Mutex
	waiting map[string][]chan struct{}
	order   []string // of arrival, one entry a job
	served  map[string]float64
	cost    map[string]int64
}

// drr picks the tenant that has had least by its weight.
func drr(c *clerk) string {
	best := ""
	for name, w := range c.waiting {
		if len(w) > 0 && (best == "" || c.served[name] < c.served[best] || c.served[name] == c.served[best] && name < best) {
			best = name
		}
	}
	return best
}

// fifo picks who came first.
func fifo(c *clerk) string {
	if len(c.order) == 0 {
		return ""
	}
	name := c.order[0]
	c.order = c.order[1:]
	return name
}

// work lets a job start every so often.
func (c *clerk) work(ctx context.Context, every time.Duration) {
	for rest(ctx, every); ctx.Err() == nil; rest(ctx, every) {
		c.mu.Lock()
		if name := c.pick(c); name != "" {
			c.served[name] += float64(c.cost[name]) / c.weights[name]
			close(c.waiting[name][0])
			c.waiting[name] = c.waiting[name][1:]
		}
		c.mu.Unlock()
	}
}

// submit implements Submit.
func (c *clerk) submit(ctx context.Context, w Work, handed func()) (done, doubled int, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	c.mu.Lock()
	if len(c.waiting[w.Tenant]) == 0 { // who was away has not saved turns
		for name, others := range c.waiting {
			if len(others) > 0 {
				c.served[w.Tenant] = max(c.served[w.Tenant], c.served[name])
			}
		}
	}
	c.cost[w.Tenant] = w.Tokens
	for range w.Jobs {
		turn := make(chan struct{})
		c.waiting[w.Tenant], c.order = append(c.waiting[w.Tenant], turn), append(c.order, w.Tenant)
		all.Go(func() {
			<-turn
			if status := request(c.provider, w.Tenant, w.Tokens); status == http.StatusOK {
				mu.Lock()
				done++
				mu.Unlock()
			}
		})
	}
	c.mu.Unlock()
	handed()
	all.Wait()
	return done, 0, nil
}

// request sends one straight to the provider.
func request(p *Provider, tenant string, tokens int64) int {
	w := httptest.NewRecorder()
	body := fmt.Sprintf(`{"model":"m","user":%q,"max_tokens":%d,"messages":[{"role":"user","content":"hello"}]}`, tenant, tokens-9)
	p.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body)))
	return w.Code
}

// TestImporterJudges: the run shows what is right with turns by cost, and what is wrong
// with one line for all.
func TestImporterJudges(t *testing.T) {
	run := func(t *testing.T, every time.Duration, pick func(*clerk) string) Importer {
		quota := QuotaRate{600, 6 * time.Second}
		p, err := NewProvider(ProviderConfig{Seed: 1, Latency: Uniform(0.05, 0.1), Tokens: Constant(1e5), Quota: QuotaConfig{Requests: quota}})
		if err != nil {
			t.Fatal(err)
		}
		l := ImporterLoad{
			Path: "test", Replicas: 2, Quota: quota, Reserve: 0.2, Seed: 1, Backlog: 100, Thousand: 60, Weighted: 120,
			Jobs: 800, Small: 20, Each: 5, Alone: 10 * time.Second, JobTokens: 100, SettleWithin: time.Second,
			Ask: func(context.Context, int) int { return request(p, InteractiveTenant, 100) },
		}
		c := &clerk{provider: p, weights: ImporterTenants(l.Small), pick: pick, waiting: map[string][]chan struct{}{}, served: map[string]float64{}, cost: map[string]int64{}}
		l.Submit = c.submit
		working, stop := context.WithCancel(t.Context())
		go c.work(working, every)
		r, err := l.Run(t.Context(), p)
		stop()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	failing := func(r Importer) (out []string) {
		for _, g := range r.Goals() {
			if !g.Holds {
				out = append(out, g.What)
			}
		}
		return out
	}
	synctest.Test(t, func(t *testing.T) {
		if r := run(t, 12*time.Millisecond, drr); len(failing(r)) > 0 || r.Utilisation < 0.9 {
			t.Errorf("by cost: %v fail: %+v", failing(r), r)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		want := []string{"three jobs behind a backlog", "small tenants done, by equal turns", "tokens of 1,000- by 100-token jobs", "weight 3 by weight 1"}
		if r := run(t, 12*time.Millisecond, fifo); !slices.Equal(failing(r), want) {
			t.Errorf("in one line: %v fail, want %v: %+v", failing(r), want, r)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := run(t, 2*time.Millisecond, drr) // faster than the quota
		got := failing(r)
		for _, want := range []string{"interactive refused", "least left of the quota by batch", "429s of the provider per minute", "jobs without, results too many"} {
			if !slices.Contains(got, want) {
				t.Errorf("without a throttle: %q holds: %+v", want, r)
			}
		}
	})
}

// TestImporterSaysWhatItDidNotMeasure: a figure of nothing is no goal met.
func TestImporterSaysWhatItDidNotMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := QuotaRate{600, 6 * time.Second}
		p, err := NewProvider(ProviderConfig{Seed: 1, Quota: QuotaConfig{Requests: quota}})
		if err != nil {
			t.Fatal(err)
		}
		l := ImporterLoad{
			Path: "test", Replicas: 1, Quota: quota, Seed: 1, Jobs: 5, Small: 2, Each: 1, Alone: time.Second, SettleWithin: time.Second,
			Ask:    func(context.Context, int) int { return 0 }, // nobody answers
			Submit: func(_ context.Context, w Work, handed func()) (int, int, error) { handed(); return w.Jobs, 0, nil },
		}
		r, err := l.Run(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range r.Goals() {
			measured := i >= 7 // the provider's refusals, and results
			if g.Measured != measured || g.Holds != measured || (g.Got == "not measured") == measured {
				t.Errorf("%+v, want it to be measured: %v", g, measured)
			}
		}
		var text strings.Builder
		if err := r.WriteMarkdown(&text); err != nil || !strings.Contains(text.String(), "| small tenants done, by equal turns | <= 1.1 | not measured | – |") {
			t.Errorf("%v: %s", err, &text)
		}
	})
}

func TestPositionsAndShares(t *testing.T) {
	var starts []Arrival
	for i, name := range strings.Fields("a a b a b a a b a") {
		starts = append(starts, Arrival{At: time.Duration(i), Tenant: name})
	}
	if got := positions(starts, 1, "b"); !slices.Equal(got, []int{2, 4, 7}) {
		t.Errorf("positions %v", got)
	}
	// a a b a b a a b a: from the first a to the last before b's last, and to the last
	// b before a's last.
	if a, b := beside(starts, "a", "b"); a != 4 || b != 2 {
		t.Errorf("beside %d and %d", a, b)
	}
	if b, a := beside(starts, "b", "a"); a != 3 || b != 2 {
		t.Errorf("beside %d and %d", b, a)
	}
	if got := mostly(starts, Work{Tenant: "a", Jobs: 6}, Work{Tenant: "b", Jobs: 4}); len(got) != 5 {
		t.Errorf("most of the work is cut to %d starts, want those before the fourth a", len(got))
	}
	if a, b := beside(starts, "a", "c"); a != 0 || b != 0 || ratioOf(a, b) != 0 {
		t.Errorf("with nobody: %d and %d", a, b)
	}
	for _, c := range []struct {
		at []int
		ok bool
	}{{[]int{2, 4, 6}, true}, {[]int{1, 3, 5}, true}, {[]int{4, 6, 8}, true}, {[]int{5, 7, 9}, false}, {[]int{2, 3, 5}, false}, {[]int{2, 4}, false}, {nil, false}} {
		if alternate(c.at) != c.ok {
			t.Errorf("%v: %v", c.at, !c.ok)
		}
	}
	if !together([]int{15, 16, 21}) || together([]int{15, 16, 22}) || together([]int{1, 2}) {
		t.Error("together is wrong about the places of durable jobs")
	}
}
