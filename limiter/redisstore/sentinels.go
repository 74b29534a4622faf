package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync"

	"github.com/redis/rueidis"
)

// sentinels is the scout of a master that Redis Sentinel watches.
//
// Each sentinel is asked for the master's address and for the epoch of its
// configuration. They learn of a failover one after the other, and one that was
// cut off may tell of the past for long; epochs only grow, so the answer with the
// greatest of those who answer is the newest known. A server that is told to be
// the master and is not (yet, or any more) refuses to write: its breaker opens,
// and sentinels are asked again ten times a second until they name another.
type sentinels struct {
	opts Options
	list []*sentinel
	wg   sync.WaitGroup
}

// sentinel is one of them, with a connection that is kept.
type sentinel struct {
	addr string

	mu    sync.Mutex // held while it is asked
	redis rueidis.Client
}

// naming is one sentinel's answer: "" does not know, or does not answer.
type naming struct {
	addr  string
	epoch int64
}

func newSentinels(o Options) *sentinels {
	s := &sentinels{opts: o}
	for _, addr := range o.Addresses {
		s.list = append(s.list, &sentinel{addr: addr})
	}
	return s
}

// find implements scout.
func (s *sentinels) find(*table) (masters, owners []string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), findTime)
	defer cancel()
	answers := make(chan naming, len(s.list))
	for _, one := range s.list {
		s.wg.Go(func() { answers <- one.ask(ctx, s.opts) })
	}
	best := naming{epoch: -1}
	for range s.list {
		select {
		case n := <-answers:
			if n.addr != "" && n.epoch > best.epoch {
				best = n
			}
		case <-ctx.Done(): // some hang: the others decide
			return []string{best.addr}, nil, best.addr != ""
		}
	}
	return []string{best.addr}, nil, best.addr != ""
}

// ask asks for both in one pipeline. SENTINEL MASTER alone would not do: while
// a failover is completed it tells the new epoch and still the old address.
func (s *sentinel) ask(ctx context.Context, o Options) (n naming) {
	if !s.mu.TryLock() {
		return n // still busy with an earlier question
	}
	defer s.mu.Unlock()
	if s.redis == nil {
		conf := o.scouting(s.addr)
		conf.Username, conf.Password = o.SentinelUsername, o.SentinelPassword
		s.redis, _ = rueidis.NewClient(conf) // what cannot be reached is dialled again
	}
	if s.redis == nil {
		return n
	}
	b := s.redis.B()
	replies := s.redis.DoMulti(ctx,
		b.SentinelGetMasterAddrByName().Master(o.SentinelMaster).Build(),
		b.Arbitrary("SENTINEL", "MASTER", o.SentinelMaster).Build())
	at, err := replies[0].AsStrSlice()
	if err != nil || len(at) != 2 {
		return n
	}
	about, err := replies[1].AsStrMap()
	if err != nil {
		return n
	}
	n.epoch, _ = strconv.ParseInt(about["config-epoch"], 10, 64)
	n.addr = net.JoinHostPort(at[0], at[1])
	return n
}

func (s *sentinels) close() {
	s.wg.Wait()
	for _, one := range s.list {
		if one.redis != nil {
			one.redis.Close()
		}
	}
}

// dialScout is the dialer of connections that only ask who decides; nil is the
// usual one.
func (o Options) dialScout() func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
	if o.DialCtxFn == nil {
		return nil
	}
	return func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
		return o.DialCtxFn(ctx, addr)
	}
}
