package limiter

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/headway-limiter/headway/fleet"
)

// poolTenants is how many tenants of one line are described to the fleet.
const poolTenants = 64

// share closes an interval of gossip: it books what tenants received and were
// entitled to, describes the lines to the fleet, the longest first, and forgets
// those that were empty for long.
func (s *lines) share(now time.Time) []fleet.Pool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pools []fleet.Pool
	for b, ln := range s.byBucket {
		if ln.waiters() == 0 && now.Sub(ln.touched) > lineMemory {
			s.forgetLocked(ln)
			continue
		}
		s.absorbLocked(ln, now)
		p := fleet.Pool{Name: b.pool(), Spacing: ln.headway.spacing(now), Depth: ln.waiters()}
		if ln.accounts != nil {
			ln.accounts.divide(s.metrics.divide)
			p.Tenants = ln.accounts.loads(poolTenants)
		} else {
			for _, load := range ln.queue.loads(poolTenants) {
				p.Tenants = append(p.Tenants, fleet.TenantLoad{Tenant: load.Tenant, Queued: load.Queued, Served: load.Served})
			}
		}
		pools = append(pools, p)
	}
	slices.SortFunc(pools, func(a, b fleet.Pool) int {
		return cmp.Or(cmp.Compare(b.Depth, a.Depth), cmp.Compare(a.Name, b.Name))
	})
	return pools
}

// absorbLocked takes what is new in the fleet's view into ln's accounts. That looks
// at every tenant, and a fleet of one has a new view whenever it is asked.
func (s *lines) absorbLocked(ln *line, now time.Time) {
	view := s.fleet.View()
	if ln.accounts == nil || view.Members == 1 && now.Sub(ln.accounts.looked) < publishEvery/2 {
		return
	}
	if !ln.accounts.absorb(view, ln.bucket.pool(), s.cfg.weight, now) || ln.leads == nil {
		return
	}
	for id, acc := range ln.accounts.tenants {
		if acc.here > 0 {
			ln.leads.learn(id)
		}
	}
}

// followAccounts orders a line of turns by what gossip tells of its tenants.
func (ln *line) followAccounts() {
	for id, acc := range ln.accounts.tenants {
		if acc.here > 0 {
			ln.turns.order.Learn(string(id), acc.finish, 0)
		}
	}
}

// book records a request that was admitted without waiting, where a line keeps
// accounts.
func (s *lines) book(d *demand, t Tenant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.buckets(func(b BucketID) bool {
		if ln := s.byBucket[b]; ln != nil && ln.accounts != nil {
			ln.accounts.serve(t, 1, time.Now())
		}
		return true
	})
}

// dump writes every line for people to read.
func (s *lines) dump(out io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	fmt.Fprintf(out, "waiting %d of %d, tenants %d, asking %d of %d, draining %v\n",
		s.total, s.cfg.MaxTotalQueued, len(s.depth), s.asking, s.cfg.MaxInFlight, s.draining)
	for b, ln := range s.byBucket {
		fmt.Fprintf(out, "line %s: waiting %d, asking %d of %d, rests %v, spacing %v\n",
			b.pool(), ln.queue.length(), ln.asking, ln.window, max(ln.restTill.Sub(now), 0).Round(time.Millisecond), ln.headway.spacing(now))
		ln.queue.Dump(out)
	}
}
