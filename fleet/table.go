package fleet

import (
	"maps"
	"slices"
	"time"
)

const (
	// Interval is how often a replica sends its digest.
	Interval = 200 * time.Millisecond
	// FreshFor is the age up to which a digest counts in estimates: three
	// intervals, so that two lost messages in a row cost nothing.
	FreshFor = 3 * Interval
	// Retention is the age at which a digest is forgotten. Longer than any
	// delivery takes, so that a copy still under way cannot bring back a replica
	// that is gone for more than another Retention.
	Retention = 5 * time.Second
)

// Table merges the digests of a fleet at one replica. It is not safe for
// concurrent use.
type Table struct {
	self   string
	own    Digest
	rival  uint64 // highest incarnation of self heard from others; 0: none
	others map[string]entry
}

type entry struct {
	digest Digest
	heard  time.Time
}

// NewTable returns the table of the replica called self.
func NewTable(self string) *Table {
	return &Table{self: self, others: map[string]entry{}}
}

// newer reports whether d is a higher version than e of the same replica.
func (d Digest) newer(e Digest) bool {
	if d.Incarnation != e.Incarnation {
		return d.Incarnation > e.Incarnation
	}
	return d.Sequence > e.Sequence
}

// Merge takes a digest of another replica, current at heard by this process's
// clock, and reports whether it is news: a version above the one known. The table
// keeps the digest's slices; the caller must not change them afterwards.
//
// A digest of the table's own replica is never stored: it can only be of a former
// life, or of another process that uses the same name. Nor is that of one more
// replica than a fleet may have (4096).
func (t *Table) Merge(d Digest, heard time.Time) bool {
	if d.Replica == t.self {
		if d.Incarnation > t.rival && d.Incarnation != t.own.Incarnation {
			t.rival = d.Incarnation
		}
		return false
	}
	known, ok := t.others[d.Replica]
	if ok && !d.newer(known.digest) {
		if !known.digest.newer(d) && heard.Before(known.heard) {
			known.heard = heard
			t.others[d.Replica] = known
		}
		return false
	}
	if !ok && len(t.others) >= maxReplicas {
		return false
	}
	t.others[d.Replica] = entry{d, heard}
	return true
}

// Announce makes d the next digest of this replica and returns it as it is to be
// sent: with the replica's name, the next sequence, and d's incarnation or, if
// the fleet remembers a higher one, one above that.
func (t *Table) Announce(d Digest) Digest {
	d.Replica = t.self
	d.Incarnation = max(d.Incarnation, t.own.Incarnation)
	if t.rival >= d.Incarnation {
		d.Incarnation = t.rival + 1
	}
	d.Sequence = t.own.Sequence + 1
	t.own = d
	return d
}

// Heard calls f with the last digest of each other replica and when it was heard.
func (t *Table) Heard(f func(d Digest, heard time.Time)) {
	for _, e := range t.others {
		f(e.digest, e.heard)
	}
}

// Expire forgets every replica not heard of for longer than Retention.
func (t *Table) Expire(now time.Time) {
	maps.DeleteFunc(t.others, func(_ string, e entry) bool { return now.Sub(e.heard) > Retention })
}

// Forget drops a replica that is known to have left.
func (t *Table) Forget(replica string) { delete(t.others, replica) }

// View takes a snapshot in which the members are this replica and all others in
// the table.
func (t *Table) View(now time.Time) *View { return t.ViewOf(now, slices.Collect(maps.Keys(t.others))) }

// ViewOf takes a snapshot of a fleet whose membership is known from elsewhere:
// others are the names of the other live members. One that no digest was heard
// of makes the view stale, and a digest of somebody who is not a member is left
// out.
func (t *Table) ViewOf(now time.Time, others []string) *View {
	v := &View{Self: t.self, Members: 1, At: now, pools: map[string][]Pool{}, agents: map[string]AgentLoad{}}
	slices.Sort(others)
	for _, name := range slices.Compact(others) {
		if name == t.self {
			continue
		}
		v.Members++
		e, ok := t.others[name]
		if !ok {
			v.Age = Retention
			continue
		}
		age := max(0, now.Sub(e.heard))
		v.Age = max(v.Age, age)
		v.Replicas = append(v.Replicas, e.digest)
		if age >= FreshFor {
			continue
		}
		for _, p := range e.digest.Pools {
			v.pools[p.Name] = append(v.pools[p.Name], p)
		}
		for _, a := range e.digest.Agents {
			sum := v.agents[a.Agent]
			v.agents[a.Agent] = AgentLoad{a.Agent, sum.Held + a.Held, sum.Waiting + a.Waiting}
		}
	}
	v.Fresh = v.Age < FreshFor
	return v
}
