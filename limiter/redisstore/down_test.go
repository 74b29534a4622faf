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

// A server that refuses connections is asked once when the breaker opens, then
// after 0.25 s and each half second, however many callers there are.
func TestDownIsAskedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := storetest.NewBubble(t).Link()
		var dials atomic.Int64
		s := newStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: func(ctx context.Context, addr string) (net.Conn, error) {
			dials.Add(1)
			return link.Dial(ctx, addr)
		}})
		mustAdmit(t, s, oneTake(1_000_000, 0))
		link.Cut()
		hammer(s, time.Now().Add(time.Second)) // trips
		before := dials.Load()
		hammer(s, time.Now().Add(10*time.Second))
		if n := dials.Load() - before; n < 18 || n > 28 {
			t.Errorf("%d connections tried in 10 s, want about two each second", n)
		}
		link.Mend()
		mended := time.Now()
		if last, _ := hammer(s, mended.Add(3*time.Second)); last.Sub(mended) > 700*time.Millisecond {
			t.Errorf("still failing %v after it was up again", last.Sub(mended))
		}
	})
}
