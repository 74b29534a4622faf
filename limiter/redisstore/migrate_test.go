package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// TestSlotMigration: a slot moves to another master under load, and stands half
// moved for a while. Calls whose keys are torn apart may fail meanwhile; nothing
// runs twice or is lost, no breaker opens, and all is well when it has moved.
func TestSlotMigration(t *testing.T) {
	t.Parallel()
	c := redisproc.StartCluster(t)
	const budget = 200 * time.Millisecond
	for _, layout := range []redisstore.Layout{redisstore.LayoutTenant, redisstore.LayoutSingle} {
		t.Run(string(layout), func(t *testing.T) {
			c.Flush()
			home := c.Index(c.Slot("hw:{hw}:x"))
			s := newStore(t, redisstore.Options{
				Mode: redisstore.ModeCluster, Addresses: c.Addrs(), Layout: layout, Timeout: budget, LeaseTTL: time.Second,
			})
			moved, other := tenantOn(c, (home+1)%3, false), tenantOn(c, (home+2)%3, false)
			slot := c.Slot("hw:{" + moved.name + "}:x")
			if layout == redisstore.LayoutSingle {
				slot = c.Slot("hw:{hw}:x")
			}
			from, to := c.Masters[c.Index(slot)], c.Masters[(c.Index(slot)+1)%3]
			storetest.Eventually(t, healing, "usable", usable(s))
			fill(t, s, moved)
			l := startLoad(t, s, budget, moved, other)
			awaitGrants(t, 50, moved, other)
			c.Migrate(slot, from, to, func() { <-time.After(400 * time.Millisecond) })
			done := time.Now()
			normal := awaitNormal(t, done, moved)
			t.Logf("slot %d moved; normal %v after it had", slot, normal)
			if normal > normalWithin {
				t.Errorf("normal only %v after the slot had moved", normal)
			}
			l.stop()
			if h := s.Health(); !h.Usable {
				t.Errorf("no server was ever in trouble: %+v", h)
			}
			moved.judge(t, s, 0)
			other.judge(t, s, 0)
			for _, n := range []*tenant{moved, other} {
				var taken int64
				storetest.Eventually(t, healing, "its level is told", func() bool {
					v, err := s.Peek(t.Context(), n.take)
					if err == nil {
						taken = plenty - v.Charges[0].Remaining
					}
					return err == nil
				})
				if taken != n.heard.Load() {
					t.Errorf("%d taken of %d heard: no reply was lost, so they must be equal", taken, n.heard.Load())
				}
			}
			if n := other.failed.Load(); layout == redisstore.LayoutTenant && n > other.heard.Load()/4 {
				t.Errorf("%d calls of a tenant failed whose slot stayed", n) // a busy machine loses some
			}
			if layout == redisstore.LayoutTenant { // back, so that the next begins as this
				c.Migrate(slot, to, from, nil)
			}
		})
	}
}

// fill makes some buckets beside those of n, so that there is something to move.
func fill(t *testing.T, s *redisstore.Store, n *tenant) {
	for i := range 40 {
		k := limiter.Take{Charges: []limiter.Charge{n.take.Charges[0]}}
		k.Charges[0].Bucket.ID = limiter.Hash(limiter.Team, fmt.Sprint("other", i))
		storetest.Eventually(t, healing, "a bucket is made", admits(s, k))
	}
}
