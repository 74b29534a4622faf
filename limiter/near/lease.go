package near

import (
	"math"
	"time"
)

const (
	// horizon is how much use one call takes in advance: a bucket costs at most
	// one call per replica and horizon, and what it holds here is as old.
	horizon = 100 * time.Millisecond
	// idle is how long a lease lies unused before it goes back.
	idle = 250 * time.Millisecond
	// validity is how long after the last call that took from a bucket its lease
	// may be used. What is left then is lost: the store may have been replaced,
	// or the limit lowered, and to forget tokens only admits less.
	validity = time.Second
	// paceMemory is the time constant of the measured rate. At ten requests per
	// horizon the estimate errs by 1/√(2·rate·paceMemory) = 10 %.
	paceMemory = 500 * time.Millisecond
)

// lease is tokens of one bucket that this replica has taken and not yet used,
// and what it needs to know to take the right number. It is empty and ready
// when zero.
type lease struct {
	tokens int64
	until  time.Duration // usable before
	used   time.Duration // when last used or filled

	found  int64   // whole tokens that the last call found in the bucket
	left   int64   // and that it left there
	pace   float64 // tokens per second used here, as of paced, measured since began
	paced  time.Duration
	began  time.Duration
	flight *flight // the call that fills it right now, nil if none
}

// flight is a call that takes in advance; who needs its tokens waits for it.
type flight struct {
	done chan struct{}
	err  error // before done is closed; its caller's
}

// use records that cost tokens were used at now.
func (l *lease) use(now time.Duration, cost int64) {
	if l.used = now; now-l.paced > 4*paceMemory { // of which 2 % is left
		l.pace, l.began = 0, now
	}
	if now > l.paced {
		l.pace *= fade(now - l.paced)
		l.paced = now
	}
	l.pace += float64(cost) / paceMemory.Seconds()
}

// rate is the measured use in tokens per second. A measurement that has just
// begun is scaled up to the part of its memory that it has seen, which is half
// a horizon at least: one request is no rate.
func (l *lease) rate(now time.Duration) float64 {
	seen := 1 - fade(max(horizon/2, now-l.began))
	return l.pace * fade(now-l.paced) / seen
}

// fade is the weight of what was measured d ago.
func fade(d time.Duration) float64 { return math.Exp(-float64(max(0, d)) / float64(paceMemory)) }

// chunk is how many tokens one call takes in all: what is used in a horizon, but
// at most the n-th part of half of what there is, so that n replicas together
// never keep more than half a burst, and 1 where less than two for each of them
// are left. There is what the last call found in the bucket, and what others
// keep: half a chunk on average. With c = (found + n·c/2) / 2n this is found /
// 1.5n, up to the burst.
func (l *lease) chunk(now time.Duration, n, burst int64) int64 {
	if l.left < 2*n {
		return 1
	}
	most := min(2*l.found/(3*n), burst/(2*n))
	return max(1, min(int64(l.rate(now)*horizon.Seconds()), most))
}

// lack is how much more than rest, which is needed now, a call should take: up to
// a chunk in all. What is still here counts, and is not topped up while it is
// more than half of that.
func (l *lease) lack(now time.Duration, n, burst, rest int64) int64 {
	most := l.chunk(now, n, burst)
	if l.flight != nil || 2*l.tokens > most {
		return 0
	}
	return max(0, most-max(rest, l.tokens))
}

// pay takes up to cost tokens out of the lease.
func (l *lease) pay(cost int64) int64 {
	paid := min(cost, l.tokens)
	l.tokens -= paid
	return paid
}

// fill adds n tokens that a call sent at sent has taken; now it is now.
func (l *lease) fill(sent, now time.Duration, n int64) {
	l.tokens += n
	l.until = max(l.until, sent+validity)
	l.used = now
}

// due reports whether what is left should go back: unused, or about to expire
// before anybody looks again.
func (l *lease) due(now time.Duration) bool {
	return l.tokens > 0 && (now-l.used >= idle || l.until-now <= 2*look)
}

// drain empties the lease: tokens that may go back, and such that are too old.
func (l *lease) drain(now time.Duration) (back, lost int64) {
	n := l.tokens
	l.tokens = 0
	if now >= l.until {
		return 0, n
	}
	return n, 0
}
