package quota

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Family is a row of the table: headers that differ in one word, which says
// limit, remaining or reset. In Header that word is a star.
type Family struct {
	Provider string // who means it so; empty: anybody who sends these names
	Header   string // in lower case
	Unit     Unit
	Window   time.Duration // 0: the name does not tell
	Scope    string
	Refill   Refill
	Use      string // not empty: the family tells a part used, under this name
	Source   string
	Seen     string // when the source was looked at, year and month
}

const (
	minute = time.Minute
	hour   = time.Hour
	day    = 24 * time.Hour
	month  = 30 * day
)

// Sources of the table.
const (
	openAIGuide   = "platform.openai.com/docs/guides/rate-limits: reset is the time to the initial state"
	azureGuide    = "learn.microsoft.com, Azure OpenAI quota: bare seconds; -1 where it does not know"
	anthropicDocs = "docs.anthropic.com/en/api/rate-limits: token buckets, refilled all the time"
	planHeaders   = "responses to subscription plans: a part used and a reset, no counts"
	groqDocs      = "console.groq.com/docs/rate-limits: requests per day, tokens per minute"
	cerebrasDocs  = "inference-docs.cerebras.ai/support/rate-limits: seconds to the end of the window"
	mistralSeen   = "responses of api.mistral.ai"
	cohereSeen    = "responses to trial keys of api.cohere.com"
	togetherDocs  = "docs.together.ai/docs/rate-limits: per second, dynamic"
	fireworksDocs = "docs.fireworks.ai, rate limits and quotas: adaptive, limits alone"
	oceanDocs     = "docs.digitalocean.com, inference limits: instants in seconds since 1970"
	githubDocs    = "docs.github.com/rest/using-the-rest-api/rate-limits: instants in seconds since 1970"
	routerDocs    = "openrouter.ai/docs/api-reference/limits: instants in milliseconds since 1970"
	draftSplit    = "draft-ietf-httpapi-ratelimit-headers-03"
)

// Families is the table of dialects. Rows with a provider go before rows
// without, where it is known who answered. It is read-only.
var Families = []Family{
	{Header: "x-ratelimit-*-requests", Unit: Requests, Source: openAIGuide, Seen: "2026-11"},
	{Header: "x-ratelimit-*-tokens", Unit: Tokens, Source: openAIGuide, Seen: "2026-11"},
	{Header: "x-ratelimit-*-input-tokens", Unit: InputTokens, Source: openAIGuide, Seen: "2026-11"},
	{Header: "x-ratelimit-*-output-tokens", Unit: OutputTokens, Source: openAIGuide, Seen: "2026-11"},
	{Header: "x-ratelimit-*-project-tokens", Unit: Tokens, Scope: "project", Source: openAIGuide, Seen: "2026-11"},
	{Header: "x-ratelimit-*-project-requests", Unit: Requests, Scope: "project", Source: openAIGuide, Seen: "2026-11"},
	{Header: "x-ratelimit-*-tokens_usage_based", Unit: Tokens, Scope: "usage_based", Source: openAIGuide, Seen: "2026-11"},
	{Provider: "openai", Header: "x-ratelimit-*-requests", Unit: Requests, Window: minute, Refill: RefillContinuous, Source: openAIGuide, Seen: "2026-11"},
	{Provider: "openai", Header: "x-ratelimit-*-tokens", Unit: Tokens, Window: minute, Refill: RefillContinuous, Source: openAIGuide, Seen: "2026-11"},
	{Provider: "azure", Header: "x-ratelimit-*-requests", Unit: Requests, Window: minute, Scope: "deployment", Refill: RefillWindow, Source: azureGuide, Seen: "2026-11"},
	{Provider: "azure", Header: "x-ratelimit-*-tokens", Unit: Tokens, Window: minute, Scope: "deployment", Refill: RefillWindow, Source: azureGuide, Seen: "2026-11"},
	{Provider: "groq", Header: "x-ratelimit-*-requests", Unit: Requests, Window: day, Refill: RefillContinuous, Source: groqDocs, Seen: "2026-11"},
	{Provider: "groq", Header: "x-ratelimit-*-tokens", Unit: Tokens, Window: minute, Refill: RefillContinuous, Source: groqDocs, Seen: "2026-11"},

	{Header: "anthropic-ratelimit-requests-*", Unit: Requests, Window: minute, Refill: RefillContinuous, Source: anthropicDocs, Seen: "2026-11"},
	{Header: "anthropic-ratelimit-tokens-*", Unit: Tokens, Window: minute, Refill: RefillContinuous, Source: anthropicDocs, Seen: "2026-11"},
	{Header: "anthropic-ratelimit-input-tokens-*", Unit: InputTokens, Window: minute, Refill: RefillContinuous, Source: anthropicDocs, Seen: "2026-11"},
	{Header: "anthropic-ratelimit-output-tokens-*", Unit: OutputTokens, Window: minute, Refill: RefillContinuous, Source: anthropicDocs, Seen: "2026-11"},
	{Header: "anthropic-ratelimit-unified-5h-*", Use: "5h", Window: 5 * hour, Source: planHeaders, Seen: "2026-11"},
	{Header: "anthropic-ratelimit-unified-7d-*", Use: "7d", Window: 7 * day, Source: planHeaders, Seen: "2026-11"},
	{Header: "x-codex-primary-*", Use: "primary", Source: planHeaders, Seen: "2026-11"},
	{Header: "x-codex-secondary-*", Use: "secondary", Source: planHeaders, Seen: "2026-11"},

	{Header: "x-ratelimit-*-requests-minute", Unit: Requests, Window: minute, Refill: RefillWindow, Source: cerebrasDocs, Seen: "2026-11"},
	{Header: "x-ratelimit-*-requests-hour", Unit: Requests, Window: hour, Refill: RefillWindow, Source: cerebrasDocs, Seen: "2026-11"},
	{Header: "x-ratelimit-*-requests-day", Unit: Requests, Window: day, Refill: RefillWindow, Source: cerebrasDocs, Seen: "2026-11"},
	{Header: "x-ratelimit-*-tokens-minute", Unit: Tokens, Window: minute, Refill: RefillWindow, Source: cerebrasDocs, Seen: "2026-11"},
	{Header: "x-ratelimit-*-tokens-hour", Unit: Tokens, Window: hour, Refill: RefillWindow, Source: cerebrasDocs, Seen: "2026-11"},
	{Header: "x-ratelimit-*-tokens-day", Unit: Tokens, Window: day, Refill: RefillWindow, Source: cerebrasDocs, Seen: "2026-11"},

	{Header: "x-ratelimit-*-req-minute", Unit: Requests, Window: minute, Scope: "workspace", Source: mistralSeen, Seen: "2026-11"},
	{Header: "ratelimitbysize-*", Unit: Tokens, Window: minute, Scope: "workspace", Source: mistralSeen, Seen: "2026-11"},
	{Header: "x-ratelimitbysize-*-minute", Unit: Tokens, Window: minute, Scope: "workspace", Source: mistralSeen, Seen: "2026-11"},
	{Header: "x-ratelimitbysize-*-month", Unit: Tokens, Window: month, Scope: "workspace", Source: mistralSeen, Seen: "2026-11"},

	{Header: "x-trial-endpoint-call-*", Unit: Requests, Window: minute, Scope: "endpoint", Source: cohereSeen, Seen: "2026-11"},
	{Header: "x-endpoint-monthly-call-*", Unit: Requests, Window: month, Scope: "endpoint", Source: cohereSeen, Seen: "2026-11"},

	{Header: "x-tokenlimit-*", Unit: Tokens, Window: time.Second, Source: togetherDocs, Seen: "2026-11"},
	{Header: "x-tokenlimit-*-dynamic", Unit: Tokens, Window: time.Second, Scope: "dynamic", Source: togetherDocs, Seen: "2026-11"},
	{Header: "x-ratelimit-*-dynamic", Unit: Requests, Window: time.Second, Scope: "dynamic", Source: togetherDocs, Seen: "2026-11"},
	{Provider: "together", Header: "x-ratelimit-*", Unit: Requests, Window: time.Second, Source: togetherDocs, Seen: "2026-11"},

	{Header: "x-ratelimit-*-tokens-prompt", Unit: InputTokens, Window: minute, Source: fireworksDocs, Seen: "2026-11"},
	{Header: "x-ratelimit-*-tokens-cache-adjusted-prompt", Unit: InputTokens, Window: minute, Scope: "cache_adjusted", Source: fireworksDocs, Seen: "2026-11"},
	{Header: "x-ratelimit-*-tokens-generated", Unit: OutputTokens, Window: minute, Source: fireworksDocs, Seen: "2026-11"},
	{Provider: "fireworks", Header: "x-ratelimit-*-requests", Unit: Requests, Window: minute, Source: fireworksDocs, Seen: "2026-11"},

	{Header: "x-ratelimit-*-tokens-per-minute", Unit: Tokens, Window: minute, Source: oceanDocs, Seen: "2026-11"},
	{Header: "x-ratelimit-*-tokens-per-day", Unit: Tokens, Window: day, Source: oceanDocs, Seen: "2026-11"},
	{Header: "x-ratelimit-*-requests-per-minute", Unit: Requests, Window: minute, Source: oceanDocs, Seen: "2026-11"},

	{Header: "x-ratelimit-*", Unit: Requests, Refill: RefillWindow, Source: githubDocs, Seen: "2026-11"},
	{Provider: "github", Header: "x-ratelimit-*", Unit: Requests, Window: hour, Refill: RefillWindow, Source: githubDocs, Seen: "2026-11"},
	{Provider: "openrouter", Header: "x-ratelimit-*", Unit: Requests, Window: day, Scope: "key", Refill: RefillWindow, Source: routerDocs, Seen: "2026-11"},
	{Header: "x-rate-limit-*", Unit: Requests, Refill: RefillWindow, Source: githubDocs, Seen: "2026-11"},
}

// field is the word in the place of the star.
type field string

const (
	fieldLimit     field = "limit"
	fieldRemaining field = "remaining"
	fieldReset     field = "reset"
	fieldPart      field = "utilization"
	fieldPercent   field = "used-percent"
	fieldMinutes   field = "window-minutes"
	fieldResetAt   field = "reset-at"
	fieldCost      field = "query-cost"
)

var fields = [...]field{
	fieldLimit, fieldRemaining, fieldReset, fieldPart, fieldPercent, fieldMinutes, fieldResetAt, fieldCost,
}

// meaning is what one header name means.
type meaning struct {
	*Family
	field field
}

// names maps header names to their meanings, those of a provider first. It is
// built once and read-only.
var names = func() map[string][]meaning {
	m := map[string][]meaning{}
	for i := range Families {
		f := &Families[i]
		for _, word := range fields {
			name := strings.Replace(f.Header, "*", string(word), 1)
			if f.Provider == "" {
				m[name] = append(m[name], meaning{f, word})
			} else {
				m[name] = append([]meaning{{f, word}}, m[name]...)
			}
		}
	}
	return m
}()

// table reads every header that the table knows.
func (r *reader) table(h http.Header) {
	var known []string
	for name := range h {
		if len(names[strings.ToLower(name)]) > 0 {
			known = append(known, name)
		}
	}
	slices.Sort(known) // where two families tell of one quota, always the same wins
	for _, name := range known {
		values, lower := h[name], strings.ToLower(name)
		for _, m := range names[lower] {
			if (m.Provider == "" || m.Provider == r.provider) && len(values) > 0 {
				r.header(lower, m, values[0])
				break
			}
		}
	}
	// Served all the same, at low priority: Fireworks and Nebius.
	r.out.OverLimit = strings.EqualFold(h.Get("X-Ratelimit-Over-Limit"), "yes")
}

// header takes one value.
func (r *reader) header(name string, m meaning, text string) {
	var ok bool
	if m.Use != "" {
		ok = r.used(m, text)
	} else {
		ok = r.observed(m, text)
	}
	if !ok {
		r.doubt(name)
	}
}

// observed files a value under its observation; false: it makes no sense.
func (r *reader) observed(m meaning, text string) (ok bool) {
	o := r.at(key{m.Unit, m.Window, m.Scope})
	o.Refill = m.Refill
	var n int64
	switch m.field {
	case fieldLimit:
		if n, ok = count(text); ok {
			o.Limit = n
		}
	case fieldRemaining:
		if n, ok = count(text); ok {
			o.Remaining = n
		}
	case fieldCost:
		if n, ok = count(text); ok {
			r.out.Cost = n
		}
	case fieldReset, fieldResetAt:
		var d time.Duration
		if d, ok = wait(text, r.now); ok {
			o.Reset = d
		}
	default:
		ok = true // a name that the family does not have in truth
	}
	return ok
}

// used files a value under its use.
func (r *reader) used(m meaning, text string) (ok bool) {
	u := r.use(m.Use)
	if m.Window > 0 {
		u.Window = m.Window
	}
	switch m.field {
	case fieldPart, fieldPercent:
		var f float64
		if f, ok = part(text, m.field == fieldPercent); ok {
			u.Part = f
		}
	case fieldMinutes:
		var n int64
		if n, ok = count(text); ok {
			u.Window = time.Duration(n) * time.Minute
		}
	case fieldReset, fieldResetAt:
		var d time.Duration
		if d, ok = wait(text, r.now); ok {
			u.Reset = d
		}
	default:
		ok = true
	}
	return ok
}
