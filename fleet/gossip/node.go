package gossip

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/headway-limiter/headway/fleet"
)

// leaveTimeout bounds how long a graceful leave waits for its broadcast.
const leaveTimeout = 2 * time.Second

// Node is this replica's membership in a fleet. All methods are safe for
// concurrent use; View and Publish never block.
type Node struct {
	cfg     Config
	list    *memberlist.Memberlist
	addr    string // advertised
	queue   memberlist.TransmitLimitedQueue
	metrics *metrics
	view    atomic.Pointer[fleet.View]
	report  atomic.Pointer[report]
	config  atomic.Pointer[string]                   // hash, for the digest
	source  atomic.Pointer[Source]                   // nil: none is attached
	agents  atomic.Pointer[func() []fleet.AgentLoad] // nil: there are none
	stop    context.CancelFunc
	done    sync.WaitGroup // the two loops
	closing sync.Once
	// stranger, of capacity 1, is told of digests of replicas that are no members;
	// hurried, likewise, that a digest is to be sent now.
	stranger, hurried chan struct{}

	// mu is the innermost lock: memberlist's may be held when it is taken, never
	// the other way round.
	mu     sync.Mutex
	table  *fleet.Table
	peers  map[string]string    // name to address of the other live members
	known  map[string]bool      // addresses to try again when not members
	lost   map[string]time.Time // when it was last told of each that it does not resolve
	rotate int                  // where the next direct sends begin
}

// report is what Publish was told last.
type report struct {
	pools    []fleet.Pool
	inFlight int64
}

// Start listens and begins to join cfg.Join in the background: no other replica
// needs to be up. It fails on a wrong configuration and when it cannot listen.
func Start(cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	n := &Node{
		cfg: cfg, stranger: make(chan struct{}, 1), hurried: make(chan struct{}, 1),
		table: fleet.NewTable(cfg.Name), peers: map[string]string{}, known: map[string]bool{}, lost: map[string]time.Time{},
	}
	n.queue.NumNodes = n.Members
	n.queue.RetransmitMult = 2 // forwarded by everybody who finds it new
	n.report.Store(&report{})
	n.config.Store(&cfg.ConfigHash)
	n.remember(cfg.Join)
	var err error
	if n.metrics, err = newMetrics(cfg.Registerer); err != nil {
		return nil, err
	}
	n.refresh(time.Now())
	mc, err := cfg.memberlist(&delegate{n})
	if err == nil {
		if n.list, err = memberlist.Create(mc); err != nil {
			err = fmt.Errorf("gossip: listen on %s: %w", cfg.Bind, err)
		}
	}
	if err != nil {
		n.metrics.unregister()
		return nil, err
	}
	n.addr = nodeAddr(n.list.LocalNode())
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	n.done.Go(func() { n.tell(ctx) })
	n.done.Go(func() { n.keepJoined(ctx) })
	return n, nil
}

// Name is the replica's name in the fleet.
func (n *Node) Name() string { return n.cfg.Name }

// Addr is the "host:port" that others reach this node at.
func (n *Node) Addr() string { return n.addr }

// Members is the number of live members including this one. It may be wrong for
// seconds after a crash.
func (n *Node) Members() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.peers) + 1
}

// View returns the latest snapshot, renewed every interval.
func (n *Node) View() *fleet.View { return n.view.Load() }

// Publish sets what the next digests say of this replica. The slices belong to
// the node from now on.
func (n *Node) Publish(pools []fleet.Pool, inFlight int64) {
	n.report.Store(&report{pools, inFlight})
}

// Agents has f tell every digest the load of agents at this replica. f must not block,
// nor call the node; the slice belongs to the node.
func (n *Node) Agents(f func() []fleet.AgentLoad) { n.agents.Store(&f) }

func (n *Node) load() []fleet.AgentLoad {
	if f := n.agents.Load(); f != nil {
		return (*f)()
	}
	return nil
}

// SetConfigHash changes what the next digests say of the configuration.
func (n *Node) SetConfigHash(hash string) { n.config.Store(&hash) }

// Close leaves the fleet and waits for the goroutines of the node. If ctx is done
// already the node does not say goodbye: to the others it has crashed. Probes that
// memberlist has under way end by themselves some seconds later; tests in a bubble
// must let that time pass before they return. Further calls do nothing.
func (n *Node) Close(ctx context.Context) (err error) {
	n.closing.Do(func() {
		n.stop()
		if ctx.Err() == nil {
			err = n.list.Leave(leaveWithin(ctx))
		}
		if e := n.list.Shutdown(); err == nil {
			err = e
		}
		n.done.Wait()
		n.metrics.unregister()
	})
	if err != nil {
		err = fmt.Errorf("gossip: leave: %w", err)
	}
	return err
}

func leaveWithin(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(time.Millisecond, min(leaveTimeout, time.Until(deadline))) // none would be for ever
	}
	return leaveTimeout
}

// tell sends this replica's digest and renews the view, every interval.
func (n *Node) tell(ctx context.Context) {
	tick := time.NewTicker(n.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			n.send(now)
			n.refresh(now)
		case <-n.hurried:
			n.send(time.Now())
			if !n.breathe(ctx) {
				return
			}
		}
	}
}

// send announces the latest report to the members whose turn it is.
func (n *Node) send(now time.Time) {
	r := n.report.Load()
	var throttles []fleet.Throttle
	if s := n.source.Load(); s != nil {
		throttles = (*s).Throttles(now)
	}
	agents := n.load()
	n.mu.Lock()
	d := n.table.Announce(fleet.Digest{
		Incarnation: n.cfg.Incarnation, Build: n.cfg.Build, Config: *n.config.Load(),
		InFlight: r.inFlight, Pools: r.pools, Throttles: throttles, Agents: agents,
	})
	to := n.targetsLocked()
	many := len(n.peers) > len(to)
	n.mu.Unlock()
	b, omitted := d.Encode(nil, fleet.MaxDatagram)
	if omitted > 0 {
		n.metrics.oversize.Inc()
	}
	for _, a := range to {
		if err := n.list.SendToAddress(a, b); err != nil {
			n.cfg.Logger.Debug("gossip: send digest", "to", a.Name, "err", err)
		}
	}
	if many {
		n.forward(d.Replica, b)
	}
}

// targetsLocked chooses whom this digest goes to directly: everybody, or the
// next DirectMembers of a larger fleet, in turn.
func (n *Node) targetsLocked() []memberlist.Address {
	names := make([]string, 0, len(n.peers))
	for name := range n.peers {
		names = append(names, name)
	}
	slices.Sort(names)
	count := min(len(names), n.cfg.DirectMembers)
	to := make([]memberlist.Address, count)
	for i := range to {
		name := names[(n.rotate+i)%len(names)]
		to[i] = memberlist.Address{Addr: n.peers[name], Name: name}
	}
	n.rotate += count
	return to
}

// refresh renews the view.
func (n *Node) refresh(now time.Time) {
	n.mu.Lock()
	n.table.Expire(now)
	others := make([]string, 0, len(n.peers))
	for name := range n.peers {
		others = append(others, name)
	}
	v := n.table.ViewOf(now, others)
	n.mu.Unlock()
	n.view.Store(v)
	if s := n.source.Load(); s != nil {
		(*s).Members(len(others)+1, len(others) == 0 || n.cfg.Name < slices.Min(others))
	}
	n.metrics.members.Set(float64(v.Members))
	n.metrics.age.Set(v.Age.Seconds())
}

// forward queues a digest to be spread by memberlist's gossip. It replaces an
// older one of the same replica, so the queue holds at most one per replica.
func (n *Node) forward(replica string, b []byte) {
	n.queue.QueueBroadcast(&rumour{replica, b})
}

// rumour is a digest in memberlist's broadcast queue.
type rumour struct {
	replica string
	bytes   []byte
}

// Name implements memberlist.NamedBroadcast.
func (r *rumour) Name() string { return r.replica }

// Invalidates implements memberlist.Broadcast.
func (r *rumour) Invalidates(o memberlist.Broadcast) bool {
	other, ok := o.(*rumour)
	return ok && other.replica == r.replica
}

// Message implements memberlist.Broadcast.
func (r *rumour) Message() []byte { return r.bytes }

// Finished implements memberlist.Broadcast.
func (r *rumour) Finished() {}
