package pace

import (
	"cmp"
	"slices"
	"time"

	"github.com/headway-limiter/headway/limiter/throttle"
)

// State is what a replica knows of one account and model, for people.
type State struct {
	Upstream string
	Model    string // as requests named it
	// Why nothing may start: throttle.WhyPaused, WhyOverload or WhyStopped. Empty:
	// it may.
	Why     throttle.Why
	Until   time.Time         // of the pause; when a stopped account is tried again
	Quotas  []throttle.Status // by unit, window and scope
	Waiting int               // interactive requests in line
	Batch   int               // batch requests in line
}

// States describes every account that this replica has used itself, by upstream
// and model.
func (s *Set) States(now time.Time) []State {
	var all []State
	for _, p := range s.all() {
		p.mu.Lock()
		st := State{
			Upstream: p.upstream, Model: p.model, Waiting: len(p.line), Batch: p.backlog.queue.Len(), Quotas: p.throttle.Status(now),
		}
		st.Why, st.Until = p.throttle.Pause(now)
		p.mu.Unlock()
		if st.Upstream == "" {
			continue // others told of it
		}
		slices.SortFunc(st.Quotas, func(a, b throttle.Status) int {
			return cmp.Or(cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Window, b.Window), cmp.Compare(a.Scope, b.Scope))
		})
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b State) int {
		return cmp.Or(cmp.Compare(a.Upstream, b.Upstream), cmp.Compare(a.Model, b.Model))
	})
	return all
}
