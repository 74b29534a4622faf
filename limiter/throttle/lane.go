package throttle

import (
	"math"
	"time"
)

// lane is a Level with the pace of this replica at it: two token buckets in the
// quota's unit, for all starts and for batch work, whose rates follow the level.
type lane struct {
	Level
	all, batch float64   // tokens; negative: ahead of the pace
	rateAll    float64   // per second, as of last
	rateBatch  float64   // per second, as of last
	last       time.Time // when the buckets were filled
	begun      time.Time // when this window began, or when a response first told of it
	proven     bool      // a response has told of this window
}

// burst is what this replica may start at once, at least one of whatever it is.
func (l *lane) burst(replicas float64) float64 {
	return max(1, burstPart*float64(l.Limit)/replicas)
}

// learn merges a level. The first word of a new window ends the calm after it.
func (l *lane) learn(o Level, now time.Time) {
	was := l.Level
	l.Level = was.Merge(o)
	if was.Limit == 0 {
		l.last, l.begun, l.proven = now, now.Add(-l.Period), true
		return
	}
	if l.Windowed && l.End.Sub(was.End) >= was.near() {
		l.renew(was, now)
	}
	if l.Windowed && !l.proven && !l.Over(now) {
		l.proven, l.begun = true, now
	}
}

// renew begins a window: from no burst.
func (l *lane) renew(was Level, now time.Time) {
	if l.begun.Before(was.End) {
		l.begun = was.End
	}
	l.all, l.batch, l.proven = min(l.all, 0), min(l.batch, 0), false
	l.last = now
}

// flow fills the buckets up to now.
func (l *lane) flow(now time.Time, replicas, floor float64) {
	if l.Over(now) && l.begun.Before(l.End) {
		l.renew(l.Level, l.End)
	}
	dt := max(0, now.Sub(l.last).Seconds())
	l.last = now
	l.rateAll = l.eased(now, l.rate(now, 0)) / replicas
	l.rateBatch = l.eased(now, l.rate(now, floor)) / replicas
	most := l.burst(replicas)
	l.all = min(most, l.all+dt*l.rateAll)
	l.batch = min(most, l.batch+dt*l.rateBatch)
}

// calm reports whether the window has just begun, or nothing is known of it yet.
func (l *lane) calm(now time.Time) bool {
	return l.Windowed && (!l.proven || now.Sub(l.begun) < calm)
}

// eased is a pace with care after a reset: half of the even one, then a ramp.
func (l *lane) eased(now time.Time, rate float64) float64 {
	if l.calm(now) {
		return 0.5 * min(rate, l.even())
	}
	ramp := max(time.Duration(rampPart*float64(l.Period)), calm/2)
	if part := float64(now.Sub(l.begun)-calm) / float64(ramp); l.Windowed && part < 1 {
		return rate * (0.5 + 0.5*part)
	}
	return rate
}

// due is how long until the pace allows cost: batch work needs it in its own
// bucket, interactive work may be ahead of the pace by one burst, at least by three,
// or after a reset by a quarter of one.
func (l *lane) due(now time.Time, cost float64, class Class, replicas float64) time.Duration {
	most := l.burst(replicas)
	ahead := max(3, most)
	if l.calm(now) {
		ahead = max(1, most/4)
	}
	missing, rate := min(cost, most)-ahead-l.all, l.rateAll
	if class == Batch {
		missing, rate = max(min(cost, most)-l.batch, min(cost, most)-l.all), min(l.rateAll, l.rateBatch)
	}
	if missing <= 0 {
		return 0
	}
	if rate <= 0 {
		return time.Second
	}
	return time.Duration(min(missing/rate, 1) * float64(time.Second)) // the pace may rise meanwhile
}

// spend charges a start, whoever it is for.
func (l *lane) spend(cost float64) {
	l.all -= cost
	l.batch -= cost
}

// fills is how long until missing more is there, by the refill alone.
func (l *lane) fills(now time.Time, missing float64) time.Duration {
	if l.Windowed {
		return max(soonest, l.End.Sub(now))
	}
	return time.Duration(math.Ceil(missing * float64(l.Period) / float64(l.Limit)))
}
