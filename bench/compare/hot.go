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

// hotRate is the limit of the one key that everybody asks for. Its burst is a whole
// second, so that a pause of the machine does not make the bucket overflow, which
// would look like strictness.
var hotRate = limiter.Rate{Limit: 2000, Per: time.Second, Burst: 2000}

// hot is a way to decide about one hot key.
type hot struct {
	name    string
	callers int
	dims    int // one of them hot, the others as in the cells
	lease   bool
	options *near.Options // nil: not decorated
	direct  bool          // without the limiter
}

// hots are all that have to be exact.
func hots(callers int) []hot {
	deny, prefetch := &near.Options{DenyCache: true}, &near.Options{DenyCache: true, Prefetch: true}
	return []hot{
		{"store, 1 limit", callers, 1, false, nil, true},
		{"store, 4 limits", callers, 4, false, nil, true},
		{"store, 4 limits and a lease", callers, 4, true, nil, true},
		{"store, 1 limit, 256 callers", wide, 1, false, nil, true},
		{"limiter, 4 limits and a lease", callers, 4, true, nil, false},
		{denyRow, callers, 1, false, deny, true},
		{"limiter, 1 limit, deny cache", callers, 1, false, deny, false},
		{"store, 1 limit, deny cache and prefetch", callers, 1, false, prefetch, true},
	}
}

// denyRow is what the goal of the deny cache is about.
const denyRow = "store, 1 limit, deny cache"

// judged is how exact one of them was, and how fast.
type judged struct {
	hot
	admitted float64 // over allowed; less than 1 is strict, more is a fault
	over     bool    // more than allowed
	rate     float64 // decisions/s
	errors   int64
}

// exact reports whether it was neither too generous nor too strict.
func (j judged) exact() bool {
	return !j.over && j.errors == 0 && j.admitted >= 0.99 && j.admitted <= 1.01
}

// take is what each request wants: the hot bucket is the user's.
func (h hot) take() (limiter.Take, limiter.Config, limiter.Request) {
	take := takes(h.dims, h.lease, perSecond(plenty))[0]
	which := min(1, h.dims-1)
	take.Charges[which].Rate = hotRate
	cfg := limiter.Config{Limits: map[limiter.Dimension]limiter.Limit{}, Logger: quiet}
	for i, c := range take.Charges {
		rule := limiter.Rule{Requests: &take.Charges[i].Rate}
		if h.lease && c.Bucket.Dimension == limiter.User {
			rule.MaxInFlight = 1000
		}
		cfg.Limits[c.Bucket.Dimension] = limiter.Limit{Rule: rule}
	}
	ids := identities()[0]
	return take, cfg, limiter.Request{Identities: limiter.Identities{APIKey: ids[0], User: ids[1], Team: ids[2], Model: ids[3]}}
}

// open makes the target: store, perhaps decorated, perhaps below a limiter.
func (h hot) open(addr string) (*target, error) {
	var s limiter.Store
	s, err := newStore(addr)
	if err != nil {
		return nil, err
	}
	if h.options != nil {
		if s, err = near.New(s, func() int { return 1 }, *h.options); err != nil {
			return nil, err
		}
	}
	take, cfg, request := h.take()
	if h.direct {
		return storeTarget(s, []limiter.Take{take}), nil
	}
	return limiterTarget(s, cfg, func(int) limiter.Request { return request })
}

// judge lets everybody ask for d, and counts. The clock of what is allowed starts
// before the first call and ends after the last answer.
func (h hot) judge(ctx context.Context, s *server, d time.Duration) (judged, error) {
	j := judged{hot: h}
	if err := s.empty(ctx); err != nil {
		return j, err
	}
	t, err := h.open(s.addr)
	if err != nil {
		return j, fmt.Errorf("compare: %s: %w", h.name, err)
	}
	defer t.close()
	var admitted, asked, failed atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range h.callers {
		wg.Go(func() {
			for time.Since(start) < d {
				ok, err := t.decide(ctx, 0)
				asked.Add(1)
				switch {
				case refusal(err): // a limiter's way to say no
				case err != nil:
					failed.Add(1)
				case ok:
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	allowed := float64(hotRate.Burst) + float64(hotRate.Limit)*took.Seconds()
	j.admitted, j.over = float64(admitted.Load())/allowed, float64(admitted.Load()) > allowed
	j.rate, j.errors = float64(asked.Load())/took.Seconds(), failed.Load()
	return j, nil
}
