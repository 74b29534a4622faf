package config

import (
	"reflect"

	"github.com/headway-limiter/headway/limiter"
)

var fairQueuingType = reflect.TypeFor[FairQueuing]()

// Limiter translates the limits into the limiter's terms. Every identity is
// hashed here: the limiter never sees a name. The caller adds Registerer and
// Logger.
func (c *Config) Limiter() limiter.Config {
	r := &c.RateLimiting
	out := limiter.Config{
		Limits:        map[limiter.Dimension]limiter.Limit{},
		DefaultOutage: limiter.OutagePolicy(c.Redis.OnOutage),
		OnOutage:      map[limiter.Dimension]limiter.OutagePolicy{},
		Fair:          c.fair(),
		Deferral:      limiter.DeferralConfig{Enabled: r.DeferredAdmission.Enabled, MaxWait: r.DeferredAdmission.MaxWait(), MaxHeld: r.DeferredAdmission.MaxHeld},
		BatchDepth:    c.Batch.QueueDepthPerTenant,
		Homes:         c.Redis.Layout == LayoutTenant,
		LocalSlots:    r.InflightScope == ScopeReplica,
	}
	// Both lists have the same order; a test of the result would notice.
	for i, d := range limiter.Dimensions {
		entry := r.dimensions()[i]
		limit := limiter.Limit{Rule: entry.rule(entry.limit.Rule), Overrides: map[limiter.ID]limiter.Rule{}}
		for raw, rule := range entry.limit.Overrides {
			if d == limiter.Client {
				raw, _ = parseClient(raw)
			}
			limit.Overrides[limiter.Hash(d, raw)] = entry.rule(rule)
		}
		if d == limiter.APIKey {
			for _, key := range c.Keys {
				if key.RateLimit != nil {
					limit.Overrides[limiter.Hash(d, key.ID)] = entry.rule(*key.RateLimit)
				}
			}
		}
		if limit.Rule != (limiter.Rule{}) || len(limit.Overrides) > 0 {
			out.Limits[d] = limit
		}
		if p := entry.limit.OnOutage; p != "" {
			out.OnOutage[d] = limiter.OutagePolicy(p)
		}
	}
	return out
}

// rule translates one identity's limits, without the caps that are ignored in
// its dimension: the limiter would enforce them.
func (d dimension) rule(r Rule) limiter.Rule {
	out := limiter.Rule{Requests: r.Requests.Limiter(), Tokens: r.Tokens.Limiter()}
	if d.slots == inFlightOK {
		out.MaxInFlight = r.MaxInFlightRequests
	}
	return out
}

// Limiter translates a bucket: burst defaults to the limit, and a bucket that
// blocks everything has none. A nil Rate is unlimited: nil.
func (r *Rate) Limiter() *limiter.Rate {
	if r == nil {
		return nil
	}
	out := &limiter.Rate{Limit: r.Limit, Per: r.Per, Burst: r.Burst}
	if out.Burst == 0 || out.Limit == 0 {
		out.Burst = out.Limit
	}
	return out
}

// fair translates the wait line. Weights are matched by the hash of the
// tenant's name in the configured dimension.
func (c *Config) fair() limiter.FairConfig {
	f := c.RateLimiting.FairQueuing
	d := limiter.Dimension(f.TenantDimension)
	out := limiter.FairConfig{
		Enabled: f.Enabled, TenantDimension: d, DefaultWeight: f.DefaultWeight,
		Weights:                map[limiter.ID]float64{},
		MaxQueueDepthPerTenant: f.MaxQueueDepthPerTenant,
		MaxTotalQueued:         f.MaxTotalQueued,
		MaxTenants:             f.MaxTenants,
		MaxInFlight:            f.MaxInFlight,
		MaxWait:                f.MaxWait(),
		Scope:                  limiter.FairnessScope(f.FairnessScope),
		Discipline:             limiter.Discipline(f.Discipline),
	}
	for _, w := range f.Weights {
		out.Weights[limiter.Hash(d, w.Identity)] = w.Weight
	}
	return out
}
