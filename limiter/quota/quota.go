package quota

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Unit is what a quota counts.
type Unit string

const (
	Requests     Unit = "requests"            // requests started
	Tokens       Unit = "tokens"              // of prompt and completion together
	InputTokens  Unit = "input_tokens"        // of the prompt
	OutputTokens Unit = "output_tokens"       // of the completion
	Concurrency  Unit = "concurrent_requests" // running at once
	Bytes        Unit = "bytes"               // of content
)

// Absent is a count that is not known.
const Absent int64 = -1

// Unknown is a time that is not known.
const Unknown time.Duration = -1

// MaxWait is the longest reset or wait that is believed. Beyond it, and that
// includes a wrong unit, nothing sensible can be paced.
const MaxWait = 24 * time.Hour

// Refill says what a reset means.
type Refill uint8

const (
	RefillUnknown    Refill = iota // nobody says
	RefillContinuous               // until all is there again; it flows in all the time
	RefillWindow                   // until the window ends; then all is there at once
)

// String names r for dumps.
func (r Refill) String() string { return [...]string{"", "continuous", "window"}[r] }

// Observation is what a response says of one quota.
type Observation struct {
	Unit   Unit
	Window time.Duration // the quota's period; 0: not said
	// Scope names what the quota is of where that is not the whole account:
	// "project", "endpoint", or the policy's name of the IETF fields.
	Scope string

	Limit     int64         // most in a window; Absent: not said
	Remaining int64         // of it, when the response was made; Absent: not said
	Reset     time.Duration // from then on, see Refill; Unknown: not said
	Refill    Refill
}

// Afford is how long, from when the response was made, until the quota covers
// cost; 0 now, Unknown if the observation does not tell. A cost above the limit
// counts as the limit: the provider takes it when everything is there, or never.
func (o Observation) Afford(cost int64) time.Duration {
	if o.Remaining == Absent {
		return Unknown
	}
	if o.Limit != Absent {
		cost = min(cost, o.Limit)
	}
	switch missing := cost - o.Remaining; {
	case missing <= 0:
		return 0
	case o.Reset == Unknown:
		return Unknown
	case o.Refill == RefillContinuous && o.Limit > o.Remaining:
		// Limit - Remaining flow in within Reset.
		return time.Duration(float64(o.Reset) * float64(missing) / float64(o.Limit-o.Remaining))
	}
	return o.Reset
}

// Use is a part of a quota that was used, where the provider says no more.
type Use struct {
	Name   string        // as the provider calls it: "5h", "primary"
	Part   float64       // 0 to 1, and above when overdrawn
	Window time.Duration // 0: not said
	Reset  time.Duration // Unknown: not said
}

// Reading is all that one response says.
type Reading struct {
	Observations []Observation // ordered by unit, window, scope; at most one of each
	Uses         []Use
	// RetryAfter is when to try again, Unknown if it is not said. Zero means at
	// once: callers need a floor of their own.
	RetryAfter time.Duration
	// OverLimit says that the provider served the request beyond the quota.
	OverLimit bool
	// Cost is what the provider says it charged for the request; Absent: not said.
	Cost int64
	// Unknown lists the headers and members that held nothing sensible.
	Unknown []string
}

// Read reads a response. body is its first bytes if it is an error, else nil;
// provider, empty if not known, decides between meanings of one header name.
// now is when the response arrived: instants are told relative to it.
func Read(provider string, h http.Header, body []byte, now time.Time) Reading {
	r := reader{provider: strings.ToLower(provider), now: now, found: map[key]*Observation{}, uses: map[string]*Use{}}
	r.out.RetryAfter, r.out.Cost = Unknown, Absent
	r.table(h)
	r.ietf(h)
	r.retry(h)
	r.body(body)
	return r.reading()
}

// key tells observations apart.
type key struct {
	unit   Unit
	window time.Duration
	scope  string
}

// reader collects one Reading.
type reader struct {
	provider string
	now      time.Time
	found    map[key]*Observation
	uses     map[string]*Use
	out      Reading
}

// at is the observation of k, made if need be.
func (r *reader) at(k key) *Observation {
	o := r.found[k]
	if o == nil {
		o = &Observation{Unit: k.unit, Window: k.window, Scope: k.scope, Limit: Absent, Remaining: Absent, Reset: Unknown}
		r.found[k] = o
	}
	return o
}

// use is the use called name, made if need be.
func (r *reader) use(name string) *Use {
	u := r.uses[name]
	if u == nil {
		u = &Use{Name: name, Part: -1, Reset: Unknown}
		r.uses[name] = u
	}
	return u
}

// doubt notes a value that makes no sense.
func (r *reader) doubt(name string) {
	if !slices.Contains(r.out.Unknown, name) {
		r.out.Unknown = append(r.out.Unknown, name)
	}
}

// reading puts everything into order.
func (r *reader) reading() Reading {
	freed := map[key]bool{}
	for _, o := range r.found {
		if o.Limit == Absent && o.Remaining == Absent {
			continue // a reset of nothing
		}
		if free := (key{o.Unit, 0, o.Scope}); o.Reset > o.Window && o.Window > 0 && r.found[free] == nil && !freed[free] {
			o.Window, freed[free] = 0, true // the name promised another: OpenAI counts some by the day
		}
		r.out.Observations = append(r.out.Observations, *o)
	}
	slices.SortFunc(r.out.Observations, func(a, b Observation) int {
		return strings.Compare(a.sortKey(), b.sortKey())
	})
	for _, u := range r.uses {
		if u.Part >= 0 {
			r.out.Uses = append(r.out.Uses, *u)
		}
	}
	slices.SortFunc(r.out.Uses, func(a, b Use) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(r.out.Unknown)
	return r.out
}

func (o Observation) sortKey() string {
	return string(o.Unit) + " " + (time.Time{}).Add(o.Window).Format(time.RFC3339Nano) + " " + o.Scope
}
