package stage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headway-limiter/headway/bench"
)

// Bounds of waiting for a fleet. They are generous: a loaded machine should be
// slow, not a failure.
const (
	startTimeout = 20 * time.Second
	joinTimeout  = 60 * time.Second
	stopTimeout  = 15 * time.Second
	// drainGrace is what a leaving replica gives its requests. Go's HTTP server
	// counts a connection that was opened and never used as one for 5 s.
	drainGrace = 8 * time.Second
	// lookEvery is how often conditions of the start are looked at.
	lookEvery = 20 * time.Millisecond
	// storeTimeout is the replicas' budget for calls to Redis, maxWait the
	// longest that a request may stand in line.
	storeTimeout = time.Second
	maxWait      = 5 * time.Minute
)

// fleet is the replicas of one run.
type fleet struct {
	setting
	launch    launcher
	addresses []address
	relays    []*relay // in front of each one's gossip; none unless it is to be cut

	mu      sync.Mutex
	members []member // nil for one that has left
	gone    bench.Calls
}

// newFleet prepares n replicas. With cuttable, their gossip runs through relays.
func newFleet(s setting, launch launcher, n int, cuttable bool) (*fleet, error) {
	f := &fleet{setting: s, launch: launch, members: make([]member, n)}
	// A replica that comes back must be where it was, so its ports are chosen
	// here: three for each.
	all, err := freePorts(3 * n)
	if err != nil {
		return nil, err
	}
	ports := all[:n]    // of gossip
	var public []string // where gossip of each is reached
	for _, port := range ports {
		at := port
		if cuttable {
			r, err := startRelay(port)
			if err != nil {
				f.close()
				return nil, err
			}
			f.relays, at = append(f.relays, r), r.addr
		}
		public = append(public, at)
	}
	for i, port := range ports {
		a := address{name: s.replica(i), api: all[n+i], admin: all[2*n+i], gossip: port}
		if cuttable {
			a.advertise = public[i]
		}
		for j, other := range public {
			if j != i {
				a.join = append(a.join, other)
			}
		}
		f.addresses = append(f.addresses, a)
	}
	return f, nil
}

// start starts all replicas and waits until each can decide and sees all.
func (f *fleet) start(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, len(f.addresses))
	for i := range f.addresses {
		wg.Go(func() { errs[i] = f.startOne(ctx, i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err // all have the same configuration: the others say the same
		}
	}
	return f.complete(ctx, len(f.addresses))
}

// startOne starts replica i at its address.
func (f *fleet) startOne(ctx context.Context, i int) error {
	a := f.addresses[i]
	m, err := f.launch(ctx, f.yaml(len(f.addresses), a), a)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members[i] = m
	return nil
}

// complete waits until n replicas run, are ready, and see n.
func (f *fleet) complete(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		good, seen := 0, []int{}
		for _, m := range f.running() {
			s := look(ctx, m.admin())
			if s.Ready && s.Fleet.Members == n {
				good++
			}
			seen = append(seen, s.Fleet.Members)
		}
		if good == n {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("stage: %d of %d replicas are ready and see all (they see %v) with redis at %s: %w", good, n, seen, f.redis, ctx.Err())
		}
	}
}

// running are the replicas that have not left.
func (f *fleet) running() []member {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []member
	for _, m := range f.members {
		if m != nil {
			out = append(out, m)
		}
	}
	return out
}

// targets are the base addresses of the replicas, also of those that left.
func (f *fleet) targets() []string {
	out := make([]string, len(f.addresses))
	for i, a := range f.addresses {
		out[i] = "http://" + a.api
	}
	return out
}

// stopOne drains replica i; its calls still count.
func (f *fleet) stopOne(ctx context.Context, i int) error {
	f.mu.Lock()
	m := f.members[i]
	f.members[i] = nil
	f.mu.Unlock()
	g, err := scrape(ctx, m.admin())
	f.mu.Lock()
	f.gone = addCalls(f.gone, g.calls)
	f.mu.Unlock()
	return errors.Join(err, m.stop(ctx))
}

// gauges reads all replicas, and the calls of all together.
func (f *fleet) gauges(ctx context.Context) (each []gauges, calls bench.Calls) {
	members := f.running()
	each = make([]gauges, len(members))
	var wg sync.WaitGroup
	for i, m := range members {
		wg.Go(func() {
			each[i], _ = scrape(ctx, m.admin()) // one that ends right now counts nothing
		})
	}
	wg.Wait()
	f.mu.Lock()
	calls = f.gone
	f.mu.Unlock()
	for _, g := range each {
		calls = addCalls(calls, g.calls)
	}
	return each, calls
}

func addCalls(a, b bench.Calls) bench.Calls {
	return bench.Calls{Admit: a.Admit + b.Admit, Pool: a.Pool + b.Pool, Total: a.Total + b.Total}
}

// close ends whatever runs, all at once. Their goodbyes find nobody left to
// hear them, so their errors mean nothing.
func (f *fleet) close() {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, m := range f.running() {
		wg.Go(func() { m.stop(ctx) })
	}
	wg.Wait()
	for _, r := range f.relays {
		r.close()
	}
}
