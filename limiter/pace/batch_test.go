package pace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headway-limiter/headway/limiter/quota"
	"github.com/headway-limiter/headway/limiter/throttle"
)

// queue is a backlog with one of each job named in order, as tenant, cost, weight.
type job struct {
	tenant string
	cost   int64
	weight float64
}

func (j job) waiter(now, until time.Time) *waiter {
	w := &waiter{
		Want:  Want{Cost: throttle.Cost{Input: j.cost}, Class: throttle.Batch, Until: until, Tenant: j.tenant, Weight: j.weight},
		since: now, wake: make(chan struct{}, 1),
	}
	w.item.Value = w
	return w
}

// crowd queues n jobs of each kind, the first kind's all before the second's.
func crowd(t *testing.T, now time.Time, n int, jobs ...job) backlog {
	t.Helper()
	b := newBacklog()
	for _, j := range jobs {
		for range n {
			if _, ok := b.push(now, j.waiter(now, now.Add(time.Hour))); !ok {
				t.Fatal("refused")
			}
		}
	}
	return b
}

// serve takes as many turns, and adds up what each tenant was served.
func serve(t *testing.T, b *backlog, now time.Time, turns int) map[string]int64 {
	t.Helper()
	served := map[string]int64{}
	for range turns {
		w, _ := b.first(now)
		if w == nil {
			t.Fatal("nobody is first")
		}
		b.take(now, w)
		served[w.Tenant] += w.Cost.Input
	}
	return served
}

// Of 500 jobs of one tenant and 3 of another, the other's run 2nd, 4th and 6th.
func TestFewAmongMany(t *testing.T) {
	now := time.Now()
	b := newBacklog()
	for range 500 {
		b.push(now, job{"importer", 1000, 1}.waiter(now, now.Add(time.Hour)))
	}
	for range 3 {
		b.push(now, job{"ann", 1000, 1}.waiter(now, now.Add(time.Hour)))
	}
	var at []int
	for turn := 1; ; turn++ {
		w, _ := b.first(now)
		if w == nil {
			break
		}
		if b.take(now, w); w.Tenant == "ann" {
			at = append(at, turn)
		}
	}
	if fmt.Sprint(at) != "[2 4 6]" {
		t.Errorf("ann's run at %v, want 2, 4 and 6", at)
	}
}

// Jobs of 1,000 and of 100 tokens get equal totals; a weight of 3 gets three times.
func TestSharesByCost(t *testing.T) {
	now := time.Now()
	b := crowd(t, now, 2000, job{"large", 1000, 1}, job{"small", 100, 1})
	served := serve(t, &b, now, 1100)
	t.Logf("large against small: %v", served)
	if got := float64(served["large"]) / float64(served["small"]); got < 0.98 || got > 1.02 {
		t.Errorf("%v: large ones got %.3f times of small ones", served, got)
	}
	b = crowd(t, now, 4000, job{"heavy", 100, 3}, job{"light", 100, 1})
	served = serve(t, &b, now, 2000)
	t.Logf("weight 3 against 1: %v", served)
	if got := float64(served["heavy"]) / float64(served["light"]); got < 2.95 || got > 3.05 {
		t.Errorf("%v: weight 3 got %.3f times of weight 1", served, got)
	}
}

// What jobs have really cost decides: one tenant's use three times their estimate.
func TestRealCostIsSettled(t *testing.T) {
	now := time.Now()
	b := crowd(t, now, 3000, job{"modest", 100, 1}, job{"honest", 100, 1})
	real := map[string]float64{}
	for range 2000 {
		w, _ := b.first(now)
		b.take(now, w)
		cost := 100.0
		if w.Tenant == "modest" {
			cost = 300
		}
		b.settle(w, cost)
		real[w.Tenant] += cost
	}
	if got := real["modest"] / real["honest"]; got < 0.98 || got > 1.02 {
		t.Errorf("%v: modest estimates got %.3f times of what honest ones did", real, got)
	}
}

// A lone job of the largest cost is one step, and 10,000 tenants are quick: laps are
// skipped, not walked.
func TestWorkIsBounded(t *testing.T) {
	now := time.Now()
	b := crowd(t, now, 1, job{"lone", 1e9, 0.001})
	serve(t, &b, now, 1)
	for i := range 10_000 {
		b.push(now, job{fmt.Sprint(i), 1 + int64(i)*1000, 1}.waiter(now, now.Add(time.Hour)))
	}
	begun := time.Now()
	serve(t, &b, now, 10_000)
	if d := time.Since(begun); d > 10*time.Second {
		t.Errorf("10,000 turns took %v", d)
	}
	if len(b.parties) != 0 || b.queue.Len() != 0 {
		t.Error("somebody is left")
	}
}

// A full queue refuses its own tenant alone, and one of expired jobs refuses nobody.
func TestFullQueues(t *testing.T) {
	now := time.Now()
	b := newBacklog()
	push := func(tenant string, until time.Time) ([]*waiter, bool) {
		w := job{tenant, 10, 1}.waiter(now, until)
		w.Most = 3
		return b.push(now, w)
	}
	for i := range 3 {
		push("ann", now.Add(time.Duration(i+1)*time.Second))
	}
	if late, ok := push("ann", now.Add(time.Hour)); ok || len(late) != 0 {
		t.Error("a fourth was let in")
	}
	if _, ok := push("bob", now.Add(time.Hour)); !ok {
		t.Error("another tenant was refused")
	}
	now = now.Add(2500 * time.Millisecond)
	if late, ok := push("ann", now.Add(time.Hour)); !ok || len(late) != 2 {
		t.Errorf("%d expired ones made way, want 2", len(late))
	}
	now = now.Add(time.Second)
	if w, late := b.first(now); w == nil || len(late) > 1 {
		t.Errorf("first %v after %d dropped", w, len(late))
	}
	served := serve(t, &b, now, 2)
	if served["ann"] != 10 || served["bob"] != 10 {
		t.Errorf("served %v; what has expired must not be", served)
	}
}

// Whatever comes and goes, the order is that of the bookkeeping: nobody is lost,
// and who has expired is never served.
func TestBacklogTape(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	now := time.Now()
	b := newBacklog()
	in := map[*waiter]bool{}
	gone := func(late []*waiter) {
		for _, w := range late {
			if !in[w] || !now.After(w.Until) {
				t.Fatalf("dropped %v, in line %v", w.Until.Sub(now), in[w])
			}
			delete(in, w)
		}
	}
	for range 20_000 {
		switch r.IntN(4) {
		case 0, 1:
			w := job{fmt.Sprint(r.IntN(5)), 1 + r.Int64N(1000), 1}.waiter(now, now.Add(time.Duration(r.IntN(100))*time.Millisecond))
			w.Most = 20
			late, ok := b.push(now, w)
			if gone(late); ok {
				in[w] = true
			}
		case 2:
			w, late := b.first(now)
			if gone(late); w != nil {
				if now.After(w.Until) || !in[w] {
					t.Fatal("one that has expired, or is not in line, was served")
				}
				b.take(now, w)
				b.settle(w, float64(r.Int64N(2000)))
				delete(in, w)
			}
		case 3:
			for w := range in {
				b.remove(w)
				delete(in, w)
				break
			}
		}
		now = now.Add(time.Duration(r.IntN(5)) * time.Millisecond)
		n := 0
		for _, p := range b.parties {
			n += len(p.waiting)
		}
		if n != len(in) || b.queue.Len() != n {
			t.Fatalf("%d in line, %d queued, want %d", n, b.queue.Len(), len(in))
		}
	}
}

// batch asks for a start of a tenant's.
func batch(t *testing.T, p *Pacer, tenant string, cost int64, until time.Duration) (*Run, error) {
	return p.Start(t.Context(), Want{
		Cost: throttle.Cost{Input: cost}, Class: throttle.Batch, Until: time.Now().Add(until), Tenant: tenant, Most: 100,
	})
}

// Batch work waits for its deadline, not for a promise: what it is told meanwhile may
// be better than what it was told first. When its time is up it is late.
func TestBatchWaitsForBetterTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t)
		var told []Expired
		s.OnExpired(func(e Expired) { told = append(told, e) })
		p := s.Pacer(up)
		first := start(t, p)
		start(t, p).Answered(silence(5*time.Second), quota.ClassQuota)
		begun := time.Now()
		var refused *Refused
		if _, err := batch(t, p, "ann", 10, 3*time.Second); !errors.As(err, &refused) || refused.Cause != Late || time.Since(begun) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		if refused.Why != throttle.WhyPaused || refused.Wait <= 0 {
			t.Errorf("last told %+v", refused.Verdict)
		}
		if want := (Expired{"up", "ann", 3 * time.Second}); len(told) != 1 || told[0] != want {
			t.Errorf("told %+v", told)
		}
		first.Failed()
		run, err := batch(t, p, "ann", 10, 5*time.Second)
		if err != nil || time.Since(begun) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		run.Failed()
		if n := testutil.ToFloat64(s.metrics.expired.WithLabelValues("up")); n != 1 {
			t.Errorf("%v have expired", n)
		}
	})
}

// Who only asks around takes no place, waits for nobody and is not counted.
func TestAskingAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSet(t).Pacer(up)
		now := func(c throttle.Class) (*Run, error) {
			return p.Start(t.Context(), Want{Class: c, Now: true, Tenant: "ann", Most: 1})
		}
		run, err := now(throttle.Batch)
		if err != nil {
			t.Fatal(err)
		}
		run.Answered(silence(5*time.Second), quota.ClassQuota)
		var all sync.WaitGroup
		all.Go(func() {
			run, err := batch(t, p, "ann", 1, time.Minute)
			if err != nil {
				t.Error(err)
			}
			run.Failed()
		})
		synctest.Wait()
		for _, c := range []throttle.Class{throttle.Batch, throttle.Interactive} {
			var refused *Refused
			if _, err := now(c); !errors.As(err, &refused) || refused.Cause != TooLong || refused.Why != throttle.WhyPaused {
				t.Errorf("%v: %v", c, err)
			}
		}
		if n := testutil.CollectAndCount(p.set.metrics.refused); n != 0 {
			t.Errorf("%d refusals are counted", n)
		}
		all.Wait()
	})
}

// While interactive work asks for all there is, no batch work starts, and the metric
// says for how long.
func TestInteractiveStopsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		s, err := NewSet(registry)
		if err != nil {
			t.Fatal(err)
		}
		p := s.Pacer(up)
		start(t, p).Answered(window(60, 60, time.Minute), quota.ClassOK)
		end := time.Now().Add(30 * time.Second)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var batches atomic.Int64
		all.Go(func() {
			for ctx.Err() == nil {
				if run, err := p.Start(ctx, Want{Class: throttle.Batch, Until: end.Add(time.Hour), Tenant: "a"}); err == nil {
					batches.Add(1)
					run.Answered(silence(quota.Unknown), quota.ClassOK)
				}
				time.Sleep(time.Second)
			}
		})
		for range 20 {
			all.Go(func() {
				for time.Now().Before(end) {
					if run, err := p.Start(ctx, Want{Until: end}); err == nil {
						run.Answered(silence(quota.Unknown), quota.ClassOK)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		before := batches.Load()
		time.Sleep(25 * time.Second)
		synctest.Wait()
		want := `
# HELP headway_batch_depth Batch requests that wait for the provider.
# TYPE headway_batch_depth gauge
headway_batch_depth{upstream="up"} 1
# HELP headway_batch_stopped_seconds For how long batch requests have waited with none of them started: interactive ones, or a pause, take all.
# TYPE headway_batch_stopped_seconds gauge
headway_batch_stopped_seconds{upstream="up"} 27
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "headway_batch_depth", "headway_batch_stopped_seconds"); err != nil {
			t.Error(err)
		}
		if n := batches.Load() - before; n != 0 {
			t.Errorf("%d batch starts while interactive work asked for everything", n)
		}
		time.Sleep(40 * time.Second)
		stop()
		all.Wait()
		if batches.Load() == 0 {
			t.Error("batch work never went on")
		}
	})
}

// The order at a provider: a pause collects the jobs of two tenants, who then take
// turns however many each has; what was served is told by tenant and by weight.
func TestBatchTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t)
		p := s.Pacer(up)
		start(t, p).Answered(silence(time.Second), quota.ClassQuota)
		var order []string
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 12 {
			tenant := "many"
			if i >= 9 {
				tenant = "few"
			}
			all.Go(func() {
				run, err := p.Start(t.Context(), Want{
					Cost: throttle.Cost{Input: 100}, Class: throttle.Batch, Until: time.Now().Add(10 * time.Minute), Tenant: tenant, Weight: 2,
				})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, tenant)
				mu.Unlock()
				run.Answered(silence(quota.Unknown), quota.ClassOK)
				run.Settled(throttle.Cost{Input: 100, Output: 20})
			})
			synctest.Wait()
		}
		all.Wait()
		if got, want := strings.Join(order, " "), "many few many few many few"+strings.Repeat(" many", 6); got != want {
			t.Errorf("order %s", got)
		}
		for tenant, want := range map[string]float64{"many": 9 * 120, "few": 3 * 120} {
			if n := testutil.ToFloat64(s.metrics.served.WithLabelValues(tenant)); n != want {
				t.Errorf("%s was served %v, want %v", tenant, n, want)
			}
			if n := testutil.ToFloat64(s.metrics.weighed.WithLabelValues(tenant)); n != want/2 {
				t.Errorf("%s was served %v by weight, want %v", tenant, n, want/2)
			}
		}
	})
}

// However many tenants there are, few have series of their own.
func TestTenantSeriesAreBounded(t *testing.T) {
	n := names{}
	for i := range 1000 {
		n.of(fmt.Sprint(i))
	}
	if len(n) != maxTenantSeries || n.of("5") != "5" || n.of("999") != "other" || n.of("") != "none" {
		t.Errorf("%d names; %s, %s", len(n), n.of("5"), n.of("999"))
	}
}

// A name that is taken makes NewSet fail, and leaves nothing behind that would make the
// next try fail, too.
func TestNewSetCanBeTriedAgain(t *testing.T) {
	registry := prometheus.NewRegistry()
	taken := newMetrics().expired
	registry.MustRegister(taken)
	if _, err := NewSet(registry); err == nil {
		t.Fatal("a name was taken, and NewSet did not mind")
	}
	registry.Unregister(taken)
	if _, err := NewSet(registry); err != nil {
		t.Error(err)
	}
}
