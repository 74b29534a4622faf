package pace

import (
	"time"

	"github.com/headway-limiter/headway/limiter/fairq"
)

// quantum is what a tenant of weight 1 may use of each lap, in tokens. Laps in
// which nobody can be served are skipped by arithmetic, so the smallest one takes
// no more work than a large one, and tenants take turns as finely as their jobs
// allow: of jobs that cost the same, each runs one before another runs two.
const quantum = 1

// backlog is the batch line of a Pacer: deficit round robin by cost between
// tenants, first come first served inside each. The Pacer's lock guards it.
type backlog struct {
	queue   *fairq.Queue[*waiter]
	parties map[string]*party // tenants with somebody in line; none is empty
}

// party is who waits of one tenant.
type party struct {
	waiting map[*waiter]struct{}
	// soonest is a lower bound of their deadlines: nobody has to be looked for
	// among them before it has passed.
	soonest time.Time
}

func newBacklog() backlog {
	return backlog{
		queue:   fairq.New[*waiter](fairq.Config{Discipline: fairq.DRR, Quantum: quantum}),
		parties: map[string]*party{},
	}
}

// push puts w behind the others of its tenant, or reports that there is no room
// for it: w.Most of them wait. Those whose deadline has passed make way; they are
// returned.
func (b *backlog) push(now time.Time, w *waiter) (late []*waiter, ok bool) {
	p := b.parties[w.Tenant]
	if p != nil && w.Most > 0 && len(p.waiting) >= w.Most {
		late = p.late(now)
		for _, gone := range late {
			b.remove(gone)
		}
		if len(p.waiting) >= w.Most {
			return late, false
		}
		p = b.parties[w.Tenant] // nil if all were late
	}
	if p == nil {
		p = &party{waiting: map[*waiter]struct{}{}, soonest: w.Until}
		b.parties[w.Tenant] = p
	}
	if w.Until.Before(p.soonest) {
		p.soonest = w.Until
	}
	p.waiting[w] = struct{}{}
	b.queue.Push(now, &w.item, w.Tenant, w.Weight, w.size())
	return late, true
}

// late lists those whose deadline has passed. It looks at all of p only if one may
// have, and then makes the bound exact.
func (p *party) late(now time.Time) (late []*waiter) {
	if !now.After(p.soonest) {
		return nil
	}
	p.soonest = time.Time{}
	for w := range p.waiting {
		switch {
		case now.After(w.Until):
			late = append(late, w)
		case p.soonest.IsZero() || w.Until.Before(p.soonest):
			p.soonest = w.Until
		}
	}
	return late
}

// first returns whose turn it is, nil if nobody waits. Who would be, but for a
// deadline that has passed, leaves without a turn, and is returned as well.
func (b *backlog) first(now time.Time) (w *waiter, late []*waiter) {
	for {
		it := b.queue.Peek(now)
		if it == nil {
			return nil, late
		}
		if w = it.Value; !now.After(w.Until) {
			return w, late
		}
		b.remove(w)
		late = append(late, w)
	}
}

// take ends the wait of the first with its turn, which its tenant pays.
func (b *backlog) take(now time.Time, w *waiter) {
	if it := b.queue.Next(now); it != &w.item {
		panic("pace: a turn of another's was taken")
	}
	b.forget(w)
}

// remove takes w out, wherever it stands, if it is there.
func (b *backlog) remove(w *waiter) {
	if b.queue.Remove(&w.item) {
		b.forget(w)
	}
}

func (b *backlog) forget(w *waiter) {
	p := b.parties[w.Tenant]
	if delete(p.waiting, w); len(p.waiting) == 0 {
		delete(b.parties, w.Tenant)
	}
}

// settle charges the tenant what its turn has cost in the end instead of what it
// was thought to. Zero if nothing was used: the turn was in vain.
func (b *backlog) settle(w *waiter, cost float64) { b.queue.Correct(&w.item, cost) }

// oldest is since when the one waits that came first; zero if nobody does.
func (b *backlog) oldest() (since time.Time) {
	for _, p := range b.parties {
		for w := range p.waiting {
			if since.IsZero() || w.since.Before(since) {
				since = w.since
			}
		}
	}
	return since
}
