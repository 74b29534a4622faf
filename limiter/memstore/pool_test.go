package memstore

import (
	"testing"

	"github.com/headway-limiter/headway/limiter/storetest"
)

// TestPoolTwin: the core and the script give the same turns, on both servers.
func TestPoolTwin(t *testing.T) {
	t.Run("miniredis", func(t *testing.T) { storetest.PoolTwin(t, newMini(t), newRaw(), storetest.Effort(6000), true) })
	t.Run("redis", func(t *testing.T) { storetest.PoolTwin(t, newReal(t), newRaw(), storetest.Effort(4000), false) })
}
