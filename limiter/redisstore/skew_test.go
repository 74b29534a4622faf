package redisstore_test

import (
	"bytes"
	"context"
	"net"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/redisstore"
	"github.com/headway-limiter/headway/limiter/storetest"
)

// skewed is the connection of a replica whose clock is off by a constant. All
// that a replica learns of time comes from its own clock and from the server's
// replies, so its clock is off if those are, the other way: instants in replies
// are moved by -off, and instants that it sends by +off.
type skewed struct {
	net.Conn
	off time.Duration
}

// In a bubble it is the year 2000: instants have 15 digits in µs, 9 in s.
var (
	repliedMicros = regexp.MustCompile(`(?m)^:9466\d{11}\r$`)
	repliedSecs   = regexp.MustCompile(`(?m)^94668\d{4}\r$`)
	sentMicros    = regexp.MustCompile(`(?m)^9466\d{11}\r$`)
)

// move adds d, in units, to the number in a match.
func move(match []byte, d time.Duration, unit time.Duration) []byte {
	digits := bytes.Trim(match, ":\r")
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		panic(err)
	}
	return bytes.Replace(match, digits, strconv.AppendInt(nil, n+int64(d/unit), 10), 1)
}

func (c *skewed) Read(data []byte) (int, error) {
	n, err := c.Conn.Read(data)
	moved := repliedMicros.ReplaceAllFunc(data[:n], func(m []byte) []byte { return move(m, -c.off, time.Microsecond) })
	moved = repliedSecs.ReplaceAllFunc(moved, func(m []byte) []byte { return move(m, -c.off, time.Second) })
	return copy(data, moved), err
}

func (c *skewed) Write(data []byte) (int, error) {
	moved := sentMicros.ReplaceAllFunc(data, func(m []byte) []byte { return move(m, c.off, time.Microsecond) })
	if _, err := c.Conn.Write(moved); err != nil {
		return 0, err
	}
	return len(data), nil
}

// Three replicas whose clocks are off by -5 s, 0 and +5 s share one limit as if
// they were not: the server's clock decides, fences are relative to it, and
// leases end by it. Clocks off by an hour change nothing either.
func TestClocksThatAreOff(t *testing.T) {
	for _, off := range []time.Duration{5 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			b := storetest.NewBubble(t)
			time.Sleep(2 * time.Hour) // so that nothing is before the year 2000
			rate := limiter.Rate{Limit: 200, Per: time.Second, Burst: 50}
			k := oneTake(0, 4)
			k.Charges[0].Rate = rate
			var stores []*redisstore.Store
			for i := range 3 {
				link := b.Link()
				stores = append(stores, newStore(t, redisstore.Options{Address: storetest.BubbleAddress, DialCtxFn: func(ctx context.Context, addr string) (net.Conn, error) {
					c, err := link.Dial(ctx, addr)
					return &skewed{c, time.Duration(i-1) * off}, err
				}}))
			}
			const span = 4 * time.Second
			var granted, failed, running, peak atomic.Int64
			var all sync.WaitGroup
			start := time.Now()
			for _, s := range stores {
				for range 2 {
					all.Go(func() {
						for time.Since(start) < span {
							v, err := s.Admit(context.Background(), k)
							switch {
							case err != nil:
								failed.Add(1)
							case v.OK:
								granted.Add(1)
								peak.Store(max(peak.Load(), running.Add(1)))
								time.Sleep(3 * time.Millisecond)
								running.Add(-1)
								s.Settle(limiter.Settlement{Free: []limiter.SlotID{k.Slots[0].Slot}})
							}
							time.Sleep(6 * time.Millisecond)
						}
					})
				}
			}
			all.Wait()
			allowed := float64(rate.Burst) + float64(rate.Limit)*time.Since(start).Seconds() + 1
			t.Logf("off by %v: %d granted, %.0f allowed, %d failed, peak %d", off, granted.Load(), allowed, failed.Load(), peak.Load())
			if n := float64(granted.Load()); n > allowed || n < 0.97*allowed {
				t.Errorf("off by %v: %.0f granted, allowed %.0f", off, n, allowed)
			}
			if failed.Load() > 0 || peak.Load() > 4 {
				t.Errorf("off by %v: %d failed, peak %d", off, failed.Load(), peak.Load())
			}
			// Whoever has gone is forgotten when its ttl is over, by the server's clock.
			held := oneTake(1_000_000, 1)
			mustAdmit(t, stores[2], held)
			time.Sleep(15 * time.Second)
			if v, err := stores[0].Peek(t.Context(), held); err != nil || !v.Full[0] {
				t.Errorf("off by %v: a slot held for longer than a ttl is not seen: %+v, %v", off, v, err)
			}
		})
	}
}
