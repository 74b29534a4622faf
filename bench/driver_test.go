package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// serverFunc answers requests without a network.
type serverFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f serverFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// reply is an answer with a body and headers, name and value alternately.
func reply(status int, body string, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

// arrivalLog is a server that notes who came when and where.
type arrivalLog struct {
	mu    sync.Mutex
	lines []string
	at    map[string][]time.Duration
	begin time.Time
}

func newArrivalLog() *arrivalLog {
	return &arrivalLog{at: map[string][]time.Duration{}, begin: time.Now()}
}

func (l *arrivalLog) note(r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tenant := r.Header.Get(HeaderTenant)
	l.at[tenant] = append(l.at[tenant], time.Since(l.begin))
	l.lines = append(l.lines, fmt.Sprint(time.Since(l.begin), " ", tenant, " ", r.URL.Host))
}

// drive runs cfg for d in the caller's bubble and returns the driver.
func drive(t *testing.T, cfg DriverConfig, d time.Duration) *Driver {
	t.Helper()
	if cfg.Targets == nil {
		cfg.Targets = []string{"http://replica-0", "http://replica-1", "http://replica-2"}
	}
	driver, err := NewDriver(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	driver.Run(ctx)
	return driver
}

// TestDriverIsOpenLoop: the instants at which requests are sent do not depend
// on whether anybody answers, and the waiting time is not hidden.
func TestDriverIsOpenLoop(t *testing.T) {
	instants := func(stall time.Duration) (got map[string][]time.Duration, stats []TenantStats) {
		synctest.Test(t, func(t *testing.T) {
			log := newArrivalLog()
			d := drive(t, DriverConfig{
				Seed: 3, Grace: time.Minute, Timeout: time.Minute,
				Loads: []Load{{Tenant: "a", Weight: 1, Rate: 40}, {Tenant: "b", Weight: 1, Rate: 7}},
				Transport: serverFunc(func(r *http.Request) (*http.Response, error) {
					log.note(r)
					time.Sleep(stall)
					return reply(200, "{}"), nil
				}),
			}, 10*time.Second)
			got, stats = log.at, d.Stats()
		})
		return got, stats
	}
	quick, _ := instants(0)
	slow, stats := instants(20 * time.Second)
	for tenant := range quick {
		if !slices.Equal(quick[tenant], slow[tenant]) {
			t.Errorf("tenant %s: %d arrivals at a quick server, %d at a stalled one, or at other instants", tenant, len(quick[tenant]), len(slow[tenant]))
		}
	}
	if n := len(quick["a"]); math.Abs(float64(n)-400) > 80 {
		t.Errorf("%d arrivals of a in 10s at 40/s, want 400 ± 80", n)
	}
	if w := stats[0].Wait; math.Abs(w.P50-20_000) > 400 || stats[0].Admitted != int64(len(slow["a"])) {
		t.Errorf("a: waits %+v, admitted %d; want 20s for all %d", w, stats[0].Admitted, len(slow["a"]))
	}
}

func TestDriverCountsLatencyFromIntendedStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, DriverConfig{
			Arrivals: Fixed, Grace: time.Minute,
			Loads: []Load{{Tenant: "a", Weight: 1, Rate: 10}},
			Transport: serverFunc(func(*http.Request) (*http.Response, error) {
				time.Sleep(300 * time.Millisecond)
				return reply(200, "{}", HeaderServiceTime, "100.0"), nil
			}),
		}, 5*time.Second)
		s := d.Stats()[0]
		if s.Offered != 50 || s.Admitted != 50 {
			t.Errorf("offered %d, admitted %d in 5s at a fixed 10/s, want 50", s.Offered, s.Admitted)
		}
		if math.Abs(s.Wait.P50-200) > 4 || math.Abs(s.Wait.Max-200) > 4 {
			t.Errorf("waits %+v, want 300ms less the provider's 100ms", s.Wait)
		}
	})
}

// TestDriverTellsHowLateItWas: of all tenants together, and nothing in a bubble, where
// it is always on time.
func TestDriverTellsHowLateItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, DriverConfig{
			Arrivals: Fixed, Grace: time.Minute,
			Loads:     []Load{{Tenant: "a", Weight: 1, Rate: 95}, {Tenant: "b", Weight: 1, Rate: 1}},
			Transport: serverFunc(func(*http.Request) (*http.Response, error) { return reply(200, "{}"), nil }),
		}, time.Second)
		if p99, most := d.Lateness(); p99 != 0 || most != 0 || d.Stats()[0].Admitted == 0 {
			t.Errorf("late by %v and at most %v ms, want neither", p99, most)
		}
		for _, late := range []time.Duration{20 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond} {
			d.tenants[1].offer(1)
			d.tenants[1].record(result{kind: Refused, reason: "x", late: late})
		}
		// The second highest of a hundred or so.
		if p99, most := d.Lateness(); math.Abs(p99-20) > 0.5 || math.Abs(most-50) > 1 {
			t.Errorf("late by %v and at most %v ms, want 20 and 50", p99, most)
		}
	})
	d, err := NewDriver(DriverConfig{Targets: []string{"http://x"}, Loads: []Load{{Tenant: "a", Weight: 1, Rate: 1}}, Observe: func(Event) {}})
	if err != nil {
		t.Fatal(err)
	}
	d.tenants[0].record(result{kind: Admitted, late: time.Second})
	if p99, most := d.Lateness(); p99 != 0 || most != 0 {
		t.Errorf("observed by somebody else it is late by %v and %v ms", p99, most)
	}
}

func TestDriverRepeats(t *testing.T) {
	lines := func(seed uint64) (got []string) {
		synctest.Test(t, func(t *testing.T) {
			log := newArrivalLog()
			drive(t, DriverConfig{
				Seed: seed, Balance: RandomReplica,
				Loads: []Load{{Tenant: "a", Weight: 1, Rate: 30}, {Tenant: "b", Weight: 1, Rate: 20}},
				Transport: serverFunc(func(r *http.Request) (*http.Response, error) {
					log.note(r)
					return reply(200, "{}"), nil
				}),
			}, 3*time.Second)
			got = log.lines
		})
		return got
	}
	if one, two := lines(9), lines(9); !slices.Equal(one, two) {
		t.Errorf("seed 9 gave two runs:\n%v\n%v", one, two)
	}
	if one, two := lines(9), lines(10); slices.Equal(one, two) {
		t.Error("seeds 9 and 10 gave the same run")
	}
}

// checkSums checks the equation of TenantStats.
func checkSums(t *testing.T, s TenantStats) {
	t.Helper()
	if sum := s.Outstanding + s.Admitted + s.RefusedTotal() + s.FailedTotal() + s.Dropped + s.Aborted; sum != s.Offered {
		t.Errorf("ends of %s sum up to %d of %d offered: %+v", s.Tenant, sum, s.Offered, s)
	}
}

func TestDriverTellsEndsApart(t *testing.T) {
	answers := map[string]serverFunc{
		"/served":   func(*http.Request) (*http.Response, error) { return reply(200, "{}"), nil },
		"/streamed": func(*http.Request) (*http.Response, error) { return reply(200, "data: {}\n\ndata: [DONE]\n\n"), nil },
		"/halved":   func(*http.Request) (*http.Response, error) { return reply(200, "data: {}\n\n"), nil },
		"/limited": func(*http.Request) (*http.Response, error) {
			return reply(429, `{"error":{"code":"rate_limited","details":{"reason":"tenant_queue_full"}}}`), nil
		},
		"/coded": func(*http.Request) (*http.Response, error) {
			return reply(503, `{"error":{"code":"limiter_unavailable"}}`), nil
		},
		"/bare":   func(*http.Request) (*http.Response, error) { return reply(503, "busy"), nil },
		"/broken": func(*http.Request) (*http.Response, error) { return reply(500, ""), nil },
		"/gone":   func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
		"/hung": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
	}
	want := map[string]string{
		"/served": "admitted", "/streamed": "admitted", "/halved": "failed cut", "/limited": "refused tenant_queue_full",
		"/coded": "refused limiter_unavailable", "/bare": "refused status_503", "/broken": "failed status_500",
		"/gone": "failed connection", "/hung": "failed timeout",
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := DriverConfig{Arrivals: Fixed, Timeout: time.Second, Grace: time.Minute, Transport: serverFunc(
			func(r *http.Request) (*http.Response, error) { return answers[r.URL.Path](r) })}
		for path := range answers {
			cfg.Loads = append(cfg.Loads, Load{Tenant: path, Path: path, Weight: 1, Rate: 5, Stream: path == "/streamed" || path == "/halved"})
		}
		for _, s := range drive(t, cfg, 2*time.Second).Stats() {
			checkSums(t, s)
			got := map[string]int64{"admitted": s.Admitted}
			for reason, n := range s.Refused {
				got["refused "+reason] = n
			}
			for reason, n := range s.Failed {
				got["failed "+reason] = n
			}
			if got[want[s.Tenant]] != 10 {
				t.Errorf("%s: %v, want all 10 %s", s.Tenant, got, want[s.Tenant])
			}
		}
	})
}

func TestDriverBoundsOutstanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, DriverConfig{
			Arrivals: Fixed, MaxOutstanding: 5, Loads: []Load{{Tenant: "a", Weight: 1, Rate: 100}},
			Transport: serverFunc(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}),
		}, time.Second)
		s := d.Stats()[0]
		checkSums(t, s)
		if s.Offered != 100 || s.Dropped != 95 || s.Aborted != 5 || s.Outstanding != 0 {
			t.Errorf("%+v, want 100 offered, 95 dropped, 5 aborted, none outstanding", s)
		}
	})
}

func TestDriverGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		d := drive(t, DriverConfig{
			Arrivals: Fixed, Grace: 2 * time.Second, Loads: []Load{{Tenant: "a", Weight: 1, Rate: 1}},
			Transport: serverFunc(func(r *http.Request) (*http.Response, error) {
				select {
				case <-time.After(4 * time.Second):
					return reply(200, "{}"), nil
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
			}),
		}, 10*time.Second)
		s := d.Stats()[0]
		checkSums(t, s)
		if took := time.Since(begin); took != 12*time.Second || s.Admitted != 8 || s.Aborted != 2 {
			t.Errorf("took %v, %+v; want 12s, 8 admitted, 2 aborted", took, s)
		}
	})
}

func TestBalancers(t *testing.T) {
	pick := func(b *balancer, n int, tenant int) (got []int) {
		for range n {
			got = append(got, b.pick(tenant))
		}
		return got
	}
	if got := pick(newBalancer(RoundRobin, 3, 1), 5, 0); !slices.Equal(got, []int{0, 1, 2, 0, 1}) {
		t.Errorf("round robin %v", got)
	}
	if got := pick(newBalancer(Sticky, 3, 1), 3, 4); !slices.Equal(got, []int{1, 1, 1}) {
		t.Errorf("sticky %v", got)
	}
	skewed := newBalancer(Skewed, 3, 1)
	if a, b := pick(skewed, 3, 0), pick(skewed, 4, 2); !slices.Equal(a, []int{0, 0, 0}) || !slices.Equal(b, []int{0, 1, 2, 0}) {
		t.Errorf("skewed %v and %v", a, b)
	}
	least := newBalancer(LeastConnections, 3, 1)
	for i, n := range []int64{2, 1, 2} {
		least.outstanding[i].Store(n)
	}
	if got := pick(least, 3, 0); !slices.Equal(got, []int{1, 1, 1}) {
		t.Errorf("least connections %v, want always 1", got)
	}
	least.outstanding[1].Store(2)
	if got := pick(least, 6, 0); !slices.Contains(got, 0) || !slices.Contains(got, 1) || !slices.Contains(got, 2) {
		t.Errorf("least connections at a tie %v, want all", got)
	}
}

func TestDriverConfigMistakes(t *testing.T) {
	good := DriverConfig{Targets: []string{"http://a"}, Loads: []Load{{Tenant: "a", Weight: 1, Rate: 1}}}
	for name, change := range map[string]func(*DriverConfig){
		"at least one": func(c *DriverConfig) { c.Targets = nil },
		"base address": func(c *DriverConfig) { c.Targets = []string{"localhost"} },
		"rate":         func(c *DriverConfig) { c.Loads = []Load{{Tenant: "a", Weight: 1, Rate: math.NaN()}} },
		"balance":      func(c *DriverConfig) { c.Balance = "best" },
		"arrivals":     func(c *DriverConfig) { c.Arrivals = "never" },
	} {
		cfg := good
		change(&cfg)
		if _, err := NewDriver(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestDriverAgainstProvider meets the real thing over sockets: every admitted
// request is one start in the ledger, streams included.
func TestDriverAgainstProvider(t *testing.T) {
	u := startUpstream(t, ProviderConfig{Latency: Constant(0.005), Tokens: Constant(4)})
	d, err := NewDriver(DriverConfig{
		Targets: []string{u.URL}, Grace: 5 * time.Second,
		Loads: []Load{{Tenant: "a", Weight: 1, Rate: 200, Stream: true}, {Tenant: "b", Weight: 1, Rate: 100, Key: "secret"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	d.Run(ctx)
	seen := u.Ledger().Snapshot()
	for _, s := range d.Stats() {
		checkSums(t, s)
		if s.Admitted == 0 || s.Admitted != s.Offered || s.Admitted != seen.Tenants[s.Tenant].Starts {
			t.Errorf("%+v, ledger %+v: want all admitted and written down", s, seen.Tenants[s.Tenant])
		}
	}
}
