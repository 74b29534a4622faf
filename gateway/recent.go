package gateway

import (
	"net/http"
	"sync"
	"time"

	"github.com/headway-limiter/headway/gateway/console"
	"github.com/headway-limiter/headway/limiter"
)

// keptRefusals is how many of the last refusals are kept for people to look at:
// about 60 KiB.
const keptRefusals = 200

// recent keeps the last refusals: who asked for what, and why not, but nothing of
// what was sent. It is safe for concurrent use.
type recent struct {
	mu    sync.Mutex
	ring  [keptRefusals]console.Refusal
	total uint64 // refusals ever; that of number n is in ring[n%keptRefusals]
}

// add keeps one more.
func (r *recent) add(e console.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	e.Number = r.total
	r.ring[r.total%keptRefusals] = e
}

// since returns the refusals after the first n, the newest first.
func (r *recent) since(n uint64) console.Refusals {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := console.Refusals{Total: r.total, List: []console.Refusal{}}
	for i := r.total; i > n && i+keptRefusals > r.total; i-- {
		out.List = append(out.List, r.ring[i%keptRefusals])
	}
	return out
}

// remember keeps f if it says that the request was not served for want of
// something: these are the answers that people ask about.
func (x *exchange) remember(f failure) {
	if x.recent == nil || f.status != http.StatusTooManyRequests && f.status != http.StatusServiceUnavailable {
		return
	}
	e := console.Refusal{
		At: time.Now(), Status: f.status, Code: f.code, RetryAfterMS: f.retry.Milliseconds(),
		Model: x.names.of(x.asked.Model),
	}
	if d := f.details; d != nil {
		e.Reason, e.LimitType = d.Reason, d.LimitType
		if e.RetryAfterMS = d.RetryAfterMS; d.RetryAfterMS == 0 && x.Header().Get("x-should-retry") == "false" {
			e.RetryAfterMS = -1
		}
		if d.FairQueue != nil {
			e.WaitedMS = d.FairQueue.WaitedMS
		}
	}
	if dim, id := x.tenant(x.asked); id != "" {
		e.Dimension, e.Tenant, e.Name = string(dim), string(id), x.names[id]
	}
	x.recent.add(e)
}

// tenant is the party that a request with these identities is counted for, as in
// the limiter: that of the configured dimension, or the widest that there is.
func (t *tables) tenant(who limiter.Identities) (limiter.Dimension, limiter.ID) {
	first := limiter.Dimension(t.cfg.RateLimiting.FairQueuing.TenantDimension)
	for _, d := range [...]limiter.Dimension{first, limiter.User, limiter.Team, limiter.APIKey} {
		if id := who.Of(d); id != "" {
			return d, id
		}
	}
	return limiter.Client, who.Client
}
