package rls

import (
	"net/http"
	"net/netip"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headway-limiter/headway/gateway"
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// respond words a decision: parts are the descriptors' shares of its answers, in
// order.
func (r *rules) respond(d limiter.Decision, parts []part) *pb.RateLimitResponse {
	out := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}
	if !d.OK {
		out.OverallCode = pb.RateLimitResponse_OVER_LIMIT
	}
	next := 0
	for _, p := range parts {
		out.Statuses = append(out.Statuses, r.status(d.Answers[next:next+len(p.asks)], p.asks))
		next += len(p.asks)
	}
	headers(out, d, parts)
	return out
}

// status is what one descriptor is told: of the limits that refuse it the one
// that does so longest, else the one with the least part of its burst left.
func (r *rules) status(answers []limiter.Answer, asks []limiter.Ask) *pb.RateLimitResponse_DescriptorStatus {
	out := &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK}
	best := -1
	for i, a := range answers {
		if !a.Limited {
			continue
		}
		if a.Refused {
			out.Code = pb.RateLimitResponse_OVER_LIMIT
		}
		if best < 0 || tighter(a, answers[best]) {
			best = i
		}
	}
	if best < 0 || !r.shows(asks[best].Bucket.Dimension) {
		return out
	}
	a := answers[best]
	out.CurrentLimit = limitOf(a.Rate, string(asks[best].Bucket.Dimension))
	out.LimitRemaining = clip(a.Level.Remaining)
	reset := a.Level.Reset
	if a.Refused {
		reset = max(0, a.RetryAfter)
		out.LimitRemaining = 0
	}
	out.DurationUntilReset = durationpb.New(reset)
	return out
}

// shows reports whether answers may tell the level of buckets of d: those of one
// caller, and all of them on demand. What others have left is nobody's business.
func (r *rules) shows(d limiter.Dimension) bool {
	return r.all || d == limiter.APIKey || d == limiter.Descriptor
}

func tighter(a, b limiter.Answer) bool {
	if a.Refused != b.Refused {
		return a.Refused
	}
	if a.Refused {
		return a.RetryAfter == limiter.Never || (b.RetryAfter != limiter.Never && a.RetryAfter > b.RetryAfter)
	}
	return float64(a.Level.Remaining)*float64(b.Rate.Burst) < float64(b.Level.Remaining)*float64(a.Rate.Burst)
}

// limitOf writes a rate in Envoy's units: the largest that its period is a whole
// multiple of. A period below a second is scaled to one, rounded down.
func limitOf(r limiter.Rate, name string) *pb.RateLimitResponse_RateLimit {
	out := &pb.RateLimitResponse_RateLimit{Name: name, RequestsPerUnit: clip(r.Limit), Unit: pb.RateLimitResponse_RateLimit_SECOND}
	if r.Per < time.Second {
		out.RequestsPerUnit = clip(int64(float64(r.Limit) * float64(time.Second) / float64(r.Per)))
		return out
	}
	times := r.Per / time.Second
	for _, u := range [...]struct {
		per  time.Duration
		unit pb.RateLimitResponse_RateLimit_Unit
	}{
		{day, pb.RateLimitResponse_RateLimit_DAY}, {time.Hour, pb.RateLimitResponse_RateLimit_HOUR},
		{time.Minute, pb.RateLimitResponse_RateLimit_MINUTE},
	} {
		if r.Per%u.per == 0 {
			times, out.Unit = r.Per/u.per, u.unit
			break
		}
	}
	if times > 1 {
		out.UnitMultiplier = wrapperspb.UInt32(clip(int64(times)))
	}
	return out
}

// clip fits n into the API's 32 bits.
func clip(n int64) uint32 { return uint32(min(max(n, 0), 1<<32-1)) }

// headers adds what callers are told: how long to wait, and the levels of their
// own API key.
func headers(out *pb.RateLimitResponse, d limiter.Decision, parts []part) {
	h := http.Header{}
	var retry time.Duration
	var levels limiter.Levels
	next := 0
	for _, p := range parts {
		for _, ask := range p.asks {
			a := d.Answers[next]
			next++
			if a.Refused && (retry != limiter.Never && a.RetryAfter > retry || a.RetryAfter == limiter.Never) {
				retry = a.RetryAfter
				h.Set("x-headway-limit-type", string(ask.Bucket.Dimension))
			}
			if a.Limited && ask.Bucket.Dimension == limiter.APIKey {
				if level := a.Level; ask.Bucket.Class == limiter.Tokens {
					levels.Tokens = &level
				} else {
					levels.Requests = &level
				}
			}
		}
	}
	secs := int64(0)
	if !d.OK {
		secs = gateway.SetRetry(h, retry)
	}
	gateway.SetLevels(h, levels, secs)
	if d.Degraded != "" {
		h.Set("x-headway-degraded", d.Degraded)
	}
	for name, values := range h {
		out.ResponseHeadersToAdd = append(out.ResponseHeadersToAdd, &core.HeaderValue{Key: name, Value: values[0]})
	}
}

// clientIdentity spells an address as the gateway does, IPv6 by /64; what is no
// address stands for itself.
func clientIdentity(text string) string {
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return config.ClientIdentity(ap.Addr())
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		return config.ClientIdentity(ip)
	}
	return text
}
