package memstore

import "math"

// holdTime is how long a replica that asks for more must have said so, in µs.
const holdTime = 1_000_000

// speed is what two rates are compared by: micro-tokens per second.
func speed(a bucketArg) int64 {
	return clip(math.Floor(float64(a.limit) * 1e6 / float64(a.period)))
}

// span is how long a rate takes to fill an empty bucket, in µs.
func span(speed, burst int64) int64 {
	if speed == 0 {
		return exact
	}
	return fill(burst, bucketArg{limit: speed, period: 1e6})
}

// rate makes a limit of stored figures. Those of the asker are exact where the
// speeds are equal.
func (f *found) rate(burst, stored int64, a bucketArg) {
	f.now, f.speed = a, stored
	f.now.burst = burst
	if stored != speed(a) {
		f.now.limit, f.now.period = stored, 1e6
	}
}

// advance moves the stamp to at, if it is ahead.
func (f *found) advance(at int64) {
	f.tokens, f.stamp = f.level(at), max(f.stamp, at)
}

// agree compares what b says stands with what a asks for. Less stands at once;
// more from a hold on that nobody with less has struck out.
func (f *found) agree(now int64, b bucket, a bucketArg) {
	own := speed(a)
	mine := span(own, a.burst)
	f.rate(b.burst, b.speed, a)
	f.hold, f.span = b.hold, b.span
	if a.burst < b.burst || own < b.speed {
		f.span, f.hold, f.say = max(f.span, span(b.speed, b.burst)), 0, true
		f.advance(now)
		if a.burst < b.burst && f.tokens > 0 {
			f.tokens = int64(math.Floor(float64(f.tokens) * float64(a.burst) / float64(b.burst)))
		}
		f.rate(min(b.burst, a.burst), min(b.speed, own), a)
	}
	switch {
	case f.now.burst == a.burst && f.speed == own: // it stands
		f.say = f.say || (f.hold > 0 && f.hold < now+holdTime/2)
		f.hold = 0
	case f.hold == 0: // more, from now+holdTime on
		f.span, f.hold, f.say = max(f.span, mine), now+holdTime, true
	case f.hold > now:
		f.span, f.hold = max(f.span, mine), min(f.hold, now+holdTime)
	default: // more began at the hold
		f.advance(f.hold)
		f.span, f.hold = max(f.span, span(f.speed, f.now.burst)), 0
		f.rate(a.burst, own, a)
	}
	if f.hold == 0 && f.span <= mine {
		f.span = 0
	}
}
