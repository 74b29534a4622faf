package redisstore_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// hammer keeps asking until an instant and returns when the last failure was.
func hammer(s *redisstore.Store, until time.Time) (lastFailure time.Time, failures int) {
	for time.Now().Before(until) {
		if _, err := s.Admit(context.Background(), oneTake(1_000_000, 0)); err != nil {
			lastFailure = time.Now()
			failures++
		}
		time.Sleep(2 * time.Millisecond)
	}
	return lastFailure, failures
}

// A hang of 200 ms is over when it is over, although it was long enough to open
// the breaker.
func TestShortHangEndsWithTheHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for round := range 5 {
			r.link.Freeze()
			thaw := time.Now().Add(200 * time.Millisecond)
			time.AfterFunc(200*time.Millisecond, r.link.Thaw)
			last, failures := hammer(r.store, thaw.Add(time.Second))
			if failures < 4 {
				t.Errorf("round %d: only %d failures: was it hung?", round, failures)
			}
			if late := last.Sub(thaw); late > 50*time.Millisecond {
				t.Errorf("round %d: still failing %v after the thaw", round, late)
			}
		}
	})
}

// slow is a connection whose every answer takes a while longer.
type slow struct {
	net.Conn
	delay *atomic.Int64 // ns
}

func (c slow) Read(data []byte) (int, error) {
	n, err := c.Conn.Read(data)
	time.Sleep(time.Duration(c.delay.Load()))
	return n, err
}

// A server that answers everything, 200 ms late, is not usable, and asking it
// again and again must not make it so.
func TestSlowIsNotHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := storetest.NewBubble(t)
		var delay atomic.Int64
		link := b.Link()
		s := newStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := link.Dial(ctx, addr)
			return slow{c, &delay}, err
		}})
		mustAdmit(t, s, oneTake(1_000_000, 0))
		delay.Store(int64(200 * time.Millisecond))
		begin := time.Now()
		hammer(s, begin.Add(time.Second)) // trips
		calls, usable := s.Calls().Total(), 0
		for range 500 {
			if s.Health().Usable {
				usable++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if usable > 0 {
			t.Errorf("taken for usable in %d of 500 looks", usable)
		}
		if probes := s.Calls().Total() - calls; probes > 5*20 {
			t.Errorf("%d probes in 5 s", probes)
		}
		delay.Store(0)
		mended := time.Now()
		for !s.Health().Usable {
			time.Sleep(time.Millisecond)
			if time.Since(mended) > 2*time.Second {
				t.Fatal("not usable again 2 s after it was fast again")
			}
		}
	})
}
