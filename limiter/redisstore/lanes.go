package redisstore

import (
	"slices"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

// lane is the outbox's way to one server. One pipeline at a time is under way on
// it, so statements about a counter never overtake each other; what comes
// meanwhile is coalesced into the next. A server that hangs delays its own only.
// Guarded by outbox.mu, calls by whoever has made it busy.
type lane struct {
	busy    bool
	rest    time.Time // after a failure: no pipeline before
	backoff time.Duration
	calls   []*call // reused
}

// load is what one pipeline carries.
type load struct {
	node    *client
	lane    *lane
	settles []*settlement
	sts     []statement
	seq     int64 // of sts
}

// laneLocked returns a server's lane, made if need be.
func (o *outbox) laneLocked(n *client) *lane {
	l := o.lanes[n]
	if l == nil {
		l = &lane{backoff: retryFirst}
		o.lanes[n] = l
	}
	return l
}

// flush sends what is due over every lane that is free. last: also to servers
// taken for unusable, which nobody probes any more.
func (o *outbox) flush(now time.Time, last bool) {
	var loads []*load
	o.mu.Lock()
	defer o.mu.Unlock()
	pick := func(home limiter.ID) *load {
		n := o.store.router.of(home)
		if i := slices.IndexFunc(loads, func(l *load) bool { return l.node == n }); i >= 0 {
			return loads[i]
		}
		if n == nil || n.breaker.shut.Load() && !last {
			return nil
		}
		l := o.laneLocked(n)
		if l.busy || now.Before(l.rest) {
			return nil
		}
		loads = append(loads, &load{node: n, lane: l})
		return loads[len(loads)-1]
	}
	o.takeLocked(now, pick)
	seq := o.store.slots.due(func(id limiter.SlotID, st func() statement) bool {
		l := pick(o.store.home(id.Home))
		if l == nil || len(l.sts) == flushSlots {
			return false
		}
		l.sts = append(l.sts, st())
		return true
	})
	for _, l := range loads {
		if len(l.settles)+len(l.sts) > 0 {
			l.seq, l.lane.busy = seq, true
			o.sending.Go(func() { o.send(l, now) })
		}
	}
	o.pruneLocked()
}

// pruneLocked forgets the lanes of servers that decide no more.
func (o *outbox) pruneLocked() {
	nodes := o.store.router.table.Load().nodes
	if len(o.lanes) <= len(nodes) {
		return
	}
	for n, l := range o.lanes {
		if !l.busy && !slices.Contains(nodes, n) {
			delete(o.lanes, n)
		}
	}
}

// takeLocked moves the settlements that may be sent now into loads.
func (o *outbox) takeLocked(now time.Time, pick func(limiter.ID) *load) {
	kept := o.queue[:0]
	for _, p := range o.queue {
		if !now.Before(p.after) {
			if l := pick(p.home); l != nil && len(l.settles) < flushSettles {
				l.settles = append(l.settles, p)
				continue
			}
		}
		kept = append(kept, p)
	}
	clear(o.queue[len(kept):])
	o.queue = kept
}

// send runs one pipeline and takes its outcome. On a goroutine of its own, not
// through the queue: a flood of callers must not keep slots from being freed.
func (o *outbox) send(l *load, now time.Time) {
	s := o.store
	defer since(s.metrics.settleTime, now)
	calls := l.lane.calls[:0]
	add := func(home limiter.ID) *call {
		c := s.calls.Get().(*call)
		c.home, c.node, c.until = home, l.node, now.Add(settleFence)
		calls = append(calls, c)
		return c
	}
	statements := make([][]statement, len(l.settles))
	for i, p := range l.settles {
		statements[i] = o.prepare(p, now)
		add(p.home).buildSettle(p, s.inc, s.ttl, statements[i])
	}
	groups := s.byHome(l.sts)
	for _, sts := range groups {
		add(s.home(sts[0].id.Home)).buildLease(s.inc, l.seq, s.ttl, sts)
	}
	l.node.run(calls)
	s.count(l.node, calls)
	s.follow(calls)
	ok := true
	for i, p := range l.settles {
		ok = o.settled(p, calls[i], statements[i]) && ok
	}
	for i, sts := range groups {
		if c := calls[len(l.settles)+i]; c.err != nil {
			s.slots.mark(sts)
			ok = false
		} else {
			s.stated(l.seq, sts, c.reply[2:])
		}
	}
	for _, c := range calls {
		s.release(c)
	}
	clear(calls)
	o.sent(l.lane, calls, ok)
}

// sent frees a lane.
func (o *outbox) sent(l *lane, calls []*call, ok bool) {
	o.mu.Lock()
	l.busy, l.calls = false, calls
	if ok {
		l.backoff = retryFirst
	} else {
		l.rest = time.Now().Add(l.backoff)
		l.backoff = min(2*l.backoff, retryMost)
	}
	o.mu.Unlock()
	o.poke()
}

// byHome groups statements whose keys lie beside each other.
func (s *Store) byHome(sts []statement) (groups [][]statement) {
	if s.opts.Layout == LayoutSingle || len(sts) == 0 {
		if len(sts) > 0 {
			groups = append(groups, sts)
		}
		return groups
	}
	at := map[limiter.ID]int{}
	for _, st := range sts {
		home := s.home(st.id.Home)
		i, known := at[home]
		if !known {
			i = len(groups)
			at[home] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], st)
	}
	return groups
}

// follow sends calls again whose keys have moved, once, to where they are.
func (s *Store) follow(calls []*call) {
	for _, c := range calls {
		if c.err == nil || c.err.kind != "MOVED" && c.err.kind != "ASK" {
			continue
		}
		if n := s.router.redirect(c.err); n != nil && time.Now().Before(c.until) {
			c.node, c.asking = n, c.err.kind == "ASK"
			n.run([]*call{c})
			s.count(n, []*call{c})
		}
	}
}
