package throttle

import (
	"maps"
	"time"

	"github.com/headway-limiter/headway/limiter/quota"
)

// Answered ends s when the headers of its response have come: r is what they say,
// class what they mean. It reports whether other replicas should hear of it soon,
// because a pause began or ended.
func (t *Throttle) Answered(now time.Time, s Start, r quota.Reading, class quota.Class) (urgent bool) {
	t.close(s)
	if trip := now.Sub(s.at); t.answered == 0 || trip < t.minTrip {
		t.minTrip = trip
	}
	t.answered++
	// When the provider counted it: on arrival, half a quick round trip after it
	// was sent. A response may take much longer.
	at := s.at.Add(t.minTrip / 2)
	for _, o := range r.Observations {
		k := Key{o.Unit, o.Window, o.Scope}
		if l, ok := levelOf(t.kindOf(k).of(o, at), at); ok {
			t.learn(k, l, now)
			if t.lanes[k] != nil {
				t.own.Levels[k] = t.own.Levels[k].Merge(l)
			}
		}
	}
	switch class {
	case quota.ClassQuota, quota.ClassDaily:
		return t.refused(now, s, r, class)
	case quota.ClassOverload:
		until := now.Add(pauseOr(r.RetryAfter, overloadTime))
		urgent = until.After(t.overload.Add(agree))
		t.own.Overload = latest(t.own.Overload, until)
		t.overload = latest(t.overload, until)
		return urgent
	case quota.ClassTerminal:
		t.stop, t.tryAt, t.probing, t.own.Stopped = now, now.Add(stopProbe), time.Time{}, now
		return true
	}
	return t.served(s)
}

// Settled tells what a start that was answered has used in the end. The pace makes
// up for the difference; what is left, the provider tells itself.
func (t *Throttle) Settled(s Start, used Cost) {
	for k, l := range t.lanes {
		l.spend(used.of(k.Unit) - s.cost.of(k.Unit))
	}
}

// Failed ends s when no response came at all, which tells nothing of quotas. A
// probe that failed is tried again.
func (t *Throttle) Failed(s Start) {
	t.close(s)
	if s.probe {
		t.probing = time.Time{}
	}
}

// close ends a start.
func (t *Throttle) close(s Start) {
	if t.open[s]--; t.open[s] <= 0 {
		delete(t.open, s)
	}
}

// served ends a pause, if s was its probe.
func (t *Throttle) served(s Start) (urgent bool) {
	if s.probe {
		urgent = t.needsProbe()
		t.probed, t.probing = latest(latest(t.probed, t.until), t.stop), time.Time{}
		t.own.Probed = t.probed
		t.step = firstPause
		for _, l := range t.lanes {
			l.all, l.batch = min(l.all, 0), min(l.batch, 0) // on from no burst
		}
	}
	return urgent
}

// refused begins a pause, or makes one longer.
func (t *Throttle) refused(now time.Time, s Start, r quota.Reading, class quota.Class) (urgent bool) {
	wait := r.RetryAfter
	if wait == quota.Unknown {
		for _, o := range r.Observations {
			if o.Remaining == 0 && o.Reset > 0 {
				wait = max(wait, o.Reset)
			}
		}
	}
	switch {
	case class == quota.ClassDaily:
		wait = max(wait, dayPause)
	case wait == quota.Unknown || s.probe:
		wait = max(wait, t.step)
		t.step = min(2*t.step, mostPause)
	}
	if s.probe {
		t.probing = time.Time{}
	}
	t.silent.cut(now, len(t.lanes) > 0)
	until := now.Add(max(wait, leastPause))
	urgent = until.After(t.until.Add(agree))
	t.until, t.own.Until = latest(t.until, until), latest(t.own.Until, until)
	return urgent
}

// learn merges what is known of one quota. A quota that nobody has told of for
// long is forgotten: it would pace by a limit that may be no more.
func (t *Throttle) learn(k Key, o Level, now time.Time) {
	l := t.lanes[k]
	switch {
	case o.Limit <= 0 || o.Period <= 0 || o.stale(now):
		return
	case l == nil && len(t.lanes) >= maxLanes:
		return
	case l == nil:
		l = &lane{}
		t.lanes[k] = l
	}
	l.learn(o, now)
	for k, l := range t.lanes {
		if l.stale(now) {
			delete(t.lanes, k)
			delete(t.own.Levels, k)
			delete(t.kinds, k)
		}
	}
}

// kindOf returns what is known of how k refills.
func (t *Throttle) kindOf(k Key) *kind {
	g := t.kinds[k]
	switch {
	case g == nil && len(t.kinds) >= maxLanes:
		return &kind{}
	case g == nil:
		g = &kind{}
		t.kinds[k] = g
	}
	return g
}

// stale reports whether a level is too old to pace by.
func (l Level) stale(now time.Time) bool { return now.Sub(l.Seen) > max(forgetAfter, 2*l.Period) }

// State is what replicas tell one another. States merge like their parts: by the
// latest instants.
type State struct {
	Levels   map[Key]Level
	Until    time.Time // no start before
	Overload time.Time // no start before
	Stopped  time.Time // when the account was refused for good
	Probed   time.Time // pauses that ended, and stops told, until here were tried and are over
}

// State describes what this replica has been told itself, for the others. What
// it has from them is left out: told on and on, each time a little later by the
// time a message takes, an instant would run away.
func (t *Throttle) State() State {
	s := t.own
	s.Levels = maps.Clone(s.Levels)
	return s
}

// Merge takes what another replica knows. Order and repetition do not matter.
func (t *Throttle) Merge(now time.Time, s State) {
	for k, l := range s.Levels {
		t.learn(k, l, now)
	}
	t.until, t.overload, t.probed = latest(t.until, s.Until), latest(t.overload, s.Overload), latest(t.probed, s.Probed)
	if s.Stopped.After(t.stop) {
		t.stop, t.tryAt = s.Stopped, s.Stopped.Add(stopProbe)
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// pauseOr is a wait that was told, within bounds, or a default.
func pauseOr(told, otherwise time.Duration) time.Duration {
	if told == quota.Unknown {
		return otherwise
	}
	return min(max(told, leastPause), mostPause)
}

// silent paces a provider that refuses and never says what is left. Until it
// refuses for the first time it is not paced at all.
type silent struct {
	started int64 // ever
	rate    float64
	tokens  float64
	last    time.Time // when tokens were filled
	cutAt   time.Time
	// Of the second under way: when it began, what was started, and whether the
	// rate held somebody up.
	second time.Time
	recent int64
	before int64 // started in the second before
	wanted bool
}

// count counts a start.
func (s *silent) count(now time.Time) {
	s.started++
	s.turn(now)
	s.recent++
	s.tokens--
}

// turn closes seconds that are over; each clean and wanted one raises the rate.
func (s *silent) turn(now time.Time) {
	if now.Sub(s.second) < time.Second {
		return
	}
	if s.rate > 0 && s.wanted && s.cutAt.Before(s.second) {
		s.rate *= 1.1
	}
	s.before, s.recent, s.wanted = s.recent, 0, false
	if now.Sub(s.second) >= 2*time.Second {
		s.before = 0
	}
	s.second = now
}

// room is the verdict for the next start.
func (s *silent) room(now time.Time) Verdict {
	if s.rate == 0 {
		return Verdict{OK: true}
	}
	s.turn(now)
	s.tokens = min(max(1, s.rate*burstPart), s.tokens+s.rate*max(0, now.Sub(s.last).Seconds()))
	s.last = now
	if s.tokens >= 1 {
		return Verdict{OK: true}
	}
	s.wanted = true
	return Verdict{Wait: time.Duration((1 - s.tokens) / s.rate * float64(time.Second)), Why: WhyRate}
}

// cut lowers the rate after a refusal, once a second; levels, where a provider
// tells them, do it better.
func (s *silent) cut(now time.Time, levels bool) {
	if levels || now.Sub(s.cutAt) < time.Second {
		return
	}
	s.turn(now)
	used := float64(max(s.recent, s.before, 1))
	if s.rate > 0 {
		used = min(used, s.rate)
	}
	s.rate, s.tokens, s.last, s.cutAt = max(0.7*used, 0.1), 0, now, now
}
