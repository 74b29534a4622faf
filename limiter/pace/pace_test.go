package pace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/fleet/gossip"
	"github.com/headway-limiter/headway/fleet/simnet"
	"github.com/headway-limiter/headway/limiter/quota"
	"github.com/headway-limiter/headway/limiter/throttle"
)

var up = Account{Upstream: "up", URL: "http://up.test", Model: "m", Reserve: 0.2}

func newSet(t *testing.T) *Set {
	t.Helper()
	s, err := NewSet(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// window is what a response tells of a window of a minute that ends in reset.
func window(limit, left int64, reset time.Duration) quota.Reading {
	return quota.Reading{RetryAfter: quota.Unknown, Cost: quota.Absent, Observations: []quota.Observation{
		{Unit: quota.Requests, Window: time.Minute, Limit: limit, Remaining: left, Reset: reset, Refill: quota.RefillWindow},
	}}
}

func silence(retry time.Duration) quota.Reading {
	return quota.Reading{RetryAfter: retry, Cost: quota.Absent}
}

// start has to be allowed at once.
func start(t *testing.T, p *Pacer) *Run {
	t.Helper()
	run, err := p.Start(t.Context(), Want{Until: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// Interactive waiters go first, each line in its order, and all as soon as a pause
// is over, the probe before the others.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSet(t).Pacer(up)
		begun := time.Now()
		start(t, p).Answered(silence(3*time.Second), quota.ClassQuota)
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		for i, class := range []throttle.Class{throttle.Batch, throttle.Interactive, throttle.Batch, throttle.Interactive} {
			all.Go(func() {
				run, err := p.Start(t.Context(), Want{Class: class, Until: begun.Add(time.Minute)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, fmt.Sprint(priorities[class], i, " ", time.Since(begun)))
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
				run.Answered(silence(quota.Unknown), quota.ClassOK)
			})
			synctest.Wait()
		}
		all.Wait()
		// A provider that says nothing is from then on asked slowly.
		want := []string{"interactive1 3s", "interactive3 3.1s", "batch0 4.528571428s", "batch2 5.827272726s"}
		if !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
		if p.firstLocked(time.Now()) != nil || !p.throttle.Idle(time.Now()) {
			t.Error("somebody is left")
		}
	})
}

// Who is told to wait longer than it may is refused at once, behind others when its
// time is up; who leaves makes way.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSet(t).Pacer(up)
		start(t, p).Answered(silence(5*time.Second), quota.ClassQuota)
		begun := time.Now()
		var refused *Refused
		_, err := p.Start(t.Context(), Want{Until: begun.Add(time.Second)})
		if !errors.As(err, &refused) || refused.Why != throttle.WhyPaused || refused.Wait != 5*time.Second || time.Since(begun) != 0 {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var first, second, third error
		var all sync.WaitGroup
		all.Go(func() { _, first = p.Start(ctx, Want{Until: begun.Add(10 * time.Second)}) })
		synctest.Wait()
		all.Go(func() {
			_, second = p.Start(t.Context(), Want{Until: begun.Add(2 * time.Second)})
		})
		all.Go(func() {
			var run *Run
			run, third = p.Start(t.Context(), Want{Class: throttle.Batch, Until: begun.Add(10 * time.Second)})
			run.Failed()
		})
		synctest.Wait()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !errors.As(second, &refused) || refused.Wait <= 0 {
			t.Errorf("behind another, when its time was up: %v", second)
		}
		cancel()
		all.Wait()
		if !errors.Is(first, context.Canceled) || third != nil || time.Since(begun) != 5*time.Second {
			t.Errorf("%v, %v after %v", first, third, time.Since(begun))
		}
	})
}

// Who waits at a replica that leaves is told so; who need not wait is served.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t)
		p := s.Pacer(up)
		start(t, p).Answered(silence(5*time.Second), quota.ClassQuota)
		var err error
		var all sync.WaitGroup
		all.Go(func() {
			_, err = p.Start(t.Context(), Want{Class: throttle.Batch, Until: time.Now().Add(time.Minute)})
		})
		synctest.Wait()
		s.Drain()
		s.Drain()
		all.Wait()
		if !errors.Is(err, ErrDraining) {
			t.Errorf("waiting: %v", err)
		}
		start(t, s.Pacer(Account{Upstream: "other"})).Failed()
	})
}

// Q2: three replicas on a network; a refusal at one of them stops all within two
// intervals of gossip, none starts before its end, and one tries first.
func TestFleetPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := simnet.New(simnet.Config{Seed: 1, Latency: 2 * time.Millisecond, Jitter: time.Millisecond})
		addr := func(i int) string { return fmt.Sprintf("10.0.0.%d:7946", i+1) }
		var pacers []*Pacer
		var nodes []*gossip.Node
		for i := range 3 {
			transport, err := net.Listen(addr(i))
			if err != nil {
				t.Fatal(err)
			}
			node, err := gossip.Start(gossip.Config{
				Name: fmt.Sprint("r", i), Transport: transport, Logger: slog.New(slog.DiscardHandler),
				Join: []string{addr(0), addr(1), addr(2)},
			})
			if err != nil {
				t.Fatal(err)
			}
			s := newSet(t)
			node.Attach(s)
			s.OnUrgent(node.Hurry)
			pacers, nodes = append(pacers, s.Pacer(up)), append(nodes, node)
		}
		defer func() {
			gone, cancel := context.WithCancel(context.Background())
			cancel()
			for _, n := range nodes {
				n.Close(gone)
			}
			time.Sleep(15 * time.Second) // for memberlist's probes under way
		}()
		time.Sleep(10*time.Second + 30*time.Millisecond) // the next digest would be late
		runs := make([]*Run, 3)
		for i, p := range pacers {
			runs[i] = start(t, p)
		}
		refused := time.Now()
		runs[2].Answered(silence(4*time.Second), quota.ClassQuota)
		runs[0].Failed()
		runs[1].Failed()
		time.Sleep(20 * time.Millisecond) // news is sent at once
		end := refused.Add(4 * time.Second)
		for time.Now().Before(end) {
			for i, p := range pacers {
				if run, err := p.Start(t.Context(), Want{Until: time.Now()}); err == nil {
					t.Fatalf("replica %d starts %v after the refusal", i, time.Since(refused))
				} else {
					run.Failed()
				}
			}
			time.Sleep(37 * time.Millisecond)
		}
		var mu sync.Mutex
		var starts []time.Duration
		var all sync.WaitGroup
		for _, p := range pacers {
			all.Go(func() {
				run, err := p.Start(t.Context(), Want{Until: end.Add(3 * time.Second)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				starts = append(starts, time.Since(end))
				mu.Unlock()
				time.Sleep(500 * time.Millisecond)
				run.Answered(window(600, 500, 30*time.Second), quota.ClassOK)
			})
		}
		all.Wait()
		if len(starts) != 3 || starts[0] < 0 || starts[1] < starts[0]+500*time.Millisecond || starts[2] > starts[0]+time.Second {
			t.Errorf("after the pause they start at %v; the second has to wait for the first's answer, the third not long", starts)
		}
		// What one was told, all know.
		time.Sleep(time.Second)
		for i, p := range pacers {
			p.mu.Lock()
			all := p.throttle.Status(time.Now())
			p.mu.Unlock()
			if len(all) != 1 || all[0].Limit != 600 {
				t.Errorf("replica %d knows %+v", i, all)
			}
		}
	})
}

// What is told comes back as it was, from whenever it was heard.
func TestTellsAndHears(t *testing.T) {
	now := time.Now().Truncate(time.Millisecond)
	s := throttle.State{
		Until: now.Add(3 * time.Second), Probed: now.Add(-time.Second), Overload: now.Add(-time.Hour),
		Levels: map[throttle.Key]throttle.Level{
			{Unit: quota.Requests, Window: time.Minute}:           {Limit: 10, Period: time.Minute, Windowed: true, End: now.Add(time.Second), Remaining: 5, Seen: now.Add(-time.Second)},
			{Unit: quota.Tokens}:                                  {Limit: 10, Period: time.Minute, End: now.Add(time.Second), Seen: now.Add(-time.Hour)},
			{Unit: quota.Tokens, Scope: strings.Repeat("x", 200)}: {Limit: 10, Seen: now},
		},
	}
	got := heard(told("n", s, now), now.Add(time.Minute))
	if !got.Until.Equal(s.Until.Add(time.Minute)) || !got.Probed.Equal(s.Probed.Add(time.Minute)) || !got.Overload.IsZero() || !got.Stopped.IsZero() {
		t.Errorf("got %+v", got)
	}
	want := s.Levels[throttle.Key{Unit: quota.Requests, Window: time.Minute}]
	want.End, want.Seen = want.End.Add(time.Minute), want.Seen.Add(time.Minute)
	if len(got.Levels) != 1 || got.Levels[throttle.Key{Unit: quota.Requests, Window: time.Minute}] != want {
		t.Errorf("levels %+v, want %+v", got.Levels, want)
	}
}

// Those that pause are told first, then those that heard of something last; who
// knows nothing is silent.
func TestTellsTheUrgentFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t)
		for _, model := range []string{"old", "new", "paused", "nothing"} {
			p := s.Pacer(Account{Upstream: "up", Model: model, Reserve: 0.2})
			run := start(t, p)
			switch model {
			case "paused":
				run.Answered(silence(time.Minute), quota.ClassQuota)
			case "nothing":
				run.Failed()
			default:
				run.Answered(window(10, 9, time.Minute), quota.ClassOK)
			}
			time.Sleep(time.Second)
		}
		var got []string
		for _, th := range s.Throttles(time.Now()) {
			for _, model := range []string{"old", "new", "paused", "nothing"} {
				if th.Name == (Account{Upstream: "up", Model: model}).name() {
					got = append(got, model)
				}
			}
		}
		if want := []string{"paused", "new", "old"}; !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// However many models callers name, there are few Pacers, and those of the last
// come are shared.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t)
		of := func(i int) *Pacer { return s.Pacer(Account{Upstream: "up", Model: fmt.Sprint(i), Reserve: 0.1}) }
		held := start(t, of(0))
		for i := range 1000 {
			of(i)
		}
		if n := len(s.all()); n != maxPacers+1 || of(998) != of(999) {
			t.Errorf("%d pacers", n)
		}
		time.Sleep(idleAfter + time.Second)
		if of(5000) == of(5001) {
			t.Error("idle ones do not make way")
		}
		if of(0) != held.pacer {
			t.Error("one with a request under way was dropped")
		}
		held.Failed()
		for range 2 * maxPacers { // nor does what others name grow without bound
			s.Heard(time.Now(), []fleet.Throttle{{Name: fmt.Sprint(time.Now(), len(s.pacers)), Until: 1, Overload: fleet.NoTime, Stopped: fleet.NoTime, Probed: fleet.NoTime}})
		}
		if n := len(s.all()); n > maxPacers+1 {
			t.Errorf("%d pacers", n)
		}
	})
}

// The metrics' names and labels.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		s, err := NewSet(registry)
		if err != nil {
			t.Fatal(err)
		}
		p := s.Pacer(up)
		r := window(10, 6, time.Minute)
		r.Unknown = []string{"x-ratelimit-reset"}
		run := start(t, p)
		run.Answered(r, quota.ClassOK)
		run.Answered(r, quota.ClassOK) // once
		run.Settled(throttle.Cost{})
		start(t, p).Answered(silence(2*time.Second), quota.ClassQuota)
		_, _ = p.Start(t.Context(), Want{Until: time.Now()})
		probe, err := p.Start(t.Context(), Want{Class: throttle.Batch, Until: time.Now().Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		probe.Failed()
		want := `
# HELP headway_batch_depth Batch requests that wait for the provider.
# TYPE headway_batch_depth gauge
headway_batch_depth{upstream="up"} 0
# HELP headway_batch_oldest_age_seconds For how long the one waits that came first.
# TYPE headway_batch_oldest_age_seconds gauge
headway_batch_oldest_age_seconds{upstream="up"} 0
# HELP headway_batch_stopped_seconds For how long batch requests have waited with none of them started: interactive ones, or a pause, take all.
# TYPE headway_batch_stopped_seconds gauge
headway_batch_stopped_seconds{upstream="up"} 0
# HELP headway_throttle_paused_seconds_total Time for which nothing may start, counted when a pause begins or becomes longer.
# TYPE headway_throttle_paused_seconds_total counter
headway_throttle_paused_seconds_total{upstream="up"} 2
# HELP headway_throttle_provider_refusals_total Refusals by the provider, by what they mean: quota, daily, terminal or overload.
# TYPE headway_throttle_provider_refusals_total counter
headway_throttle_provider_refusals_total{class="quota",upstream="up"} 1
# HELP headway_throttle_refused_total Starts that would have had to wait too long, by priority and reason.
# TYPE headway_throttle_refused_total counter
headway_throttle_refused_total{priority="interactive",reason="paused",upstream="up"} 1
# HELP headway_throttle_remaining What is known to be left of the provider's quota, less what this replica has under way.
# TYPE headway_throttle_remaining gauge
headway_throttle_remaining{unit="requests",upstream="up"} 6
# HELP headway_throttle_reserve The part of the quota that batch work leaves alone.
# TYPE headway_throttle_reserve gauge
headway_throttle_reserve{unit="requests",upstream="up"} 2
# HELP headway_throttle_snapshot_age_seconds Age of the newest word of the provider's.
# TYPE headway_throttle_snapshot_age_seconds gauge
headway_throttle_snapshot_age_seconds{upstream="up"} 2
# HELP headway_throttle_unknown_headers_total Headers of the provider's that should tell of its quota and hold nothing sensible.
# TYPE headway_throttle_unknown_headers_total counter
headway_throttle_unknown_headers_total{upstream="up"} 1
# HELP headway_throttle_waited_total Starts that had to wait, by priority and the first reason.
# TYPE headway_throttle_waited_total counter
headway_throttle_waited_total{priority="batch",reason="paused",upstream="up"} 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}

// Whatever comes in whatever order, nobody stays in line, and every start is within
// what the provider gives.
func TestManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSet(t).Pacer(up)
		begun, served := time.Now(), 0
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				time.Sleep(time.Duration(i%17) * 7 * time.Millisecond)
				class := throttle.Class(i % 2)
				run, err := p.Start(t.Context(), Want{Class: class, Until: begun.Add(90 * time.Second)})
				if err != nil {
					return
				}
				mu.Lock()
				served++
				left := int64(100 - served)
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
				if left < 0 {
					run.Answered(silence(quota.Unknown), quota.ClassFailure)
					return
				}
				run.Answered(window(100, left, time.Until(begun.Add(time.Minute))), quota.ClassOK)
			})
		}
		all.Wait()
		if served < 100 || len(p.throttle.Status(time.Now())) != 1 || p.firstLocked(time.Now()) != nil {
			t.Errorf("%d served", served)
		}
	})
}
