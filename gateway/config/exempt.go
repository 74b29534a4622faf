package config

import (
	"reflect"
	"slices"

	"github.com/headway-limiter/headway/limiter"
)

// ExemptAddr is a range of client addresses that limits, or some classes of
// them, do not apply to. In YAML it may be written as the CIDR alone.
type ExemptAddr struct {
	CIDR string   `yaml:"cidr" help:"client address or range, such as 10.0.0.0/8"`
	Skip []string `yaml:"skip" enum:"requests|tokens|inflight|queue" help:"what does not apply; absent: nothing applies"`
}

// ExemptKey is an API key that limits, or some classes of them, do not apply
// to. In YAML it may be written as the id alone.
type ExemptKey struct {
	ID   string   `yaml:"id" help:"id of one of keys"`
	Skip []string `yaml:"skip" enum:"requests|tokens|inflight|queue" help:"what does not apply; absent: nothing applies"`
}

// short are the structs that may be written as the value of their first field
// alone.
var short = map[reflect.Type]bool{reflect.TypeFor[ExemptAddr](): true, reflect.TypeFor[ExemptKey](): true}

// skips are the words of skip lists.
var skips = map[string]limiter.Skip{
	"requests": limiter.SkipRequests, "tokens": limiter.SkipTokens,
	"inflight": limiter.SkipInFlight, "queue": limiter.SkipQueue,
}

// Skips is what this range is exempt from: everything, unless it names classes.
func (e ExemptAddr) Skips() limiter.Skip { return skipOf(e.Skip) }

// Skips is what this key is exempt from: everything, unless it names classes.
func (e ExemptKey) Skips() limiter.Skip { return skipOf(e.Skip) }

// skipOf joins the classes of a list; none means all.
func skipOf(words []string) limiter.Skip {
	if len(words) == 0 {
		return limiter.SkipAll
	}
	var all limiter.Skip
	for _, w := range words {
		all |= skips[w]
	}
	return all
}

// bypasses reports whether key id is exempt from all limits.
func (r *RateLimiting) bypasses(id string) bool {
	return slices.ContainsFunc(r.BypassKeys, func(e ExemptKey) bool { return e.ID == id && e.Skips() == limiter.SkipAll })
}
