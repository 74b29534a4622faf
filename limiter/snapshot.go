package limiter

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Snapshot is the live state of a Limiter as data: what Dump writes for people.
// It shares nothing with the Limiter and may be kept.
type Snapshot struct {
	Running    int64 // granted and not done
	Waiting    int   // requests in lines here
	MaxWaiting int   // most there may be
	Tenants    int   // tenants with requests in lines here
	Asking     int   // waiters that ask the store right now
	MaxAsking  int
	Draining   bool
	Fair       bool // whether there are lines at all
	Scope      FairnessScope
	Discipline Discipline
	Lines      []LineState   // the longest first
	Busiest    []TenantState // tenants by waiters, then by what they did lately, then by requests
	// Counted is how many tenants are known one by one, ≤ 1024; Busiest may be
	// fewer.
	Counted int
}

// LineState is one wait line, that of an exhausted bucket. A line is remembered
// for 10 s after its last waiter.
type LineState struct {
	Bucket  BucketID
	Waiting int // here
	Asking  int // of those, how many ask the store right now
	// Elsewhere is how many wait for the bucket at other replicas, from fresh
	// gossip.
	Elsewhere int
	Rests     time.Duration // until the bucket has something, ≥ 0
	Spacing   time.Duration // between grants here; 0: unknown
	Tenants   []LineTenant  // the longest queues first
}

// LineTenant is one tenant's part of a line at this replica.
type LineTenant struct {
	ID      ID
	Weight  float64
	Waiting int
	// Position of its first waiter, from 1, over the fleet if Scope says so. It
	// never rises.
	Position int
	Scope    Scope
	Waited   time.Duration // by its first waiter, so far
}

// TenantState is what became of one tenant's requests here. Its counters begin
// when the process does, and again after ten minutes of silence if there are
// very many tenants.
type TenantState struct {
	Tenant
	Waiting  int // here
	Admitted uint64
	Refused  map[Reason]uint64 // nil: none
	// Entitled and Received are costs at pools that tenants compete for: this
	// replica's part. What was admitted elsewhere than there is in neither.
	Entitled, Received float64
	// FleetEntitled and FleetReceived are those of the whole fleet, as far as
	// gossip tells.
	FleetEntitled, FleetReceived float64
	// Elsewhere is how many wait at other replicas, from fresh gossip.
	Elsewhere int
	Touched   time.Time // when it was last admitted or refused
}

// recently is what counts as lately in Snapshot.Busiest.
const recently = 10 * time.Second

// Snapshot returns the live state, with at most most tenants altogether and in
// each line. It is meant for a few calls a second.
func (l *Limiter) Snapshot(most int) Snapshot {
	s := Snapshot{Running: l.Running()}
	depth := l.lines.snapshot(&s, most)
	s.Counted, s.Busiest = l.metrics.ledger.busiest(depth, most, time.Now())
	elsewhere := map[ID]int{}
	for _, d := range l.fleet.View().Replicas {
		for _, p := range d.Pools {
			for _, t := range p.Tenants {
				elsewhere[ID(t.Tenant)] += t.Queued
			}
		}
	}
	for i := range s.Busiest {
		s.Busiest[i].Elsewhere = elsewhere[s.Busiest[i].ID]
	}
	return s
}

// snapshot fills in what lines know, and returns how many wait of each tenant.
func (s *lines) snapshot(out *Snapshot, most int) (depth map[ID]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	out.Waiting, out.MaxWaiting, out.Tenants = s.total, s.cfg.MaxTotalQueued, len(s.depth)
	out.Asking, out.MaxAsking, out.Draining = s.asking, s.cfg.MaxInFlight, s.draining
	out.Fair, out.Scope, out.Discipline = s.cfg.Enabled, s.cfg.Scope, s.cfg.Discipline
	for _, ln := range s.byBucket {
		out.Lines = append(out.Lines, s.stateLocked(ln, most, now))
	}
	slices.SortFunc(out.Lines, func(a, b LineState) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Bucket.pool(), b.Bucket.pool()))
	})
	return maps.Clone(s.depth)
}

func (s *lines) stateLocked(ln *line, most int, now time.Time) LineState {
	st := LineState{
		Bucket: ln.bucket, Waiting: ln.waiters(), Asking: ln.asking, Elsewhere: s.fleet.View().Waiting(ln.bucket.pool()),
		Rests: max(0, ln.restTill.Sub(now)), Spacing: ln.headway.spacing(now),
	}
	for _, t := range ln.queue.Standings(most) {
		head := t.Head
		s.locateLocked(head, now)
		st.Tenants = append(st.Tenants, LineTenant{
			ID: head.tenant.ID, Weight: t.Weight, Waiting: t.Queued,
			Position: head.position, Scope: head.scope, Waited: now.Sub(head.since),
		})
	}
	return st
}

// busiest lists the tenants that are looked at first, and how many there are.
func (l *ledger) busiest(depth map[ID]int, most int, now time.Time) (counted int, list []TenantState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, e := range l.tenants {
		list = append(list, TenantState{
			Tenant: e.Tenant, Waiting: depth[id], Admitted: e.admitted, Refused: maps.Clone(e.refused), Touched: e.touched,
			Entitled: e.entitled, Received: e.received, FleetEntitled: e.fleetEntitled, FleetReceived: e.fleetReceived,
		})
	}
	slices.SortFunc(list, func(a, b TenantState) int {
		return cmp.Or(
			cmp.Compare(b.Waiting, a.Waiting),
			boolCompare(now.Sub(b.Touched) < recently, now.Sub(a.Touched) < recently),
			cmp.Compare(b.requests(), a.requests()), cmp.Compare(a.ID, b.ID))
	})
	return len(list), list[:min(most, len(list))]
}

// requests counts all of a tenant's that were decided.
func (t TenantState) requests() (n uint64) {
	for _, refused := range t.Refused {
		n += refused
	}
	return n + t.Admitted
}

// boolCompare orders false before true.
func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
