package gateway

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// SetLevels writes the levels of a caller's own buckets as every answer of the
// gateway does, for other edges of a replica. retry is the Retry-After of the
// same answer in seconds, 0 for none.
func SetLevels(h http.Header, l limiter.Levels, retry int64) { setLevels(h, l, retry) }

// SetRetry tells a refused caller when to come back, and returns that in whole
// seconds; 0 means never, of which SDKs are told not to retry.
func SetRetry(h http.Header, wait time.Duration) int64 {
	if wait == limiter.Never {
		h.Set("x-should-retry", "false")
		return 0
	}
	secs, ms := jitter(spread).wait(wait)
	setRetry(h, secs, ms)
	return secs
}

// jitter returns a number in 0..n/10 that is added to a wait of n.
type jitter func(n int64) int64

// spread is the random jitter.
func spread(n int64) int64 { return rand.Int64N(max(n, 0)/10 + 1) }
