package limiter

import (
	"math/bits"
	"time"

	"github.com/headway-limiter/headway/limiter/fairq"
)

// Reconfigure puts cfg in force, as a whole or, with an error that lists every
// mistake, not at all. Requests that come from now on are decided by it, and
// those in lines from their next try on, which is at once; nobody loses its
// place. A level is carried over in the store, by the rules of its buckets.
//
// What requests under way took is settled by the rates in force when they end: a
// bucket without a limit by then gets nothing, one whose burst has shrunk is
// given back in proportion, as its level was carried over, and charges stay
// what they are.
//
// Some fields shape what is there already and stay as they were: those of Fair
// that name TenantDimension, Scope and Discipline, Homes, LocalSlots, Registerer
// and Logger. The names of those that would have changed are returned, to be
// told to whoever changed them.
func (l *Limiter) Reconfigure(cfg Config) (kept []string, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	old := l.config()
	cfg = cfg.withDefaults()
	keep := func(name string, differs bool) {
		if differs {
			kept = append(kept, name)
		}
	}
	keep("tenant dimension", cfg.Fair.TenantDimension != old.Fair.TenantDimension)
	keep("fairness scope", cfg.Fair.Scope != old.Fair.Scope)
	keep("discipline", cfg.Fair.Discipline != old.Fair.Discipline)
	keep("homes", cfg.Homes != old.Homes)
	keep("local slots", cfg.LocalSlots != old.LocalSlots)
	cfg.Fair.TenantDimension, cfg.Fair.Scope, cfg.Fair.Discipline = old.Fair.TenantDimension, old.Fair.Scope, old.Fair.Discipline
	cfg.Homes, cfg.LocalSlots, cfg.Registerer, cfg.Logger = old.Homes, old.LocalSlots, old.Registerer, old.Logger
	cfg.version = old.version + 1
	l.adopt(&cfg)
	return kept, nil
}

// config is the configuration in force. It is not changed but replaced.
func (l *Limiter) config() *Config { return l.cfg.Load() }

// adopt puts a valid configuration in force.
func (l *Limiter) adopt(cfg *Config) {
	l.cfg.Store(cfg)
	l.store.rates.Store(&rates{cfg})
	for _, s := range l.all() {
		s.reconfigure(cfg)
	}
}

// reconfigure takes over bounds, weights and limits, and lets every line try
// again: whatever it rested for may have changed.
func (s *lines) reconfigure(cfg *Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.cfg, s.version, s.demandOf = s.manner.config(cfg), cfg.version, cfg.demandOf
	for _, ln := range s.byBucket {
		for id := range s.depth {
			ln.queue.reweigh(Tenant{ID: id, Weight: s.cfg.weight(id)})
		}
		ln.restTill = now
		ln.queue.hold(now)
		ln.queue.Wake()
		if ln.turns != nil {
			ln.turns.next = now
		}
		s.pumpLocked(ln, now)
	}
	s.feedLocked(now)
}

// refreshLocked makes w ask for what the configuration in force says.
func (s *lines) refreshLocked(w *waiter) {
	if w.demand.version != s.version {
		w.demand, w.tenant.Weight = s.demandOf(w.request), s.cfg.weight(w.tenant.ID)
		if rate := w.demand.rate(w.line.bucket); w.line.leads != nil && rate.Limit > 0 {
			w.line.leads.pace(rate)
		}
	}
}

// timelyLocked forgets waits that w was told under another configuration.
func (s *lines) timelyLocked(w *waiter, at place) place {
	if w.demand.version != s.version {
		at.wait, at.tenantWait = 0, 0
	}
	return at
}

// recastLocked refreshes those who are about to bid for turns at ln, and the rate
// that they bid under. Whom ln's bucket does not limit any more, or for ever, asks
// for itself instead; true says that there were such.
func (s *lines) recastLocked(ln *line, bids []*fairq.TagItem[*waiter]) (left bool) {
	for _, it := range bids {
		w := it.Value
		s.refreshLocked(w)
		rate := w.demand.rate(ln.bucket)
		if s.past != nil && rate.Limit > 0 { // it would overtake those whom a token budget has deferred
			if _, ok := s.past.occupied(w.demand); ok {
				rate = Rate{}
			}
		}
		if rate.Limit > 0 && rate.Burst >= int64(w.cost) && w.demand.hopeless() == nil {
			ln.turns.rate = rate
			continue
		}
		s.tellLocked(w, answer{ask: true})
		left = true
	}
	return left
}

// rates tells the rate of a bucket by one configuration.
type rates struct{ cfg *Config }

// of is the rate of b, nil if nothing limits it.
func (r *rates) of(b BucketID) *Rate {
	limit, ok := r.cfg.Limits[b.Dimension]
	switch {
	case !ok:
		return nil
	case b.Class == Tokens:
		return limit.rule(b.ID).Tokens
	}
	return limit.rule(b.ID).Requests
}

// now restates adjustments by the rates in force. Those of descriptors are not
// configured, and stay.
func (r *rates) now(list []Adjustment) []Adjustment {
	if r == nil || r.cfg.version == 0 {
		return list
	}
	var out []Adjustment
	for _, a := range list {
		if a.Bucket.Dimension != Descriptor {
			rate := r.of(a.Bucket)
			if rate == nil || rate.Limit == 0 {
				continue
			}
			if a.Delta > 0 && rate.Burst < a.Rate.Burst {
				hi, lo := bits.Mul64(uint64(a.Delta), uint64(rate.Burst))
				part, _ := bits.Div64(hi, lo, uint64(a.Rate.Burst)) // < Delta
				a.Delta = int64(part)
			}
			a.Rate = *rate
		}
		out = append(out, a)
	}
	return out
}
