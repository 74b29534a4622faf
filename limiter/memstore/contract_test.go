package memstore_test

import (
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter/memstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

const shortTTL = 200 * time.Millisecond

func TestContract(t *testing.T) {
	storetest.Contract(t, func(*testing.T) storetest.Fleet {
		m := memstore.New()
		return storetest.Fleet{
			Replica:  func() storetest.Store { return m.Replica(memstore.Options{LeaseTTL: shortTTL}) },
			Crash:    func(s storetest.Store) { s.(*memstore.Store).Crash() },
			LeaseTTL: shortTTL,
		}
	})
}
