package agents

import (
	"sync/atomic"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// Slot is one of an agent's, held by a request. It is safe for concurrent use.
type Slot struct {
	set    *Set
	agent  *agent
	local  bool // by this replica's share, while the store was out
	trial  bool // it shows whether the agent is well again; guarded by set.mu
	since  time.Time
	waited time.Duration
	freed  atomic.Bool
}

// Agent is the name of the agent that it is of.
func (s *Slot) Agent() string { return s.agent.Name }

// Waited is how long the request has waited, earlier waits of its turn included.
func (s *Slot) Waited() time.Duration { return s.waited }

// Answers says that the agent has begun to answer, and not with a failure of its own. A
// trial is over with that: what follows may take minutes, and would keep others out.
func (s *Slot) Answers() {
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	if !s.trial || s.freed.Load() {
		return
	}
	s.set.servedLocked(s.agent, true)
	s.trial = false
	s.set.turnLocked(s.agent, time.Now())
}

// Free gives the slot back, at once for the whole fleet. failed says that the agent
// could not be reached, failed itself or was overloaded. Only the first call of Free
// or Cancel has an effect.
func (s *Slot) Free(failed bool) {
	s.end(func(a *agent, now time.Time) {
		if failed {
			s.set.failedLocked(a, s.trial, now)
		} else {
			s.set.servedLocked(a, s.trial)
		}
	})
}

// Cancel is Free where nothing is known of the agent: it was not asked, or the client
// left before it had answered.
func (s *Slot) Cancel() {
	s.end(func(a *agent, _ time.Time) {
		if s.trial {
			a.health.trial = false
		}
	})
}

// weightOfOne is what one request counts in the mean of how long slots are held.
const weightOfOne = 0.2

func (s *Slot) end(judge func(*agent, time.Time)) {
	if s.freed.Swap(true) {
		return
	}
	// Before the next call, which states what is held.
	s.set.store.Settle(limiter.Settlement{Free: []limiter.SlotID{s.agent.slots}, Local: s.local})
	s.set.mu.Lock()
	defer s.set.mu.Unlock()
	now, a := time.Now(), s.agent
	a.held--
	a.hold += time.Duration(weightOfOne * float64(max(now.Sub(s.since), time.Millisecond)-a.hold))
	judge(a, now)
	a.next, a.freed = now, a.calling // nobody else knows of it
	s.set.turnLocked(a, now)
}
