package fleet

import (
	"encoding/binary"
	"math"
	"time"
)

// Bounds of throttles; see those of codec.go.
const (
	maxThrottles = 64
	maxLevels    = 32
	// maxSpan bounds instants, relative to the digest, and periods: a month and a
	// day. They travel in milliseconds.
	maxSpan = 32 * 24 * time.Hour
)

// fitThrottles encodes as many of the first throttles as fit into room bytes,
// with their number before them, and returns how many are left out.
func (d Digest) fitThrottles(room int) (b []byte, omitted int) {
	var body []byte
	n := 0
	for n < min(len(d.Throttles), maxThrottles) {
		longer := d.Throttles[n].append(body)
		if len(longer)+1 > room { // a count below 128 takes one byte
			break
		}
		body = longer
		n++
	}
	return append(binary.AppendUvarint(nil, uint64(n)), body...), len(d.Throttles) - n
}

func (t *Throttle) append(b []byte) []byte {
	b = appendName(b, t.Name)
	for _, at := range [...]time.Duration{t.Until, t.Overload, t.Stopped, t.Probed} {
		b = appendInstant(b, at)
	}
	levels := t.Levels[:min(len(t.Levels), maxLevels)]
	b = binary.AppendUvarint(b, uint64(len(levels)))
	for _, l := range levels {
		b = l.append(b)
	}
	return b
}

func (l *QuotaLevel) append(b []byte) []byte {
	b = appendName(b, l.Unit)
	b = appendName(b, l.Scope)
	kind := byte(0)
	if l.Windowed {
		kind = 1
	}
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(clamp(l.Window, 0, maxSpan).Milliseconds()))
	b = binary.AppendUvarint(b, uint64(clamp(l.Period, 0, maxSpan).Milliseconds()))
	b = binary.AppendUvarint(b, uint64(max(0, l.Limit)))
	b = binary.AppendUvarint(b, uint64(max(0, l.Remaining)))
	b = appendInstant(b, l.End)
	return appendInstant(b, l.Seen)
}

// appendInstant writes milliseconds, zigzag, plus one; zero is no instant. Ends of
// pauses are rounded up: who comes early is refused again.
func appendInstant(b []byte, at time.Duration) []byte {
	if at == NoTime {
		return append(b, 0)
	}
	ms := int64(math.Ceil(float64(clamp(at, -maxSpan, maxSpan)) / float64(time.Millisecond)))
	return binary.AppendUvarint(b, uint64(ms)<<1^uint64(ms>>63)+1)
}

func (r *reader) throttles() []Throttle {
	var all []Throttle
	for range r.count(maxThrottles, 6) {
		t := Throttle{Name: r.name(), Until: r.instant(), Overload: r.instant(), Stopped: r.instant(), Probed: r.instant()}
		for range r.count(maxLevels, 9) {
			t.Levels = append(t.Levels, r.level())
		}
		all = append(all, t)
	}
	return all
}

func (r *reader) level() QuotaLevel {
	const span = uint64(maxSpan / time.Millisecond)
	l := QuotaLevel{Unit: r.name(), Scope: r.name(), Windowed: r.byte()&1 == 1}
	l.Window = time.Duration(r.uvarint(span)) * time.Millisecond
	l.Period = time.Duration(r.uvarint(span)) * time.Millisecond
	l.Limit, l.Remaining = int64(r.uvarint(math.MaxInt64)), int64(r.uvarint(math.MaxInt64))
	l.End, l.Seen = r.instant(), r.instant()
	return l
}

func (r *reader) instant() time.Duration {
	v := r.uvarint(2*uint64(maxSpan/time.Millisecond) + 2)
	if v == 0 {
		return NoTime
	}
	v--
	return time.Duration(int64(v>>1)^-int64(v&1)) * time.Millisecond
}
