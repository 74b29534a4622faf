package memstore

import (
	"testing"

	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// TestPropertiesOnCluster: the scripts keep their word on a node of a cluster,
// which refuses keys that are not declared or not of one slot.
func TestPropertiesOnCluster(t *testing.T) {
	node := redisproc.StartLone(t)
	open := func(t *testing.T) *redis {
		r := dial(t, node.Addr())
		r.Flush()
		return r
	}
	storetest.Properties(t, func(t *testing.T) storetest.Raw { return open(t) })
	t.Run("twin", func(t *testing.T) { storetest.Twin(t, open(t), newRaw(), storetest.Effort(1000), false) })
}

// TestChangesOnCluster: so do they when limits change, and keys are written that
// were only read before.
func TestChangesOnCluster(t *testing.T) {
	t.Parallel() // it waits
	node := redisproc.StartLone(t)
	storetest.Changes(t, func(t *testing.T) storetest.Raw {
		r := dial(t, node.Addr())
		r.Flush()
		return r
	})
}
