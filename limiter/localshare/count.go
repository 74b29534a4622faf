package localshare

import "time"

const (
	// stableFor is how long a count must stay to be believed: several rounds of
	// gossip, and longer than any replica takes to state itself to the store.
	stableFor = 5 * time.Second
	// memory is how many such spans are remembered: five minutes.
	memory = 60
)

// counter keeps how many replicas there are. The owner's mutex guards it.
type counter struct {
	now     int       // at the last sample; 0: unknown
	since   time.Time // now is the same since then
	settled bool      // a count has stayed for stableFor, once

	least   int       // in the span that is open
	opened  time.Time // when that span began
	spans   [memory]int
	next    int // in spans
	highest int // during an outage: the most that was counted; else 0
}

// sample takes the count n (0: unknown) at an instant, and whether the store is
// out. The spans' memory stands still while it is.
func (c *counter) sample(now time.Time, n int, out bool) {
	if n != c.now || c.since.IsZero() {
		c.now, c.since = n, now
	}
	if n == 0 {
		return
	}
	c.settled = c.settled || now.Sub(c.since) >= stableFor
	if c.least == 0 {
		c.least, c.opened = n, now
	}
	c.least = min(c.least, n)
	switch {
	case out:
		c.highest = max(c.highest, c.divisor())
		c.least, c.opened = n, now
	case c.highest > 0:
		c.remember(now, c.highest) // the five minutes go on from here
		c.highest = 0
	case now.Sub(c.opened) >= stableFor:
		c.remember(now, c.least)
	}
}

// remember ends the open span, in which n replicas were there all the time.
func (c *counter) remember(now time.Time, n int) {
	c.spans[c.next%memory] = n
	c.next++
	c.least, c.opened = c.now, now
}

// divisor is by how many to divide a limit, at least 1.
func (c *counter) divisor() int {
	n := max(1, c.now, c.highest)
	for _, s := range c.spans {
		n = max(n, s)
	}
	return n
}
