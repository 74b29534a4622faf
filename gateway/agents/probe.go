package agents

import (
	"context"
	"math/rand/v2"
	"time"
)

// failedLocked notes a failure of a.
func (s *Set) failedLocked(a *agent, trial bool, now time.Time) {
	was := a.health.out()
	a.health.failed(trial, now)
	if a.health.out() && !was {
		s.log.Warn("agents: an agent is out", "agent", a.Name, "pause", a.health.pause)
	}
}

// servedLocked notes a success of a.
func (s *Set) servedLocked(a *agent, trial bool) {
	if a.health.served(trial) {
		s.log.Info("agents: an agent is back", "agent", a.Name)
	}
}

// watchLocked has a probed as configured; again: at another pace than before.
func (s *Set) watchLocked(a *agent, again bool) {
	if again || a.Probe <= 0 || s.probe == nil {
		s.unwatchLocked(a)
	}
	if a.cancel != nil || a.Probe <= 0 || s.probe == nil || s.closed {
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	a.cancel, a.health.probe = cancel, true
	every := a.Probe
	s.running.Go(func() { s.watch(ctx, a, every) })
}

// unwatchLocked ends the probes of a.
func (s *Set) unwatchLocked(a *agent) {
	if a.cancel != nil {
		a.cancel()
		a.cancel, a.health.probe = nil, false
	}
}

// watch probes a until ctx ends. The pause varies by a tenth, so that the probes of
// many replicas do not come together.
func (s *Set) watch(ctx context.Context, a *agent, every time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		within, cancel := context.WithTimeout(ctx, every)
		err := s.probe(within, a.Name)
		cancel()
		if ctx.Err() != nil {
			return
		}
		s.probed(a, err)
		timer.Reset(every*9/10 + rand.N(every/5+1))
	}
}

// probed takes over what a probe has found.
func (s *Set) probed(a *agent, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if err != nil {
		s.failedLocked(a, true, now)
		return
	}
	s.servedLocked(a, true)
	s.turnLocked(a, now)
}
