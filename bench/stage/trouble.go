package stage

import (
	"context"
	"errors"
	"time"

	"github.com/headway-limiter/headway/bench"
)

// routeAway is how long a balancer takes to notice that a replica leaves.
const routeAway = 300 * time.Millisecond

// troubles lets the scenario's troubles happen, one after the other, while load
// lasts, and reports them. On a machine that is so busy that they take longer
// than the load, all of them are seen through nevertheless, unless ctx ends.
func (s *show) troubles(ctx, load context.Context) (reports []bench.FaultReport, err error) {
	for _, t := range s.Scenario.Faults {
		at := s.Warm + time.Duration(t.At*float64(s.Measured))
		pause(load, time.Until(s.began.Add(at)))
		if ctx.Err() != nil {
			break
		}
		r := bench.FaultReport{Kind: string(t.Kind), AtS: (at - s.Warm).Seconds(), ForS: t.For * s.Measured.Seconds(), DetectMS: -1, HealMS: -1}
		err = errors.Join(err, s.trouble(ctx, load, t, &r))
		reports = append(reports, r)
	}
	return reports, err
}

// trouble lets one happen and returns when it is over. What it returns as an
// error is trouble with the bench, not with the fleet.
func (s *show) trouble(ctx, load context.Context, t bench.Trouble, r *bench.FaultReport) error {
	lasting := time.Duration(t.For * float64(s.Measured))
	last := s.Replicas - 1
	if t.Kind.TakesStore() {
		return s.outage(load, t, lasting, r)
	}
	switch t.Kind {
	case bench.RedisStall:
		return s.stall(load, t, lasting)
	case bench.Crash:
		return s.crash(ctx, load, last, lasting, r)
	case bench.GossipCut:
		for _, relay := range s.fleet.relays {
			relay.cut()
		}
		pause(load, lasting)
		for _, relay := range s.fleet.relays {
			relay.heal()
		}
	case bench.Leave:
		// In the order of a rolling restart: the balancer first, then the replica.
		s.driver.SetUp(last, false)
		pause(load, routeAway)
		return s.heal(ctx, r, last, func() error {
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			return s.fleet.stopOne(limited, last)
		})
	case bench.Join:
		err := s.heal(ctx, r, last+1, func() error { return s.fleet.startOne(ctx, last) })
		s.driver.SetUp(last, true)
		return err
	}
	return nil
}

// heal does something to the fleet and notes how long it takes until its
// members all see n.
func (s *show) heal(ctx context.Context, r *bench.FaultReport, n int, do func() error) error {
	begin := time.Now()
	if err := do(); err != nil {
		return err
	}
	if err := s.fleet.complete(ctx, n); err != nil {
		return err
	}
	r.HealMS = float64(time.Since(begin).Milliseconds())
	return nil
}

// stall stops Redis for a moment, again and again.
func (s *show) stall(ctx context.Context, t bench.Trouble, lasting time.Duration) error {
	end := time.Now().Add(lasting)
	for time.Now().Before(end) && ctx.Err() == nil {
		next := time.Now().Add(t.Every)
		if err := s.server.stop(); err != nil {
			return err
		}
		// An end of the run must not leave the server stopped.
		pause(context.WithoutCancel(ctx), t.Pause)
		if err := s.server.cont(); err != nil {
			return err
		}
		pause(ctx, time.Until(next))
	}
	return nil
}
