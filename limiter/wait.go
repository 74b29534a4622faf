package limiter

import (
	"context"
	"errors"
	"time"
)

// outcome is where a question to the store, or a wait, has led: exactly one of
// grant, refusal and err is set.
type outcome struct {
	grant   *Grant
	refusal *Refusal
	err     error
	// verdict is why it was refused, by which another wait may be of use; nil: none is.
	verdict *Verdict
}

// trip is one request on its way through the lines.
type trip struct {
	request Request
	demand  *demand // by the configuration in force when it last asked
	tenant  Tenant
	ways    []*lines                 // in which it may wait, by preference
	came    uint64                   // the order of requests that wait; 0: it has not yet
	spent   map[*lines]time.Duration // waited there
	line    *LineInfo                // of the fair lines; nil: it was in none
	held    *HeldInfo                // of the others
}

// seek asks for d, and waits where that is allowed and of use.
func (l *Limiter) seek(ctx context.Context, r Request, d *demand) (*Grant, error) {
	t := &trip{request: r, demand: d}
	l.plan(t)
	o := l.begin(ctx, t)
	for o.verdict != nil {
		s, at, ok := t.way(*o.verdict)
		if !ok {
			break
		}
		o = l.wait(ctx, s, t, at, o.refusal)
	}
	switch {
	case o.grant != nil:
		o.grant.line, o.grant.held = t.line, t.held
		if w := o.grant.waited; l.config().Fair.Enabled && len(t.ways) > 0 && (w == nil || w.lines != l.lines) {
			l.lines.book(t.demand, t.tenant)
		}
		return o.grant, nil
	case o.refusal != nil:
		if o.refusal.Line == nil {
			o.refusal.Line = t.line
		}
		o.refusal.Held = t.held
		return nil, o.refusal
	}
	return nil, o.err
}

// plan finds out where t's request may wait, if anywhere.
func (l *Limiter) plan(t *trip) {
	cfg, r := l.config(), t.request
	tenant, ok := cfg.Fair.tenant(r)
	if !ok || r.Anonymous {
		return
	}
	t.tenant = tenant
	switch {
	case r.Batch:
		t.ways = []*lines{l.batch}
	case r.Skip&SkipQueue != 0:
	default:
		if cfg.Fair.Enabled {
			t.ways = append(t.ways, l.lines)
		}
		if cfg.Deferral.Enabled {
			t.ways = append(t.ways, l.deferred)
		}
	}
}

// way is where a refused request may wait for what refused it.
func (t *trip) way(v Verdict) (*lines, place, bool) {
	for _, s := range t.ways {
		if at, ok := s.place(t.demand, v); ok {
			return s, at, true
		}
	}
	return nil, place{}, false
}

// begin asks the store, unless somebody waits already for what the request needs:
// then it joins them.
func (l *Limiter) begin(ctx context.Context, t *trip) outcome {
	for _, s := range t.ways {
		if at, ok := s.queueAt(t.demand); ok {
			return l.wait(ctx, s, t, at, nil)
		}
	}
	v, err := l.store.Admit(ctx, t.demand.take)
	return l.decide(t.demand, v, err)
}

// decide turns the store's answer on d into a grant, a refusal or an error.
func (l *Limiter) decide(d *demand, v Verdict, err error) outcome {
	open, err := l.policed(d.dims, v, err)
	switch {
	case err != nil:
		return outcome{err: err}
	case open:
		grant, refusal := l.open(d)
		return outcome{grant: grant, refusal: refusal}
	case v.OK:
		return outcome{grant: l.grant(d, v)}
	}
	refusal := d.refusal(v)
	refusal.Degraded = v.degraded()
	l.metrics.refuseSlots(d.take.Slots, v.Full)
	return outcome{refusal: refusal, verdict: &v}
}

// policed is what outage policies make of the store's answer to a question about
// dims, counted: open says that what was asked for may start without its word.
func (l *Limiter) policed(dims []Dimension, v Verdict, err error) (open bool, _ error) {
	var policy OutagePolicy
	switch {
	case errors.Is(err, ErrUnavailable):
		policy = l.config().outage(dims)
	case err != nil, !v.Local:
		return false, err
	default:
		policy = LocalShare
	}
	l.metrics.outage.WithLabelValues(string(policy)).Inc()
	if policy == FailOpen {
		return true, nil
	}
	return false, err
}

// waiter is t as somebody who stands in a line of s, until its budget there or the
// request's own is used up.
func (s *lines) waiter(t *trip, most time.Duration) *waiter {
	now := time.Now()
	deadline := now.Add(most - t.spent[s])
	if d := t.request.Deadline; !d.IsZero() && d.Before(deadline) {
		deadline = d
	}
	w := newWaiter(t.request, t.demand, t.tenant, now, deadline)
	w.lines, w.came = s, t.came
	return w
}

// wait holds a request in a line of s until the store admits it, its budget is
// over, its caller leaves or the replica drains; or until it is refused in a way that
// other lines may be for. last is the refusal that sent it here, nil for a newcomer
// who joined without asking.
func (l *Limiter) wait(ctx context.Context, s *lines, t *trip, at place, last *Refusal) outcome {
	if t.came == 0 {
		t.came = l.came.Add(1)
	}
	most, _ := s.patience()
	w := s.waiter(t, most)
	if last == nil {
		last = &Refusal{Dimension: at.bucket.Dimension, Class: at.bucket.Class, Reason: reasons[at.bucket.Class]}
	}
	o := l.stand(ctx, s, w, at, last)
	t.tell(w, o)
	return o
}

// tell notes what became of w.
func (t *trip) tell(w *waiter, o outcome) {
	t.demand = w.demand
	if t.spent == nil {
		t.spent = map[*lines]time.Duration{}
	}
	t.spent[w.lines] += w.waited
	switch {
	case w.lines.manner != fair:
		held := t.spent[w.lines]
		t.held = &HeldInfo{Waited: held}
	case o.grant != nil:
		t.line = o.grant.line
	case o.refusal != nil:
		t.line = o.refusal.Line
	}
}

// stand is the wait itself.
func (l *Limiter) stand(ctx context.Context, s *lines, w *waiter, at place, last *Refusal) outcome {
	if reason := s.join(w, at); reason != "" {
		refusal := s.refuse(w, reason, last)
		if s.manner != fair { // of limits of its own a line knows nothing before its turn
			refusal.RetryAfter = max(refusal.RetryAfter, last.RetryAfter)
		}
		return outcome{refusal: refusal}
	}
	expiry := time.NewTimer(time.Until(w.deadline))
	defer expiry.Stop()
	for {
		a, reason := s.sleep(ctx, w, expiry.C)
		if reason != "" {
			refusal := s.refuse(w, reason, last)
			if reason == ReasonClientGone {
				return outcome{err: ctx.Err()}
			}
			return outcome{refusal: refusal}
		}
		if o, over := l.turn(ctx, s, w, a, &last); over {
			return o
		}
	}
}

// turn is what w does when it was woken with a; false: it goes on waiting.
func (l *Limiter) turn(ctx context.Context, s *lines, w *waiter, a answer, last **Refusal) (outcome, bool) {
	if a.ask {
		if w.demand.unlimited() { // since a change of limits
			return s.served(l.grant(w.demand, Verdict{}), w), true
		}
		if o, next, yields := s.yield(w); yields {
			if next == nil {
				return o, true
			}
			reason := s.again(w, *next)
			return outcome{refusal: s.refused(w, reason, *last)}, reason != ""
		}
		a.verdict, a.err = l.store.Admit(ctx, s.manner.take(w.demand))
	}
	if errors.Is(a.err, ErrUnavailable) && s.bear(w) {
		return outcome{}, false
	}
	o := l.decide(w.demand, a.verdict, a.err)
	switch {
	case errors.Is(o.err, ErrUnavailable):
		s.abandon(w)
		return o, true
	case o.err != nil:
		return s.fail(ctx, w, o.err, *last), true
	case o.grant != nil:
		return s.served(o.grant, w), true
	}
	*last = o.refusal
	next, ok := place{}, false
	if o.verdict != nil {
		next, ok = s.place(w.demand, *o.verdict)
	}
	if !ok {
		o.refusal.Line = s.abandon(w)
		return o, true
	}
	reason := s.again(w, next)
	return outcome{refusal: s.refused(w, reason, *last)}, reason != ""
}

// refused is refuse, if there is a reason to.
func (s *lines) refused(w *waiter, reason Reason, last *Refusal) *Refusal {
	if reason == "" {
		return nil
	}
	return s.refuse(w, reason, last)
}

// served ends the wait of w with its grant.
func (s *lines) served(grant *Grant, w *waiter) outcome {
	info := s.granted(w)
	grant.waited = w
	if s.manner == fair {
		grant.line = info
	}
	return outcome{grant: grant}
}
