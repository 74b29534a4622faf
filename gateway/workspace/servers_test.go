package workspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// patience bounds what a busy machine may take.
const patience = 20 * time.Second

// fleet is three replicas, each with a store of its own, that have read a document.
func fleet(t *testing.T, o redisstore.Options) []*Set {
	t.Helper()
	o.Timeout = 5 * time.Second
	var sets []*Set
	for range 3 {
		sets = append(sets, replica(t, openStore(t, o), seeds))
	}
	for _, s := range sets {
		storetest.Eventually(t, patience, "every replica has read a document", func() bool {
			d, known := s.Known("acme")
			return known && d.Version > 0
		})
	}
	return sets
}

// inForce changes the switch on one replica and returns how long the slowest took
// to go by it.
func inForce(t *testing.T, sets []*Set, at int, on bool) time.Duration {
	t.Helper()
	patch(t, sets[at], "acme", fmt.Sprintf(`{"inference_queueing_enabled": %v}`, on))
	start, took := time.Now(), time.Duration(0)
	for _, s := range sets {
		storetest.Eventually(t, patience, "the change is in force", func() bool { return s.Queues("acme") == on })
		took = time.Since(start)
	}
	return took
}

// A real server: changes are in force on all replicas within a second, also after it
// has come back empty, and what was changed before is not lost.
func TestRedisServer(t *testing.T) {
	t.Parallel()
	server := redisproc.Start(t)
	sets := fleet(t, redisstore.Options{Address: server.Addr()})
	var took []time.Duration
	for n := range 8 {
		took = append(took, inForce(t, sets, n%3, n%2 == 1))
	}
	slices.Sort(took)
	if took[4] > time.Second { // the slowest may be this machine's
		t.Errorf("in force after %v", took)
	}
	t.Logf("in force on 3 replicas: median %v, at most %v", took[4], took[7])

	before := patch(t, sets[0], "acme", `{"name": "Kept", "zero_data_retention": true}`)
	storetest.Eventually(t, patience, "all know", func() bool {
		return !keeps(sets[0], "acme") && !keeps(sets[1], "acme") && !keeps(sets[2], "acme")
	})
	server.Kill()
	if _, err := sets[1].Get(t.Context(), "acme"); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
	storetest.Eventually(t, patience, "what cannot be read queues", func() bool { return sets[1].Queues("acme") })
	server.Restart()
	for _, s := range sets {
		storetest.Eventually(t, patience, "the document is back", func() bool {
			d, err := s.Get(context.Background(), "acme")
			return err == nil && d.Name == "Kept" && d.Retention && d.Version == before.Version+1
		})
	}
	inForce(t, sets, 2, false)
}

// A cluster: all keys are in one slot, and a failover of its master loses nothing
// that was known.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := redisproc.StartCluster(t)
	sets := fleet(t, redisstore.Options{Mode: redisstore.ModeCluster, Addresses: cluster.Addrs(), Layout: redisstore.LayoutTenant})
	for n := range 2 {
		inForce(t, sets, n, n == 1)
	}
	before := patch(t, sets[0], "acme", `{"name": "Kept"}`)
	i := cluster.Index(cluster.Slot(headKey))
	cluster.AwaitSync(cluster.Replicas[i])
	cluster.Masters[i].Kill()
	cluster.AwaitMaster(cluster.Replicas[i])
	for _, s := range sets {
		storetest.Eventually(t, patience, "the document is there", func() bool {
			d, err := s.Get(context.Background(), "acme")
			return err == nil && d.Name == "Kept" && d.Version >= before.Version
		})
	}
	storetest.Eventually(t, patience, "it can be changed", func() bool {
		_, _, err := sets[1].Patch(context.Background(), "acme", parse(t, `{"inference_queueing_enabled": false}`), "admin", nil)
		return err == nil
	})
	for _, s := range sets {
		storetest.Eventually(t, patience, "the change is in force", func() bool { return !s.Queues("acme") })
	}
}
