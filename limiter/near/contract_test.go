package near_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
	"github.com/headway-limiter/headway/limiter/near"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
	"github.com/headway-limiter/headway/limiter/storetest/redisproc"
)

// both is everything that may be decided here.
var both = near.Options{DenyCache: true, Prefetch: true}

// open decorates inner as one of n replicas, and closes it with the test.
func open(t testing.TB, inner limiter.Store, n int, o near.Options) *near.Store {
	t.Helper()
	s, err := near.New(inner, func() int { return n }, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

// peeking lets the contract look into the store beneath.
type peeking struct {
	*near.Store
	beneath storetest.Store
}

func (p peeking) Peek(ctx context.Context, t limiter.Take) (limiter.Verdict, error) {
	return p.beneath.Peek(ctx, t)
}

func TestContract(t *testing.T) {
	const ttl = 200 * time.Millisecond
	for name, o := range map[string]near.Options{
		"nothing": {}, "deny cache": {DenyCache: true}, "prefetch": {Prefetch: true}, "both": both,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Contract(t, func(t *testing.T) storetest.Fleet {
				m := memstore.New()
				return storetest.Fleet{
					Replica: func() storetest.Store {
						s := m.Replica(memstore.Options{LeaseTTL: ttl})
						return peeking{open(t, s, 2, o), s}
					},
					Crash:    func(s storetest.Store) { s.(peeking).beneath.(*memstore.Store).Crash() },
					LeaseTTL: ttl,
				}
			})
		})
	}
}

func TestContractOnRedis(t *testing.T) {
	storetest.Contract(t, func(t *testing.T) storetest.Fleet {
		server := redisproc.Start(t)
		const ttl = 1500 * time.Millisecond // a machine may stand still for part of it
		cables := map[storetest.Store]*cable{}
		return storetest.Fleet{
			Replica: func() storetest.Store {
				c := &cable{}
				s, err := redisstore.New(redisstore.Options{
					Address: server.Addr(), Timeout: 5 * time.Second, LeaseTTL: ttl, DialCtxFn: c.dial,
					Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
				})
				if err != nil {
					t.Fatal(err)
				}
				p := peeking{open(t, s, 2, both), s}
				cables[p] = c
				return p
			},
			Crash:    func(s storetest.Store) { cables[s].cut() },
			LeaseTTL: ttl,
			Rounds:   30,
		}
	})
}

// cable is a replica's network, which a test can cut for good.
type cable struct {
	mu    sync.Mutex
	ended bool
	conns []net.Conn
}

func (c *cable) dial(ctx context.Context, addr string) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, errors.New("cable is cut")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return conn, err
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, conn := range c.conns {
		conn.Close()
	}
}
