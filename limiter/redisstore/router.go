package redisstore

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-limiter/headway/limiter"
)

const (
	// lookEvery is how long a change of the servers' parts may go unnoticed when
	// no reply tells of it, e.g. that a slot got another master.
	lookEvery = time.Second
	// lookSoon is the pause between two looks while something is wrong. A failover
	// is noticed that much after it, on average half of it.
	lookSoon = 100 * time.Millisecond
	// firstLooks is how often New looks at most before it goes on without servers.
	// A busy machine may miss findTime, and callers would be refused for nothing.
	firstLooks = 4
	// retireAfter is how long a server that keeps nothing any more is still
	// served: calls that were routed to it just before must find their workers.
	retireAfter = 2 * time.Second
)

// table says which server decides about which keys. It is never changed.
type table struct {
	nodes  []*client    // all servers that decide, in the order of their addresses
	owners []*client    // of each slot of a cluster, nil where nobody is known; or nil
	homes  []limiter.ID // of each node: a home whose keys it keeps, to probe it with
	keeps  []bool       // of each node: whether it keeps any keys
}

// of returns the server of a home's keys; nil if none is known.
func (t *table) of(home limiter.ID) *client {
	switch {
	case t.owners != nil:
		return t.owners[hashSlot(hashTag(home))]
	case len(t.nodes) > 0:
		return t.nodes[0]
	}
	return nil
}

// newTable finds for each node a home to probe it with, the shared one if it
// keeps that: its probe is then the presence that other replicas count.
func newTable(nodes []*client, owners []*client) *table {
	t := &table{nodes: nodes, owners: owners, homes: make([]limiter.ID, len(nodes)), keeps: make([]bool, len(nodes))}
	if owners == nil {
		for i := range nodes {
			t.keeps[i] = true
		}
		return t
	}
	missing := map[*client]bool{}
	for _, n := range owners {
		if n != nil {
			missing[n] = true
		}
	}
	find := func(home limiter.ID) {
		if n := t.of(home); missing[n] {
			i := slices.Index(nodes, n)
			t.homes[i], t.keeps[i] = home, true
			delete(missing, n)
		}
	}
	find("")
	// Tags hash evenly: even a server of one slot has its own after some 16,384
	// tries, and 16 times as many miss it in one of 10^7 cases.
	for i := 0; len(missing) > 0 && i < 16*slotCount; i++ {
		find(limiter.ID(strconv.Itoa(i)))
	}
	return t
}

// router knows the servers. Of a standalone server it only ever knows that one;
// for the others a scout keeps the table true.
type router struct {
	store *Store
	scout scout // nil: standalone
	table atomic.Pointer[table]
	none  limiter.Health // told while no server is known
	hint  chan struct{}  // of capacity 1: look now
	quit  chan struct{}
	wg    sync.WaitGroup

	// Of openRouter, then of the scout's goroutine alone, and of close after it.
	opened  bool // new servers are watched from the start
	missed  int  // looks in a row that told nothing
	known   map[string]*client
	retired []retiree
}

// retiree is a server that no call is routed to any more.
type retiree struct {
	node *client
	at   time.Time
}

// scout finds out which servers decide. Its methods are called by one goroutine.
type scout interface {
	// find returns the masters' addresses and who owns which slot (nil outside of
	// a cluster). The error says of each who was asked why nobody told; it gives up
	// soon enough.
	find(t *table) (masters []string, owners []string, err error)
	close()
}

// openRouter learns the servers of s, connects and probes them.
func openRouter(s *Store) error {
	r := &router{
		store: s, hint: make(chan struct{}, 1), quit: make(chan struct{}), known: map[string]*client{},
		none: limiter.Health{State: errNowhere.Error(), Since: time.Now()},
	}
	r.table.Store(newTable(nil, nil))
	switch s.opts.Mode {
	case ModeSentinel:
		r.scout = newSentinels(s.opts)
	case ModeCluster:
		r.scout = newSurvey(s.opts)
	}
	s.router = r
	if r.scout == nil {
		if err := r.adopt([]string{s.opts.Address}, nil); err != nil {
			return err
		}
	} else {
		for range firstLooks {
			if r.refresh() {
				break
			}
		}
	}
	// The first probes load a script, start the fences and decide whether servers
	// begin usable, so that a caller right after New is not refused.
	r.probeAll()
	if r.scout != nil {
		r.wg.Go(r.run)
	}
	return nil
}

// probeAll probes each server, and goes on to watch it.
func (r *router) probeAll() {
	var wg sync.WaitGroup
	for _, n := range r.table.Load().nodes {
		wg.Go(func() {
			if why := r.store.probe(n); why != "" {
				n.breaker.trip(time.Now(), why)
			}
		})
	}
	wg.Wait()
	for _, n := range r.table.Load().nodes {
		r.store.watched.Go(func() { r.store.watch(n) })
	}
	r.opened = true
}

// of returns the server of a home's keys; nil if none is known.
func (r *router) of(home limiter.ID) *client { return r.table.Load().of(home) }

// refusal returns the error for callers that need keys of a server that is taken
// for unusable, else nil.
func (r *router) refusal(home limiter.ID) error {
	n := r.of(home)
	if n == nil {
		return errNoServer
	}
	return n.breaker.refusal()
}

var errNoServer = fmt.Errorf("redisstore: %w: %w", errNowhere, limiter.ErrUnavailable)

// probeHome returns the home whose keys a server is probed with.
func (r *router) probeHome(n *client) (home limiter.ID, keeps bool) {
	t := r.table.Load()
	if i := slices.Index(t.nodes, n); i >= 0 {
		return t.homes[i], t.keeps[i]
	}
	return "", false
}

// look asks the scout to look soon, because n is in trouble or told of others.
func (r *router) look(*client) {
	select {
	case r.hint <- struct{}{}:
	default:
	}
}

// run keeps the table true until close. Looks are at least lookSoon apart.
func (r *router) run() {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-r.quit:
			return
		case <-r.hint:
			if pause := lookSoon - time.Since(last); pause > 0 {
				timer.Reset(pause)
				continue
			}
		case <-timer.C:
		}
		last = time.Now()
		ok := r.refresh()
		r.bury(last)
		if ok && r.troubled() == 0 {
			timer.Reset(lookEvery)
		} else {
			timer.Reset(lookSoon)
		}
	}
}

// troubled counts servers with an open breaker.
func (r *router) troubled() (n int) {
	for _, c := range r.table.Load().nodes {
		if c.breaker.shut.Load() {
			n++
		}
	}
	return n
}

// refresh looks once; it reports whether anybody told.
func (r *router) refresh() bool {
	masters, owners, err := r.scout.find(r.table.Load())
	r.looked(err)
	if err != nil {
		return false
	}
	if err := r.adopt(masters, owners); err != nil {
		r.store.log.Warn("store servers", "err", err)
		return false
	}
	return true
}

// adopt makes a table of what was found, if it differs from the present one:
// connects to new servers, all at once, and retires those gone.
func (r *router) adopt(masters, owners []string) error {
	if r.same(masters, owners) {
		return nil
	}
	if err := r.connect(masters); err != nil {
		return err
	}
	nodes := make([]*client, len(masters))
	for i, addr := range masters {
		nodes[i] = r.known[addr]
	}
	var own []*client
	if owners != nil {
		own = make([]*client, slotCount)
		for i, addr := range owners {
			own[i] = r.known[addr] // nil for ""
		}
	}
	old := r.table.Load()
	r.table.Store(newTable(nodes, own))
	for _, n := range old.nodes {
		if !slices.Contains(nodes, n) {
			delete(r.known, n.addr)
			r.retired = append(r.retired, retiree{n, time.Now()})
		}
	}
	r.changed()
	if len(old.nodes) > 0 {
		r.store.log.Info("store servers", "masters", masters)
		// Who takes over may have missed the last writes of who was before.
		r.store.slots.markAll()
		r.store.outbox.poke()
	}
	return nil
}

// same reports whether the table says this already.
func (r *router) same(masters, owners []string) bool {
	t := r.table.Load()
	if !slices.EqualFunc(t.nodes, masters, func(n *client, addr string) bool { return n.addr == addr }) {
		return false
	}
	return slices.EqualFunc(t.owners, owners, func(n *client, addr string) bool {
		return n == nil && addr == "" || n != nil && n.addr == addr
	})
}

// connect makes clients for those servers that have none. Dialling may take
// some 200 ms, so it is done side by side.
func (r *router) connect(masters []string) error {
	s := r.store
	type made struct {
		node *client
		err  error
	}
	results := make([]made, len(masters))
	var wg sync.WaitGroup
	for i, addr := range masters {
		if r.known[addr] == nil {
			wg.Go(func() { results[i].node, results[i].err = newClient(s.opts, addr, s.metrics, s.breakerChanged) })
		}
	}
	wg.Wait()
	for i, m := range results {
		if m.err != nil {
			return m.err
		}
		if m.node == nil {
			continue
		}
		r.known[masters[i]] = m.node
		m.node.start(s.finish)
		if r.opened {
			s.watched.Go(func() { s.watch(m.node) })
		}
	}
	return nil
}

// bury closes servers that have been retired for long enough.
func (r *router) bury(now time.Time) {
	kept := r.retired[:0]
	for _, old := range r.retired {
		if now.Sub(old.at) < retireAfter {
			kept = append(kept, old)
			continue
		}
		r.wg.Go(func() { r.store.bury(old.node) })
	}
	r.retired = kept
}

// bury closes a server's client and ends what nobody has taken from its queue.
func (s *Store) bury(n *client) {
	n.close()
	for {
		select {
		case c := <-n.queue:
			c.err, c.ran = errNotSent, ranNot
			s.finish(n, []*call{c})
		default:
			return
		}
	}
}

// stop ends the scout; no server is added or removed from then on.
func (r *router) stop() {
	close(r.quit)
	r.wg.Wait()
	if r.scout != nil {
		r.scout.close()
	}
}

// close cuts every connection and waits for all goroutines; after stop.
func (r *router) close() {
	var wg sync.WaitGroup
	for _, n := range r.table.Load().nodes {
		wg.Go(n.close)
	}
	for _, old := range r.retired {
		wg.Go(old.node.close)
	}
	wg.Wait()
}

// changed brings metrics and health up to date after a breaker or the table has
// changed. It may be called under a breaker's lock, so it takes none.
func (r *router) changed() { r.store.metrics.open.Set(float64(r.troubled())) }

// health describes the servers as one. Unusable: the server of the shared keys
// in layout single, every server in layout tenant, where the requests of some
// tenants may do without any given one.
func (r *router) health() limiter.Health {
	t := r.table.Load()
	var bad limiter.Health
	shut := 0
	for _, n := range t.nodes {
		h := n.breaker.health()
		if h.Usable {
			continue
		}
		if shut++; bad.State == "" || h.Since.Before(bad.Since) {
			bad = h
			bad.State = cmp.Or(h.State, "trouble")
			if len(t.nodes) > 1 {
				bad.State = n.addr + ": " + h.State
			}
		}
	}
	home := t.of("")
	switch {
	case home == nil:
		return r.none
	case shut == 0:
		return home.breaker.health()
	case shut == len(t.nodes):
	case r.store.opts.Layout == LayoutTenant:
		bad.Usable = true
	case home.breaker.shut.Load():
		return home.breaker.health()
	default:
		bad.Usable = true
	}
	return bad
}
