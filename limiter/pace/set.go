package pace

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter/quota"
	"github.com/headway-limiter/headway/limiter/throttle"
)

const (
	maxPacers = 256
	idleAfter = 10 * time.Minute // a Pacer that was not used for so long may go
	// oldest is how long after its end a pause is still told: others may have
	// missed that it was over.
	oldest = 10 * time.Minute
)

// ErrDraining is told to those who would have to wait at a replica that leaves.
var ErrDraining = errors.New("pace: this replica is leaving")

// Set holds the Pacers of one replica. It is safe for concurrent use, and owns no
// goroutine.
type Set struct {
	metrics  *metrics
	urgent   atomic.Pointer[func()]        // nil: nobody has to know at once
	expired  atomic.Pointer[func(Expired)] // nil: nobody wants to know
	draining chan struct{}
	drain    sync.Once

	naming sync.Mutex // guards the names of tenants in metrics; may be taken inside a Pacer's

	mu      sync.Mutex // taken before a Pacer's
	pacers  map[string]*Pacer
	members int
	leads   bool
}

// NewSet returns a Set of a replica that is alone. Its metrics go to r, if there is
// one; the error is r's.
func NewSet(r prometheus.Registerer) (*Set, error) {
	s := &Set{metrics: newMetrics(), draining: make(chan struct{}), pacers: map[string]*Pacer{}, members: 1, leads: true}
	s.metrics.set = s
	if r == nil {
		return s, nil
	}
	if err := s.metrics.register(r); err != nil {
		return nil, err
	}
	return s, nil
}

// OnUrgent has f called whenever the other replicas should hear of something at
// once. f must not block.
func (s *Set) OnUrgent(f func()) { s.urgent.Store(&f) }

// Expired tells of batch work that was dropped because its deadline had passed. It
// used nothing.
type Expired struct {
	Upstream string
	Tenant   string // as in Want
	Waited   time.Duration
}

// OnExpired has f called for each, by the goroutine of its request.
func (s *Set) OnExpired(f func(Expired)) { s.expired.Store(&f) }

// Drain turns away those who wait, and from now on who would have to.
func (s *Set) Drain() { s.drain.Do(func() { close(s.draining) }) }

// Account is what a provider counts by.
type Account struct {
	Upstream string // its name, for metrics
	URL      string // another address is another account
	Model    string // empty: none is named
	Reserve  float64
}

// name is the same on every replica.
func (a Account) name() string {
	sum := sha256.Sum256([]byte(a.Upstream + "\x00" + a.URL + "\x00" + a.Model))
	return hex.EncodeToString(sum[:16])
}

// Pacer returns the Pacer of an account, made if need be. Its Reserve, from 0, holds
// from now on.
func (s *Set) Pacer(a Account) *Pacer {
	c := throttle.Config{Reserve: a.Reserve}
	if a.Reserve == 0 {
		c.Reserve = -1 // none, where zero means the default
	}
	s.mu.Lock()
	p := s.atLocked(a.name(), time.Now())
	if p == nil {
		a.Model = ""
		p = s.addLocked(a.name())
	}
	s.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream, p.model, p.used = a.Upstream, a.Model, time.Now()
	p.throttle.Configure(c)
	return p
}

// atLocked returns the Pacer of that name, made if there is room for it.
func (s *Set) atLocked(name string, now time.Time) *Pacer {
	if p := s.pacers[name]; p != nil {
		return p
	}
	if len(s.pacers) >= maxPacers {
		for name, p := range s.pacers {
			if p.idle(now) {
				delete(s.pacers, name)
			}
		}
	}
	if len(s.pacers) >= maxPacers {
		return nil
	}
	return s.addLocked(name)
}

// addLocked returns the Pacer of that name, made whether there is room or not.
func (s *Set) addLocked(name string) *Pacer {
	p := s.pacers[name]
	if p == nil {
		p = &Pacer{set: s, backlog: newBacklog(), throttle: throttle.New(throttle.Config{}), used: time.Now()}
		p.throttle.Fleet(s.members, s.leads)
		s.pacers[name] = p
	}
	return p
}

// all lists the Pacers by name.
func (s *Set) all() map[string]*Pacer {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*Pacer, len(s.pacers))
	for name, p := range s.pacers {
		all[name] = p
	}
	return all
}

// Members implements the Source of package gossip.
func (s *Set) Members(members int, leads bool) {
	s.mu.Lock()
	same := members == s.members && leads == s.leads
	s.members, s.leads = members, leads
	s.mu.Unlock()
	if same {
		return
	}
	for _, p := range s.all() {
		p.mu.Lock()
		p.throttle.Fleet(members, leads)
		p.wakeLocked(time.Now())
		p.mu.Unlock()
	}
}

// Throttles implements the Source of package gossip: those that pause first, then
// those that heard of something last.
func (s *Set) Throttles(now time.Time) []fleet.Throttle {
	type word struct {
		fleet.Throttle
		paused bool
		seen   time.Duration
	}
	var words []word
	for name, p := range s.all() {
		p.mu.Lock()
		state, until := p.throttle.State(), p.throttle.Paused()
		p.mu.Unlock()
		if w := (word{Throttle: told(name, state, now), paused: until.After(now)}); !silent(w.Throttle) {
			w.seen = fleet.NoTime
			for _, l := range w.Levels {
				w.seen = max(w.seen, l.Seen)
			}
			words = append(words, w)
		}
	}
	slices.SortFunc(words, func(a, b word) int {
		if a.paused != b.paused {
			return map[bool]int{true: -1, false: 1}[a.paused]
		}
		return cmp.Or(cmp.Compare(b.seen, a.seen), cmp.Compare(a.Name, b.Name))
	})
	all := make([]fleet.Throttle, len(words))
	for i, w := range words {
		all[i] = w.Throttle
	}
	return all
}

// Heard implements the Source of package gossip.
func (s *Set) Heard(at time.Time, throttles []fleet.Throttle) {
	now := time.Now()
	for _, t := range throttles {
		s.mu.Lock()
		p := s.atLocked(t.Name, now)
		s.mu.Unlock()
		if p != nil {
			p.merge(now, heard(t, at))
		}
	}
}

// silent reports whether t says nothing.
func silent(t fleet.Throttle) bool {
	return len(t.Levels) == 0 && max(t.Until, t.Overload, t.Stopped, t.Probed) == fleet.NoTime
}

// told words a state as of now.
func told(name string, s throttle.State, now time.Time) fleet.Throttle {
	since := func(t time.Time) time.Duration {
		if d := t.Sub(now); !t.IsZero() && d > -oldest {
			return d
		}
		return fleet.NoTime
	}
	t := fleet.Throttle{Name: name, Until: since(s.Until), Overload: since(s.Overload), Stopped: since(s.Stopped), Probed: since(s.Probed)}
	for k, l := range s.Levels {
		if seen := since(l.Seen); seen != fleet.NoTime && len(k.Scope) <= fleet.MaxName {
			t.Levels = append(t.Levels, fleet.QuotaLevel{
				Unit: string(k.Unit), Window: k.Window, Scope: k.Scope, Limit: l.Limit, Period: l.Period,
				Windowed: l.Windowed, End: l.End.Sub(now), Remaining: l.Remaining, Seen: seen,
			})
		}
	}
	slices.SortFunc(t.Levels, func(a, b fleet.QuotaLevel) int {
		return cmp.Or(cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Window, b.Window), cmp.Compare(a.Scope, b.Scope))
	})
	return t
}

// heard reads what was current at an instant. Waits are believed as far as those of
// headers are.
func heard(t fleet.Throttle, at time.Time) throttle.State {
	instant := func(d time.Duration) time.Time {
		if d == fleet.NoTime {
			return time.Time{}
		}
		return at.Add(min(d, quota.MaxWait))
	}
	s := throttle.State{
		Until: instant(t.Until), Overload: instant(t.Overload), Stopped: instant(t.Stopped), Probed: instant(t.Probed),
		Levels: map[throttle.Key]throttle.Level{},
	}
	for _, l := range t.Levels {
		s.Levels[throttle.Key{Unit: quota.Unit(l.Unit), Window: l.Window, Scope: l.Scope}] = throttle.Level{
			Limit: l.Limit, Period: l.Period, Windowed: l.Windowed, End: at.Add(l.End), Remaining: l.Remaining, Seen: at.Add(l.Seen),
		}
	}
	return s
}
