package stage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headway-limiter/headway/bench"
)

// slowLine puts a relay before the run's own Redis, which can be slow.
func (s *show) slowLine() (addr string, err error) {
	if s.line, err = startRelay(s.server.addr); err != nil {
		return "", err
	}
	return s.line.addr, nil
}

// outage takes the store away for a while and notes when it really did: from
// just before the fault to just after the store can answer again.
func (s *show) outage(ctx context.Context, t bench.Trouble, lasting time.Duration, r *bench.FaultReport) error {
	begin := time.Now()
	if err := s.takeStore(t); err != nil {
		return err
	}
	away := begin // until when the store was away beyond doubt
	if t.Kind != bench.RedisFailover {
		pause(ctx, lasting)
		away = time.Now()
	}
	// An end of the run must not leave the store as it is.
	err := s.returnStore(ctx, t, &away)
	r.AwayS = seconds(away.Sub(begin))
	r.AtS, r.ForS = seconds(begin.Sub(s.began.Add(s.Warm))), seconds(time.Since(begin))
	return err
}

// seconds is d in seconds, as exactly as it matters.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// takeStore makes the store unusable.
func (s *show) takeStore(t bench.Trouble) error {
	switch t.Kind {
	case bench.RedisDown:
		s.server.close()
	case bench.RedisFailover:
		s.trio.master.close()
	case bench.RedisHang:
		return s.server.stop()
	case bench.RedisSlow:
		s.line.delay(t.Pause)
	case bench.RedisReadonly:
		return s.server.do("REPLICAOF 127.0.0.1 1") // where nobody listens
	case bench.RedisFull:
		return s.server.do("CONFIG SET maxmemory 1")
	default:
		return fmt.Errorf("stage: no way to make %s happen", t.Kind)
	}
	return nil
}

// returnStore undoes it and returns when the store can answer. What happens by
// itself moves away on for as long as it has not.
func (s *show) returnStore(ctx context.Context, t bench.Trouble, away *time.Time) error {
	switch t.Kind {
	case bench.RedisFailover:
		return s.trio.promoted(ctx, away) // nothing to undo: the dead master stays dead
	case bench.RedisDown:
		return s.server.launch()
	case bench.RedisHang:
		return s.server.cont()
	case bench.RedisSlow:
		s.line.delay(0)
	case bench.RedisReadonly:
		return s.server.do("REPLICAOF NO ONE")
	case bench.RedisFull:
		return s.server.do("CONFIG SET maxmemory 0")
	}
	return nil
}

// crash kills replica i and starts it again after a while. The balancer notices
// as its health checks do; detection is when all others count it no more.
func (s *show) crash(ctx, load context.Context, i int, lasting time.Duration, r *bench.FaultReport) error {
	begin := time.Now()
	if err := s.fleet.killOne(ctx, i); err != nil {
		return err
	}
	noticed := time.AfterFunc(routeAway, func() { s.driver.SetUp(i, false) })
	defer noticed.Stop()
	if err := s.fleet.complete(ctx, i); err != nil {
		return err
	}
	r.DetectMS = float64(time.Since(begin).Milliseconds())
	pause(load, time.Until(begin.Add(lasting)))
	r.AtS, r.ForS = seconds(begin.Sub(s.began.Add(s.Warm))), seconds(time.Since(begin))
	err := s.heal(ctx, r, i+1, func() error { return s.fleet.startOne(ctx, i) })
	s.driver.SetUp(i, true)
	return err
}

// killer is a member that can be ended without a goodbye.
type killer interface{ kill() }

// killOne ends replica i at once; its calls until now still count.
func (f *fleet) killOne(ctx context.Context, i int) error {
	f.mu.Lock()
	m := f.members[i]
	f.mu.Unlock()
	k, ok := m.(killer)
	if !ok {
		return errors.New("stage: a replica in this process cannot be killed; start replicas as processes")
	}
	g, err := scrape(ctx, m.admin())
	k.kill()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members[i] = nil
	f.gone = addCalls(f.gone, g.calls)
	return err
}
