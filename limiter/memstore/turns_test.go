//go:build !race

// Simulations of one goroutine, in which nothing could race.

package memstore

import (
	"strings"
	"testing"

	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/lua"
)

func TestTurnProperties(t *testing.T) {
	t.Run("core", func(t *testing.T) {
		storetest.TurnProperties(t, func(*testing.T) storetest.Virtual { return newRaw() }, false)
	})
	t.Run("miniredis", func(t *testing.T) {
		storetest.TurnProperties(t, func(t *testing.T) storetest.Virtual { return newMini(t) }, true)
	})
}

// TestMistakes: the script with a mistake runs on miniredis, which is slow; the
// right one and mistakes of replicas on the core, which is its twin.
func TestMistakes(t *testing.T) {
	storetest.Mistakes(t, func(t *testing.T, edits []storetest.Edit) storetest.Virtual {
		if len(edits) == 0 {
			return newRaw()
		}
		r := newMini(t)
		source := lua.Pool.Source
		for _, e := range edits {
			if strings.Count(source, e.Old) != 1 {
				t.Fatalf("the script no longer has exactly one %q", e.Old)
			}
			source = strings.Replace(source, e.Old, e.New, 1)
		}
		r.edit = func(s lua.Script) string {
			if s.Name == "pool" {
				return source
			}
			return s.Source
		}
		return r
	})
}
