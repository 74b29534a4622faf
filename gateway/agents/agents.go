package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/fairq"
)

// Dimension is that of agents' slots in the store.
const Dimension limiter.Dimension = "agent"

// Reasons of a [Saturated], besides limiter.ReasonQueueFull.
const (
	ReasonCapacity     limiter.Reason = "capacity_exceeded" // no slot is free, and the request may not wait
	ReasonQueueTimeout limiter.Reason = "queue_timeout"     // it has waited as long as it may
)

// ErrDraining is told to those who would have to wait at a replica that leaves.
var ErrDraining = errors.New("agents: this replica is leaving")

// errClosed is the answer of a Set that was closed.
var errClosed = fmt.Errorf("agents: closed: %w", limiter.ErrUnavailable)

// Store is what a Set needs of limiter.Store.
type Store interface {
	Turns(ctx context.Context, t limiter.Turns) (limiter.TurnsVerdict, error)
	Settle(s limiter.Settlement)
}

// Agent is one agent as it is configured.
type Agent struct {
	Name  string // the same on every replica: it names the pool
	Slots int    // requests at once over the whole fleet, > 0
	Depth int    // most waiters in its line, ≥ 0; zero: nobody waits
	// Models and Tags are told by States alone: who may be sent where is the
	// caller's question.
	Models, Tags []string
	Probe        time.Duration // pause between two active probes; zero: none
}

// Config is what a Set goes by. It may be replaced while requests run and wait.
type Config struct {
	Agents  []Agent
	Timeout time.Duration // longest wait of one request
	// Longest is how long a request runs at most; zero: nobody knows.
	Longest time.Duration
}

// Options are what a Set works with.
type Options struct {
	Store Store
	// Probe asks an agent whether it is well, and returns what is wrong; nil: no
	// agent is probed. ctx ends it.
	Probe func(ctx context.Context, agent string) error
	// Fleet tells what other replicas hold, and who waits there; nil: nothing is known.
	Fleet Fleet
	// Replicas tells by how many the slots are divided while the store is out, as the
	// Store does; nil: there is one.
	Replicas   func() int
	Logger     *slog.Logger          // nil: slog.Default()
	Registerer prometheus.Registerer // nil: metrics stay private
}

// Set is the agents of one replica. It is safe for concurrent use.
type Set struct {
	store    Store
	probe    func(context.Context, string) error
	fleet    Fleet
	replicas func() int
	log      *slog.Logger
	metrics  *metrics
	ctx      context.Context // of calls and probes; ended by Close
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	timeout  time.Duration
	longest  time.Duration
	agents   map[string]*agent
	waiters  map[*waiter]struct{}
	draining bool
	closed   bool
}

// New returns a Set without agents; the error is the Registerer's. It starts
// goroutines for calls and probes, which Close ends.
func New(o Options) (*Set, error) {
	s := &Set{
		store: o.Store, probe: o.Probe, fleet: o.Fleet, replicas: o.Replicas, log: o.Logger,
		agents: map[string]*agent{}, waiters: map[*waiter]struct{}{},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	var err error
	if s.metrics, err = newMetrics(s, o.Registerer); err != nil {
		s.stop()
		return nil, fmt.Errorf("agents: metrics: %w", err)
	}
	return s, nil
}

// agent is one agent. It is guarded by Set.mu.
type agent struct {
	Agent
	slots limiter.SlotID
	gone  bool // not configured any more: for those who have it or wait for it

	order   *fairq.Tagged[*waiter]
	fresh   []*waiter // those who ask here now, and have not been everywhere yet
	line    int       // waiters counted as standing here
	held    int       // slots held here
	hold    time.Duration
	health  health
	cancel  context.CancelFunc // of its probes; nil: none
	calling bool               // a call for turns is under way
	calls   uint64             // calls begun
	freed   bool               // one was freed here since that call began, unknown to it
	claimed bool               // the store has a claim of ours
	next    time.Time          // no call before, unless somebody has to know
	failing error              // of the last call; nil: it was answered
	misses  int                // calls in a row that failed
	alone   *alone             // the order while the store is out; nil: it is not
	timer   *time.Timer
}

// Fleet tells what other replicas say of themselves. It is fast and never blocks.
type Fleet interface{ View() *fleet.View }

// othersLocked is what is known of other replicas at a.
func (s *Set) othersLocked(a *agent) (held, waiting int) {
	if s.fleet == nil {
		return 0, 0
	}
	load := s.fleet.View().Agent(string(a.slots.ID))
	return load.Held, load.Waiting
}

// Loads is what other replicas should know: agents in use here, the busiest first.
func (s *Set) Loads() []fleet.AgentLoad {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []fleet.AgentLoad
	for _, a := range s.agents {
		if a.held > 0 || a.line > 0 {
			all = append(all, fleet.AgentLoad{Agent: string(a.slots.ID), Held: a.held, Waiting: a.line})
		}
	}
	slices.SortFunc(all, func(x, y fleet.AgentLoad) int {
		return cmp.Or(cmp.Compare(y.Held+y.Waiting, x.Held+x.Waiting), cmp.Compare(x.Agent, y.Agent))
	})
	return all
}

// firstHold is how long a request is taken to hold a slot before one has ended.
const firstHold = time.Second

// Configure replaces the agents and the longest wait. Requests that run keep their
// slots, also those of an agent that is gone or has fewer than it had; those that
// wait go on waiting for the agents they came for.
func (s *Set) Configure(c Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.timeout, s.longest = c.Timeout, c.Longest
	for _, a := range s.agents {
		a.gone = true
	}
	for _, conf := range c.Agents {
		a := s.agents[conf.Name]
		if a == nil {
			a = &agent{
				slots: limiter.SlotID{Dimension: Dimension, ID: limiter.Hash(Dimension, conf.Name)},
				order: fairq.NewTagged[*waiter](), hold: firstHold,
			}
			a.timer = time.AfterFunc(time.Hour, func() { s.wake(a) })
			a.timer.Stop()
			s.agents[conf.Name] = a
		}
		again := a.cancel != nil && conf.Probe != a.Probe
		a.Agent, a.gone = conf, false
		a.next = now // there may be more slots than before
		s.watchLocked(a, again)
	}
	for name, a := range s.agents {
		if a.gone {
			s.unwatchLocked(a)
			s.forgetLocked(name, a)
		}
	}
	for _, a := range s.agents {
		s.turnLocked(a, now)
	}
}

// forgetLocked drops an agent that is gone once nobody has or wants it.
func (s *Set) forgetLocked(name string, a *agent) {
	if a.gone && a.held == 0 && a.order.Len() == 0 && len(a.fresh) == 0 && !a.calling && s.agents[name] == a {
		a.timer.Stop()
		delete(s.agents, name)
	}
}

// Drain turns away those who wait, and from now on who would have to. Those for
// whom a slot is free are still served.
func (s *Set) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for w := range s.waiters {
		if w.settled() {
			s.tellLocked(w, answer{err: ErrDraining})
		}
	}
	s.withdrawLocked(time.Now())
}

// Close ends what waits, with an error that wraps limiter.ErrUnavailable, and all
// goroutines. The store has to be closed later. Slots may still be freed.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	for w := range s.waiters {
		s.tellLocked(w, answer{err: errClosed})
	}
	for _, a := range s.agents {
		a.timer.Stop()
		s.unwatchLocked(a)
	}
	s.mu.Unlock()
	s.stop()
	s.running.Wait()
	s.metrics.close()
}

// State is an agent as this replica sees it.
type State struct {
	Name         string
	Slots        int
	Held         int // here
	Fleet        int // in the whole fleet, as last known
	Waiting      int // here
	Elsewhere    int // waiting at other replicas, as last known
	Healthy      bool
	Models, Tags []string
}

// States lists the agents by name, those gone left out.
func (s *Set) States() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []State
	for _, a := range s.agents {
		if a.gone {
			continue
		}
		others, elsewhere := s.othersLocked(a)
		all = append(all, State{
			Name: a.Name, Slots: a.Slots, Held: a.held, Fleet: a.held + others, Waiting: a.line, Elsewhere: elsewhere, Healthy: !a.health.out(),
			Models: a.Models, Tags: a.Tags,
		})
	}
	slices.SortFunc(all, func(x, y State) int { return cmp.Compare(x.Name, y.Name) })
	return all
}
