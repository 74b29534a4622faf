package limiter

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/headway-limiter/headway/limiter/fairq"
)

// fifo is the order of a line that serves first who came first, whoever it is. Only
// those are passed whose tenant cannot be served yet because of limits of its own;
// of one tenant nobody is. It is meant for some hundred waiters: most of what it does
// looks at all of them.
type fifo struct {
	queue []*waiter // by when they came
	rest  time.Time // of the bucket
	out   *waiter   // who was taken last; it may be asking still
}

func (q *fifo) push(_ time.Time, w *waiter) {
	i, _ := slices.BinarySearchFunc(q.queue, w, func(a, b *waiter) int { return cmp.Compare(a.came, b.came) })
	q.queue = slices.Insert(q.queue, i, w)
}

// soonest is who can be served first, and from when on; -1: nobody waits.
func (q *fifo) soonest(now time.Time) (at time.Time, first int) {
	first = -1
	rests := map[ID]time.Time{}
	for i, w := range q.queue {
		from := later(later(now, q.rest), later(w.notBefore, rests[w.tenant.ID]))
		rests[w.tenant.ID] = from
		if first < 0 || from.Before(at) {
			at, first = from, i
		}
	}
	return at, first
}

func (q *fifo) next(now time.Time) *waiter {
	at, i := q.soonest(now)
	if i < 0 || at.After(now) {
		return nil
	}
	w := q.queue[i]
	q.queue, q.out = slices.Delete(q.queue, i, i+1), w
	return w
}

// blocks reports whether somebody came before w whom it must not overtake: one of
// its own tenant, or one that does not step aside.
func (q *fifo) blocks(w *waiter, now time.Time) bool {
	if o := q.out; o != nil && o.state == asking && o.came < w.came {
		return true
	}
	for _, o := range q.queue {
		if o.came > w.came {
			return false
		}
		if o.tenant.ID == w.tenant.ID || !o.notBefore.After(now) {
			return true
		}
	}
	return false
}

func (q *fifo) requeue(now time.Time, w *waiter) { q.push(now, w) }

func (q *fifo) remove(w *waiter) {
	if i := slices.Index(q.queue, w); i >= 0 {
		q.queue = slices.Delete(q.queue, i, i+1)
	}
}

func (q *fifo) hold(until time.Time) { q.rest = until }

func (q *fifo) ready(now time.Time) (time.Time, bool) {
	at, i := q.soonest(now)
	return at, i >= 0
}

func (q *fifo) ahead(w *waiter) int { return max(0, slices.Index(q.queue, w)) }
func (q *fifo) length() int         { return len(q.queue) }
func (q *fifo) reweigh(Tenant)      {}

// Wake lets everybody be served.
func (q *fifo) Wake() {
	for _, w := range q.queue {
		w.notBefore = time.Time{}
	}
}

// loads is of no use to anybody: shares are nothing to these lines.
func (q *fifo) loads(int) []fairq.Load { return nil }

// Standings likewise.
func (q *fifo) Standings(int) []fairq.Standing[*waiter] { return nil }

// Dump lists who waits.
func (q *fifo) Dump(out io.Writer) {
	for i, w := range q.queue {
		fmt.Fprintf(out, "  %d. %s cost=%g\n", i+1, w.tenant.ID, w.size)
	}
}

// before is what w takes and those who are served before it, the first of all left
// out if that one's need is known. w may have left already.
func (q *fifo) before(w *waiter, known bool) float64 {
	cost := w.size
	for i, o := range q.queue {
		if o.came < w.came && (i > 0 || !known) {
			cost += o.size
		}
	}
	return cost
}
