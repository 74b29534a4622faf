package stage

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/headway-limiter/headway/bench"
	"github.com/headway-limiter/headway/gateway/config"
)

// Scopes are the ways to run a scenario, in the order of comparison.
var Scopes = []string{scopeFIFO, "replica", "gossip", "exact"}

const scopeFIFO = "fifo"

// setting is what the replicas of one run have in common.
type setting struct {
	run      string // occurs in the names of no other run
	scope    string
	redis    string // host:port
	provider string // base address
	limit    bench.LimitReport
	places   int // of one tenant on one replica
	tenants  []bench.Tenant

	immediate bool   // no line: what is over the limit is refused
	onOutage  string // empty: the default
	timeout   time.Duration
	slots     int64         // of each user; 0: unlimited
	ttl       time.Duration // of leases; 0: the default
	sentinels []string      // to ask for the master, in place of redis
	throttled bool          // the provider's quota paces
	workers   int           // of durable jobs on each replica; 0: there are none
}

// address is where one replica listens.
type address struct {
	name       string
	api, admin string
	gossip     string
	advertise  string // where others reach gossip
	join       []string
}

// The names of one run. A shared Redis finds full buckets under them.
func (s setting) model() string        { return "bench-" + s.run }
func (s setting) user(i int) string    { return fmt.Sprintf("%s-%s", s.tenants[i].Tenant, s.run) }
func (s setting) key(i int) string     { return "key-" + s.user(i) }
func (s setting) replica(i int) string { return fmt.Sprintf("bench-%s-%d", s.run, i) }

// queue is the wait line's part of the configuration.
//
// The one line of fifo has as many places as all tenants that are always
// backlogged have together, or waits could not be compared.
func (s setting) queue(replicas int) string {
	if s.immediate {
		if w := s.weights(); w != "" { // by which batch work is shared
			return fmt.Sprintf("{enabled: false, weights: [%s]}", w)
		}
		return "{enabled: false}"
	}
	dimension, scope, places, backlog := "user", s.scope, s.places, 0
	for _, t := range s.tenants {
		if t.Class.Backlogged() {
			backlog += t.Places
		}
	}
	if scope == scopeFIFO {
		dimension, scope, places = "team", "replica", max(backlog/replicas, 1)
	}
	return fmt.Sprintf(`{enabled: true, tenant_dimension: %s, fairness_scope: %s,
    max_queue_depth_per_tenant: %d, max_total_queued: 1000000, max_tenants: 1000000, max_wait_ms: %d,
    weights: [%s]}`,
		dimension, scope, places, maxWait.Milliseconds(), s.weights())
}

// weights are those of tenants that have another one than 1.
func (s setting) weights() string {
	var b strings.Builder
	for i, t := range s.tenants {
		if t.Weight != 1 && s.scope != scopeFIFO {
			fmt.Fprintf(&b, "{identity: %s, weight: %g}, ", s.user(i), t.Weight)
		}
	}
	return b.String()
}

// caps is what limits requests in flight.
func (s setting) caps() string {
	text := ""
	if s.slots > 0 {
		text = fmt.Sprintf("\n  per_user: {max_in_flight_requests: %d}", s.slots)
	}
	if s.ttl > 0 {
		text += fmt.Sprintf("\n  lease_ttl: %v", s.ttl)
	}
	return text
}

// throttle is what paces by the provider's quota.
func (s setting) throttle() string {
	if s.throttled {
		return ", throttle: {enabled: true}"
	}
	return ""
}

// batch is what bounds work that waits. Held requests have all the places they want.
func (s setting) batch() string {
	text := "queue_depth_per_tenant: 100000"
	if s.workers > 0 {
		text += fmt.Sprintf(", enabled: true, workers: %d, max_jobs_per_tenant: 100000", s.workers)
	}
	return "{" + text + "}"
}

// store is the redis part of the configuration.
func (s setting) store() string {
	policy := ""
	if s.onOutage != "" {
		policy = ", on_outage: " + s.onOutage
	}
	if len(s.sentinels) > 0 {
		return fmt.Sprintf("{mode: sentinel, addresses: [%s], sentinel: {master: %s}, timeout: %v%s}", quoted(s.sentinels), masterName, s.timeout, policy)
	}
	return fmt.Sprintf("{mode: standalone, address: %q, timeout: %v%s}", s.redis, s.timeout, policy)
}

// yaml is the configuration of one replica, as its operator would write it.
// The store's time budget alone is generous where nothing else is said: fleet,
// store, provider and load share the cores of one machine, and one that is busy
// with something else should look slow, not broken.
func (s setting) yaml(replicas int, a address) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `
server: {listen: %q, admin_listen: %q, timeouts: {total: %v}, drain: {grace: %v}}
redis: %s
fleet: {name: %s, bind: %q, advertise: %q, join: [%s]}
upstreams: [{name: simulated, url: %q, models: [%s]%s}]
routes: [{path: "/v1/*", upstream: simulated}]
batch: %s
rate_limiting:
  per_model: {requests: {limit: %d, per: 1s, burst: %d}}%s
  fair_queuing: %s
keys:
`, a.api, a.admin, 2*maxWait, drainGrace, s.store(), a.name, a.gossip, a.advertise, quoted(a.join),
		s.provider, s.model(), s.throttle(), s.batch(), s.limit.Requests, s.limit.Burst, s.caps(), s.queue(replicas))
	for i := range s.tenants {
		fmt.Fprintf(&b, "  - {id: %[1]s, key: %[2]s, user: %[1]s, team: team-%[3]s}\n", s.user(i), s.key(i), s.run)
	}
	return []byte(b.String())
}

func quoted(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(out, ", ")
}

// loads is the plan with this run's names in it.
func (s setting) loads() []bench.Load {
	out := make([]bench.Load, len(s.tenants))
	for i, t := range s.tenants {
		out[i] = t.Load
		out[i].Key, out[i].Model = s.key(i), s.model()
	}
	return out
}

// Known reports whether replicas can be run in the scope: whether their
// configuration accepts it.
func Known(scope string) bool { return known(setting{scope: scope}) }

// KnownPolicy reports whether replicas can be run with the policy for an
// unusable store.
func KnownPolicy(policy string) bool { return known(setting{immediate: true, onOutage: policy}) }

// Possible reports whether the replicas have what a cell of the chaos table
// needs.
func Possible(c bench.Cell) bool {
	s := setting{immediate: true, onOutage: c.Policy}
	if c.Kind == bench.RedisFailover {
		s.sentinels = []string{"127.0.0.1:2"}
	}
	return known(s)
}

// known reports whether a configuration with s in it is accepted.
func known(s setting) bool {
	s.run, s.redis, s.provider, s.places, s.timeout = "x", "127.0.0.1:1", "http://127.0.0.1:1", 1, storeTimeout
	s.limit = bench.LimitReport{Requests: 1, PerS: 1, Burst: 1}
	s.tenants = []bench.Tenant{{Load: bench.Load{Tenant: "a", Weight: 1}}}
	_, err := config.Parse(s.yaml(1, address{name: "x", api: "127.0.0.1:0", admin: "127.0.0.1:0"}), os.LookupEnv)
	return err == nil
}
