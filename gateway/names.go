package gateway

import (
	"github.com/headway-limiter/headway/gateway/config"
	"github.com/headway-limiter/headway/limiter"
)

// names are the texts behind hashed ids that the configuration itself gives: ids,
// users and teams of keys, models and upstreams. What only requests name is not
// among them and stays a hash.
type names map[limiter.ID]string

// namesOf lists the names in cfg. Identities of weights and overrides are left
// out: they may be given by the environment, to be matched and not to be shown.
func namesOf(cfg *config.Config) names {
	all := names{}
	add := func(d limiter.Dimension, raw string) {
		if id := limiter.Hash(d, raw); id != "" {
			all[id] = raw
		}
	}
	for _, k := range cfg.Keys {
		add(limiter.APIKey, k.ID)
		add(limiter.User, k.User)
		add(limiter.Team, k.TeamID())
	}
	for _, u := range cfg.Upstreams {
		add(limiter.Backend, u.Name)
		for _, m := range u.Models {
			add(limiter.Model, m)
		}
	}
	all[limiter.Everyone] = "everyone"
	return all
}

// of is the name of id, or id itself.
func (n names) of(id limiter.ID) string {
	if name := n[id]; name != "" {
		return name
	}
	return string(id)
}
