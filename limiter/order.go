package limiter

import (
	"time"

	"github.com/headway-limiter/headway/limiter/fairq"
)

// rounds is the order of a line in which each waiter asks for itself: smooth
// weighted round robin among the waiters of this replica.
type rounds struct{ *fairq.Queue[*waiter] }

func (q rounds) push(now time.Time, w *waiter) {
	q.Push(now, &w.item, string(w.tenant.ID), w.tenant.Weight)
}
func (q rounds) requeue(now time.Time, w *waiter)      { q.Requeue(now, &w.item, w.notBefore) }
func (q rounds) remove(w *waiter)                      { q.Remove(&w.item) }
func (q rounds) hold(until time.Time)                  { q.Hold(until) }
func (q rounds) ready(now time.Time) (time.Time, bool) { return q.Ready(now) }
func (q rounds) ahead(w *waiter) int                   { return q.Ahead(&w.item) }
func (q rounds) length() int                           { return q.Len() }
func (q rounds) loads(n int) []fairq.Load              { return q.Loads(n) }

// tagged is the order of a line whose turns the whole fleet decides.
type tagged struct{ *fairq.Tagged[*waiter] }

func (q tagged) push(_ time.Time, w *waiter) {
	q.Push(&w.bid, string(w.tenant.ID), w.tenant.Weight, w.cost)
}

// requeue only rests the tenant: a bidder never left the order.
func (q tagged) requeue(now time.Time, w *waiter)      { q.Rest(now, &w.bid, w.notBefore) }
func (q tagged) remove(w *waiter)                      { q.Remove(&w.bid, false) }
func (q tagged) hold(until time.Time)                  { q.Hold(until) }
func (q tagged) ready(now time.Time) (time.Time, bool) { return q.Ready(now) }
func (q tagged) ahead(w *waiter) int                   { return q.Ahead(&w.bid) }
func (q tagged) length() int                           { return q.Len() }
func (q tagged) loads(n int) []fairq.Load              { return q.Loads(n) }
