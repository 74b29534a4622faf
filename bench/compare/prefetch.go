package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/near"
)

// Of the fleet that takes in advance: replicas, and what they ask for together as
// a part of the limit.
const (
	fleetSize = 8
	fleetLoad = 0.95
)

// saved is what prefetch saves.
type saved struct {
	asked, admitted, calls int64
	errors                 int64
}

// fewer is by what factor there are fewer calls than requests.
func (s saved) fewer() float64 { return float64(s.asked) / float64(max(1, s.calls)) }

// used is what was admitted of what was asked for, which the limit covers.
func (s saved) used() float64 { return float64(s.admitted) / float64(max(1, s.asked)) }

// scarce is the bucket of that fleet. Chunks may keep half of its burst, so what
// they take in advance would show.
var scarce = limiter.Rate{Limit: 2000, Per: time.Second, Burst: 400}

// prefetch lets eight replicas of one server ask for one bucket for d, each
// evenly and at an eighth of the load. Calls are counted by the server, without
// those by which replicas tell that they live.
func prefetch(ctx context.Context, server *server, d time.Duration) (saved, error) {
	var out saved
	if err := server.empty(ctx); err != nil {
		return out, err
	}
	var stores []limiter.Store
	defer func() {
		for _, s := range stores {
			closer(s)()
		}
	}()
	for range fleetSize {
		inner, err := newStore(server.addr)
		if err != nil {
			return out, err
		}
		s, err := near.New(inner, func() int { return fleetSize }, near.Options{DenyCache: true, Prefetch: true})
		if err != nil {
			return out, fmt.Errorf("compare: prefetch: %w", err)
		}
		stores = append(stores, s)
	}
	take := takes(1, false, scarce)[0]
	// Calls of the quiet fleet are its probes; they are no price of deciding.
	play(ctx, stores, take, d/4) // until every replica knows its own rate
	idle, err := server.calls(ctx, d/4, func() {})
	if err != nil {
		return out, err
	}
	total, err := server.calls(ctx, d, func() { out = play(ctx, stores, take, d) })
	out.calls = total - 4*idle
	return out, err
}

// play offers the load for d.
func play(ctx context.Context, stores []limiter.Store, take limiter.Take, d time.Duration) (out saved) {
	var asked, admitted, failed atomic.Int64
	// Replicas ask one after the other, each after the same pause.
	gap := time.Duration(float64(fleetSize) / (fleetLoad * float64(scarce.Limit)) * float64(time.Second))
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() {
			start := time.Now().Add(gap * time.Duration(i) / fleetSize)
			for n := 0; ; n++ {
				at := start.Add(gap * time.Duration(n))
				if at.Sub(start) >= d {
					return
				}
				time.Sleep(time.Until(at))
				v, err := s.Admit(ctx, take)
				asked.Add(1)
				if err != nil {
					failed.Add(1)
				} else if v.OK {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return saved{asked: asked.Load(), admitted: admitted.Load(), errors: failed.Load()}
}

// calls counts the scripts that a server runs while f does, at least for d.
func (s *server) calls(ctx context.Context, d time.Duration, f func()) (int64, error) {
	before, err := s.usage(ctx)
	if err != nil {
		return 0, err
	}
	rest := time.After(d)
	f()
	<-rest
	after, err := s.usage(ctx)
	return int64(after.calls["evalsha"] - before.calls["evalsha"]), err
}
