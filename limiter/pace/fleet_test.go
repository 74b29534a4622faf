package pace

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter/quota"
	"github.com/headway-limiter/headway/limiter/throttle"
)

// ledger is a provider that counts requests in windows of a minute.
type ledger struct {
	mu     sync.Mutex
	limit  int64
	used   int64
	window time.Time // its end
}

// take counts one request, and tells what is left after it; false: it is refused.
func (l *ledger) take(now time.Time) (left int64, reset time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !now.Before(l.window) {
		l.window, l.used = l.window.Add(time.Minute), 0
	}
	if ok = l.used < l.limit; ok {
		l.used++
	}
	return l.limit - l.used, l.window.Sub(now), ok
}

// Q4: batch work of four replicas asks for all that there is, beside interactive
// work. None starts while what its replica knows, from the provider or from others,
// is at the reserve, and the provider's own ledger never falls below it by more than
// interactive work takes and the news of a second.
func TestFleetKeepsTheReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const replicas, limit = 4, 600
		begun := time.Now()
		end := begun.Add(150 * time.Second)
		p := &ledger{limit: limit, window: begun.Add(time.Minute)}
		var sets []*Set
		for i := range replicas {
			s := newSet(t)
			s.Members(replicas, i == 0)
			s.Pacer(up)
			sets = append(sets, s)
		}
		var all sync.WaitGroup
		all.Go(func() { // gossip, each fifth of a second
			for time.Now().Before(end) {
				time.Sleep(200 * time.Millisecond)
				now := time.Now()
				for i, from := range sets {
					words := from.Throttles(now)
					for j, to := range sets {
						if i != j {
							to.Heard(now, words)
						}
					}
				}
			}
		})
		var mu sync.Mutex
		var batches, people, refused int
		least := int64(limit) // left at the provider right after a batch start
		call := func(s *Set, seed uint64, class throttle.Class) {
			r := rand.New(rand.NewPCG(seed, 7))
			for time.Now().Before(end) {
				if class == throttle.Interactive {
					time.Sleep(time.Duration(r.ExpFloat64() * float64(3*time.Second)))
				}
				run, err := s.Pacer(up).Start(t.Context(), Want{Class: class, Until: end, Tenant: "a"})
				if err != nil {
					time.Sleep(time.Second)
					continue
				}
				if class == throttle.Batch {
					keeps(t, run.pacer)
				}
				time.Sleep(100 * time.Millisecond)
				left, reset, ok := p.take(time.Now())
				mu.Lock()
				switch {
				case !ok:
					refused++
				case class == throttle.Batch:
					batches++
					least = min(least, left)
				default:
					people++
				}
				mu.Unlock()
				time.Sleep(time.Duration(200+r.IntN(1500)) * time.Millisecond)
				if !ok {
					run.Answered(silence(reset), quota.ClassQuota)
					continue
				}
				run.Answered(window(limit, left, reset-time.Second), quota.ClassOK)
			}
		}
		for i, s := range sets {
			for k := range 12 {
				all.Go(func() { call(s, uint64(100*i+k), throttle.Batch) })
			}
			all.Go(func() { call(s, uint64(i), throttle.Interactive) })
		}
		all.Wait()
		t.Logf("%d batch starts, %d others, %d refused, at least %d were left", batches, people, refused, least)
		if batches < limit || people < 100 || refused > 0 {
			t.Errorf("%d batch starts, %d others, %d refused by the provider", batches, people, refused)
		}
		if reserve := int64(0.2 * limit); least < reserve-limit/20 {
			t.Errorf("batch work left %d of %d, of which %d are for others", least, limit, reserve)
		}
	})
}

// keeps expects that what p knows, less what is under way, is no less than the reserve
// right after a batch start.
func keeps(t *testing.T, p *Pacer) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.throttle.Status(time.Now()) {
		if s.Left < s.Reserve-1e-6 {
			t.Errorf("batch work started, and %.1f of %d are left, %.1f of them for others", s.Left, s.Limit, s.Reserve)
		}
	}
}
