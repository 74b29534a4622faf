package rls

import (
	"fmt"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/headway-limiter/headway/limiter"
)

// Charge says what the hits of a mapped entry are.
type Charge string

const (
	ChargeRequests Charge = "requests" // requests, taken before they start
	ChargeTokens   Charge = "tokens"   // tokens, taken before they are used
	ChargeSpent    Charge = "spent"    // tokens used already: charged in any case, into debt if need be
)

// Identity maps the entries of one key to a dimension.
type Identity struct {
	Key       string
	Dimension limiter.Dimension
	Charge    Charge // empty: ChargeRequests
}

// Entry is one part of a descriptor. An empty Value stands for any.
type Entry struct{ Key, Value string }

// Limit is a limit on the descriptors that match it, each with a bucket of its
// own.
type Limit struct {
	Domain  string // empty: any
	Entries []Entry
	Rate    limiter.Rate
}

// part is what one descriptor asks.
type part struct {
	asks  []limiter.Ask // Cost is what is taken now
	spent []limiter.Ask // charged in any case
	back  []limiter.Ask // given back
}

// rules finds out what limits a descriptor.
type rules struct {
	identities map[string][]Identity // by key
	limits     []Limit
	all        bool // tell all levels
}

func newRules(m Meaning) *rules {
	r := &rules{identities: map[string][]Identity{}, limits: m.Limits, all: m.AllLevels}
	for _, i := range m.Identities {
		r.identities[i.Key] = append(r.identities[i.Key], i)
	}
	return r
}

// read turns a descriptor into asks. The error is the caller's fault.
func (r *rules) read(domain string, d *common.RateLimitDescriptor, hits int64) (part, error) {
	var p part
	if h := d.GetHitsAddend(); h != nil {
		if h.Value > maxHits {
			return p, fmt.Errorf("hits_addend %d is more than %d", h.Value, int64(maxHits))
		}
		hits = int64(h.Value)
	}
	own, err := r.own(domain, d)
	if err != nil {
		return p, err
	}
	if own != nil {
		p.add(*own, hits, ChargeRequests, d.GetIsNegativeHits())
	}
	if d.GetLimit() != nil {
		return p, nil
	}
	for _, e := range d.GetEntries() {
		for _, i := range r.identities[e.GetKey()] {
			p.add(limiter.Ask{Bucket: i.bucket(e.GetValue())}, hits, i.Charge, d.GetIsNegativeHits())
		}
	}
	return p, nil
}

// add files an ask of so many hits under what is to be done with it.
func (p *part) add(a limiter.Ask, hits int64, charge Charge, negative bool) {
	look, all := a, a
	all.Cost = hits
	switch {
	case negative:
		p.back, p.asks = append(p.back, all), append(p.asks, look)
	case charge == ChargeSpent:
		p.spent, p.asks = append(p.spent, all), append(p.asks, look)
	default:
		p.asks = append(p.asks, all)
	}
}

// own is the limit of the descriptor itself: the one it brings, or the first
// configured one that matches; nil if there is none.
func (r *rules) own(domain string, d *common.RateLimitDescriptor) (*limiter.Ask, error) {
	var rate limiter.Rate
	if o := d.GetLimit(); o != nil {
		var err error
		if rate, err = rateOf(o); err != nil {
			return nil, err
		}
	} else {
		found := r.match(domain, d.GetEntries())
		if found == nil {
			return nil, nil
		}
		rate = found.Rate
	}
	var id strings.Builder
	id.WriteString(domain)
	for _, e := range d.GetEntries() {
		// Lengths keep "a","bc" and "ab","c" apart.
		fmt.Fprintf(&id, "\x00%d:%s%d:%s", len(e.GetKey()), e.GetKey(), len(e.GetValue()), e.GetValue())
	}
	b := limiter.BucketID{Dimension: limiter.Descriptor, ID: limiter.Hash(limiter.Descriptor, id.String())}
	return &limiter.Ask{Bucket: b, Rate: &rate}, nil
}

// rateOf reads a limit that a descriptor brings along. Its burst is its limit.
func rateOf(o *common.RateLimitDescriptor_RateLimitOverride) (limiter.Rate, error) {
	unit, ok := units[o.GetUnit()]
	if !ok {
		return limiter.Rate{}, fmt.Errorf("limit: unit %v is not known", o.GetUnit())
	}
	times := time.Duration(1)
	if m := o.GetUnitMultiplier(); m != nil {
		times = time.Duration(m.Value)
	}
	if times < 1 || times > longest/unit {
		return limiter.Rate{}, fmt.Errorf("limit: a period of %d times %v is not in 1 second to 100 years", times, unit)
	}
	n := int64(o.GetRequestsPerUnit())
	return limiter.Rate{Limit: n, Per: times * unit, Burst: n}, nil
}

// match is the first limit for these entries.
func (r *rules) match(domain string, entries []*common.RateLimitDescriptor_Entry) *Limit {
	for i, l := range r.limits {
		if (l.Domain == "" || l.Domain == domain) && l.fits(entries) {
			return &r.limits[i]
		}
	}
	return nil
}

func (l Limit) fits(entries []*common.RateLimitDescriptor_Entry) bool {
	if len(entries) != len(l.Entries) {
		return false
	}
	for i, e := range entries {
		want := l.Entries[i]
		if e.GetKey() != want.Key || (want.Value != "" && e.GetValue() != want.Value) {
			return false
		}
	}
	return true
}

// bucket is that of one identity, spelled as the gateway spells it.
func (i Identity) bucket(value string) limiter.BucketID {
	b := limiter.BucketID{Dimension: i.Dimension, Class: limiter.Requests}
	if i.Charge == ChargeTokens || i.Charge == ChargeSpent {
		b.Class = limiter.Tokens
	}
	switch i.Dimension {
	case limiter.Global:
		b.ID = limiter.Everyone
	case limiter.Client:
		b.ID = limiter.Hash(limiter.Client, clientIdentity(value))
	default:
		b.ID = limiter.Hash(i.Dimension, value)
	}
	return b
}

// units are those of Envoy. A month is 30 days and a year 365: buckets refill
// all the time and know no calendar.
var units = map[typev3.RateLimitUnit]time.Duration{
	typev3.RateLimitUnit_SECOND: time.Second,
	typev3.RateLimitUnit_MINUTE: time.Minute,
	typev3.RateLimitUnit_HOUR:   time.Hour,
	typev3.RateLimitUnit_DAY:    day,
	typev3.RateLimitUnit_MONTH:  30 * day,
	typev3.RateLimitUnit_YEAR:   365 * day,
}

const (
	day     = 24 * time.Hour
	longest = 100 * 365 * day
	// maxHits bounds what one message takes or gives: as many as any bucket holds.
	maxHits = 9_000_000_000
)
