package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// farm is a cluster, or a master and its replica with a sentinel, in a bubble.
// The clocks of its nodes are off by +5 s and −5 s in turn. They share no data:
// what a node is asked for, it decides alone.
type farm struct {
	nodes []*storetest.Bubble
	links []*storetest.Link

	mu     sync.Mutex
	owner  func(slot uint16) int // which node
	ranges []string              // of each node, as owner says; "" if it has none
	epochs []int
	master int // as the sentinel says
	// says, if set, is asked for an error reply before a script runs; "" is none.
	says   func(node int, asking bool) string
	asking map[*server.Peer]bool // whose last command was ASKING
}

// newFarm starts n nodes and keeps their clocks going.
func newFarm(t *testing.T, n int) *farm {
	f := &farm{asking: map[*server.Peer]bool{}, epochs: make([]int, n), ranges: make([]string, n), owner: func(uint16) int { return 0 }}
	f.ranges[0] = "0-16383"
	for i := range n {
		b := storetest.NewBubble(t)
		f.nodes, f.links = append(f.nodes, b), append(f.links, b.Link())
		if c, err := b.Redis.Dial(); err == nil { // which starts it
			c.Close()
		}
		b.Redis.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool { return f.hook(i, c, cmd, args) })
	}
	f.tick()
	ctx, stop := context.WithCancel(context.Background())
	var ticking sync.WaitGroup
	ticking.Go(func() {
		for ctx.Err() == nil {
			<-time.After(time.Millisecond)
			f.tick()
		}
	})
	t.Cleanup(func() { stop(); ticking.Wait() })
	return f
}

func (f *farm) tick() {
	for i, b := range f.nodes {
		off := 5 * time.Second
		if i%2 == 1 {
			off = -off
		}
		b.Redis.SetTime(time.Now().Add(off))
	}
}

// halves gives each of two nodes half of the slots.
func (f *farm) halves() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owner = func(slot uint16) int { return int(slot / 8192) }
	f.ranges, f.epochs = []string{"0-8191", "8192-16383"}, []int{1, 2}
}

// addr is where node i is dialled.
func (f *farm) addr(i int) string { return fmt.Sprintf("10.0.0.%d:6379", i+1) }

// dial has the type of redisstore.Options.DialCtxFn. The sentinel is node 0.
func (f *farm) dial(ctx context.Context, addr string) (net.Conn, error) {
	for i, l := range f.links {
		if f.addr(i) == addr {
			return l.Dial(ctx, addr)
		}
	}
	return nil, fmt.Errorf("farm: nobody at %s", addr)
}

// hook answers what miniredis does not know, or knows only of itself.
func (f *farm) hook(i int, c *server.Peer, cmd string, args []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch strings.ToUpper(cmd) {
	case "CLUSTER":
		c.WriteBulk(f.textLocked(i))
	case "SENTINEL":
		host, port, _ := net.SplitHostPort(f.addr(f.master))
		if strings.EqualFold(args[0], "MASTER") {
			c.WriteMapLen(1)
			c.WriteBulk("config-epoch")
			c.WriteBulk(fmt.Sprint(f.epochs[f.master]))
		} else {
			c.WriteStrings([]string{host, port})
		}
	case "ASKING":
		f.asking[c] = true
		c.WriteOK()
	case "EVALSHA":
		asking := f.asking[c]
		f.asking[c] = false
		_, tag, _ := strings.Cut(args[2], "{")
		tag, _, _ = strings.Cut(tag, "}")
		slot := redisstore.HashSlot(tag)
		if f.says != nil {
			if text := f.says(i, asking); text != "" {
				c.WriteError(text)
				return true
			}
		}
		if own := f.owner(slot); own != i && f.ranges != nil && !asking {
			c.WriteError(fmt.Sprintf("MOVED %d %s", slot, f.addr(own)))
			return true
		}
		return false
	default:
		return false
	}
	return true
}

// textLocked is CLUSTER NODES as node i tells it.
func (f *farm) textLocked(i int) string {
	var b strings.Builder
	for j := range f.nodes {
		me := ""
		if j == i {
			me = "myself,"
		}
		fmt.Fprintf(&b, "id%d %s@16379 %smaster - 0 0 %d connected %s\n", j, f.addr(j), me, f.epochs[j], f.ranges[j])
	}
	return b.String()
}
