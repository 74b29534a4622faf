package gateway

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/headway-limiter/headway/limiter"
	"github.com/headway-limiter/headway/limiter/pace"
	"github.com/headway-limiter/headway/limiter/quota"
	"github.com/headway-limiter/headway/limiter/throttle"
)

// ask waits until the provider behind up may be asked, if it has a throttle. now:
// batch work does not wait, since it may be served elsewhere. The error is one of
// pace.Start's.
func (g *Gateway) ask(x *exchange, r *http.Request, up *upstream, j job, now bool) (*pace.Run, error) {
	if !up.Throttle.Enabled {
		return nil, nil
	}
	pacer := g.pace.Pacer(pace.Account{Upstream: up.Name, URL: up.URL, Model: j.model, Reserve: up.Throttle.Reserve})
	return pacer.Start(r.Context(), x.want(up, j, now))
}

// throttled words an error of ask as the refusal of the candidate, or of an earlier
// one that can be asked sooner. final means that no other candidate is to be tried.
func (g *Gateway) throttled(grant *limiter.Grant, before *limiter.Refusal, err error) (refusal *limiter.Refusal, final bool) {
	var refused *pace.Refused
	switch {
	case errors.Is(err, pace.ErrDraining):
		return grant.Refused(limiter.ReasonDraining, retryUnavailable), true
	case !errors.As(err, &refused):
		return nil, true // the caller left, or its time is up
	}
	switch refused.Cause {
	case pace.Late:
		return grant.Refused(limiter.ReasonDeadlineExceeded, refused.Wait), true
	case pace.Full:
		return grant.Refused(limiter.ReasonQueueFull, refused.Wait), true
	}
	reason, wait := limiter.ReasonProviderQuota, refused.Wait
	switch refused.Why {
	case throttle.WhyPaused, throttle.WhyOverload, throttle.WhyProbe:
		reason = limiter.ReasonProviderPaused
	case throttle.WhyStopped:
		reason, wait = limiter.ReasonProviderStopped, limiter.Never
	}
	now := grant.Refused(reason, wait)
	if before != nil && (now.RetryAfter == limiter.Never || before.RetryAfter != limiter.Never && before.RetryAfter <= now.RetryAfter) {
		return before, false
	}
	return now, false
}

// sooner is which of two refusals to answer with: that of a throttle, if there is
// one, unless err is another refusal and ends earlier.
func sooner(throttled *limiter.Refusal, err error) error {
	var refusal *limiter.Refusal
	switch {
	case throttled == nil:
		return err
	case !errors.As(err, &refusal) || refusal.RetryAfter == limiter.Never:
		return throttled
	case throttled.RetryAfter == limiter.Never || refusal.RetryAfter < throttled.RetryAfter:
		return err
	}
	return throttled
}

// used is what the request cost in the end, if that is known, else the estimate.
func (j job) used(tokens int64) throttle.Cost {
	if tokens < 0 {
		tokens = j.tokens
	}
	input := min(j.prompt, tokens)
	return throttle.Cost{Input: input, Output: tokens - input}
}

// heed reads what the provider says of its quota in an answer that begins. Of an
// error, the body may say more: it is heard as it passes by.
func heed(resp *http.Response, up *upstream, run *pace.Run) {
	if run == nil {
		return
	}
	now := time.Now()
	answered := func(body []byte) {
		run.Answered(quota.Read(up.provider, resp.Header, body, now), quota.Classify(resp.StatusCode, resp.Header, body))
	}
	if resp.StatusCode < http.StatusBadRequest {
		answered(nil)
		return
	}
	resp.Body = &overheard{ReadCloser: resp.Body, tell: answered}
}

// maxOverheard is how much of an error is looked at, in bytes.
const maxOverheard = 64 << 10

// overheard is a body whose beginning is kept, and told once: when it ends or is
// longer than is looked at.
type overheard struct {
	io.ReadCloser
	head []byte
	tell func(head []byte) // nil: told
}

// Read implements io.Reader.
func (o *overheard) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	if o.tell != nil {
		o.head = append(o.head, p[:min(n, maxOverheard-len(o.head))]...)
		if err != nil || len(o.head) == maxOverheard {
			o.done()
		}
	}
	return n, err
}

// Close implements io.Closer.
func (o *overheard) Close() error {
	o.done()
	return o.ReadCloser.Close()
}

func (o *overheard) done() {
	if o.tell != nil {
		o.tell(o.head)
		o.tell, o.head = nil, nil
	}
}

// providers are those whose headers mean something of their own (see package
// quota), by the end of their host names.
var providers = [...]struct{ host, name string }{
	{"api.openai.com", "openai"}, {".openai.azure.com", "azure"}, {".services.ai.azure.com", "azure"},
	{"api.groq.com", "groq"}, {".together.xyz", "together"}, {".together.ai", "together"},
	{"api.fireworks.ai", "fireworks"}, {"api.github.com", "github"}, {"models.github.ai", "github"},
	{"openrouter.ai", "openrouter"},
}

// providerOf names the provider behind a host; empty: none that matters.
func providerOf(host string) string {
	for _, p := range providers {
		if strings.HasSuffix(strings.ToLower(host), p.host) {
			return p.name
		}
	}
	return ""
}
