package memstore

import "math"

// holdTime is how long a replica that asks for more must have said so, in µs.
const holdTime = 1_000_000

// slower compares two rates. The products are doubles, as in the scripts.
func slower(a, b bucketArg) bool {
	return float64(a.limit)*float64(b.period) < float64(b.limit)*float64(a.period)
}

// least is the smaller burst at the smaller rate; with f's key, and its figures
// where both are equal.
func (f *found) least(a bucketArg) bucketArg {
	if burst := min(f.now.burst, a.burst); slower(f.now, a) {
		a.limit, a.period, a.burst = f.now.limit, f.now.period, burst
	} else {
		a.burst = burst
	}
	return a
}

// advance moves the stamp to at, if it is ahead.
func (f *found) advance(at int64) {
	f.tokens, f.stamp = f.level(at), max(f.stamp, at)
}

// agree compares what b says stands with what a asks for. Less stands at once;
// more from a hold on that nobody with less has struck out.
func (f *found) agree(now int64, b bucket, a bucketArg) {
	mine := fill(a.burst, a)
	f.now.burst, f.now.limit, f.now.period, f.hold, f.span = b.burst, b.limit, b.period, b.hold, b.span
	stood := fill(f.now.burst, f.now)
	if a.burst < b.burst || slower(a, f.now) {
		f.advance(now)
		if a.burst < b.burst && f.tokens > 0 {
			f.tokens = int64(math.Floor(float64(f.tokens) * float64(a.burst) / float64(b.burst)))
		}
		f.span, f.hold, f.say = max(f.span, stood), 0, true
	}
	least := f.least(a)
	switch {
	case least.burst == a.burst && !slower(least, a): // a is what stands
		f.say = f.say || (f.hold > 0 && f.hold < now+holdTime/2)
		f.hold = 0
	case f.hold == 0: // a is more, from now+holdTime on
		f.span, f.hold, f.say = max(f.span, mine), now+holdTime, true
	case f.hold > now:
		f.span, f.hold = max(f.span, mine), min(f.hold, now+holdTime)
	default: // more began at the hold
		f.advance(f.hold)
		f.span, f.hold, least = max(f.span, stood), 0, a
	}
	if f.now = least; f.hold == 0 && f.span <= mine {
		f.span = 0
	}
}
