package bench

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// QuotaLevel is how one quota stands after a request was counted.
type QuotaLevel struct {
	QuotaRate
	Remaining int64
	Reset     time.Duration // until it is full again, or a fixed window ends
}

// Dialect writes levels as of now into the headers of an answer; nil levels do not
// exist.
type Dialect func(h http.Header, now time.Time, requests, tokens *QuotaLevel)

// Dialects are the ways to write levels, by name, as the providers after which
// they are called do (see package quota for sources). The map is read-only.
//
// Headers tell of when a request was counted. Where latencies differ, answers
// overtake one another, and what they tell is out of order and late.
var Dialects = map[string]Dialect{
	"openai": perUnit("X-Ratelimit-%s-%s", func(l *QuotaLevel, _ time.Time) string {
		return l.Reset.Round(time.Millisecond).String() // 6m0s
	}),
	"groq": perUnit("X-Ratelimit-%s-%s", func(l *QuotaLevel, _ time.Time) string {
		return fmt.Sprintf("%gs", math.Ceil(l.Reset.Seconds()*100)/100) // 7.66s
	}),
	"azure":    perUnit("X-Ratelimit-%s-%s", func(l *QuotaLevel, _ time.Time) string { return wholeSeconds(l.Reset) }),
	"cerebras": perUnit("X-Ratelimit-%s-%s-Minute", func(l *QuotaLevel, _ time.Time) string { return fmt.Sprintf("%.3f", l.Reset.Seconds()) }),
	"anthropic": perUnit("Anthropic-Ratelimit-%[2]s-%[1]s", func(l *QuotaLevel, now time.Time) string {
		return now.Add(l.Reset + time.Second - 1).UTC().Format(time.RFC3339) // whole seconds
	}),
	"classic": requestsOnly(func(l *QuotaLevel, now time.Time) string {
		return strconv.FormatInt(now.Add(l.Reset+time.Second-1).Unix(), 10)
	}),
	"openrouter": requestsOnly(func(l *QuotaLevel, now time.Time) string {
		return strconv.FormatInt(now.Add(l.Reset).UnixMilli(), 10)
	}),
	"ietf": ietfHeaders,
	"none": func(http.Header, time.Time, *QuotaLevel, *QuotaLevel) {},
}

// DialectNames lists Dialects in order.
func DialectNames() []string {
	var names []string
	for name := range Dialects {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// perUnit writes three headers for each unit, whose names are made from the field
// and the unit.
func perUnit(name string, reset func(l *QuotaLevel, now time.Time) string) Dialect {
	return func(h http.Header, now time.Time, requests, tokens *QuotaLevel) {
		for unit, level := range map[string]*QuotaLevel{"Requests": requests, "Tokens": tokens} {
			if level == nil {
				continue
			}
			h.Set(fmt.Sprintf(name, "Limit", unit), strconv.FormatInt(level.Limit, 10))
			h.Set(fmt.Sprintf(name, "Remaining", unit), strconv.FormatInt(level.Remaining, 10))
			h.Set(fmt.Sprintf(name, "Reset", unit), reset(level, now))
		}
	}
}

// requestsOnly writes three headers that name no unit.
func requestsOnly(reset func(l *QuotaLevel, now time.Time) string) Dialect {
	return func(h http.Header, now time.Time, requests, _ *QuotaLevel) {
		if requests == nil {
			return
		}
		h.Set("X-Ratelimit-Limit", strconv.FormatInt(requests.Limit, 10))
		h.Set("X-Ratelimit-Remaining", strconv.FormatInt(requests.Remaining, 10))
		h.Set("X-Ratelimit-Reset", reset(requests, now))
	}
}

// ietfHeaders writes the structured fields of the IETF's draft 10, which have no
// unit for tokens of models.
func ietfHeaders(h http.Header, _ time.Time, requests, _ *QuotaLevel) {
	if requests == nil {
		return
	}
	policy := fmt.Sprintf(`"default";q=%d`, requests.Limit)
	if requests.Per%time.Second == 0 {
		policy += ";w=" + wholeSeconds(requests.Per)
	}
	h.Set("Ratelimit-Policy", policy)
	h.Set("Ratelimit", fmt.Sprintf(`"default";r=%d;t=%s`, requests.Remaining, wholeSeconds(requests.Reset)))
}

// wholeSeconds rounds up: who comes early is refused.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
