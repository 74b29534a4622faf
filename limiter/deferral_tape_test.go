package limiter_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// held is what became of one request on a tape.
type held struct {
	tenant string
	cost   int64
	came   int           // order of arrival
	at     time.Duration // when it was granted; -1: it was not
}

// TestDeferralTape: whatever comes, leaves and changes, nobody stays, nobody of one
// tenant overtakes an earlier request of it, at a budget of one tenant or behind a
// shared one, and no more is admitted than the budgets allow.
func TestDeferralTape(t *testing.T) {
	first := uint64(time.Now().UnixNano())
	for seed := first; seed < first+6; seed++ {
		synctest.Test(t, func(t *testing.T) { deferralTape(t, seed) })
	}
}

func deferralTape(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 3))
	cfg := budget(&limiter.Rate{Limit: 40, Per: time.Second, Burst: 60})
	cfg.Limits[limiter.Model] = limiter.Limit{Rule: limiter.Rule{Tokens: &limiter.Rate{Limit: 100, Per: time.Second, Burst: 100}}}
	cfg.Deferral.MaxHeld = 30
	r := newRig(t, cfg)
	begun := time.Now()
	var mu sync.Mutex
	var all sync.WaitGroup
	var log []held
	var ended int
	for i := range 400 {
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
		h := held{tenant: fmt.Sprint("t", random.IntN(4)), cost: 1 + random.Int64N(50), came: i, at: -1}
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if random.IntN(8) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(2000))*time.Millisecond)
		}
		req := tokens(h.tenant, h.cost)
		if random.IntN(8) == 0 {
			req.Deadline = time.Now().Add(time.Duration(random.IntN(3000)) * time.Millisecond)
		}
		all.Go(func() {
			defer cancel()
			g, err := r.Admit(ctx, req)
			if err == nil {
				h.at = time.Since(begun)
				g.Done(limiter.Outcome{Tokens: h.cost})
			}
			mu.Lock()
			log = append(log, h)
			mu.Unlock()
		})
		synctest.Wait() // so that arrivals have an order
		if i == 200 {   // the same limits again: everybody looks anew
			if _, err := r.Reconfigure(cfg); err != nil {
				t.Error(err)
			}
		}
	}
	all.Wait()
	if n := r.Waiting(); n != 0 {
		t.Errorf("seed %d: %d are left", seed, n)
	}
	log = slices.DeleteFunc(log, func(h held) bool { ended++; return h.at < 0 })
	slices.SortFunc(log, func(a, b held) int { return a.came - b.came })
	last := map[string]held{}
	for _, h := range log {
		if was := last[h.tenant]; h.at < was.at {
			t.Errorf("seed %d: %+v was granted before %+v, which came earlier", seed, h, was)
		}
		last[h.tenant] = h
	}
	slices.SortFunc(log, func(a, b held) int { return cmp.Compare(a.at, b.at) })
	var granted int64
	for _, h := range log {
		granted += h.cost
		if most := 100 + 100*h.at.Seconds() + 1; float64(granted) > most {
			t.Errorf("seed %d: %d tokens were admitted in %v", seed, granted, h.at)
		}
	}
	if ended != 400 || granted < 500 {
		t.Errorf("seed %d: %d ended, %d tokens were granted", seed, ended, granted)
	}
}
