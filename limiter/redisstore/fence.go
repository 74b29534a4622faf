package redisstore

import (
	"sync"
	"time"
)

// fenceWindow is how long a bound on the clock offset is used at least. Crystals
// drift apart by up to 50 µs/s, so it must end; replies come far more often.
const fenceWindow = 10 * time.Second

// fence bounds Redis time from below: offset = Redis time - monotonic time.
type fence struct {
	base time.Time // zero of the monotonic clock

	mu        sync.Mutex
	gen       uint64    // connections made so far
	known     bool      // at least one bound since the last connection
	cur, prev int64     // µs; greatest lower bounds of this and the last window
	since     time.Time // when the window of cur began
}

// connected forgets all bounds: the next server may have another clock. The
// dialer calls it before it dials, so that no reply of the new server can come
// under an old generation.
func (f *fence) connected() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gen++
	f.known = false
}

// generation tells replies of the present connections from earlier ones.
func (f *fence) generation() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gen
}

// observe learns from one pipeline: first and last are the Redis times (µs) of
// its first and last reply, so that sent ≤ first ≤ last ≤ received.
func (f *fence) observe(gen uint64, sent, received time.Time, first, last int64) {
	// One µs more on each side for what the conversions cut off.
	low := last - received.Sub(f.base).Microseconds() - 1
	high := first - sent.Sub(f.base).Microseconds() + 1
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case gen != f.gen:
		return
	case !f.known || max(f.cur, f.prev) > high:
		f.known, f.cur, f.prev, f.since = true, low, low, received
	case received.Sub(f.since) > fenceWindow:
		f.prev, f.cur, f.since = f.cur, low, received
	default:
		f.cur = max(f.cur, low)
	}
}

// at returns a Redis time (µs) that is not after instant t; false if unknown.
func (f *fence) at(t time.Time) (int64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return max(f.cur, f.prev) + t.Sub(f.base).Microseconds(), f.known
}
