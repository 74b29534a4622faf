package fleet

import (
	"math"
	"time"
)

// View is what one replica knows of the fleet at one instant. It never changes
// and may be read by any number of goroutines.
type View struct {
	Self    string
	Members int // replicas alive including this one, ≥ 1; wrong for seconds after a crash
	// Fresh reports whether every other member was heard of within FreshFor. A
	// fleet of one is always fresh.
	Fresh bool
	// Age is the time since the member heard of longest ago; 0 in a fleet of one,
	// Retention if some member was never heard of.
	Age time.Duration
	At  time.Time // of the snapshot

	// Replicas are the last digests of the other members, by name, however old.
	Replicas []Digest
	// Of other replicas, from fresh digests only.
	pools  map[string][]Pool
	agents map[string]AgentLoad // sums
}

// Ahead returns the waiters of the whole fleet that will be served before a
// waiter that has ahead others before it in the local line of a pool, if grants
// here are spacing apart. Where either side's spacing is unknown (0) the other
// replica is taken to be as fast as this one. The result is not below ahead.
func (v *View) Ahead(pool string, ahead int, spacing time.Duration) int {
	total := ahead
	for _, p := range v.pools[pool] {
		served := float64(ahead)
		if spacing > 0 && p.Spacing > 0 {
			served = math.Round(served * float64(spacing) / float64(p.Spacing))
		}
		total += int(min(float64(p.Depth), served))
	}
	return total
}

// Spacing returns the gap between grants of a pool over the whole fleet, if own
// is the gap here. Replicas that know of none (0) are left out; 0 when nobody
// knows.
func (v *View) Spacing(pool string, own time.Duration) time.Duration {
	rate := 0.0 // grants per nanosecond
	add := func(s time.Duration) {
		if s > 0 {
			rate += 1 / float64(s)
		}
	}
	add(own)
	for _, p := range v.pools[pool] {
		add(p.Spacing)
	}
	if rate == 0 {
		return 0
	}
	return time.Duration(math.Round(1 / rate))
}

// Expect returns the gap between grants that a line here is to expect: own when
// it is known. A line without grants lately takes the other replicas' word: k of
// them grant Σ 1/s per second, and one more that competes gets an equal part, so
// it expects (k+1)/Σ(1/s). 0 when nobody knows.
//
// A wait is best foreseen as local waiters ahead × Expect. Ahead × Spacing looks
// equal but promises too little wherever another line is short: it leaves out
// those who will come to that line meanwhile (see TestEstimateErrorSpec).
func (v *View) Expect(pool string, own time.Duration) time.Duration {
	if own > 0 {
		return own
	}
	k := 0
	for _, p := range v.pools[pool] {
		if p.Spacing > 0 {
			k++
		}
	}
	return time.Duration(k+1) * v.Spacing(pool, 0)
}

// Waiting returns how many wait for a pool at other replicas.
func (v *View) Waiting(pool string) int {
	n := 0
	for _, p := range v.pools[pool] {
		n += p.Depth
	}
	return n
}

// Agent sums the load of an agent at other replicas.
func (v *View) Agent(name string) AgentLoad { return v.agents[name] }

// Alone is a fleet of one replica, which needs no gossip. It is safe for
// concurrent use.
type Alone struct{ name string }

// Solo returns the fleet that consists of the named replica only.
func Solo(name string) Alone { return Alone{name} }

// View returns a view without others, always fresh.
func (a Alone) View() *View { return &View{Self: a.name, Members: 1, Fresh: true, At: time.Now()} }

// Publish does nothing: there is nobody to tell.
func (Alone) Publish([]Pool, int64) {}
