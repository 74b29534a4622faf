package memstore

import "github.com/headway-limiter/headway/limiter"

// noSeq is below every sequence: nothing is stored for the incarnation.
const noSeq = -1

// entry is what one incarnation states about a counter.
type entry struct {
	count  int64
	expiry int64 // ms
	seq    int64
}

// lease is one in-flight counter: the entries of all incarnations. Redis also
// caches their total and first expiry; here scanning them is cheap enough.
type lease struct {
	entries map[string]entry
	gone    int64 // µs; from then on the counter is forgotten, as its key expires
}

// view is a counter as one incarnation finds it at an instant.
type view struct {
	own, seq, total int64
}

// leaseAt reads a counter. Entries of others past their expiry don't count;
// the own one does, since its owner is obviously alive.
func (c *core) leaseAt(now int64, key limiter.SlotID, inc string) view {
	v := view{seq: noSeq}
	l := c.leases[key]
	if l == nil || now >= l.gone {
		return v
	}
	for name, e := range l.entries {
		switch {
		case name == inc:
			v.own, v.seq = e.count, e.seq
		case now/1000 >= e.expiry:
			continue
		}
		v.total += e.count
	}
	return v
}

// decide tells whether a fits. A count above the cap (stated by a replica that
// slept, or under a lowered cap) refuses everybody until it has drained.
func (v view) decide(k call, a leaseArg) int64 {
	stale := v.seq >= k.seq
	switch {
	case stale && a.want > v.own:
		return leaseStale
	case stale && v.total > a.cap, !stale && v.total-v.own+a.want > a.cap:
		return leaseFull
	}
	return leaseFits
}

// writeLease states the count of an incarnation, drops the expired entries of
// others, and forgets the counter when nobody holds anything.
func (c *core) writeLease(now int64, k call, key limiter.SlotID, v view, count int64) {
	l := c.leases[key]
	if l == nil || now >= l.gone {
		l = &lease{entries: map[string]entry{}}
		c.leases[key] = l
	}
	for name, e := range l.entries {
		if name != k.inc && now/1000 >= e.expiry {
			delete(l.entries, name)
		}
	}
	delete(l.entries, k.inc)
	if count > 0 {
		l.entries[k.inc] = entry{count: count, expiry: now/1000 + k.ttl, seq: k.seq}
	}
	l.gone = max(l.gone, now+(k.ttl+graceMS)*1000)
	if v.total-v.own+count == 0 {
		delete(c.leases, key)
	}
}

// graceMS is how much longer than its last entry a counter is kept.
const graceMS = 1000

// renew moves the expiry of one incarnation's entries to now + ttl (ms).
func (c *core) renew(now int64, inc string, ttl int64) {
	for _, l := range c.leases {
		e, ok := l.entries[inc]
		if !ok {
			continue
		}
		e.expiry = now/1000 + ttl
		l.entries[inc] = e
		l.gone = 0
		for _, e := range l.entries {
			l.gone = max(l.gone, (e.expiry+graceMS)*1000)
		}
	}
}

// forget drops every entry of an incarnation.
func (c *core) forget(inc string) {
	for key, l := range c.leases {
		delete(l.entries, inc)
		if len(l.entries) == 0 {
			delete(c.leases, key)
		}
	}
}
