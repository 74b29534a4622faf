package limiter

import (
	"context"
	"time"
)

// How waiters leave a line, or return to it after an answer of the store.

// leaveLocked takes w out of its line wherever it stands.
func (s *lines) leaveLocked(w *waiter) {
	switch w.state {
	case outside:
		return
	case queued:
		w.line.queue.remove(w)
	case asking:
		s.answeredLocked(w)
	case answered:
		select {
		case a := <-w.turn: // never read
			if a.verdict.OK {
				s.store.Settle(w.line.undo(w, a.verdict.Local))
			}
		default:
		}
	}
	w.line.departLocked(w)
	w.line.liftLocked(w, s.manner)
	w.state = outside
	s.members.remove(w)
	s.total--
	if s.depth[w.tenant.ID]--; s.depth[w.tenant.ID] <= 0 {
		delete(s.depth, w.tenant.ID)
	}
}

// departLocked closes w's account in a line that it leaves for another.
func (ln *line) departLocked(w *waiter) {
	if ln.accounts != nil {
		ln.accounts.leave(w.tenant)
	}
}

// liftLocked ends the rest of a line if it was for the cost of w, who leaves: others
// may cost less.
func (ln *line) liftLocked(w *waiter, m manner) {
	if ln.restFor != w {
		return
	}
	if ln.restFor = nil; m != fair { // there all turns cost the same
		ln.restTill = time.Time{}
		ln.queue.hold(time.Time{})
	}
}

// answeredLocked takes back w's permission to ask.
func (s *lines) answeredLocked(w *waiter) {
	w.line.asking--
	s.asking--
	w.state = queued
	s.feedLocked(time.Now())
}

// again returns w, just refused at place at, to a line: to the head of its
// tenant in its own line, or to the end of a wider one. It names the reason
// if w cannot wait that long.
func (s *lines) again(w *waiter, at place) Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ln := time.Now(), w.line
	at = s.timelyLocked(w, at)
	w.failing = time.Time{}
	own := at.bucket == ln.bucket
	if own {
		ln.window = 1
		s.restLocked(ln, now, at.wait)
		ln.restFor = w
	}
	if w.state == asking {
		s.answeredLocked(w)
	}
	if !own && s.manner.width(at.bucket) > s.manner.width(ln.bucket) {
		ln.departLocked(w)
		s.enterLocked(s.lineLocked(at.bucket, w), w, now, at)
	} else {
		w.notBefore = now.Add(at.tenantWait)
		if !own {
			w.notBefore = now.Add(max(at.wait, at.tenantWait))
		}
		ln.queue.requeue(now, w)
		w.state = queued
	}
	reason := Reason("")
	if s.draining {
		reason = ReasonDraining
	} else if s.tooLateLocked(w, now) {
		reason = ReasonWaitExceedsBudget
	}
	if reason != "" {
		s.leaveLocked(w)
	}
	s.pumpLocked(ln, now)
	s.pumpLocked(w.line, now)
	s.gaugeLocked()
	return reason
}

// bear returns w to its place after the store has failed to answer, as long as
// it has failed for less than outagePatience: who waits anyway need not suffer
// from a hiccup. It reports whether w goes on waiting.
func (s *lines) bear(w *waiter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ln := time.Now(), w.line
	if w.failing.IsZero() {
		w.failing = now
	}
	retry := now.Add(outageRetry)
	if s.draining || now.Sub(w.failing) >= outagePatience || retry.After(w.deadline) {
		return false
	}
	if w.state == asking {
		s.answeredLocked(w)
	}
	w.notBefore = now
	ln.queue.requeue(now, w)
	w.state = queued
	ln.restTill = later(ln.restTill, retry)
	ln.queue.hold(ln.restTill)
	s.pumpLocked(ln, now)
	return true
}

// granted ends w's wait with success.
func (s *lines) granted(w *waiter) *LineInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ln := time.Now(), w.line
	if s.manner != deferral { // where two that ask at once might overtake
		ln.window = min(2*ln.window, s.cfg.MaxInFlight)
	}
	ln.headway.grant(now, ln.waiters() > 1)
	ln.touched = now
	if ln.accounts != nil {
		ln.accounts.serve(w.tenant, w.cost, now)
	}
	info := w.info(now)
	w.waited = info.Waited
	s.leaveLocked(w)
	s.pumpLocked(ln, now)
	s.gaugeLocked()
	s.metrics.grants.WithLabelValues(string(w.tenant.Dimension)).Inc()
	s.metrics.wait.WithLabelValues(string(w.tenant.Dimension)).Observe(info.Waited.Seconds())
	return info
}

// abandon ends w's wait for a cause outside the line, which says so itself.
func (s *lines) abandon(w *waiter) *LineInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.locateLocked(w, now)
	info := w.refusedInfo(now)
	w.waited = info.Waited
	ln := w.line
	s.leaveLocked(w)
	s.pumpLocked(ln, now)
	s.gaugeLocked()
	if s.manner != fair {
		return nil
	}
	return info
}

// fail ends w's wait with err, which its caller brought about by leaving or by a
// deadline that passed while asking, or which is the store's own: nobody has left
// then, and nothing is counted as if.
func (s *lines) fail(ctx context.Context, w *waiter, err error, last *Refusal) outcome {
	switch ctx.Err() {
	case nil:
		s.abandon(w)
	case context.DeadlineExceeded:
		return outcome{refusal: s.refuse(w, ReasonDeadlineExceeded, last)}
	default:
		s.refuse(w, ReasonClientGone, last)
	}
	return outcome{err: err}
}

// refuse ends w's wait, or its try to begin one, for reason. last is the
// limiter's own latest refusal.
func (s *lines) refuse(w *waiter, reason Reason, last *Refusal) *Refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ln := time.Now(), w.line
	s.locateLocked(w, now)
	r := &Refusal{
		Dimension: ln.bucket.Dimension, Class: ln.bucket.Class, Reason: reason, Levels: last.Levels,
		RetryAfter: max(s.estimateLocked(w, now), time.Millisecond), Degraded: last.Degraded,
	}
	info := w.refusedInfo(now)
	if w.waited = info.Waited; s.manner == fair {
		r.Line = info
	}
	s.leaveLocked(w)
	s.pumpLocked(ln, now)
	s.gaugeLocked()
	s.metrics.refused.WithLabelValues(string(w.tenant.Dimension), string(reason)).Inc()
	return r
}
