package memstore

import (
	"fmt"
	"testing"

	"github.com/headway-limiter/headway/limiter/storetest"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	t.Run("core", func(t *testing.T) {
		storetest.Changes(t, func(*testing.T) storetest.Raw { return newRaw() })
	})
	t.Run("miniredis", func(t *testing.T) {
		storetest.Changes(t, func(t *testing.T) storetest.Raw { return newMini(t) })
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel() // it waits
		storetest.Changes(t, func(t *testing.T) storetest.Raw { return newReal(t) })
	})
}

// TestDisagree: the core and the scripts are one, where replicas are not.
func TestDisagree(t *testing.T) {
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) { storetest.Disagree(t, newMini(t), newRaw(), storetest.Effort(1500), false) })
	t.Run("redis", func(t *testing.T) {
		t.Parallel() // it waits
		storetest.Disagree(t, newReal(t), newRaw(), 100, true)
	})
}

// TestEarlierValues: buckets that the previous version wrote are of the rate of
// whoever asks, and name it from the next grant on.
func TestEarlierValues(t *testing.T) {
	for name, s := range map[string]*redis{"miniredis": newMini(t), "redis": newReal(t)} {
		t.Run(name, func(t *testing.T) {
			const key = "hw:{hw}:b:user:old"
			now := s.Run(storetest.Call{Op: storetest.Inspect, Inc: "a1"})[1]
			s.do("SET", key, "3000000:"+fmt.Sprint(now))
			b := storetest.Bucket{Key: "old", Limit: 1e6, Period: 3600e6, Burst: 10e6, Amount: 1e6}
			r := s.Run(storetest.Call{Op: storetest.Admit, Inc: "a1", Seq: 1, TTL: 1000, Buckets: []storetest.Bucket{b}})
			if r[0] != 1 || r[2]/1e6 != 2 {
				t.Fatalf("3 tokens of the previous version less 1: got %v", r)
			}
			if got, want := s.do("GET", key), fmt.Sprint(r[2])+":"+fmt.Sprint(r[1])+":10000000:1000000:3600000000"; got != want {
				t.Fatalf("stored %v, want %v", got, want)
			}
		})
	}
}
