package agents

import "github.com/headway-limiter/headway/limiter"

// alone is the order of an agent's tenants at this replica while the store, which
// keeps that of the fleet, is out: start-time fair queueing over what is served here.
// Its zero value is that nobody was served yet.
type alone struct {
	v      float64 // virtual time: the greatest start tag served
	finish map[limiter.ID]float64
}

// turn returns the tags of a tenant, after it was served once more if granted.
func (o *alone) turn(tenant limiter.ID, weight float64, granted bool) (finish, since float64) {
	start, known := o.finish[tenant]
	if start = max(start, o.v); !known {
		start = o.v
	}
	if !granted {
		return start, o.v
	}
	if o.finish == nil {
		o.finish = map[limiter.ID]float64{}
	}
	o.v = start
	o.finish[tenant] = start + 1/weight
	return o.finish[tenant], o.v
}
