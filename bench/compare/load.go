package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The load: with this exponent the hottest of the keys gets 17 % of all requests
// and the hottest ten 42 %, as tenants of a gateway might.
const (
	keyCount  = 10_000
	exponent  = 1.1
	perWorker = 8192 // keys drawn in advance for each caller; it goes round them
)

// target is one way to decide.
type target struct {
	decide func(ctx context.Context, key int) (admitted bool, err error)
	// decide may be called by many at once. An error that is a limiter's refusal
	// counts as a refusal (see refusal).
	// sends are the commands that its client sends, as commandstats spells them.
	sends []string
	close func() // waits until nothing of it runs any more
}

// opener makes a target against a server.
type opener func(ctx context.Context, addr string) (*target, error)

// cell is a target under a number of callers.
type cell struct {
	name    string
	callers int    // each asks again as soon as it is answered
	base    string // the cell to be compared with, perhaps itself
	open    opener
}

// reading is one measurement of a cell.
type reading struct {
	rate      float64       // decisions/s, refusals and errors among them
	p50, p99  time.Duration // of one decision, as its caller sees it
	redis     float64       // µs of Redis CPU per decision
	script    float64       // µs in commands, per decision
	calls     float64       // calls per decision
	client    float64       // µs of this process's CPU per decision
	failed    float64       // part of the decisions that ended in an error
	refused   int64
	errors    int64
	lastError error
}

// draw returns the keys of every caller, the same in every cell.
func draw(callers int) [][]int {
	list := make([][]int, callers)
	for i := range list {
		// A source for each caller: what one draws does not hang on how fast the
		// others are.
		z := rand.NewZipf(rand.New(rand.NewPCG(7, uint64(i))), exponent, 1, keyCount-1)
		for range perWorker {
			list[i] = append(list[i], int(z.Uint64()))
		}
	}
	return list
}

// latencies are kept of every 16th decision, enough for a p99 and cheap.
const sampleEvery = 16

// measure runs a cell for d, after a warm-up of a tenth of it.
func measure(ctx context.Context, s *server, c cell, keys [][]int, d time.Duration) (r reading, err error) {
	if err := s.empty(ctx); err != nil {
		return r, err
	}
	t, err := c.open(ctx, s.addr)
	if err != nil {
		return r, fmt.Errorf("compare: %s: %w", c.name, err)
	}
	defer t.close()
	// Connections are made and scripts known after the warm-up, buckets warm.
	drive(ctx, t, keys, d/10)
	if err := s.reset(ctx); err != nil {
		return r, err
	}
	before, err := s.usage(ctx)
	if err != nil {
		return r, err
	}
	own := ownCPU()
	r, n := drive(ctx, t, keys, d)
	own = ownCPU() - own
	after, err := s.usage(ctx)
	if err != nil {
		return r, err
	}
	r.failed = float64(r.errors) / float64(n)
	r.redis = (after.cpu - before.cpu).Seconds() * 1e6 / float64(n)
	r.client = own.Seconds() * 1e6 / float64(n)
	for _, name := range t.sends {
		r.script += after.us[name] / float64(n)
		r.calls += after.calls[name] / float64(n)
	}
	return r, nil
}

// drive lets as many callers as there are lists of keys decide for d.
func drive(ctx context.Context, t *target, keys [][]int, d time.Duration) (r reading, n int64) {
	var wg sync.WaitGroup
	var over atomic.Bool
	var mu sync.Mutex // guards r, n and times
	var times []time.Duration
	// A flag, not a context: reading it costs nothing, and nobody is cut off.
	start := time.Now()
	stop := time.AfterFunc(d, func() { over.Store(true) })
	defer stop.Stop()
	for _, list := range keys {
		wg.Go(func() {
			var mine reading
			var took []time.Duration
			var i int
			for i = 0; !over.Load(); i++ {
				sampled := i%sampleEvery == 0
				var from time.Time
				if sampled {
					from = time.Now()
				}
				ok, err := t.decide(ctx, list[i%len(list)])
				if sampled {
					took = append(took, time.Since(from))
				}
				switch {
				case err != nil && !refusal(err):
					mine.errors++
					mine.lastError = err
				case !ok:
					mine.refused++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			n += int64(i)
			times = append(times, took...)
			r.errors += mine.errors
			r.refused += mine.refused
			if mine.lastError != nil {
				r.lastError = mine.lastError
			}
		})
	}
	wg.Wait()
	r.rate = float64(n) / time.Since(start).Seconds()
	// Of several thousand samples, so the p99 stands on dozens of them.
	slices.Sort(times)
	if len(times) > 0 {
		r.p50, r.p99 = times[len(times)/2], times[len(times)*99/100]
	}
	return r, n
}

// ownCPU is what this process has used, user and system.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
