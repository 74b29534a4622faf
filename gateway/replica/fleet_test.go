package replica_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/fleet/gossip"
	"github.com/headway-limiter/headway/fleet/simnet"
	"github.com/headway-limiter/headway/gateway"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/localshare"
	"github.com/headway-limiter/headway/limiter/near"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// The whole fleet in one bubble of testing/synctest: gateways, limiters, stores on one Redis,
// gossip and the judging provider are the real ones; wires are pipes.

// linger is when memberlist's last goroutine has ended after a close.
const linger = 15 * time.Second

// member is one replica of a simulated fleet.
type member struct {
	host    string
	gateway *gateway.Gateway
	limiter *limiter.Limiter
	store   *redisstore.Store
	share   *localshare.Store
	near    *near.Store
	link    *storetest.Link
	node    *gossip.Node
	dead    atomic.Bool
}

// sim is a simulated fleet.
type sim struct {
	t        *testing.T
	cfg      *config.Config
	redis    *storetest.Bubble
	net      *simnet.Network
	provider *bench.Provider
	log      *slog.Logger

	mu      sync.Mutex
	members []*member // only ever appended to
}

// list is everybody so far, dead or alive.
func (s *sim) list() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[:len(s.members):len(s.members)]
}

// newSim starts n replicas that see each other; they end with the test.
func newSim(t *testing.T, n int, yaml string) *sim {
	t.Helper()
	cfg, err := config.Parse([]byte(yaml), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := bench.NewProvider(bench.ProviderConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s := &sim{
		t: t, cfg: cfg, redis: storetest.NewBubble(t), provider: provider, log: slog.New(slog.DiscardHandler),
		net: simnet.New(simnet.Config{Seed: 1, Latency: 300 * time.Microsecond, Jitter: 200 * time.Microsecond}),
	}
	t.Cleanup(s.close)
	for range n {
		s.join()
	}
	for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if s.seen() == n {
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("only %d of %d replicas see each other", s.seen(), n)
		}
	}
}

// seen is the least number of members that any living replica sees.
func (s *sim) seen() int {
	least := len(s.list())
	for _, m := range s.list() {
		if !m.dead.Load() {
			least = min(least, m.node.Members())
		}
	}
	return least
}

// hosts are the addresses of all replicas so far.
func (s *sim) hosts() (list []string) {
	for _, m := range s.list() {
		list = append(list, m.host)
	}
	return list
}

// join adds one replica.
func (s *sim) join() *member {
	s.t.Helper()
	n := len(s.list())
	m := &member{host: fmt.Sprintf("10.0.%d.%d:7946", n/200, n%200+1), link: s.redis.Link()}
	transport, err := s.net.Listen(m.host)
	if err != nil {
		s.t.Fatal(err)
	}
	name := fmt.Sprint("r", n)
	m.node, err = gossip.Start(gossip.Config{
		Name: name, Bind: m.host, Join: s.hosts(), Transport: transport, Logger: s.log,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	m.store, err = redisstore.New(redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: m.link.Dial, Logger: s.log})
	if err != nil {
		s.t.Fatal(err)
	}
	limits := s.cfg.Limiter()
	limits.Logger = s.log
	m.share, err = localshare.New(localshare.Options{
		Inner: m.store, Registry: m.store, Fleet: m.node, Policy: limits.OutageOf, Logger: s.log,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	m.near, err = near.New(m.share, m.share.Divisor, near.Options{
		DenyCache: s.cfg.Redis.DenyCache, Prefetch: s.cfg.Redis.Prefetch, Budget: s.cfg.Redis.Timeout,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if m.limiter, err = limiter.New(limits, m.near, m.node); err != nil {
		s.t.Fatal(err)
	}
	m.gateway, err = gateway.New(s.cfg, m.limiter, gateway.Options{
		Transport: inMemory{s.provider}, Logger: s.log, Store: m.store.Health, Fleet: m.node,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, m)
	return m
}

// crash ends a replica without a word to anybody.
func (s *sim) crash(m *member) {
	m.dead.Store(true)
	m.link.Cut()
	m.limiter.Close()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	m.node.Close(gone)
	m.near.Close(gone)
}

func (s *sim) close() {
	for _, m := range s.list() {
		if !m.dead.Load() {
			s.crash(m)
		}
	}
	time.Sleep(linger)
}

// inMemory carries requests to a handler without a wire.
type inMemory struct{ handler http.Handler }

func (h inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	return w.Result(), r.Context().Err()
}

// answer is what a caller learns.
type answer struct {
	status    int
	took      time.Duration
	position  int
	waited    time.Duration
	estimated time.Duration
	scope     string
	degraded  string
	sent      time.Time
}

// ask sends one request of a tenant to m and reads the whole answer.
func (s *sim) ask(ctx context.Context, m *member, tenant string) answer {
	r := httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[]}`))
	r.Header.Set("Authorization", "Bearer key-"+tenant)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(bench.HeaderTenant, tenant)
	w, start := httptest.NewRecorder(), time.Now()
	m.gateway.Handler().ServeHTTP(w, r)
	a := answer{status: w.Code, took: time.Since(start), scope: w.Header().Get("X-Fair-Queue-Scope"), degraded: w.Header().Get("X-Headway-Degraded"), sent: start}
	a.position, _ = strconv.Atoi(w.Header().Get("X-Fair-Queue-Position"))
	ms := func(name string) time.Duration {
		n, _ := strconv.Atoi(w.Header().Get(name))
		return time.Duration(n) * time.Millisecond
	}
	a.waited, a.estimated = ms("X-Fair-Queue-Wait-Ms"), ms("X-Fair-Queue-Estimated-Wait-Ms")
	return a
}

// tenant is one source of load.
type tenant struct {
	name   string
	perSec float64
	at     func(n int) *member // where its n-th request goes
}

// crowd is the load of a run and what came of it.
type crowd struct {
	s   *sim
	all sync.WaitGroup

	mu      sync.Mutex
	answers map[string][]answer
}

// run sends everybody's load, seeded, for a span, and waits for the answers.
func (s *sim) run(span time.Duration, tenants []tenant) *crowd {
	c := &crowd{s: s, answers: map[string][]answer{}}
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	for i, t := range tenants {
		c.all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 11))
			for n := 0; ; n++ {
				time.Sleep(time.Duration(rng.ExpFloat64() / t.perSec * float64(time.Second)))
				if ctx.Err() != nil {
					return
				}
				m := t.at(n)
				c.all.Go(func() {
					a := s.ask(ctx, m, t.name)
					c.mu.Lock()
					defer c.mu.Unlock()
					c.answers[t.name] = append(c.answers[t.name], a)
				})
			}
		})
	}
	c.all.Wait()
	return c
}

// served is how many requests of each tenant the provider saw.
func (s *sim) served() map[string]float64 {
	got := map[string]float64{}
	for _, a := range s.provider.Ledger().Starts() {
		got[a.Tenant]++
	}
	return got
}

// fair returns Jain's index and the worst share over some tenants.
func fair(got map[string]float64, tenants []string) (jain, worst float64) {
	x := make([]float64, len(tenants))
	least, sum := got[tenants[0]], 0.0
	for i, t := range tenants {
		x[i] = got[t]
		least, sum = min(least, x[i]), sum+x[i]
	}
	return bench.Jain(x), least * float64(len(x)) / sum
}

// yaml is the configuration of a fleet that shares rate among tenants.
func yaml(scope string, rate int, tenants []string) string {
	var keys strings.Builder
	for _, t := range tenants {
		fmt.Fprintf(&keys, "  - {id: %s, key: key-%s, user: %s}\n", t, t, t)
	}
	return fmt.Sprintf(`
keys:
%supstreams: [{name: p, url: "http://provider"}]
routes: [{path: "/v1/*", upstream: p}]
rate_limiting:
  per_model: {requests: {limit: %d, per: 1s, burst: %d}}
  fair_queuing: {enabled: true, fairness_scope: %s, max_queue_depth_per_tenant: 64, max_wait_ms: 10000}
`, keys.String(), rate, rate/10, scope)
}
