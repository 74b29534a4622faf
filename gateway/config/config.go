package config

import "time"

// Config is the whole tree. The zero Config is not useful: start from
// [Default]. A Config is read-only once it is in use.
//
// The help tags are the reference text of every field: the JSON Schema and the
// documentation are made from them.
type Config struct {
	Server       Server       `yaml:"server" help:"listeners, bounds and timeouts of this replica"`
	Redis        Redis        `yaml:"redis" help:"the store that limits are enforced in"`
	Fleet        Fleet        `yaml:"fleet" help:"gossip between replicas; advises, never decides"`
	Keys         []Key        `yaml:"keys" help:"API keys that callers may present"`
	Anonymous    bool         `yaml:"anonymous" help:"serve requests without a key, or with one that is not configured, limited by client address only"`
	Upstreams    []Upstream   `yaml:"upstreams" help:"where requests go"`
	Routes       []Route      `yaml:"routes" help:"which paths go to which upstream; the longest match wins"`
	RateLimiting RateLimiting `yaml:"rate_limiting" help:"limits by dimension, and the wait line"`
	Batch        Batch        `yaml:"batch" help:"work that may wait: batch requests, and jobs from files"`

	Workspaces []Workspace `yaml:"workspaces" help:"workspaces, whose settings can be changed while running; what stands here is what each begins with"`
	Projects   []Project   `yaml:"projects" help:"projects, each of a workspace"`

	Estimate Estimate `yaml:"estimate" help:"how many tokens a request is taken to need before it has run"`
	Queueing Queueing `yaml:"queueing" help:"waiting for a saturated agent"`
	Turns    []Turn   `yaml:"turns" help:"paths whose requests take several steps"`
	Tools    []Tool   `yaml:"tools" help:"HTTP endpoints that models in turns may have called"`

	RateLimitService RateLimitService `yaml:"rate_limit_service" help:"gRPC service that lets Envoy and its kin use the same limits"`

	lines    map[string]int // line of every field that was written, by path
	warnings []Problem
}

// Server is this replica's own side: where it listens and what it accepts.
type Server struct {
	Listen                string      `yaml:"listen" help:"host:port of the gateway API"`
	TLS                   ListenerTLS `yaml:"tls" help:"files for TLS at the gateway API, with HTTP/2"`
	AdminListen           string      `yaml:"admin_listen" help:"host:port of /metrics, /livez, /readyz and /debug/headway; needs admin_token unless it is a loopback address"`
	AdminTLS              ListenerTLS `yaml:"admin_tls" help:"files for TLS at the admin listener, with HTTP/2"`
	AdminToken            Secret      `yaml:"admin_token" help:"bearer token that the admin listener asks for; empty: none"`
	Console               bool        `yaml:"console" help:"serve the console at /console/ of the admin listener, and what it shows at /api/"`
	Pprof                 bool        `yaml:"pprof" help:"serve profiles of this process at /debug/pprof/ of the admin listener"`
	TrustedProxies        []string    `yaml:"trusted_proxies" help:"addresses or CIDRs whose X-Forwarded-For is believed; the rightmost address that is not in this list is the client"`
	MaxConcurrentRequests int         `yaml:"max_concurrent_requests" help:"requests served or waiting at once in this replica; beyond it 503; 0: unlimited"`
	MaxBody               Size        `yaml:"max_body" help:"largest JSON body; it is buffered, to read model and cost"`
	MaxUpload             Size        `yaml:"max_upload" help:"largest body of any other kind; it is streamed and never buffered"`
	MaxHeader             Size        `yaml:"max_header" help:"largest request header block"`
	Timeouts              Timeouts    `yaml:"timeouts" help:"bounds on one client connection and request"`
	Drain                 DrainTimes  `yaml:"drain" help:"how this replica leaves"`
}

// Timeouts bound one client connection. All are > 0.
type Timeouts struct {
	ReadHeader time.Duration `yaml:"read_header" help:"from the first byte of a request to the end of its headers (slow clients)"`
	Total      time.Duration `yaml:"total" help:"longest life of one request, waiting and streaming included"`
	Idle       time.Duration `yaml:"idle" help:"how long an unused keep-alive connection stays open"`
}

// DrainTimes are the two phases of a shutdown.
type DrainTimes struct {
	Delay time.Duration `yaml:"delay" help:"how long to keep accepting after readiness turned 503, so that load balancers notice"`
	Grace time.Duration `yaml:"grace" help:"how long running requests may take to finish after that"`
}

// Modes of the store.
const (
	ModeEmbedded   = "embedded"   // inside this process; for trying out, one replica only
	ModeStandalone = "standalone" // one Redis server
	ModeSentinel   = "sentinel"   // a master and its replicas, watched by sentinels
	ModeCluster    = "cluster"    // Redis Cluster
)

// Layouts of the store's keys.
const (
	LayoutSingle = "single" // all in one slot: one call per decision
	LayoutTenant = "tenant" // each tenant's beside each other, shared ones in one slot: two calls
)

// Redis says where the store is and what to do without it.
type Redis struct {
	Mode          string        `yaml:"mode" enum:"embedded|standalone|sentinel|cluster" help:"embedded: inside this process, for one replica; standalone: one Redis server; sentinel: the master that sentinels name; cluster: Redis Cluster"`
	Address       string        `yaml:"address" help:"host:port of the server, in mode standalone"`
	Addresses     []string      `yaml:"addresses" help:"host:port of each sentinel (mode sentinel), or of some nodes (mode cluster)"`
	Sentinel      Sentinel      `yaml:"sentinel" help:"what to ask the sentinels for, and how, in mode sentinel"`
	Layout        string        `yaml:"layout" enum:"single|tenant" help:"single: all keys in one slot, one call per decision, one node of a cluster does the work; tenant: a tenant's keys beside each other and those of models, upstreams and the whole fleet in one slot, two calls, the work spread over a cluster"`
	Username      string        `yaml:"username" help:"ACL user; empty: default"`
	Password      Secret        `yaml:"password" help:"empty: no AUTH"`
	Database      int           `yaml:"database" help:"number of the logical database; a cluster has 0 only"`
	TLS           bool          `yaml:"tls" help:"connect with TLS and verify the server's certificate"`
	TLSFiles      TLSFiles      `yaml:"tls_files" help:"PEM files for TLS"`
	TLSServerName string        `yaml:"tls_server_name" help:"name that the server's certificate has to be for; empty: the host of its address"`
	Timeout       time.Duration `yaml:"timeout" help:"one budget for all store calls of an admission; past it on_outage applies; the embedded store has 1s at least"`
	OnOutage      string        `yaml:"on_outage" enum:"fail_closed|fail_open|local_share" help:"without a usable store: fail_closed answers 503; fail_open admits and marks the answer; local_share limits in this process, to its share of each limit"`
	Prefetch      bool          `yaml:"prefetch" help:"take tokens of busy buckets in advance, where one tenant alone draws from them: fewer calls, same limits"`
	DenyCache     bool          `yaml:"deny_cache" help:"refuse here, without a call, what the store has just refused, until it would pass"`
}

// Sentinel is how to find the master in mode sentinel.
type Sentinel struct {
	Master   string `yaml:"master" help:"name of the master, as sentinel.conf has it"`
	Username string `yaml:"username" help:"ACL user at the sentinels; empty: default"`
	Password Secret `yaml:"password" help:"password at the sentinels; empty: no AUTH"`
}

// TLSFiles are PEM files.
type TLSFiles struct {
	CA   string `yaml:"ca" help:"certificates of a private authority; empty: those of the system"`
	Cert string `yaml:"cert" help:"client certificate, with key"`
	Key  string `yaml:"key" help:"private key of the client certificate"`
}

// Fleet is the gossip between replicas. With no Bind there is none, and this
// replica is a fleet of one.
type Fleet struct {
	Name      string   `yaml:"name" help:"unique member name; empty: host, process id and a random part"`
	Bind      string   `yaml:"bind" help:"host:port for gossip over TCP and UDP; empty: no gossip"`
	Advertise string   `yaml:"advertise" help:"host:port that others reach this replica at; empty: bind"`
	Join      []string `yaml:"join" help:"host:port of other members, tried again for ever; may be empty where replicas share a Redis, which tells them of each other"`
	Keys      []Secret `yaml:"keys" help:"base64 of 16, 24 or 32 bytes each; the first encrypts, all decrypt"`
}

// Key is one API key and whom it speaks for. Exactly one of Key and Digest is
// set in a file; after [Parse] only Digest is.
type Key struct {
	ID        string `yaml:"id" help:"stable name without secrets; what per_api_key limits go by"`
	Key       Secret `yaml:"key" help:"the raw key; hashed as soon as it is read"`
	Digest    string `yaml:"digest" help:"sha256: and the 64 hex digits of the raw key's SHA-256"`
	User      string `yaml:"user" help:"whose key it is; what per_user limits go by"`
	Team      string `yaml:"team" help:"the user's organisation; empty, -, none and default mean no team"`
	RateLimit *Rule  `yaml:"rate_limit" help:"limits of this key alone, in place of per_api_key"`
	// Workspaces is where the key has a role.
	Workspaces []Membership `yaml:"workspaces" help:"workspaces that the key has a role in"`
	Workspace  string       `yaml:"workspace" help:"the one that requests to plain paths belong to; empty: the only one of workspaces, if there is one"`
	// Batch is for keys of programs that can wait.
	Batch bool `yaml:"batch" help:"requests with this key are batch work, as if each said x-headway-priority: batch"`
	// MayNameUser is for keys of programs that serve many people.
	MayNameUser bool `yaml:"may_name_user" help:"requests with this key may name another user in rate_limiting.user_header"`
}

// Kinds of upstream.
const (
	KindOpenAI = "openai" // JSON bodies are read for model and cost, usage settles the cost
	KindHTTP   = "http"   // bodies are opaque; only requests are counted
)

// Upstream is one server that requests are sent to.
type Upstream struct {
	Name       string           `yaml:"name" help:"what routes call it"`
	URL        string           `yaml:"url" help:"http or https base address; the request path is appended"`
	Kind       string           `yaml:"kind" enum:"openai|http" help:"openai: bodies are read for model, cost and usage; http: bodies are opaque"`
	Credential Secret           `yaml:"credential" help:"sent upstream as Bearer token in place of the caller's key; empty: no credential is sent"`
	Models     []string         `yaml:"models" help:"models it serves, others are 404; empty: any"`
	Timeouts   UpstreamTimeouts `yaml:"timeouts" help:"bounds on one upstream call"`
	Throttle   Throttle         `yaml:"throttle" help:"pace by what the provider says is left of its quota"`
	Slots      int              `yaml:"slots" help:"requests that it takes at once, over the whole fleet; more wait or are shed; 0: no bound"`
	QueueDepth int              `yaml:"queue_depth" help:"requests that wait for a slot at once, over the fleet as far as replicas know of each other; 0: none waits"`
	Tags       []string         `yaml:"tags" help:"words that routes may ask for, such as tools"`
	Probe      Probe            `yaml:"probe" help:"asks an agent, an upstream with slots, whether it is well"`
}

// Throttle paces requests to one upstream, for each model that they name.
type Throttle struct {
	Enabled bool          `yaml:"enabled" help:"read the quota headers of responses, spread requests over the quota and the fleet, and pause when the provider refuses"`
	Reserve float64       `yaml:"reserve" zero:"yes" help:"part of the quota that batch requests (x-headway-priority: batch) leave to the others, 0 to 0.9"`
	MaxWait time.Duration `yaml:"max_wait" help:"longest wait of a request that is not batch, before it goes to the route's next upstream or is refused"`
}

// UpstreamTimeouts bound one upstream call. All are > 0.
type UpstreamTimeouts struct {
	Connect        time.Duration `yaml:"connect" help:"to open a connection, TLS included"`
	ResponseHeader time.Duration `yaml:"response_header" help:"from the request's last byte to the response's headers"`
	Idle           time.Duration `yaml:"idle" help:"longest silence inside a response body"`
}

// Route sends the requests of some paths to one of its upstreams. It has either
// Upstream or Upstreams.
type Route struct {
	Path      string   `yaml:"path" help:"exact path, or a prefix that ends in *"`
	Methods   []string `yaml:"methods" help:"HTTP methods; empty: all"`
	Upstream  string   `yaml:"upstream" help:"name of the upstream"`
	Upstreams []string `yaml:"upstreams" help:"names of several, in place of upstream: the first that serves the model, has not used up its per_backend limits and can be reached takes the request; of those with slots in a row, the least loaded"`
	Tags      []string `yaml:"tags" help:"only upstreams that have all of these tags take requests of this route"`
}

// Candidates lists the upstreams of r in the order in which they are tried.
func (r Route) Candidates() []string {
	if len(r.Upstreams) > 0 {
		return r.Upstreams
	}
	return []string{r.Upstream}
}

// RateLimiting is what is limited, per dimension, and what waits.
type RateLimiting struct {
	DefaultCompletionTokens int64         `yaml:"default_completion_tokens" help:"completion tokens assumed for a request that does not bound them"`
	LeaseTTL                time.Duration `yaml:"lease_ttl" help:"how long in-flight slots outlive a replica that died"`
	Global                  Limit         `yaml:"global" help:"the whole fleet, before authentication"`
	PerClient               Limit         `yaml:"per_client" help:"each client address (IPv6: /64), before authentication"`
	PerAPIKey               Limit         `yaml:"per_api_key" help:"each API key, by id"`
	PerUser                 Limit         `yaml:"per_user" help:"each user"`
	PerTeam                 Limit         `yaml:"per_team" help:"each team"`
	PerModel                Limit         `yaml:"per_model" help:"each model, shared by all tenants"`
	PerBackend              Limit         `yaml:"per_backend" help:"each upstream, by name; one that is exhausted is passed over for the route's next"`
	InflightScope           string        `yaml:"inflight_scope" enum:"fleet|replica" help:"how far max_in_flight_requests reaches: fleet counts in the store; replica counts in this process alone and costs no call"`
	UserHeader              string        `yaml:"user_header" help:"request header that names the user, such as X-User-Id or X-Gateway-Inference-Fairness-Id, believed with keys that say may_name_user; empty: none"`
	Whitelist               []ExemptAddr  `yaml:"whitelist" help:"client addresses that limits do not apply to: CIDRs, or {cidr, skip}; server.max_concurrent_requests holds for them, too"`
	BypassKeys              []ExemptKey   `yaml:"bypass_keys" help:"API keys that limits do not apply to: ids, or {id, skip}"`
	FairQueuing             FairQueuing   `yaml:"fair_queuing" help:"the wait line: who waits for a refused request, and whose turn it is"`

	DeferredAdmission DeferredAdmission `yaml:"deferred_admission" help:"the wait for token budgets"`
}

// Limit is the rule of one dimension and the identities that differ from it.
// The zero Limit limits nothing.
type Limit struct {
	Rule      `yaml:",inline"`
	Overrides map[string]Rule `yaml:"overrides" help:"rules of single identities, each in place of the whole rule"`
	OnOutage  string          `yaml:"on_outage" enum:"fail_closed|fail_open|local_share" help:"in place of redis.on_outage for this dimension"`
}

// Rule is the set of limits of one identity. The zero Rule limits nothing.
type Rule struct {
	Requests            *Rate `yaml:"requests" help:"requests started; absent: unlimited"`
	Tokens              *Rate `yaml:"tokens" help:"LLM tokens, estimated at the start and settled at the end; absent: unlimited"`
	MaxInFlightRequests int   `yaml:"max_in_flight_requests" help:"requests running at once over the fleet, or in each replica (see inflight_scope); 0: unlimited"`
}

// Rate is a token bucket that starts full.
type Rate struct {
	Limit int64         `yaml:"limit" help:"how many per period; 0 blocks everything"`
	Per   time.Duration `yaml:"per" help:"the period"`
	Burst int64         `yaml:"burst" help:"most at once; absent: limit"`
}

// Values of FairQueuing that this version knows.
const (
	DisciplineSWRR = "swrr"    // smooth weighted round robin, by turns
	DisciplineDRR  = "drr"     // deficit round robin, by cost
	DisciplineSFQ  = "sfq"     // start-time fair queueing, by cost
	ScopeReplica   = "replica" // each replica orders its own waiters
	ScopeGossip    = "gossip"  // by what gossip tells of the fleet's service
	ScopeExact     = "exact"   // the store keeps everybody's place
)

// Scopes of in-flight caps.
const (
	ScopeFleet = "fleet" // the store counts; see also ScopeReplica
)

// FairQueuing configures the wait line. Off, every refusal is answered at once.
type FairQueuing struct {
	Enabled                bool     `yaml:"enabled" help:"hold requests refused on request count until their turn"`
	TenantDimension        string   `yaml:"tenant_dimension" enum:"user|api_key|team" help:"who fairness is between"`
	Weights                []Weight `yaml:"weights" help:"shares of single tenants; weight 3 is served three times as often as weight 1"`
	DefaultWeight          float64  `yaml:"default_weight" help:"share of everybody else, above 0 and at most 1000"`
	Discipline             string   `yaml:"discipline" enum:"swrr|drr|sfq" help:"order between tenants under fairness_scope replica: swrr, smooth weighted round robin, shares turns; drr, deficit round robin, and sfq, start-time fair queueing, share tokens, of which a request costs its estimate, at least 1"`
	FairnessScope          string   `yaml:"fairness_scope" enum:"replica|gossip|exact" help:"how far fairness reaches: replica, each orders its own waiters and they race for the limit; gossip, by what tenants were served in the whole fleet, as far as known; exact, the store keeps the place of every waiter of the fleet"`
	MaxQueueDepthPerTenant int      `yaml:"max_queue_depth_per_tenant" help:"requests of one tenant that wait here at once"`
	MaxTotalQueued         int      `yaml:"max_total_queued" help:"requests that wait here at once"`
	MaxTenants             int      `yaml:"max_tenants" help:"tenants with waiters here at once"`
	MaxInFlight            int      `yaml:"max_in_flight" help:"waiters that ask the store at the same moment"`
	MaxWaitMS              int      `yaml:"max_wait_ms" help:"longest wait in milliseconds; server.timeouts.total bounds it too"`
}

// Weight is one tenant's share.
type Weight struct {
	Identity string  `yaml:"identity" help:"the tenant as its keys name it; used only to match"`
	Weight   float64 `yaml:"weight" help:"above 0 and at most 1000"`
}

// MaxWait is the longest wait as a duration.
func (f FairQueuing) MaxWait() time.Duration {
	return time.Duration(f.MaxWaitMS) * time.Millisecond
}

// Default returns the configuration that an empty file stands for. It has no
// keys, upstreams or routes, so it serves nothing yet.
func Default() *Config {
	return &Config{
		Server: Server{
			Listen:      ":8080",
			AdminListen: "127.0.0.1:9090",
			Console:     true,
			MaxBody:     10 << 20,
			MaxUpload:   512 << 20,
			MaxHeader:   64 << 10,
			Timeouts:    Timeouts{ReadHeader: 10 * time.Second, Total: 120 * time.Second, Idle: 120 * time.Second},
			Drain:       DrainTimes{Grace: 30 * time.Second},
		},
		Redis: Redis{
			Mode: ModeEmbedded, Address: "127.0.0.1:6379", Layout: LayoutSingle,
			Timeout: 50 * time.Millisecond, OnOutage: "fail_closed", DenyCache: true,
		},
		Queueing:         defaultQueueing(),
		Estimate:         Estimate{Tokenizer: TokenizerAuto},
		RateLimitService: RateLimitService{Levels: "own"},
		Batch:            defaultBatch(),
		RateLimiting: RateLimiting{
			DefaultCompletionTokens: 512,
			LeaseTTL:                10 * time.Second,
			InflightScope:           ScopeFleet,
			FairQueuing: FairQueuing{
				TenantDimension: "user", DefaultWeight: 1,
				Discipline: DisciplineSWRR, FairnessScope: ScopeExact,
				MaxQueueDepthPerTenant: 32, MaxTotalQueued: 4096, MaxTenants: 1024,
				MaxInFlight: 8, MaxWaitMS: 5000,
			},
			DeferredAdmission: defaultDeferred(),
		},
	}
}

// DefaultUpstream returns an upstream with every default and no address.
func DefaultUpstream() Upstream {
	return Upstream{
		Kind:     KindOpenAI,
		Timeouts: UpstreamTimeouts{Connect: 5 * time.Second, ResponseHeader: 60 * time.Second, Idle: 60 * time.Second},
		Throttle: Throttle{Reserve: 0.2, MaxWait: time.Second}, QueueDepth: defaultQueueDepth, Probe: defaultProbe(),
	}
}
