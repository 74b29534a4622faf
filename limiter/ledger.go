package limiter

import (
	"errors"
	"sync"
	"time"
)

const (
	// maxLedger bounds the tenants that are counted one by one; all others
	// together make one more.
	maxLedger = 1024
	// ledgerMemory is after how much silence a tenant makes room for another.
	ledgerMemory = 10 * time.Minute
	// sweepEvery bounds how often a full ledger is searched for the silent.
	sweepEvery = time.Second
)

// ledger counts what became of each tenant's requests, for people to look at.
// Unlike metric series it may forget: a tenant that is silent for long makes room
// for one that is not. It is safe for concurrent use.
type ledger struct {
	mu      sync.Mutex
	tenants map[ID]*ledgerEntry
	others  ledgerEntry // who came when there was no room
	swept   time.Time
}

// ledgerEntry is what is known of one tenant. Counters never fall, but for a
// request that was admitted and turned out not to have started.
type ledgerEntry struct {
	Tenant
	admitted uint64
	refused  map[Reason]uint64 // nil: none
	portion                    // at contended pools
	touched  time.Time
}

func newLedger() *ledger { return &ledger{tenants: map[ID]*ledgerEntry{}} }

// entryLocked returns the entry of a tenant, made if there is room, else that of
// all others.
func (l *ledger) entryLocked(t Tenant, now time.Time) *ledgerEntry {
	e := l.tenants[t.ID]
	if e == nil {
		if len(l.tenants) >= maxLedger && now.Sub(l.swept) >= sweepEvery {
			l.swept = now
			for id, old := range l.tenants {
				if now.Sub(old.touched) > ledgerMemory {
					delete(l.tenants, id)
				}
			}
		}
		if len(l.tenants) >= maxLedger {
			return &l.others
		}
		e = &ledgerEntry{}
		l.tenants[t.ID] = e
	}
	e.Tenant, e.touched = t, now
	return e
}

// arrive makes a tenant known before its request is decided: it may wait.
func (l *ledger) arrive(t Tenant, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entryLocked(t, now)
}

// admit counts a request that may start.
func (l *ledger) admit(t Tenant, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entryLocked(t, now).admitted++
}

// refuse counts one that may not.
func (l *ledger) refuse(t Tenant, why Reason, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entryLocked(t, now).refuse(why)
}

func (e *ledgerEntry) refuse(why Reason) {
	if e.refused == nil {
		e.refused = map[Reason]uint64{}
	}
	e.refused[why]++
}

// void takes back that a tenant's request was admitted; why is the reason it
// was refused for afterwards, empty if none is known.
func (l *ledger) void(id ID, why Reason, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.tenants[id]
	if e == nil {
		return
	}
	e.touched = now
	e.admitted -= min(1, e.admitted)
	if why != "" {
		e.refuse(why)
	}
}

// divide books a tenant's portion of an interval. Who has never asked here is not
// counted here: its weight is not known for sure.
func (l *ledger) divide(id ID, p portion) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.tenants[id]; e != nil {
		e.entitled += p.entitled
		e.received += p.received
		e.fleetEntitled += p.fleetEntitled
		e.fleetReceived += p.fleetReceived
	}
}

// tally counts the outcome of an admission for a tenant.
func (l *Limiter) tally(tenant Tenant, grant *Grant, err error) {
	var refusal *Refusal
	switch {
	case grant != nil:
		grant.tenant = tenant.ID
		l.metrics.ledger.admit(tenant, time.Now())
	case errors.As(err, &refusal):
		l.metrics.ledger.refuse(tenant, refusal.Reason, time.Now())
	}
}
