package limiter

import (
	"time"

	"github.com/headway-limiter/headway/limiter/fairq"
)

// rounds is the order of a line in which each waiter asks for itself, by the
// configured discipline among the waiters of this replica.
type rounds struct{ *fairq.Queue[*waiter] }

func (q rounds) push(now time.Time, w *waiter) {
	q.Push(now, &w.item, string(w.tenant.ID), w.tenant.Weight, w.size)
}
func (q rounds) next(now time.Time) *waiter {
	if it := q.Next(now); it != nil {
		return it.Value
	}
	return nil
}
func (q rounds) requeue(now time.Time, w *waiter)      { q.Requeue(now, &w.item, w.notBefore) }
func (q rounds) remove(w *waiter)                      { q.Remove(&w.item) }
func (q rounds) hold(until time.Time)                  { q.Hold(until) }
func (q rounds) ready(now time.Time) (time.Time, bool) { return q.Ready(now) }
func (q rounds) ahead(w *waiter) int                   { return q.Ahead(&w.item) }
func (q rounds) length() int                           { return q.Len() }
func (q rounds) reweigh(t Tenant)                      { q.SetWeight(string(t.ID), t.Weight) }
func (q rounds) loads(n int) []fairq.Load              { return q.Loads(n) }

// settle tells a discipline by cost what a granted request has really cost, so
// that tenants are equal in what they use and not in what they estimate. A
// request that failed used no tokens, but a turn.
func (s *lines) settle(w *waiter, o Outcome) {
	if !s.byCost || o.Tokens < 0 && !o.Failed {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q, ok := w.line.queue.(rounds); ok {
		real := 1.0
		if !o.Failed {
			real = float64(max(1, o.Tokens))
		}
		q.Correct(&w.item, real)
	}
}

// undo is what gives back all that w took in vain, its turn included. local
// is as in Settlement.
func (s *lines) undo(w *waiter, local bool) Settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.line.undo(w, local)
}

// tagged is the order of a line whose turns the whole fleet decides.
type tagged struct{ *fairq.Tagged[*waiter] }

func (q tagged) push(_ time.Time, w *waiter) {
	q.Push(&w.bid, string(w.tenant.ID), w.tenant.Weight, w.cost)
}

// requeue rests the tenant; only a waiter that was told something has left the
// order.
func (q tagged) requeue(now time.Time, w *waiter) {
	if w.state == answered {
		q.Return(&w.bid, string(w.tenant.ID))
	}
	q.Rest(now, &w.bid, w.notBefore)
}
func (q tagged) next(time.Time) *waiter                { return nil } // nobody asks for itself
func (q tagged) remove(w *waiter)                      { q.Remove(&w.bid, false) }
func (q tagged) hold(until time.Time)                  { q.Hold(until) }
func (q tagged) ready(now time.Time) (time.Time, bool) { return q.Ready(now) }
func (q tagged) ahead(w *waiter) int                   { return q.Ahead(&w.bid) }
func (q tagged) length() int                           { return q.Len() }
func (q tagged) reweigh(t Tenant)                      { q.SetWeight(string(t.ID), t.Weight) }
func (q tagged) loads(n int) []fairq.Load              { return q.Loads(n) }

// leads is the order of a line in which each waiter asks for itself, ordered by
// what its tenant was served anywhere in the fleet, as far as gossip tells. A
// tenant that leads the poorest one of the fleet by more than the gossip's own
// error rests in proportion before it asks: order alone does not help where
// replicas race for one bucket, the race must be slowed as well.
type leads struct {
	*fairq.Tagged[*waiter]
	accounts *accounts
	perSec   float64   // of the bucket
	rest     time.Time // of the bucket
}

const (
	// gossipError is the age of what is known of others, two intervals of gossip
	// at most times.
	gossipError = 300 * time.Millisecond
	// leadSlack is how many times the error a lead may be before it costs.
	leadSlack = 3
	// maxGated is how many tenants may be known for leads to count. Digests
	// describe the busiest 64 of a pool; among many more, those left out would
	// look poor for ever, and everybody would rest for them.
	maxGated = 512
	// maxGate is how long a lead makes rest before it is looked at again.
	maxGate = 250 * time.Millisecond
)

func newLeads(a *accounts, r Rate) *leads {
	q := &leads{Tagged: fairq.NewTagged[*waiter](), accounts: a}
	q.pace(r)
	return q
}

// pace sets the bucket's rate.
func (q *leads) pace(r Rate) { q.perSec = float64(r.Limit) / r.Per.Seconds() }

func (q *leads) push(now time.Time, w *waiter) {
	q.Push(&w.bid, string(w.tenant.ID), w.tenant.Weight, w.cost)
	q.learn(w.tenant.ID)
	q.Hold(q.rest) // it may be poorer than the one who rests for its lead
}

// next takes the waiter of the poorest tenant here, unless its lead over the
// poorest elsewhere makes it rest.
func (q *leads) next(now time.Time) *waiter {
	best := q.Best(now, 1, nil)
	if len(best) == 0 {
		return nil
	}
	w := best[0].Value
	if !w.passed {
		if rest := q.delay(q.accounts.lead(w.tenant.ID), w.cost/w.tenant.Weight); rest > 0 {
			q.Hold(later(q.rest, now.Add(rest)))
			return nil
		}
	}
	w.passed = true
	q.Remove(best[0], false)
	return w
}

// delay is the rest for a lead in virtual time, of which one turn takes a part.
// Two turns are always free: one is in the nature of turns, and of one more the
// others may not have heard. With many tenants that is most of what there is.
func (q *leads) delay(lead, turn float64) time.Duration {
	if q.accounts.weights == 0 || len(q.accounts.tenants) > maxGated {
		return 0
	}
	speed := q.perSec / q.accounts.weights // of virtual time, per second
	over := lead - max(leadSlack*speed*gossipError.Seconds(), 2*turn)
	return min(maxGate, max(0, lasting(over/speed*float64(time.Second))))
}

// learn takes over a tenant's tag.
func (q *leads) learn(id ID) {
	if acc := q.accounts.tenants[id]; acc != nil {
		q.Learn(string(id), acc.finish, 0)
	}
}

func (q *leads) requeue(now time.Time, w *waiter) {
	q.Return(&w.bid, string(w.tenant.ID))
	q.learn(w.tenant.ID)
	q.Rest(now, &w.bid, w.notBefore)
}

func (q *leads) hold(until time.Time) {
	q.rest = until
	q.Hold(until)
}
func (q *leads) remove(w *waiter)                      { q.Remove(&w.bid, false) }
func (q *leads) ready(now time.Time) (time.Time, bool) { return q.Ready(now) }
func (q *leads) ahead(w *waiter) int                   { return q.Ahead(&w.bid) }
func (q *leads) length() int                           { return q.Len() }
func (q *leads) reweigh(t Tenant)                      { q.SetWeight(string(t.ID), t.Weight) }
func (q *leads) loads(n int) []fairq.Load              { return q.Loads(n) }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
