package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/pace"
	"github.com/headway-limiter/headway/limiter/throttle"
)

// Headers by which a caller says that a request may wait: "batch", and until when, in
// milliseconds from when it came; absent or no number: batch.default_deadline.
const (
	priorityHeader = "X-Headway-Priority"
	deadlineHeader = "X-Headway-Deadline-Ms"
)

// patience is how a request waits. The zero patience is that of one that somebody
// waits for.
type patience struct {
	batch bool
	until time.Time // the latest start of batch work
}

// patienceOf reads how a request waits: as batch work if it says so, or its key
// does.
func (x *exchange) patienceOf(h http.Header, who caller) patience {
	if !who.by.batch && !strings.EqualFold(strings.TrimSpace(h.Get(priorityHeader)), "batch") {
		return patience{}
	}
	p := patience{batch: true, until: x.start.Add(x.cfg.Batch.DefaultDeadline)}
	ms, err := strconv.ParseInt(h.Get(deadlineHeader), 10, 64)
	if err == nil && ms >= 0 && ms <= maxDeadline.Milliseconds() {
		p.until = x.start.Add(time.Duration(ms) * time.Millisecond)
	}
	return p
}

// latest is until when a request may wait, whatever for: as batch work until its
// deadline, and never longer than a hundredth of its total timeout, at most a second,
// before that ends. One that would start later is told that its time is up, rather
// than sent out and cut at once.
func (x *exchange) latest() time.Time {
	last := x.deadline.Add(-min(x.deadline.Sub(x.start)/100, time.Second))
	if p := x.patience; p.batch && p.until.Before(last) {
		return p.until
	}
	return last
}

// outlasts waits until a limit that has refused x will let it pass, as err tells, and
// reports whether it did: then ask again. Only work that has to wait rather than be
// refused does so: batch work until its deadline, and later steps of a turn, which
// after a refusal begins anew, for what is left of queue_timeout. On a direct path
// nothing waits.
func (x *exchange) outlasts(ctx context.Context, err error) bool {
	var refusal *limiter.Refusal
	if !x.later && !x.patience.batch || x.place.direct != "" || !errors.As(err, &refusal) || refusal.RetryAfter < 0 {
		return false
	}
	wait := max(refusal.RetryAfter, leastRest)
	if !x.patience.batch && x.waited+wait > x.cfg.Queueing.QueueTimeout || time.Now().Add(wait).After(x.latest()) {
		return false
	}
	if !x.patience.batch { // whose wait for an agent begins when it asks for one
		x.waited += wait
	}
	again := time.NewTimer(wait)
	defer again.Stop()
	select {
	case <-again.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// leastRest is between two asks of who waits so.
const leastRest = 10 * time.Millisecond

// maxDeadline is the longest wait that is believed.
const maxDeadline = 365 * 24 * time.Hour

// admission is what admission is asked for.
func (x *exchange) admission(who caller, tokens int64) limiter.Request {
	return limiter.Request{
		Identities: who.Identities, Tokens: tokens, Deadline: x.latest(), Batch: x.patience.batch,
		Anonymous: who.standing == anonymous, Skip: who.skip,
	}
}

// atDoor is what admission is asked for where the limits before authentication are
// all that a request is charged to.
func (x *exchange) atDoor(who caller) limiter.Request {
	return limiter.Request{Identities: limiter.Identities{Client: who.Client}, Deadline: x.latest(), Anonymous: true, Skip: who.skip}
}

// want is what x asks of the provider behind up. now: only whether it could start at
// once.
func (x *exchange) want(up *upstream, j job, now bool) pace.Want {
	w := pace.Want{Cost: throttle.Cost{Input: j.prompt, Output: j.tokens - j.prompt}, Until: time.Now().Add(up.Throttle.MaxWait)}
	if x.patience.batch {
		w.Class, w.Until, w.Now = throttle.Batch, x.latest(), now
		w.Most = x.cfg.Batch.QueueDepthPerTenant
		tenant, weight := x.share(x.caller.Identities)
		w.Tenant, w.Weight = string(tenant), weight
	}
	if last := x.latest(); last.Before(w.Until) {
		w.Until = last
	}
	return w
}

// expired notes batch work whose deadline has passed at a provider. Its caller is
// told so, too.
func (g *Gateway) expired(e pace.Expired) {
	g.log.Info("gateway: batch request expired", "upstream", e.Upstream, "tenant", e.Tenant, "waited", e.Waited)
}
