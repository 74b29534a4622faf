package replica

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/fleet/gossip"
	"github.com/headway-limiter/headway/gateway"
	"github.com/headway-limiter/headway/gateway/agents"
	"github.com/headway-limiter/headway/gateway/batch"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/gateway/console"
	"github.com/headway-limiter/headway/gateway/cost"
	"github.com/headway-limiter/headway/gateway/workspace"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/localshare"
	"github.com/headway-limiter/headway/limiter/near"
	"github.com/headway-limiter/headway/limiter/redisstore"
)

// Options are what a configuration file cannot say.
type Options struct {
	Logger *slog.Logger // nil: slog.Default()
	Build  string       // version shown in metrics and gossip
	// Listener and AdminListener replace those of the configuration; the
	// replica closes them.
	Listener, AdminListener net.Listener
	// Load reads the configuration again, for Reload; nil: there is nothing to
	// read. File is watched, and reloaded when it changes; empty: nothing is.
	Load func() (*config.Config, error)
	File string
}

// Replica is one running gateway. Its methods are safe for concurrent use.
type Replica struct {
	cfg      atomic.Pointer[config.Config] // in force
	log      *slog.Logger
	registry *prometheus.Registry

	embedded *Embedded // nil unless redis.mode is embedded
	store    *redisstore.Store
	share    *localshare.Store // store, or shares while it is out
	near     *near.Store       // what the limiter asks: share, or what is known here
	node     *gossip.Node      // nil without gossip
	limiter  *limiter.Limiter
	cost     *cost.Estimator
	gateway  *gateway.Gateway

	workspaces *workspace.Set
	service    *service       // nil without a rate limit service
	batch      *batch.Service // nil without files and batches

	api, admin *server
	encrypted  []*encryption // listeners with TLS
	failed     chan error
	reloads    reloads
	end        sync.Once
}

// server is one listener with its HTTP server.
type server struct {
	http.Server
	listener  net.Listener
	encrypted bool // TLSConfig does not tell: net/http makes one for itself
}

// Start starts a replica. The error names what could not be opened; everything
// opened before is closed again.
func Start(ctx context.Context, cfg *config.Config, opts Options) (r *Replica, err error) {
	r = &Replica{log: opts.Logger, registry: prometheus.NewRegistry(), failed: make(chan error, 3)}
	r.cfg.Store(cfg)
	if r.log == nil {
		r.log = slog.Default()
	}
	opened := r // r is nil where an error is returned
	defer func() {
		if err != nil {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
			defer cancel()
			err = errors.Join(err, opened.close(last))
		}
	}()
	r.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	incarnation := newIncarnation()
	name := memberName(cfg.Fleet.Name, incarnation)
	if err := r.openStore(incarnation); err != nil {
		return nil, err
	}
	peers, err := r.openFleet(name, incarnation, opts.Build)
	if err != nil {
		return nil, err
	}
	limits := cfg.Limiter()
	limits.Registerer, limits.Logger = r.registry, r.log
	if err := r.openShare(limits); err != nil {
		return nil, err
	}
	if err := r.openNear(); err != nil {
		return nil, err
	}
	if r.limiter, err = limiter.New(limits, r.near, peers); err != nil {
		return nil, err
	}
	r.cost = cost.New(true)
	r.workspaces = workspace.New(workspace.Options{Redis: r.store, Seeds: workspace.Seeds(cfg), Logger: r.log})
	files, err := r.openBatch()
	if err != nil {
		return nil, err
	}
	r.gateway, err = gateway.New(cfg, r.limiter, gateway.Options{
		Files: files,
		Cost:  r.cost,

		Workspaces: r.workspaces,

		Logger: r.log, Registerer: r.registry, Gatherer: r.registry,
		Store: r.store.Health, Share: r.share.Informed, Slots: r.near, Replicas: r.share.Divisor, Fleet: peers, Build: opts.Build, Reload: r.reloader(opts),
	})
	if err != nil {
		return nil, err
	}
	if r.node != nil {
		r.node.Attach(r.gateway.Pace())
		r.gateway.Pace().OnUrgent(r.node.Hurry)
		r.node.Agents(r.gateway.Agents().Loads)
	}
	if err := r.openService(); err != nil {
		return nil, err
	}
	if err := r.listen(opts); err != nil {
		return nil, err
	}
	if err := r.openReloads(opts, peers); err != nil {
		return nil, err
	}
	r.startBatch()
	r.log.Info("replica started", "name", name, "listen", r.URL(), "admin", r.AdminURL(), "console", r.ConsoleURL(), "gossip", r.GossipAddr())
	return r, nil
}

// openStore connects to Redis, which may be down for now.
func (r *Replica) openStore(incarnation uint64) (err error) {
	o := storeOptions(r.cfg.Load())
	if r.cfg.Load().Redis.Mode == config.ModeEmbedded {
		if r.embedded, err = StartEmbedded(); err != nil {
			return err
		}
		o.Address = r.embedded.Addr()
	}
	o.Incarnation, o.Logger, o.Registerer = incarnation, r.log, r.registry
	r.store, err = redisstore.New(o)
	return err
}

// embeddedTimeout is the least that the embedded store has for an admission. It
// cannot hang alone: where it is late, so is the whole process.
const embeddedTimeout = time.Second

// storeTimeout is the budget of an admission.
func storeTimeout(c config.Redis) time.Duration {
	if c.Mode == config.ModeEmbedded {
		return max(c.Timeout, embeddedTimeout)
	}
	return c.Timeout
}

// storeOptions are what the configuration says of Redis. To the store, the one
// inside this process is a server like any other.
func storeOptions(cfg *config.Config) redisstore.Options {
	c := cfg.Redis
	o := redisstore.Options{Layout: redisstore.Layout(c.Layout), Timeout: storeTimeout(c), LeaseTTL: cfg.RateLimiting.LeaseTTL}
	if c.Mode == config.ModeEmbedded {
		return o
	}
	o.Mode, o.Username, o.Password, o.Database = redisstore.Mode(c.Mode), c.Username, c.Password.Reveal(), c.Database
	switch c.Mode {
	case config.ModeStandalone:
		o.Address = c.Address
	case config.ModeSentinel:
		o.SentinelMaster, o.SentinelUsername, o.SentinelPassword = c.Sentinel.Master, c.Sentinel.Username, c.Sentinel.Password.Reveal()
		fallthrough
	case config.ModeCluster:
		o.Addresses = c.Addresses
	}
	if o.TLS = c.TLS; c.TLS {
		o.TLSFiles = redisstore.TLSFiles{CA: c.TLSFiles.CA, Cert: c.TLSFiles.Cert, Key: c.TLSFiles.Key, ServerName: c.TLSServerName}
	}
	return o
}

// openShare puts local shares in front of the store. Without gossip the store
// alone counts replicas, for one that sees nobody might be one of many.
func (r *Replica) openShare(limits limiter.Config) (err error) {
	o := localshare.Options{
		Inner: r.store, Registry: r.store, Policy: outageOf(limits), Logger: r.log, Registerer: r.registry,
	}
	if r.node != nil {
		o.Fleet = r.node
	}
	r.share, err = localshare.New(o)
	return err
}

// outageOf is what becomes of a dimension while the store is out: as configured, and
// of agents each replica has its share of the slots, for one that is sent more than it
// takes helps nobody.
func outageOf(limits limiter.Config) localshare.Policy {
	return func(d limiter.Dimension) limiter.OutagePolicy {
		if d == agents.Dimension {
			return limiter.LocalShare
		}
		return limits.OutageOf(d)
	}
}

// openNear puts what needs no store at all in front of the shares.
func (r *Replica) openNear() (err error) {
	c := r.cfg.Load().Redis
	r.near, err = near.New(r.share, r.share.Divisor, near.Options{
		DenyCache: c.DenyCache, Prefetch: c.Prefetch, Budget: storeTimeout(c), Registerer: r.registry,
	})
	return err
}

// unopened names the field of what could not be listened on, and what to do. Not
// every library hands on which error it was, so its text has to do.
func unopened(field string, err error) error {
	fix := "write an address of this machine"
	if strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
		fix = "end what listens there, or write another port"
	}
	return fmt.Errorf("replica: %s: %w; %s", field, err, fix)
}

// openFleet starts gossip, or stands in for a fleet of one.
func (r *Replica) openFleet(name string, incarnation uint64, build string) (limiter.Fleet, error) {
	c := r.cfg.Load().Fleet
	if c.Bind == "" {
		return fleet.Solo(name), nil
	}
	keys, err := c.DecodedKeys()
	if err != nil {
		return nil, err
	}
	r.node, err = gossip.Start(gossip.Config{
		Name: name, Incarnation: incarnation, Bind: c.Bind, Advertise: c.Advertise, Join: c.Join, Keys: keys,
		Registry: r.registryOfFleet(), Build: build, ConfigHash: r.cfg.Load().Hash(), Logger: r.log, Registerer: r.registry,
	})
	if err != nil {
		return nil, unopened("fleet.bind", err)
	}
	return r.node, nil
}

// listen opens both listeners and serves on them.
func (r *Replica) listen(opts Options) (err error) {
	c := r.cfg.Load().Server
	if r.api, err = r.newServer(opts.Listener, "server.listen", c.Listen, r.gateway.Handler()); err != nil {
		return err
	}
	if r.admin, err = r.newServer(opts.AdminListener, "server.admin_listen", c.AdminListen, r.gateway.Admin()); err != nil {
		return err
	}
	if err := r.encrypt(r.api, "server.tls", c.TLS); err != nil {
		return err
	}
	if err := r.encrypt(r.admin, "server.admin_tls", c.AdminTLS); err != nil {
		return err
	}
	for _, s := range []*server{r.api, r.admin} {
		go func() {
			if err := s.serve(); !errors.Is(err, http.ErrServerClosed) {
				r.failed <- fmt.Errorf("replica: serve %s: %w", s.listener.Addr(), err)
			}
		}()
	}
	return nil
}

// newServer serves h on ln, or else on what the configuration says in field.
func (r *Replica) newServer(ln net.Listener, field, addr string, h http.Handler) (*server, error) {
	if ln == nil {
		var err error
		if ln, err = net.Listen("tcp", addr); err != nil {
			return nil, unopened(field, err)
		}
	}
	t := r.cfg.Load().Server.Timeouts
	return &server{listener: ln, Server: http.Server{
		Handler: h, ReadHeaderTimeout: t.ReadHeader, IdleTimeout: t.Idle,
		MaxHeaderBytes: int(r.cfg.Load().Server.MaxHeader),
		ErrorLog:       slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}}, nil
}

// serve serves until the server is closed.
func (s *server) serve() error {
	if s.encrypted {
		return s.ServeTLS(s.listener, "", "") // the files are in the configuration
	}
	return s.Serve(s.listener)
}

// url is the base address.
func (s *server) url() string {
	if s.encrypted {
		return "https://" + s.listener.Addr().String()
	}
	return "http://" + s.listener.Addr().String()
}

// URL is the base address of the gateway API.
func (r *Replica) URL() string { return r.api.url() }

// AdminURL is the base address of the admin listener.
func (r *Replica) AdminURL() string { return r.admin.url() }

// ConsoleURL is the address of this replica's console; empty if it is turned off.
func (r *Replica) ConsoleURL() string {
	if !r.Config().Server.Console {
		return ""
	}
	return r.AdminURL() + console.Base
}

// Config is the configuration in force, which must not be changed.
func (r *Replica) Config() *config.Config { return r.cfg.Load() }

// GossipAddr is where other replicas join this one; empty without gossip.
func (r *Replica) GossipAddr() string {
	if r.node == nil {
		return ""
	}
	return r.node.Addr()
}

// Join makes the members at addrs known, and returns how many were reached.
func (r *Replica) Join(addrs ...string) (int, error) {
	if r.node == nil {
		return 0, errors.New("replica: fleet.bind is not set: there is no gossip to join")
	}
	return r.node.Join(addrs...)
}

// Members is how many replicas this one sees alive, itself included.
func (r *Replica) Members() int {
	if r.node == nil {
		return 1
	}
	return r.node.Members()
}

// StoreCalls counts what this replica has sent to Redis.
func (r *Replica) StoreCalls() int64 { return int64(r.store.Calls().Total()) }

// StoreTimeouts counts calls that had no answer when their callers gave up.
func (r *Replica) StoreTimeouts() int64 { return int64(r.store.Calls().Timeouts) }

// Waiting is how many requests stand in this replica's lines.
func (r *Replica) Waiting() int { return r.limiter.Waiting() }

// Health is the state of the store as this replica sees it.
func (r *Replica) Health() limiter.Health { return r.store.Health() }

// Failed yields the error of a listener that stopped by itself.
func (r *Replica) Failed() <-chan error { return r.failed }

func newIncarnation() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])
}

// memberName is the configured name, or one that nobody else has.
func memberName(configured string, incarnation uint64) string {
	if configured != "" {
		return configured
	}
	host, err := os.Hostname()
	if err != nil {
		host = "replica"
	}
	return fmt.Sprintf("%s-%d-%04x", host, os.Getpid(), incarnation&0xffff)
}
