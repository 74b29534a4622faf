package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
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

// naming is one sentinel's answer.
type naming struct {
	addr  string
	epoch int64
	err   error // why there is no address
}

func newSentinels(o Options) *sentinels {
	s := &sentinels{opts: o}
	for _, addr := range o.Addresses {
		s.list = append(s.list, &sentinel{addr: addr})
	}
	return s
}

// find implements scout.
func (s *sentinels) find(*table) (masters, owners []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), findTime)
	defer cancel()
	answers := make(chan naming, len(s.list))
	for _, one := range s.list {
		s.wg.Go(func() { answers <- one.ask(ctx, s.opts) })
	}
	best := naming{epoch: -1}
	var wrong reasons
	for n := 0; n < len(s.list); n++ {
		select {
		case a := <-answers:
			if a.err != nil {
				wrong.add(a.err)
			} else if a.epoch > best.epoch {
				best = a
			}
		case <-ctx.Done(): // some hang: the others decide
			wrong.add(fmt.Errorf("%d of %d sentinels did not answer within %v", len(s.list)-n, len(s.list), findTime))
			n = len(s.list)
		}
	}
	if best.addr == "" {
		return nil, nil, wrong.err()
	}
	return []string{best.addr}, nil, nil
}

// ask asks for both in one pipeline. SENTINEL MASTER alone would not do: while
// a failover is completed it tells the new epoch and still the old address.
func (s *sentinel) ask(ctx context.Context, o Options) naming {
	n, err := s.naming(ctx, o)
	if err != nil {
		n.err = fmt.Errorf("sentinel %s: %w", s.addr, err)
	}
	return n
}

func (s *sentinel) naming(ctx context.Context, o Options) (n naming, err error) {
	if !s.mu.TryLock() {
		return n, errors.New("is busy with an earlier question")
	}
	defer s.mu.Unlock()
	if s.redis == nil {
		conf := o.scouting(s.addr)
		conf.Username, conf.Password = o.SentinelUsername, o.SentinelPassword
		s.redis, err = rueidis.NewClient(conf) // what cannot be reached is dialled again
	}
	if s.redis == nil {
		return n, err
	}
	b := s.redis.B()
	replies := s.redis.DoMulti(ctx,
		b.SentinelGetMasterAddrByName().Master(o.SentinelMaster).Build(),
		b.Arbitrary("SENTINEL", "MASTER", o.SentinelMaster).Build())
	at, err := replies[0].AsStrSlice()
	if rueidis.IsRedisNil(err) || err == nil && len(at) != 2 {
		return n, fmt.Errorf("knows no master %q (redis.sentinel.master)", o.SentinelMaster)
	} else if err != nil {
		return n, err
	}
	about, err := replies[1].AsStrMap()
	if err != nil {
		return n, err
	}
	n.epoch, _ = strconv.ParseInt(about["config-epoch"], 10, 64)
	n.addr = net.JoinHostPort(at[0], at[1])
	return n, nil
}

// reasons are why several servers did not tell, as one line of a log.
type reasons []string

func (r *reasons) add(err error) { *r = append(*r, err.Error()) }

func (r reasons) err() error {
	slices.Sort(r) // answers come in any order
	return errors.New(strings.Join(r, "; "))
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
