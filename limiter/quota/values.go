package quota

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// count reads a number of requests or tokens. Fractions are cut; what is
// negative, no number, or beyond 2^53 is unknown.
func count(text string) (int64, bool) {
	f, ok := number(text)
	if !ok || f < 0 || f > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// number reads a decimal number: digits with at most one point and a sign. The
// forms of strconv that no provider means (hex, exponents, "inf") are none.
func number(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	if text == "" || strings.Trim(text, "0123456789.-+") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}

// Instants are told from spans by their size: a span of 10^9 s is 31 years.
const (
	epochSeconds = 1e9
	epochMillis  = 1e12
	epochMicros  = 1e15
)

// wait reads a reset in any of its forms: a span, or an instant relative to now.
// The past is zero, for clocks differ; beyond MaxWait is unknown.
func wait(text string, now time.Time) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	if f, ok := number(text); ok {
		switch {
		case f >= epochMicros:
			return 0, false
		case f >= epochMillis:
			return until(time.UnixMilli(int64(f)), now)
		case f >= epochSeconds:
			whole, part := math.Modf(f)
			return until(time.Unix(int64(whole), int64(part*1e9)), now)
		}
		return span(f)
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return until(t, now)
	}
	if t, err := http.ParseTime(text); err == nil {
		return until(t, now)
	}
	return duration(text)
}

// until is the time from now to t, rounded up to milliseconds.
func until(t, now time.Time) (time.Duration, bool) {
	d := t.Sub(now)
	if d > MaxWait {
		return 0, false
	}
	return max(0, ceil(d)), true
}

// span reads seconds.
func span(seconds float64) (time.Duration, bool) {
	if seconds < 0 || seconds > MaxWait.Seconds() {
		return 0, false
	}
	return ceil(time.Duration(math.Ceil(seconds * 1e9))), true
}

// ceil rounds up to milliseconds: to come back early is worse.
func ceil(d time.Duration) time.Duration {
	if r := d % time.Millisecond; r > 0 {
		d += time.Millisecond - r
	}
	return d
}

// units of duration, longest name first so that "ms" is not read as minutes.
var units = [...]struct {
	name string
	span time.Duration
}{
	{"ms", time.Millisecond}, {"us", time.Microsecond}, {"µs", time.Microsecond}, {"ns", time.Nanosecond},
	{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
}

// duration reads what Go and OpenAI write, as in 1h2m3.5s, 6m0s, 250ms, with days
// besides.
func duration(text string) (time.Duration, bool) {
	total := 0.0
	for rest := text; rest != ""; {
		end := strings.IndexFunc(rest, func(c rune) bool { return (c < '0' || c > '9') && c != '.' })
		if end <= 0 {
			return 0, false
		}
		n, ok := number(rest[:end])
		if rest = rest[end:]; !ok {
			return 0, false
		}
		found := false
		for _, u := range units {
			if after, cut := strings.CutPrefix(rest, u.name); cut {
				total, rest, found = total+n*u.span.Seconds(), after, true
				break
			}
		}
		if !found {
			return 0, false
		}
	}
	if text == "" {
		return 0, false
	}
	return span(total)
}

// part reads a share: a fraction, or percent.
func part(text string, percent bool) (float64, bool) {
	f, ok := number(strings.TrimSuffix(strings.TrimSpace(text), "%"))
	if percent {
		f /= 100
	}
	if !ok || f < 0 || f > 100 {
		return 0, false
	}
	return f, true
}

// retry reads Retry-After (RFC 9110 §10.2.3: seconds, or one of three forms of
// date) and the milliseconds that OpenAI's SDKs look at first. Numbers are spans
// here, whatever their size. It reports whether either made sense.
func (r *reader) retry(h http.Header) bool {
	if text := h.Get("Retry-After-Ms"); text != "" {
		if f, ok := number(text); ok {
			if d, ok := span(f / 1000); ok {
				r.out.RetryAfter = d
				return true
			}
		}
		r.doubt("retry-after-ms")
	}
	if len(h.Values("Retry-After")) == 0 {
		return false
	}
	text := strings.TrimSpace(h.Get("Retry-After"))
	d, ok := time.Duration(0), false
	if f, isNumber := number(text); isNumber {
		d, ok = span(f)
	} else if t, err := http.ParseTime(text); err == nil {
		d, ok = until(t, r.now)
	}
	if !ok {
		r.doubt("retry-after")
		return false
	}
	r.out.RetryAfter = d
	return true
}
