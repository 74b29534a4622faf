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

// lagMost is how far replication is behind at most: grants heard longer before a
// failover must survive it.
const lagMost = 500 * time.Millisecond

// tenantOn returns a tenant whose keys are kept by the i-th master, as at the
// start.
func tenantOn(c *redisproc.Cluster, i int, shared bool) *tenant {
	for n := 0; ; n++ {
		home := limiter.Hash(limiter.Team, fmt.Sprint("team", n))
		if c.Index(c.Slot("hw:{"+string(home)+"}:x")) == i {
			return newTenant(home, shared)
		}
	}
}

// heardSoon returns what n has heard now, and what it had heard lagMost before.
func heardSoon(n *tenant) (before int64) {
	before = n.heard.Load()
	<-time.After(lagMost)
	return before
}

// TestClusterFailover: under load, a master hangs until it is replaced, wakes,
// and then the master of the shared keys dies.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	c := redisproc.StartCluster(t)
	const budget = 400 * time.Millisecond
	s := newStore(t, redisstore.Options{
		Mode: redisstore.ModeCluster, Addresses: c.Addrs(), Layout: redisstore.LayoutTenant, Timeout: budget,
	})
	home := c.Index(c.Slot("hw:{hw}:x"))
	victim := (home + 1) % 3
	var tenants []*tenant
	for i := range 3 {
		tenants = append(tenants, tenantOn(c, i, true))
	}
	harmed := tenants[victim]
	storetest.Eventually(t, healing, "usable", usable(s))
	l := startLoad(t, s, budget, tenants...)
	awaitGrants(t, 100, tenants...)

	before := heardSoon(harmed)
	c.Masters[victim].Stop()
	atRisk := harmed.heard.Load() - before
	storetest.Eventually(t, healing, "the tenant of the hung master is refused at once", func() bool {
		return harmed.failed.Load() > 50
	})
	if !s.Health().Usable {
		t.Errorf("one of three servers hangs: %+v", s.Health())
	}
	slow := harmed.slow.Load()
	c.AwaitMaster(c.Replicas[victim])
	promoted := time.Now()
	normal := awaitNormal(t, promoted, harmed)
	t.Logf("a master hung: normal %v after its replica's promotion; %d calls waited, then %d were refused at once",
		normal, slow, harmed.failed.Load()-slow)
	if normal > normalWithin {
		t.Errorf("normal only %v after the promotion", normal)
	}
	// Each caller may have been caught once, some more by the breaker's probation.
	if slow > 20 {
		t.Errorf("%d calls waited for a server that hangs", slow)
	}
	for i, n := range tenants {
		if i != victim && n.failed.Load() > n.heard.Load()/4 { // a busy machine loses some
			t.Errorf("%d calls of a tenant failed whose server was well", n.failed.Load())
		}
	}
	c.Masters[victim].Cont() // and it finds itself replaced
	c.AwaitSync(c.Masters[victim])
	awaitGrants(t, 50, tenants...)

	risks := make([]int64, len(tenants))
	for i, n := range tenants {
		risks[i] = n.heard.Load()
	}
	heardSoon(tenants[home])
	c.Masters[home].Kill()
	for i, n := range tenants {
		risks[i] = n.heard.Load() - risks[i]
	}
	c.AwaitMaster(c.Replicas[home])
	promoted = time.Now()
	for _, n := range tenants {
		d := awaitNormal(t, promoted, n)
		t.Logf("the master of shared keys died: %.8s normal %v after its replica's promotion", n.name, d)
		if d > normalWithin {
			t.Errorf("normal only %v after the promotion", d)
		}
	}
	l.stop()
	var heard, unsure int64
	for i, n := range tenants {
		allowed := int64(0)
		switch i {
		case victim:
			allowed = atRisk
		case home:
			allowed = risks[i]
		}
		n.judge(t, s, allowed)
		heard, unsure = heard+n.heard.Load(), unsure+n.unsure.Load()
	}
	judgeShared(t, s, tenants[victim], heard, unsure, risks[0]+risks[1]+risks[2])
}

// judgeShared does what tenant.judge does for the bucket of all of them.
func judgeShared(t *testing.T, s *redisstore.Store, n *tenant, heard, unsure, atRisk int64) {
	t.Helper()
	v, err := s.Peek(t.Context(), n.take)
	if err != nil {
		t.Fatal(err)
	}
	taken := plenty - v.Charges[1].Remaining
	t.Logf("shared: %d heard, %d taken, %d lost; %d unsure", heard, taken, max(0, heard-taken), unsure)
	if taken > heard+unsure || heard-taken > atRisk {
		t.Errorf("shared: %d taken of %d heard, %d unsure, at most %d lost", taken, heard, unsure, atRisk)
	}
}

// TestSentinelFailover: a master hangs under load until its replica has taken
// over, and wakes as if nothing had happened.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	p := redisproc.StartSentinels(t)
	const budget = 200 * time.Millisecond
	s := newStore(t, redisstore.Options{
		Mode: redisstore.ModeSentinel, Addresses: p.Addrs(), SentinelMaster: redisproc.MasterName,
		SentinelUsername: redisproc.Scout, SentinelPassword: redisproc.Scout, Timeout: budget,
	})
	n := newTenant(limiter.Hash(limiter.Team, "team"), true)
	storetest.Eventually(t, healing, "usable", usable(s))
	l := startLoad(t, s, budget, n)
	awaitGrants(t, 100, n)

	before := heardSoon(n)
	p.Master.Stop()
	atRisk := n.heard.Load() - before
	p.AwaitPromotion()
	promoted := time.Now()
	normal := awaitNormal(t, promoted, n)
	t.Logf("the master hung: normal %v after its replica's promotion; %d calls waited, then %d were refused at once",
		normal, n.slow.Load(), n.failed.Load()-n.slow.Load())
	if normal > normalWithin {
		t.Errorf("normal only %v after the promotion", normal)
	}
	// It wakes, takes itself for the master for a while, and is demoted. Nothing it
	// is still sent counts.
	p.Master.Cont()
	storetest.Eventually(t, 30*time.Second, "the old master is demoted", func() bool { return !p.Master.IsMaster() })
	awaitGrants(t, 50, n)
	l.stop()
	n.judge(t, s, atRisk)
}
