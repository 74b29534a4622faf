package throttle

import (
	"time"

	"github.com/headway-limiter/headway/limiter/quota"
)

// sameWindow is how far apart two ends of one window may be told, where the
// period is not known: providers round to seconds, and clocks differ.
const sameWindow = 2 * time.Second

// Key names one quota of an account.
type Key struct {
	Unit   quota.Unit
	Window time.Duration // 0: not known
	Scope  string
}

// Level is what is known of one quota. Levels of one key merge; see Merge. The
// zero Level knows nothing.
type Level struct {
	Limit int64 // most in a period, > 0
	// Period is in which Limit flows in, or after which it is renewed; 0: not known.
	Period time.Duration
	// Windowed quotas are renewed at End, and Remaining is left until then. Others
	// flow in all the time and are full at End.
	Windowed  bool
	End       time.Time
	Remaining int64
	Seen      time.Time // when the newest of what was merged was observed
}

// levelOf turns an observation made at an instant into a level; false if it says
// too little: without what remains there is nothing to merge, and without a limit
// no pace.
func levelOf(o quota.Observation, at time.Time) (Level, bool) {
	if o.Remaining == quota.Absent || o.Limit <= 0 {
		return Level{}, false
	}
	l := Level{Limit: o.Limit, Period: o.Window, Remaining: min(o.Remaining, o.Limit), Seen: at}
	missing := l.Limit - l.Remaining
	switch {
	case o.Refill == quota.RefillContinuous && o.Reset != quota.Unknown && missing > 0:
		// The period follows from what is missing and how long that takes.
		l.Period = period(o)
		l.End = at.Add(o.Reset)
	case l.Period > 0 && (o.Refill == quota.RefillContinuous || o.Reset == quota.Unknown):
		// A window whose end nobody tells is best taken for a flow: what remains of
		// it could otherwise never rise.
		l.End = at.Add(time.Duration(float64(l.Period) * float64(missing) / float64(l.Limit)))
	case o.Reset == quota.Unknown:
		return Level{}, false
	default:
		l.Windowed, l.End = true, at.Add(o.Reset)
		if l.Period == 0 {
			l.Period = o.Reset // at least
		}
	}
	return l, l.Period > 0
}

// Merge joins what two sources know of one quota. It is commutative, associative
// and idempotent as long as the ends of one window lie closer together than those
// of two, and never raises what is left of a window.
func (l Level) Merge(o Level) Level {
	switch {
	case l.Limit == 0:
		return o
	case o.Limit == 0:
		return l
	}
	newer, older := l, o
	if o.newer(l) {
		newer, older = o, l
	}
	out := newer // limits and periods change: the newest word on them holds
	if newer.Windowed != older.Windowed {
		return out
	}
	if !out.Windowed {
		if older.End.After(out.End) {
			out.End = older.End
		}
		return out
	}
	out.Period = max(newer.Period, older.Period)
	switch d := newer.End.Sub(older.End); {
	case d.Abs() < out.near():
		out.Remaining = min(newer.Remaining, older.Remaining)
		if older.End.After(out.End) {
			out.End = older.End
		}
	case d < 0: // an older window, told later
		out.End, out.Remaining = older.End, older.Remaining
	}
	return out
}

// newer says whose word on limit and period holds: the later one's, and of two at
// one instant always the same one's.
func (l Level) newer(o Level) bool {
	switch {
	case !l.Seen.Equal(o.Seen):
		return l.Seen.After(o.Seen)
	case l.Limit != o.Limit:
		return l.Limit < o.Limit
	case l.Period != o.Period:
		return l.Period > o.Period
	}
	return l.Windowed && !o.Windowed
}

// near is how far apart two ends of one window may be.
func (l Level) near() time.Duration { return max(l.Period/2, sameWindow) }

// Over reports whether the window has ended, so that its remainder says nothing.
func (l Level) Over(now time.Time) bool { return l.Windowed && !now.Before(l.End) }

// At is what is left now, not counting starts since; of a window that is over it
// is the whole limit.
func (l Level) At(now time.Time) float64 {
	switch {
	case l.Over(now):
		return float64(l.Limit)
	case l.Windowed:
		return float64(l.Remaining)
	}
	left := l.End.Sub(now)
	if left <= 0 {
		return float64(l.Limit)
	}
	return float64(l.Limit) - float64(l.Limit)*left.Seconds()/l.Period.Seconds()
}

// even is the quota per second over a whole period.
func (l Level) even() float64 { return float64(l.Limit) / l.Period.Seconds() }

// rate is what may be started per second from now on, by the whole fleet, so that
// the level falls to floor by the time the window is spent to its planned part, but
// never faster than the news of it goes round: what is spent quicker than answers
// come back is spent blindly.
func (l Level) rate(now time.Time, floor float64) float64 {
	if !l.Windowed || l.Over(now) {
		return l.even()
	}
	left := l.End.Sub(now).Seconds() - (1-spentBy)*l.Period.Seconds()
	period := l.Period.Seconds()
	return max(0, l.At(now)-floor) / max(left, min(max(0.1*period, lag), 0.2*period))
}
