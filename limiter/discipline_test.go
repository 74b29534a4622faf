package limiter_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/fairq"
)

// spender is a tenant whose requests are estimated at one cost and use another;
// used < 0 is never told.
type spender struct {
	name            string
	estimated, used int64
}

// spend queues 30 requests of each spender and returns, grant by grant, what
// each has used by then.
func spend(t *testing.T, d limiter.Discipline, spenders ...spender) (history []map[string]float64) {
	cfg := shared(&limiter.Rate{Limit: 100, Per: time.Second, Burst: 1})
	cfg.Fair.Discipline, cfg.Fair.MaxWait = d, time.Minute
	r := newRig(t, cfg)
	r.must(user("nobody")).Done(limiter.Outcome{}) // empties the bucket
	var mu sync.Mutex
	var all sync.WaitGroup
	total := map[string]float64{}
	for range 30 {
		for _, s := range spenders {
			req := user(s.name)
			req.Tokens = s.estimated
			all.Go(func() {
				g, err := r.Admit(context.Background(), req)
				if err != nil {
					t.Errorf("%s: %v", s.name, err)
					return
				}
				g.Done(limiter.Outcome{Tokens: s.used})
				mu.Lock()
				defer mu.Unlock()
				used := s.used
				if used < 0 {
					used = s.estimated
				}
				total[s.name] += float64(used)
				now := map[string]float64{}
				for name, n := range total {
					now[name] = n
				}
				history = append(history, now)
			})
			synctest.Wait() // arrivals are in order
		}
	}
	all.Wait()
	return history
}

// TestDisciplinesShareCost: by drr and sfq a tenant of large requests and one of
// little ones use the same, while both wait, but for one of each; by swrr they
// get the same number.
func TestDisciplinesShareCost(t *testing.T) {
	for _, d := range []limiter.Discipline{fairq.DRR, fairq.SFQ, fairq.SWRR} {
		t.Run(string(d), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := spend(t, d, spender{"large", 1000, -1}, spender{"little", 100, -1})
				for i, used := range h[:30] { // little's thirtieth is near
					large, little := used["large"], used["little"]
					if d == fairq.SWRR {
						large /= 10
					}
					if gap := math.Abs(large - little); gap > 1100+1 && d != fairq.SWRR || gap > 100 && d == fairq.SWRR {
						t.Errorf("after %d grants: %v", i+1, used)
					}
				}
			})
		})
	}
}

// TestDisciplinesSettle: tenants are equal in what they really use, whatever
// they estimate.
func TestDisciplinesSettle(t *testing.T) {
	for _, d := range []limiter.Discipline{fairq.DRR, fairq.SFQ} {
		t.Run(string(d), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := spend(t, d, spender{"modest", 1000, 500}, spender{"bold", 100, 1000})
				for i, used := range h[:36] { // modest has waiters left
					if gap := math.Abs(used["modest"] - used["bold"]); gap > 2000+1 {
						t.Errorf("after %d grants: %v", i+1, used)
					}
				}
			})
		})
	}
}

func TestDisciplineIsKnown(t *testing.T) {
	cfg := shared(&limiter.Rate{Limit: 1, Per: time.Second, Burst: 1})
	cfg.Fair.Discipline = "fifo"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), `discipline "fifo" is not swrr, drr or sfq`) {
		t.Errorf("discipline fifo: %v", err)
	}
}
