package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter/memstore"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// patient is a budget that a busy test machine keeps.
const patient = 5 * time.Second

// contractTTL is the lease time of fleets on real sockets. They renew after 3/10 of
// it, so a machine that stands still for a second loses nobody's slots.
const contractTTL = 1500 * time.Millisecond

// newStore opens a store for t and closes it at the end.
func newStore(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	s, err := redisstore.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		s.Close(ctx)
	})
	return s
}

// cable is a replica's network, which a test can cut for good.
type cable struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (c *cable) dial(ctx context.Context, addr string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errors.New("cable is cut")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cable) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for _, conn := range c.conns {
		conn.Close()
	}
}

func TestContractOnRedis(t *testing.T) {
	storetest.Contract(t, func(t *testing.T) storetest.Fleet {
		server := redisproc.Start(t)
		cables := map[storetest.Store]*cable{}
		return storetest.Fleet{
			Replica: func() storetest.Store {
				c := &cable{}
				s := newStore(t, redisstore.Options{Address: server.Addr(), Timeout: patient, LeaseTTL: contractTTL, DialCtxFn: c.dial})
				cables[s] = c
				return s
			},
			Crash:    func(s storetest.Store) { cables[s].Cut() },
			LeaseTTL: contractTTL,
		}
	})
}

// bubbleFleet is a fleet on a miniredis in the bubble of t.
func bubbleFleet(t *testing.T) storetest.Fleet {
	b := storetest.NewBubble(t)
	links := map[storetest.Store]*storetest.Link{}
	return storetest.Fleet{
		Replica: func() storetest.Store {
			l := b.Link()
			s := newStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: l.Dial})
			links[s] = l
			return s
		},
		Crash:    func(s storetest.Store) { links[s].Cut() },
		LeaseTTL: redisstore.DefaultLeaseTTL,
	}
}

func TestContractOnMiniredis(t *testing.T) {
	storetest.Contract(t, func(t *testing.T) storetest.Fleet {
		m := startMini(t)
		cables := map[storetest.Store]*cable{}
		return storetest.Fleet{
			Replica: func() storetest.Store {
				c := &cable{}
				s := newStore(t, redisstore.Options{Address: m, Timeout: patient, LeaseTTL: contractTTL, DialCtxFn: c.dial})
				cables[s] = c
				return s
			},
			Crash:    func(s storetest.Store) { cables[s].Cut() },
			LeaseTTL: contractTTL,
			Rounds:   30,
		}
	})
}

// TestSame: in one bubble, the store on Redis and the store in memory give the
// same verdicts over a random tape.
func TestSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memstore.New()
		storetest.Same(t, storetest.Fleet{
			Replica: func() storetest.Store { return m.Replica(memstore.Options{}) },
		}, bubbleFleet(t), synctest.Wait, 1500)
	})
}

// TestSameTurns: the same for turns, between which the names of replicas decide
// when tags are equal.
func TestSameTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := memstore.New(), storetest.NewBubble(t)
		var one, two uint64
		want := storetest.Fleet{Replica: func() storetest.Store {
			one++
			return m.Replica(memstore.Options{Incarnation: fmt.Sprintf("%016x", one)})
		}}
		got := storetest.Fleet{Replica: func() storetest.Store {
			two++
			return newStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: b.Link().Dial, Incarnation: two})
		}}
		storetest.SameTurns(t, want, got, synctest.Wait, 1500)
	})
}
