package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/gateway/agents"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/cost"
	"github.com/headway-limiter/headway/gateway/workspace"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/pace"
)

// Options are what a Gateway needs besides its configuration. The zero value
// works: a fleet of one, a store that is taken to be usable, no metrics page.
type Options struct {
	// Transport carries requests to all upstreams; nil: one connection pool
	// per upstream.
	Transport http.RoundTripper
	Logger    *slog.Logger // nil: slog.Default()
	// Registerer takes the gateway's metrics; nil keeps them private.
	Registerer prometheus.Registerer
	// Gatherer is what /metrics shows; nil: nothing.
	Gatherer prometheus.Gatherer
	// Cost estimates requests, and stays the caller's to close; nil: by bytes
	// alone.
	Cost *cost.Estimator
	// Store tells readiness and debug pages about the store; nil: usable.
	Store func() limiter.Health
	// Share tells readiness whether this replica can decide by its share of the
	// limits while the store is out; nil: it can, if local_share says it should.
	Share func() bool
	// Slots keeps the slots of agents; nil: no upstream may have any.
	Slots agents.Store
	// Replicas is by how many limits are divided while the store is out; nil: one.
	Replicas func() int
	// Workspaces knows the settings of workspaces; nil: what the configuration
	// begins with is never read or changed, so all of them queue.
	Workspaces *workspace.Set
	// Fleet tells them about the other replicas; nil: none.
	Fleet limiter.Fleet
	Build string // version of the program
	// Files serves files and batches, for whose jobs Perform is; nil: their paths
	// are like any other.
	Files Files
	// Reload reads the configuration again, for POST /-/reload, and names the
	// changed fields that wait for a restart; nil: there is nothing to read.
	Reload func() (restart []string, err error)
}

// Gateway is the HTTP edge of one replica. It is safe for concurrent use. It
// owns goroutines for agents alone, which Close ends; idle connections to upstreams
// stay until CloseIdle.
type Gateway struct {
	tables   atomic.Pointer[tables]
	limiter  *limiter.Limiter
	opts     Options
	log      *slog.Logger
	metrics  *metrics
	pace     *pace.Set         // of providers
	sessions sessions          // of realtime
	tools    http.RoundTripper // to the tools of turns
	agents   *agents.Set
	// workspaces is that of the options, or one that knows nothing.
	workspaces *workspace.Set
	api        http.Handler
	admin      http.Handler
	spread     jitter // of waits; tests make it constant
	// performs serves what the gateway asks of itself: api without its router.
	performs http.Handler
	recent   recent // refusals

	listeners atomic.Int64  // of live events
	drained   chan struct{} // closed when draining begins
	drain     sync.Once

	reloading sync.Mutex // held by Reload
	draining  atomic.Bool
	running   atomic.Int64 // requests being served or waiting
}

// New returns the edge for cfg in front of l. The error lists every mistake of
// cfg. cfg must not change afterwards; l stays the caller's to close.
func New(cfg *config.Config, l *limiter.Limiter, opts Options) (*Gateway, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Store == nil {
		opts.Store = func() limiter.Health { return limiter.Health{Usable: true, State: "ok"} }
	}
	if opts.Cost == nil {
		opts.Cost = cost.New(false)
	}
	g := &Gateway{
		limiter: l, opts: opts, log: opts.Logger,
		spread: spread, drained: make(chan struct{}),
	}
	if g.workspaces = opts.Workspaces; g.workspaces == nil {
		g.workspaces = workspace.New(workspace.Options{Seeds: workspace.Seeds(cfg), Logger: g.log})
	}
	t, wrong := newTables(cfg, opts.Transport)
	if opts.Slots == nil && len(agentsOf(cfg).Agents) > 0 {
		wrong = errors.Join(wrong, errNoSlots)
	}
	if g.tools = opts.Transport; g.tools == nil {
		g.tools = newTransport(config.DefaultUpstream().Timeouts)
	}
	var errs [3]error
	g.metrics, errs[0] = newMetrics(opts.Registerer, opts.Build)
	g.pace, errs[1] = pace.NewSet(opts.Registerer)
	g.pace.OnExpired(g.expired)
	if wrong == nil {
		g.tables.Store(t)
		errs[2] = g.openAgents(cfg)
	}
	if err := errors.Join(wrong, errors.Join(errs[:]...)); err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	g.performs = g.observe(g.serve)
	g.api = g.edge(g.performs)
	g.admin = g.adminEdge()
	return g, nil
}

// Handler serves the gateway API.
func (g *Gateway) Handler() http.Handler { return g.api }

// Admin serves /metrics, /livez, /readyz, /debug/headway, /api/, unless it is
// turned off /console/, and /-/reload.
func (g *Gateway) Admin() http.Handler { return g.admin }

// Drain makes readiness fail from now on and answers everyone in a wait line,
// or about to join one, with 503. Requests that need not wait are still
// served, with Connection: close. It cannot be undone.
func (g *Gateway) Drain() {
	g.draining.Store(true)
	g.drain.Do(func() { close(g.drained) })
	g.metrics.draining.Set(1)
	g.limiter.Drain()
	g.pace.Drain()
	g.agents.Drain()
}

// Close ends the calls and probes of agents. The store of Options has to be closed
// later, and requests must have ended.
func (g *Gateway) Close() { g.agents.Close() }

// Agents are the upstreams with slots.
func (g *Gateway) Agents() *agents.Set { return g.agents }

// Pace is what this gateway knows of its providers, to be shared with the fleet.
func (g *Gateway) Pace() *pace.Set { return g.pace }

// Running returns the number of requests being served or waiting.
func (g *Gateway) Running() int64 { return g.running.Load() }

// CloseIdle closes idle connections to the upstreams. Requests that run are not
// touched.
func (g *Gateway) CloseIdle() {
	g.tables.Load().closeIdle(nil)
	if c, ok := g.tools.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
