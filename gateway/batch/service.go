package batch

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/gateway"
	"github.com/headway-limiter/headway/gateway/config"
)

// Performer runs requests as if their owners had sent them; a Gateway is one.
type Performer interface {
	// Perform returns what would be the answer.
	Perform(ctx context.Context, owner gateway.Owner, r *http.Request) (gateway.Performed, error)
	// Price estimates the cost of a request in tokens, ≥ 1.
	Price(path string, body []byte) int64
}

// Options are what a Service needs. Config and Redis must be set.
type Options struct {
	// Config returns the bounds in force; Workers and Lease are read once.
	Config func() config.Batch
	Redis  Redis
	// MayKeep returns nil if what an owner sends may be kept, or an error as
	// gateway.MayKeep does; nil: everything may.
	MayKeep    func(gateway.Owner) error
	Routed     func(path string) bool // whether requests to a path lead anywhere; nil: all do
	Logger     *slog.Logger           // nil: slog.Default()
	Registerer prometheus.Registerer  // nil keeps the metrics private
}

// Service serves files and batches, and runs jobs of the whole fleet once it is
// started. It implements gateway.Files and is safe for concurrent use.
type Service struct {
	opts    Options
	store   store
	log     *slog.Logger
	metrics *metrics
	api     http.Handler
	lease   time.Duration
	slots   chan struct{} // one for each job that may run here
	hall    chan struct{} // one for each of them that may still wait

	performer Performer       // set by Start
	ctx       context.Context // of everything that runs in the background
	cancel    context.CancelCauseFunc
	jobCtx    context.Context // of jobs: ends first
	stopJobs  context.CancelFunc
	poke      chan struct{} // there may be jobs
	look      chan struct{} // there may be a batch to look at
	draining  atomic.Bool
	drained   chan struct{}
	drainOnce sync.Once
	loops     sync.WaitGroup
	claiming  sync.WaitGroup // ends before running is waited for
	running   sync.WaitGroup

	mu   sync.Mutex
	mine map[*job]bool // claims held here; false: known to be lost
}

// New returns a Service that serves its API and runs nothing yet.
func New(o Options) (*Service, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	c := o.Config()
	s := &Service{
		opts: o, store: store{o.Redis}, log: o.Logger, lease: c.Lease, slots: make(chan struct{}, c.Workers), hall: make(chan struct{}, min(c.Workers, waiting)),
		poke: make(chan struct{}, 1), look: make(chan struct{}, 1), drained: make(chan struct{}), mine: map[*job]bool{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.jobCtx, s.stopJobs = context.WithCancel(s.ctx)
	s.api = s.routes()
	var err error
	if s.metrics, err = newMetrics(o.Registerer, s.oldest); err != nil {
		return nil, fmt.Errorf("batch: metrics: %w", err)
	}
	return s, nil
}

// Start begins to look at batches and to run jobs through p. Call it once.
func (s *Service) Start(p Performer) {
	s.performer = p
	s.loops.Go(s.chores)
	if cap(s.slots) > 0 {
		s.claiming.Go(s.claims)
		s.loops.Go(s.renewals)
	}
}

// Drain ends claiming: jobs that run go on. It cannot be undone.
func (s *Service) Drain() {
	s.drainOnce.Do(func() {
		s.draining.Store(true)
		close(s.drained)
	})
}

// closeGrace is how long Close may take after ctx to give jobs back.
const closeGrace = time.Second

// Close drains and waits for the jobs that run. When ctx ends it gives back those
// that are left, so that another replica takes them at once.
func (s *Service) Close(ctx context.Context) {
	s.Drain()
	done := make(chan struct{})
	go func() {
		s.claiming.Wait()
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.stopJobs()
		select {
		case <-done:
		case <-time.After(closeGrace): // the store is out: their leases will end
		}
	}
	s.cancel(nil)
	<-done
	s.loops.Wait()
}

// wake sends to a channel of pokes, unless there is one already.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits for d, a poke or the end of claiming; false: it was the end.
func (s *Service) pause(d time.Duration, poke <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-poke:
	case <-s.drained:
		return false
	}
	return true
}
