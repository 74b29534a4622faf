package agents

import (
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// alone is how this replica goes on with an agent while the store, which keeps the
// order and the slots of the fleet, is out: start-time fair queueing over what is
// served here.
type alone struct {
	since  time.Time
	back   time.Time // when the store had answered again; zero: it has not
	had    int       // slots held here when it began
	fleet  bool      // the store has told tags since it is back
	v      float64   // virtual time: the greatest start tag served
	finish map[limiter.ID]float64
}

// turn returns the tags of a tenant, after it was served once more if granted.
func (o *alone) turn(tenant limiter.ID, weight float64, granted bool) (finish, since float64) {
	start, known := o.finish[tenant]
	if start = max(start, o.v); !known {
		start = o.v
	}
	if !granted {
		return start, o.v
	}
	if o.finish == nil {
		o.finish = map[limiter.ID]float64{}
	}
	o.v = start
	o.finish[tenant] = start + 1/weight
	return o.finish[tenant], o.v
}

// heardAll is after how long all that a fresh view says is of the time since: the age
// of its oldest word, and as much for others to notice.
const heardAll = time.Second

// settling is for how long after it is back the store may count too little: until all
// replicas have told it what they hold.
const settling = 2 * time.Second

// roomLocked is how many slots of a this replica may take besides, as far as the store
// does not decide that: within its share, and see mayGrowLocked.
func (s *Set) roomLocked(a *agent, now time.Time) int {
	if a.alone == nil {
		return a.Slots
	}
	most := a.Slots / s.divisor()
	if !s.mayGrowLocked(a, now) {
		most = min(most, a.alone.had)
	}
	return max(0, most-a.held)
}

// divisor is by how many slots are divided.
func (s *Set) divisor() int {
	if s.replicas == nil {
		return 1
	}
	return max(1, s.replicas())
}

// orderBy changes between the order of the fleet and one of this replica alone, whose
// tags mean nothing to each other, so those of the one are forgotten with the first of
// the other. told says that the verdict has tags: calls for nobody may reach the store
// again while those with bids are still decided here, and change no order.
func (s *Set) orderBy(a *agent, local, told bool, now time.Time) {
	forget := false
	switch {
	case local && a.alone == nil:
		a.alone = &alone{since: now, had: a.held}
		s.metrics.alone.WithLabelValues(a.Name).Inc()
		s.log.Warn("slots by shares, without the store", "agent", a.Name, "slots", a.Slots, "replicas", s.divisor(), "held", a.held)
		forget = true
	case local: // still, or again
		if a.alone.back = (time.Time{}); a.alone.fleet {
			a.alone.fleet, a.alone.v, a.alone.finish = false, 0, nil
			forget = true
		}
	case a.alone == nil:
	case a.alone.back.IsZero():
		a.alone.back = now
	case now.Sub(a.alone.back) > settling:
		s.log.Info("slots by the store again", "agent", a.Name, "after", now.Sub(a.alone.since).Round(time.Millisecond).String())
		forget = !a.alone.fleet
		a.alone = nil
	}
	if !local && told && a.alone != nil && !a.alone.fleet {
		a.alone.fleet, forget = true, true
	}
	if forget {
		a.order.Forget()
	}
}

// mayGrowLocked reports whether this replica may hold more slots of a than when the
// store went out, within its share. Others may have held more than their shares then,
// and go on until these requests end. So it may once none does: as each replica says
// of itself, or when no request that ran can run any more.
func (s *Set) mayGrowLocked(a *agent, now time.Time) bool {
	n := s.divisor()
	since := now.Sub(a.alone.since)
	if n == 1 || s.longest > 0 && since > s.longest {
		return true
	}
	if s.fleet == nil || since <= heardAll {
		return false
	}
	v := s.fleet.View()
	if !v.Fresh || v.Members < n {
		return false
	}
	for _, d := range v.Replicas {
		for _, load := range d.Agents {
			if load.Agent == string(a.slots.ID) && load.Held > a.Slots/n {
				return false
			}
		}
	}
	return true
}
