package throttle

import (
	"time"

	"github.com/headway-limiter/headway/limiter/quota"
)

// kind finds out whether a quota flows or is renewed at once, where the provider's
// dialect leaves that open: what its resets count to is seen from how they change.
type kind struct {
	last  quota.Observation
	at    time.Time
	votes int // > 0: it flows
	asked bool
}

const (
	mostVotes = 5 // so that a provider that changes is believed again
	// plausible is the longest period of a quota that flows, if a first observation
	// is to be taken for one: nearly all are a minute, or are told by the day.
	plausible = 90 * time.Second
)

// of returns o with its refill, observed at an instant.
func (k *kind) of(o quota.Observation, at time.Time) quota.Observation {
	missing := o.Limit - o.Remaining
	if o.Refill != quota.RefillUnknown || o.Reset == quota.Unknown || o.Limit <= 0 || o.Remaining < 0 {
		return o
	}
	was := k.last.Limit - k.last.Remaining
	switch {
	case !k.asked:
		k.votes, k.asked = -1, true
		if missing == 0 && o.Reset == 0 || missing > 0 && period(o) <= plausible {
			k.votes = 1
		}
	case missing > 0 && was > 0 && at.After(k.at):
		// A window's end stays where it is; a flow needs as long for each that is
		// missing.
		end := at.Add(o.Reset).Sub(k.at.Add(k.last.Reset)).Abs()
		pace := (o.Reset - time.Duration(float64(k.last.Reset)*float64(missing)/float64(was))).Abs()
		if end < pace {
			k.votes = max(k.votes-1, -mostVotes)
		} else if pace < end {
			k.votes = min(k.votes+1, mostVotes)
		}
	}
	k.last, k.at = o, at
	o.Refill = quota.RefillWindow
	if k.votes >= 0 {
		o.Refill = quota.RefillContinuous
	}
	return o
}

// period of an observation whose quota flows: in which all of it would.
func period(o quota.Observation) time.Duration {
	ns := float64(o.Reset) * float64(o.Limit) / float64(o.Limit-o.Remaining)
	return time.Duration(min(ns, 1<<62)) // more than a Duration holds is very long, not negative
}
