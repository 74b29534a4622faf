package redisstore_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// every lets a call begin at a rate, whether or not the last one has ended, and
// counts failures.
func every(s *redisstore.Store, gap, span time.Duration) (calls, failures int64) {
	var all sync.WaitGroup
	var failed atomic.Int64
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(gap) {
		calls++
		all.Go(func() {
			if _, err := s.Admit(context.Background(), oneTake(1_000_000, 0)); err != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	return calls, failed.Load()
}

// delayed is a store whose every answer takes a while longer.
func delayed(t *testing.T, link *storetest.Link, delay *atomic.Int64) *redisstore.Store {
	return newStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := link.Dial(ctx, addr)
		return slow{c, delay}, err
	}})
}

// O2: whatever happens to the server and however little it is asked, the breaker
// is open within half a second.
func TestOutageIsSeenInTime(t *testing.T) {
	for name, gap := range map[string]time.Duration{"500/s": 2 * time.Millisecond, "20/s": 50 * time.Millisecond, "5/s": 200 * time.Millisecond, "idle": 0} {
		for fault, begin := range map[string]func(*storetest.Bubble, *storetest.Link, *atomic.Int64){
			"down": func(_ *storetest.Bubble, l *storetest.Link, _ *atomic.Int64) { l.Cut() },
			"hung": func(_ *storetest.Bubble, l *storetest.Link, _ *atomic.Int64) { l.Freeze() },
			"mute": func(_ *storetest.Bubble, l *storetest.Link, _ *atomic.Int64) { l.Mute() },
			"slow": func(_ *storetest.Bubble, _ *storetest.Link, d *atomic.Int64) { d.Store(int64(200 * time.Millisecond)) },
			"loading": func(b *storetest.Bubble, _ *storetest.Link, _ *atomic.Int64) {
				b.Redis.SetError("LOADING Redis is loading the dataset in memory")
			},
		} {
			synctest.Test(t, func(t *testing.T) {
				b, delay := storetest.NewBubble(t), &atomic.Int64{}
				link := b.Link()
				s := delayed(t, link, delay)
				if _, failures := every(s, 10*time.Millisecond, time.Second); failures > 0 {
					t.Fatalf("%d failures of a healthy server", failures)
				}
				began := time.Now()
				begin(b, link, delay)
				if gap > 0 {
					go every(s, gap, 2*time.Second)
				}
				for s.Health().Usable {
					time.Sleep(time.Millisecond)
					if time.Since(began) > 2*time.Second {
						t.Errorf("%s, %s: not seen after 2 s", fault, name)
						break
					}
				}
				if took := time.Since(began); took > 500*time.Millisecond {
					t.Errorf("%s, %s: seen after %v", fault, name, took)
				} else {
					t.Logf("%s, %s: seen after %v", fault, name, took)
				}
				time.Sleep(3 * time.Second)
				delay.Store(0)
				b.Redis.SetError("")
				link.Thaw()
				link.Unmute()
				link.Mend()
				mended := time.Now()
				for !s.Health().Usable {
					time.Sleep(time.Millisecond)
					if time.Since(mended) > 2*time.Second {
						t.Fatalf("%s, %s: not healed after 2 s", fault, name)
					}
				}
				time.Sleep(time.Second)
			})
		}
	}
}

// O2: one call in a hundred that is lost opens nothing.
func TestRareFailuresOpenNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
				}
				r.link.Mute() // for two or three calls of 200 a second
				time.Sleep(time.Until(time.Now().Add(12 * time.Millisecond)))
				r.link.Cut()
				r.link.Unmute()
				r.link.Mend()
			}
		}()
		opened := 0
		go func() {
			for range 10_000 {
				if !r.store.Health().Usable {
					opened++
				}
				time.Sleep(time.Millisecond)
			}
		}()
		calls, failures := every(r.store, 5*time.Millisecond, 10*time.Second)
		t.Logf("%d of %d calls failed", failures, calls)
		if opened > 0 {
			t.Errorf("open for %d ms of 10 s", opened)
		}
	})
}

// O2: while it is open, one call at a time asks whether to close it.
func TestOneProbeWhileOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		mustAdmit(t, r.store, oneTake(1_000_000, 0))
		r.link.Freeze()
		every(r.store, time.Millisecond, time.Second)
		if r.store.Health().Usable {
			t.Fatal("not open")
		}
		before := r.store.Calls().Total()
		every(r.store, time.Millisecond, 10*time.Second)
		if n := r.store.Calls().Total() - before; n < 10 || n > 30 {
			t.Errorf("%d calls sent in 10 s to a hung server, want one probe each half second", n)
		}
		r.link.Thaw()
	})
}
