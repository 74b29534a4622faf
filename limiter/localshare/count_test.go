package localshare

import (
	"testing"
	"time"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
)

// alone is gossip that sees nobody else.
type alone struct{}

func (alone) View() *fleet.View           { return &fleet.View{Members: 1} }
func (alone) Publish([]fleet.Pool, int64) {}

// hear samples a count for a span.
func (c *counter) hear(now *time.Time, n int, out bool, d time.Duration) {
	for range d / sampleEvery {
		*now = now.Add(sampleEvery)
		c.sample(*now, n, out)
	}
}

func TestCounter(t *testing.T) {
	type step struct {
		n    int
		out  bool
		long time.Duration
		want int
	}
	for name, steps := range map[string][]step{
		"a peak is not stable":            {{3, false, time.Minute, 3}, {7, false, 4 * time.Second, 7}, {3, false, time.Second, 3}},
		"a crash costs five minutes":      {{5, false, time.Minute, 5}, {4, false, 4 * time.Minute, 5}, {4, false, 2 * time.Minute, 4}},
		"growth counts at once":           {{2, false, time.Minute, 2}, {3, false, sampleEvery, 3}},
		"an outage stops the clock":       {{6, false, time.Minute, 6}, {2, true, time.Hour, 6}, {2, false, 4 * time.Minute, 6}, {2, false, 2 * time.Minute, 2}},
		"growth in an outage is kept":     {{2, false, time.Minute, 2}, {4, true, time.Minute, 4}, {1, true, time.Hour, 4}},
		"nothing known":                   {{0, true, time.Hour, 1}},
		"known after nothing":             {{0, true, time.Hour, 1}, {8, true, time.Second, 8}},
		"flapping between two and three":  {{3, false, 30 * time.Second, 3}, {2, false, 2 * time.Second, 3}, {3, false, 2 * time.Second, 3}},
		"seldom seen is seen: as it ends": {{4, false, 20 * time.Second, 4}, {3, false, 30 * time.Second, 4}},
	} {
		now, c := time.Now(), counter{}
		for i, s := range steps {
			c.hear(&now, s.n, s.out, s.long)
			if got := c.divisor(); got != s.want {
				t.Errorf("%s, step %d: divides by %d, want %d", name, i, got, s.want)
			}
		}
	}
}

func TestSettledAfterFiveSeconds(t *testing.T) {
	now, c := time.Now(), counter{}
	c.hear(&now, 1, true, 4*time.Second)
	c.hear(&now, 2, true, 4*time.Second)
	if c.settled {
		t.Error("settled after 4 s of the same count")
	}
	c.hear(&now, 2, true, 1100*time.Millisecond)
	c.hear(&now, 9, true, time.Second)
	if !c.settled {
		t.Error("settled once, and no more")
	}
}

func TestDebt(t *testing.T) {
	for _, c := range []struct{ level, owed, burst, n, want int64 }{
		{level: 100, owed: 50, burst: 100, n: 4, want: 0},    // has all flown in again
		{level: 60, owed: 50, burst: 100, n: 4, want: 10},    // a quarter of what is lacking
		{level: 60, owed: 3, burst: 100, n: 4, want: 3},      // no more than was granted
		{level: -500, owed: 900, burst: 100, n: 4, want: 25}, // no more than the share of the burst
		{level: 150, owed: 9, burst: 100, n: 200, want: 0},   // above the burst
		{level: 0, owed: 1, burst: 5, n: 8, want: 1},         // whole tokens
	} {
		b := bucket{level: c.level * token, owed: c.owed * token, rate: limiter.Rate{Limit: 1, Per: time.Hour, Burst: c.burst}}
		if got := max(0, b.debt(int(c.n))); got != c.want {
			t.Errorf("%+v: owes %d", c, got)
		}
	}
}
