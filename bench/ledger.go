package bench

import (
	"math"
	"sync"
	"time"
)

// Bounds of a Ledger's memory.
const (
	// maxAccounts bounds the tenants, and the models, with an account of their
	// own. Names come from requests, so whoever comes later shares otherName.
	maxAccounts = 100_000
	otherName   = "(other)"
	// maxArrivals is how many arrivals and ends are kept, the newest: 24 MB each.
	maxArrivals = 1 << 20
)

// Ledger is what a provider saw. It is the judge of a run: everything in it is
// counted on the provider's side of the wire. It is safe for concurrent use.
type Ledger struct {
	window time.Duration // of starts per window, > 0

	mu       sync.Mutex
	since    time.Time
	total    *account
	tenants  map[string]*account
	models   map[string]*account
	refused  int64           // answered 429 by the provider's own quota, not started
	faults   map[Fault]int64 // started and spoiled on purpose
	arrivals ring
	ends     ring
	first    time.Duration // arrival of the first, kept when the ring forgets it
}

// ring keeps the newest of what happened.
type ring struct {
	list []Arrival // a ring once it is full
	seen int64     // so many were added: the next place in the ring
}

func (r *ring) add(a Arrival) {
	if len(r.list) < maxArrivals {
		r.list = append(r.list, a)
	} else {
		r.list[r.seen%maxArrivals] = a
	}
	r.seen++
}

// all copies the ring, in order.
func (r *ring) all() []Arrival {
	oldest := int64(0)
	if r.seen > maxArrivals {
		oldest = r.seen % maxArrivals
	}
	return append(append(make([]Arrival, 0, len(r.list)), r.list[oldest:]...), r.list[:oldest]...)
}

// account counts one tenant, one model or everything.
type account struct {
	Account
	window   int64 // number of the window that inWindow counts
	inWindow int64
}

// Account is what a ledger has written under one name.
type Account struct {
	// Starts is how many requests began.
	Starts int64 `json:"starts"`
	// InFlight is how many run now, and Peak the most that ever ran at once.
	InFlight int64 `json:"in_flight"`
	Peak     int64 `json:"peak_in_flight"`
	// Cost is the tokens of all requests that ended, 1 for each without tokens.
	Cost int64 `json:"cost"`
	// PeakWindow is the most starts in one window; windows lie side by side.
	PeakWindow int64 `json:"peak_starts_per_window"`
}

// Snapshot is a copy of a ledger at one instant.
type Snapshot struct {
	Since    time.Time `json:"since"`
	ElapsedS float64   `json:"elapsed_s"`
	WindowS  float64   `json:"window_s"`
	// FirstS and LastS are the first and the last arrival, in seconds after
	// Since; both are 0 when nothing arrived.
	FirstS  float64            `json:"first_arrival_s"`
	LastS   float64            `json:"last_arrival_s"`
	Total   Account            `json:"total"`
	Refused int64              `json:"refused"`
	Faults  map[Fault]int64    `json:"faults"`
	Tenants map[string]Account `json:"tenants"`
	Models  map[string]Account `json:"models"`
}

// NewLedger returns an empty ledger that counts starts per window; a window
// ≤ 0 means one second.
func NewLedger(window time.Duration) *Ledger {
	if window <= 0 {
		window = time.Second
	}
	l := &Ledger{
		window: window, since: time.Now(), total: &account{},
		tenants: map[string]*account{}, models: map[string]*account{}, faults: map[Fault]int64{},
	}
	return l
}

// Arrival is one start, or one end.
type Arrival struct {
	At     time.Duration // since Snapshot.Since
	Tenant string
	// Left is what a start left of the provider's own quota of requests, as a part of
	// the limit; 1 if there is none. Of an end it is 0.
	Left float64
}

// Call is one request between its start and its end.
type Call struct {
	ledger        *Ledger
	name          string // of the tenant
	tenant, model *account
	ended         bool // guarded by ledger.mu
}

// Start writes down that a request began now.
func (l *Ledger) Start(tenant, model string) *Call { return l.start(tenant, model, 1) }

// start is Start of a request that left so much of the quota.
func (l *Ledger) start(tenant, model string, left float64) *Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Read under the lock, so that arrivals are written in order.
	at := time.Since(l.since)
	if l.arrivals.seen == 0 {
		l.first = at
	}
	l.arrivals.add(Arrival{At: at, Tenant: tenant, Left: left})
	c := &Call{ledger: l, name: tenant, tenant: accountIn(l.tenants, tenant), model: accountIn(l.models, model)}
	w := int64(at / l.window)
	l.total.start(w)
	c.tenant.start(w)
	c.model.start(w)
	return c
}

// End writes down that the request has ended and what it cost. It comes before
// the last byte of the answer: whoever reads that byte finds the place free.
// Only the first call counts.
func (c *Call) End(cost int64) {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	c.ledger.ends.add(Arrival{At: time.Since(c.ledger.since), Tenant: c.name})
	for _, a := range [...]*account{c.ledger.total, c.tenant, c.model} {
		a.InFlight--
		a.Cost += cost
	}
}

// refuse counts a request that the provider's own quota turned away.
func (l *Ledger) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused++
}

// spoil counts a fault.
func (l *Ledger) spoil(f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults[f]++
}

// Reset begins a new page. Requests that run now stay in flight on it, and
// their cost will be counted there, but not their start.
func (l *Ledger) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.since, l.arrivals, l.ends, l.first = time.Now(), ring{}, ring{}, 0
	l.refused, l.faults = 0, map[Fault]int64{}
	l.total.reset()
	for _, accounts := range [...]map[string]*account{l.tenants, l.models} {
		for name, a := range accounts {
			if a.reset(); a.InFlight == 0 {
				delete(accounts, name)
			}
		}
	}
}

// Snapshot copies the ledger.
func (l *Ledger) Snapshot() Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Snapshot{
		Since: l.since, ElapsedS: time.Since(l.since).Seconds(), WindowS: l.window.Seconds(),
		FirstS: l.first.Seconds(), Total: l.total.Account, Refused: l.refused, Faults: map[Fault]int64{},
		Tenants: copyAccounts(l.tenants), Models: copyAccounts(l.models),
	}
	if n := l.arrivals.seen; n > 0 {
		s.LastS = l.arrivals.list[(n-1)%maxArrivals].At.Seconds()
	}
	for f, n := range l.faults {
		s.Faults[f] = n
	}
	return s
}

// Total is how many requests began, a Snapshot's Total.Starts at less cost.
func (l *Ledger) Total() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total.Starts
}

// Starts returns the newest arrivals (up to a million), in order.
func (l *Ledger) Starts() []Arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.arrivals.all()
}

// Ends returns the newest ends (up to a million), in order: when a place came free, and
// whose it was.
func (l *Ledger) Ends() []Arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends.all()
}

// Arrivals returns the instants of Starts.
func (l *Ledger) Arrivals() []time.Duration {
	starts := l.Starts()
	instants := make([]time.Duration, len(starts))
	for i, s := range starts {
		instants[i] = s.At
	}
	return instants
}

// Last is the instant of the last arrival, or the ledger's begin without one.
func (s Snapshot) Last() time.Time {
	return s.Since.Add(time.Duration(s.LastS * float64(time.Second)))
}

// WorstWindow looks at every stretch of arrivals (in order) and returns the
// most by which one exceeds what a bucket of rate per second and burst lets
// through in it, and where that stretch is. An excess ≤ 0 means that no
// stretch does. Arrivals are later than grants by a varying delay, so an excess
// of rate × that variation is no evidence against anybody.
func WorstWindow(arrivals []time.Duration, rate, burst float64) (excess float64, from, to time.Duration) {
	// Of the stretch from arrival i to j the excess is (j+1−r·t_j) − (i−r·t_i) − b:
	// the best i for each j is the lowest of a running minimum.
	excess = math.Inf(-1)
	low, lowAt := math.Inf(1), time.Duration(0)
	for n, at := range arrivals {
		if v := float64(n) - rate*at.Seconds(); v < low {
			low, lowAt = v, at
		}
		if over := float64(n+1) - rate*at.Seconds() - low - burst; over > excess {
			excess, from, to = over, lowAt, at
		}
	}
	return excess, from, to
}

func accountIn(accounts map[string]*account, name string) *account {
	a := accounts[name]
	if a == nil && len(accounts) >= maxAccounts {
		name = otherName
		a = accounts[name]
	}
	if a == nil {
		a = &account{}
		accounts[name] = a
	}
	return a
}

func (a *account) start(window int64) {
	a.Starts++
	a.InFlight++
	a.Peak = max(a.Peak, a.InFlight)
	if window != a.window {
		a.window, a.inWindow = window, 0
	}
	a.inWindow++
	a.PeakWindow = max(a.PeakWindow, a.inWindow)
}

func (a *account) reset() {
	running := a.InFlight
	*a = account{Account: Account{InFlight: running, Peak: running}}
}

func copyAccounts(accounts map[string]*account) map[string]Account {
	out := make(map[string]Account, len(accounts))
	for name, a := range accounts {
		out[name] = a.Account
	}
	return out
}
