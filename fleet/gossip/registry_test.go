package gossip

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// board is a registry in memory, where addresses stand for a minute.
type board struct {
	mu    sync.Mutex
	until map[string]time.Time
	out   bool
}

func (b *board) meet(_ context.Context, self string) (list []string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out {
		return nil, errors.New("the registry is out")
	}
	b.until[self] = time.Now().Add(time.Minute)
	for addr, until := range b.until {
		if time.Now().Before(until) {
			list = append(list, addr)
		}
	}
	return list, nil
}

func (b *board) setOut(out bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out = out
}

// TestRegistry: nodes whose lists are empty, or of replicas that are no more, find
// each other by the registry, also after a cut that outlasts memberlist's memory
// and when it is out for a while.
func TestRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{until: map[string]time.Time{}}
		b.meet(t.Context(), "10.9.9.9:7946") // of one who crashed
		c := newCluster(t, 3, lan, func(i int, cfg *Config) {
			cfg.Registry, cfg.Join = b.meet, nil
			if i == 1 {
				cfg.Join = []string{"10.8.8.8:7946"}
			}
		})
		c.within(5*time.Second, "all see all", all(c.nodes, 3))
		c.net.Partition(host(2))
		time.Sleep(90 * time.Second)
		if m := c.members(); !slices.Equal(m, []int{2, 2, 1}) {
			t.Fatalf("cut for 90 s: members %v", m)
		}
		c.net.Mend()
		c.within(DefaultRejoinMax+5*time.Second, "all see all again", all(c.nodes, 3))
		b.setOut(true)
		time.Sleep(time.Minute)
		if !all(c.nodes, 3)() {
			t.Fatalf("without the registry: members %v", c.members())
		}
		c.start(3, 0, func(_ int, cfg *Config) { cfg.Registry = b.meet })
		time.Sleep(10 * time.Second)
		if m := c.members(); !slices.Equal(m, []int{3, 3, 3, 1}) {
			t.Fatalf("a newcomer who knows nobody: members %v", m)
		}
		b.setOut(false)
		c.within(DefaultRejoinMax+5*time.Second, "the newcomer is met", all(c.nodes, 4))
	})
}
