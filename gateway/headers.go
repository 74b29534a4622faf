package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/headway-limiter/headway/limiter"
)

// seconds rounds up to whole seconds.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// milliseconds writes a span of time, rounded down: it tells of the past.
func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// setRetry tells when to come back, in the standard header (RFC 9110 §10.2.3,
// here always seconds and never 0, which SDKs take for "at once") and in the
// finer one that OpenAI's and Anthropic's SDKs read first.
func setRetry(h http.Header, secs, ms int64) {
	h.Set("Retry-After", strconv.FormatInt(secs, 10))
	h.Set("retry-after-ms", strconv.FormatInt(ms, 10))
}

// setLine describes a wait in line: where the request stood, how long it has
// waited, and whether that was counted over this replica or the whole fleet.
func setLine(h http.Header, line *limiter.LineInfo) {
	h.Set("x-fair-queue-position", strconv.Itoa(line.Position))
	h.Set("x-fair-queue-wait-ms", milliseconds(line.Waited))
	h.Set("x-fair-queue-scope", string(line.Scope))
}

// setHeld tells for how long a request was held: for a token budget, or as batch work.
func setHeld(h http.Header, held *limiter.HeldInfo) {
	if held != nil {
		h.Set("x-headway-held-ms", milliseconds(held.Waited))
	}
}

// setLevels tells the levels of the caller's own buckets, in two dialects:
// that of OpenAI for requests and tokens, and the RateLimit fields of the IETF
// draft (-10) for requests. The draft has no unit for tokens, and a number
// without its unit would be read as requests.
//
// A level is the bucket's: its limit is the most it holds, its reset the time
// until it is full. retry is the Retry-After of the same answer, 0 for none:
// the draft wants its own time not to be later.
func setLevels(h http.Header, l limiter.Levels, retry int64) {
	setFamily(h, "requests", l.Requests)
	setFamily(h, "tokens", l.Tokens)
	if l.Requests == nil {
		return
	}
	level := *l.Requests
	policy, limit := httpsfv.NewItem("requests"), httpsfv.NewItem("requests")
	quota, window := policyOf(level.Rate)
	policy.Params.Add("q", quota)
	if window > 0 {
		policy.Params.Add("w", window)
	}
	limit.Params.Add("r", level.Remaining)
	if level.Remaining < level.Rate.Burst && level.Rate.Limit > 0 {
		next := max(seconds(level.Rate.Per/time.Duration(level.Rate.Limit)), 1)
		if retry > 0 {
			next = min(next, retry)
		}
		limit.Params.Add("t", next) // until there is one more
	}
	setField(h, "RateLimit-Policy", policy)
	setField(h, "RateLimit", limit)
}

// maxField is the largest number of a structured field (RFC 9651 §3.3.1).
const maxField = 999_999_999_999_999

// policyOf expresses a rate in whole seconds, the only windows of the draft: a
// shorter period is scaled to one second, rounded down, and one that is no whole
// number of seconds has no window (0).
func policyOf(r limiter.Rate) (quota, window int64) {
	switch {
	case r.Per%time.Second == 0:
		return r.Limit, int64(r.Per / time.Second)
	case r.Per < time.Second:
		return int64(min(float64(r.Limit)*float64(time.Second)/float64(r.Per), maxField)), 1
	}
	return r.Limit, 0
}

// setFamily sets x-ratelimit-{limit,remaining,reset}-unit. The reset is a
// duration as Go writes it (6m0s, 250ms), as OpenAI's own are.
func setFamily(h http.Header, unit string, l *limiter.Level) {
	if l == nil {
		return
	}
	h.Set("x-ratelimit-limit-"+unit, strconv.FormatInt(l.Rate.Burst, 10))
	h.Set("x-ratelimit-remaining-"+unit, strconv.FormatInt(l.Remaining, 10))
	reset := (l.Reset + time.Millisecond - 1).Truncate(time.Millisecond)
	h.Set("x-ratelimit-reset-"+unit, reset.String())
}

// setField writes a structured field (RFC 9651) that is a list of one item.
func setField(h http.Header, name string, item httpsfv.Item) {
	if text, err := httpsfv.Marshal(httpsfv.List{item}); err == nil {
		h.Set(name, text)
	}
}
