package limiter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// What a burst of two tenants is told does not depend on how long the line was
// idle before: neither a pace of other times nor what a bucket has at once is
// the wait of those who have others before them.
func TestEstimatesAfterIdleness(t *testing.T) {
	for _, idle := range []time.Duration{300, 900, 1200, 2000, 4000, 15000} {
		idle *= time.Millisecond
		t.Run(idle.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := shared(&limiter.Rate{Limit: 5, Per: time.Second, Burst: 5})
				cfg.Fair.Scope, cfg.Fair.MaxWait = limiter.FairExact, time.Minute
				r := newRig(t, cfg)
				burst := func(c *crowd, n int) {
					for i := range n {
						c.send(context.Background(), "", user([]string{"ann", "bob"}[i%2]))
					}
				}
				before := &crowd{r: r}
				burst(before, 25)
				before.ended()
				time.Sleep(idle)
				c := &crowd{r: r}
				burst(c, 20)
				time.Sleep(300 * time.Millisecond)
				burst(c, 6) // by what was heard since
				for i, v := range c.ended() {
					if v.line == nil {
						continue
					}
					// Within half, or what one turn of each tenant takes.
					if e, w := v.line.Estimated, v.line.Waited; (e - w).Abs() > max(w/2, 400*time.Millisecond) {
						t.Errorf("number %d waited %v and was told %v", i, w, e)
					}
				}
			})
		})
	}
}
