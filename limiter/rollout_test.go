package limiter_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-limiter/headway/fleet"
	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/memstore"
)

// rollout is three replicas of one user's limit in a bubble, all under more load
// than any of the limits lets through.
type rollout struct {
	t        *testing.T
	start    time.Time
	limiters []*limiter.Limiter

	mu      sync.Mutex
	granted []time.Duration // since start
}

func limitOf(perSecond int64) limiter.Config {
	return limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{limiter.User: {Rule: limiter.Rule{
		Requests: &limiter.Rate{Limit: perSecond, Per: time.Second, Burst: perSecond},
	}}}}
}

// begin starts the replicas, of which each has a limit, and callers that go on
// until the returned function is called.
func begin(t *testing.T, perSecond ...int64) (r *rollout, end func()) {
	memory := memstore.New()
	r = &rollout{t: t, start: time.Now()}
	var stores []*memstore.Store
	for _, n := range perSecond {
		store := memory.Replica(memstore.Options{})
		l, err := limiter.New(limitOf(n), store, fleet.Solo("test"))
		if err != nil {
			t.Fatal(err)
		}
		stores, r.limiters = append(stores, store), append(r.limiters, l)
	}
	ctx, stop := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for i, l := range r.limiters {
		for j := range 2 {
			callers.Go(func() { r.call(ctx, l, time.Duration(3+2*i+j)*time.Millisecond) })
		}
	}
	return r, func() {
		stop()
		callers.Wait()
		for i, l := range r.limiters {
			l.Close()
			if err := stores[i].Close(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
}

func (r *rollout) call(ctx context.Context, l *limiter.Limiter, every time.Duration) {
	for ctx.Err() == nil {
		g, err := l.Admit(ctx, limiter.Request{Identities: limiter.Identities{User: limiter.Hash(limiter.User, "u")}})
		var refused *limiter.Refusal
		switch {
		case err == nil:
			r.mu.Lock()
			r.granted = append(r.granted, time.Since(r.start))
			r.mu.Unlock()
			g.Done(limiter.Outcome{Tokens: -1})
		case !errors.As(err, &refused) && ctx.Err() == nil:
			r.t.Error(err)
		}
		time.Sleep(every)
	}
}

// change gives the named replicas a limit, one after the other, 300 ms apart.
func (r *rollout) change(perSecond int64, replicas ...int) {
	for i, n := range replicas {
		if i > 0 {
			time.Sleep(300 * time.Millisecond)
		}
		if _, err := r.limiters[n].Reconfigure(limitOf(perSecond)); err != nil {
			r.t.Fatal(err)
		}
	}
}

// within checks B1 for every window between two instants, and B2 for the whole.
func (r *rollout) within(from, to time.Duration, perSecond int64, least float64) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var in []time.Duration
	for _, at := range r.granted {
		if at >= from && at <= to {
			in = append(in, at)
		}
	}
	for i := range in {
		for j := i; j < len(in); j++ {
			if most := float64(perSecond) * (1 + (in[j] - in[i]).Seconds()); float64(j-i+1) > most+1 {
				r.t.Fatalf("%d admitted from %v to %v, at most %.1f at %d/s", j-i+1, in[i], in[j], most, perSecond)
			}
		}
	}
	if want := least * float64(perSecond) * (to - from).Seconds(); float64(len(in)) < want {
		r.t.Fatalf("%d admitted from %v to %v, at least %.0f of %d/s", len(in), from, to, want, perSecond)
	}
}

func (r *rollout) now() time.Duration { return time.Since(r.start) }

// TestLimitsChangeUnderLoad: a limit is lowered, then raised, on one replica after
// the other. From the first lowering to the last raise the smaller holds; a second
// after that the larger.
func TestLimitsChangeUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, end := begin(t, 100, 100, 100)
		time.Sleep(2 * time.Second)
		r.within(0, r.now(), 100, 0.95)
		lowered := r.now() + time.Millisecond
		r.change(20, 0, 1, 2)
		time.Sleep(2 * time.Second)
		r.change(200, 2, 0, 1)
		raised := r.now()
		r.within(lowered, raised, 20, 0.9)
		time.Sleep(4 * time.Second)
		end()
		r.within(0, raised, 100, 0)
		r.within(raised, r.now(), 200, 0)
		r.within(raised+1200*time.Millisecond, r.now(), 200, 0.9)
	})
}

// TestMixedRollout: as long as replicas disagree, the smaller limit holds, whether
// it is that of the one that was left behind or of the others.
func TestMixedRollout(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, new int64
	}{{"two raised", 20, 150}, {"two lowered", 150, 20}, {"one raised of a slow one", 1, 150}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, end := begin(t, c.old, c.old, c.old)
				time.Sleep(2 * time.Second)
				from := r.now() + time.Millisecond
				r.change(c.new, 1, 2)
				time.Sleep(5 * time.Second)
				r.within(from, r.now(), min(c.old, c.new), 0.8)
				r.change(c.new, 0) // the last one follows
				at := r.now()
				time.Sleep(3 * time.Second)
				end()
				r.within(at+1200*time.Millisecond, r.now(), c.new, 0.9)
			})
		})
	}
}
