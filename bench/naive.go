package bench

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Naive is what many clients do with a provider's quota, to compare with: each
// replica by itself believes the last headers that arrived, subtracts what it has
// started since, and after a reset takes everything for allowed until the next
// answer tells better. A refusal pauses it until its Retry-After.
type Naive struct {
	// Send sends a request, and returns the headers of the answer and its status, 0
	// if there was none.
	Send func(ctx context.Context) (status int, h http.Header)

	mu     sync.Mutex
	known  bool
	limit  float64
	left   float64
	reset  time.Time
	paused time.Time
}

const (
	naiveReserve = 0.2                   // of the limit, for interactive requests
	naiveWait    = time.Second           // of an interactive request
	naiveLook    = 20 * time.Millisecond // between looks of those who wait
)

// Ask waits until a request may start, sends it, and returns the status: 429 also
// for an interactive one that would have to wait too long.
func (n *Naive) Ask(ctx context.Context, batch bool) int {
	for until := time.Now().Add(naiveWait); !n.start(time.Now(), batch); {
		if rest(ctx, naiveLook); ctx.Err() != nil {
			return 0
		}
		if !batch && time.Now().After(until) {
			return http.StatusTooManyRequests
		}
	}
	status, h := n.Send(ctx)
	if status != 0 {
		n.answered(time.Now(), status, h)
	}
	return status
}

// start takes one if there is one.
func (n *Naive) start(now time.Time, batch bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	floor := 0.0
	if batch {
		floor = naiveReserve * n.limit
	}
	switch {
	case now.Before(n.paused):
		return false
	case !n.known || !now.Before(n.reset):
		n.known = false // the next answer tells
		return true
	case n.left-1 < floor:
		return false
	}
	n.left--
	return true
}

// answered believes what an answer says.
func (n *Naive) answered(now time.Time, status int, h http.Header) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); status == http.StatusTooManyRequests && err == nil {
		n.paused = now.Add(time.Duration(ms * float64(time.Millisecond)))
	}
	limit, err := strconv.ParseFloat(h.Get("X-Ratelimit-Limit-Requests"), 64)
	left, err2 := strconv.ParseFloat(h.Get("X-Ratelimit-Remaining-Requests"), 64)
	reset, err3 := time.ParseDuration(h.Get("X-Ratelimit-Reset-Requests"))
	if err == nil && err2 == nil && err3 == nil {
		n.known, n.limit, n.left, n.reset = true, limit, left, now.Add(reset)
	}
}
