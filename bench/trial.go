package bench

import (
	"time"
)

// Trial is the raw material of one run: what was planned, what every request
// met, and what the provider saw. [Trial.Run] makes the figures.
type Trial struct {
	Scenario string
	Scope    string // of fairness, as the report names it
	Replicas int
	Seed     uint64
	Redis    string // "embedded" or host:port
	Machine  string // where it ran, for readers
	Version  string
	Tenants  []Tenant
	Limit    LimitReport
	// Begin is the instant of the load's begin. Figures are taken from Warm
	// after it, for Measured, unless they say otherwise.
	Begin          time.Time
	Warm, Measured time.Duration
	Events         []Event // of all requests, in any order
	// Starts are the provider's, relative to Since, in order; Refused is how many
	// its own quota turned away. Cost is what each tenant's answers cost in the
	// measured part, in tokens.
	Since   time.Time
	Starts  []Arrival
	Refused int64
	Cost    map[string]int64
	Calls   Calls // of the measured part
	Faults  []FaultReport
	Used    []Usage

	// OnOutage is the policy for an unusable store, StoreTimeout the budget that
	// a request has for it; both for scenarios that take the store away.
	OnOutage     string
	StoreTimeout time.Duration
	// SlotCap is how many requests of a tenant may be in flight, 0 for any number,
	// LeaseTTL what its slots are renewed for, and Peaks how many were at once.
	SlotCap      int64
	LeaseTTL     time.Duration
	Peaks        map[string]int64
	RedisVersion string // of a server of the run's own; empty: not known
	Load         MachineLoad
}

// MachineLoad is what the machine did in the measured part, in CPUs: 0.5 is
// half of one. All are -1 where that cannot be told.
type MachineLoad struct {
	CPUs   float64 `json:"cpus"`   // that there are
	Ours   float64 `json:"ours"`   // used by provider, load, replicas and Redis
	Others float64 `json:"others"` // used by everything else
}

// Calls are script calls sent to Redis by all replicas.
type Calls struct {
	Admit float64 // one request asks for itself
	Pool  float64 // several ask in turn with the fleet
	Total float64 // those, and slots and settlements
}

// Usage is what one process used in the measured part; RSSMB is its size at
// the end.
type Usage struct {
	Process string  `json:"process"`
	CPUS    float64 `json:"cpu_s"`
	RSSMB   float64 `json:"rss_mb"`
}

// FaultReport is what a trouble did. Times are milliseconds, -1 where there is
// nothing to measure or it never happened.
type FaultReport struct {
	Kind string  `json:"kind"`
	AtS  float64 `json:"at_s"` // after the begin of the measured part
	ForS float64 `json:"for_s"`
	// AwayS is for how long the store was away beyond doubt: ForS less the time
	// that its return took. 0 of other troubles.
	AwayS float64 `json:"away_s,omitempty"`
	// DetectMS is from the trouble to the first replica that shows it knows;
	// HealMS from its end until none shows it any more.
	DetectMS float64 `json:"detect_ms"`
	HealMS   float64 `json:"heal_ms"`
	// OverAdmissionRatio is that of the worst second from the trouble's begin
	// until recoverySpan after its end.
	OverAdmissionRatio float64 `json:"over_admission_ratio"`
	// Outage is what requests met; only of troubles that take the store or a
	// replica away.
	Outage *Outage `json:"outage,omitempty"`
}

const (
	// slice is the length of the intervals that entitlement is worked out for,
	// and of the windows of fairness over time.
	slice = time.Second
	// starvedShare is the part of its entitlement below which a backlogged tenant
	// is called starved.
	starvedShare = 0.9
	// recoverySpan is how long after its end a trouble is still looked at.
	recoverySpan = 5 * time.Second
	// etaFloor leaves out waits that nobody would want to be told: an error in
	// percent of 5 ms says nothing.
	etaFloor = 20 * time.Millisecond
)

// slices is how many whole slices the run has.
func (t *Trial) slices() int { return int((t.Warm + t.Measured) / slice) }

// warmSlices is how many of them come before the measured part.
func (t *Trial) warmSlices() int { return int(t.Warm / slice) }

// sliceOf is the slice that holds the instant, -1 for none.
func (t *Trial) sliceOf(at time.Time) int {
	i := int(at.Sub(t.Begin) / slice)
	if at.Before(t.Begin) || i >= t.slices() {
		return -1
	}
	return i
}

// measured reports whether the instant lies in the measured part.
func (t *Trial) measured(at time.Time) bool {
	d := at.Sub(t.Begin)
	return d >= t.Warm && d < t.Warm+t.Measured
}

// received counts every tenant's starts per slice.
func (t *Trial) received() [][]float64 {
	index := make(map[string]int, len(t.Tenants))
	for i, tenant := range t.Tenants {
		index[tenant.Tenant] = i
	}
	got := t.table()
	for _, s := range t.Starts {
		at := t.sliceOf(t.Since.Add(s.At))
		if i, known := index[s.Tenant]; known && at >= 0 {
			got[at][i]++
		}
	}
	return got
}

// entitled works out every tenant's entitlement per slice from what was really
// asked for, sent or not.
func (t *Trial) entitled() [][]float64 {
	demand := t.table()
	for _, e := range t.Events {
		if at := t.sliceOf(e.Due); at >= 0 {
			demand[at][e.Tenant]++
		}
	}
	weight, patience := make([]float64, len(t.Tenants)), make([]float64, len(t.Tenants))
	for i, tenant := range t.Tenants {
		weight[i], patience[i] = tenant.Weight, float64(tenant.Places)
	}
	intervals := make([]Interval, len(demand))
	for i := range intervals {
		intervals[i] = Interval{Capacity: t.Limit.Rate() * slice.Seconds(), Demand: demand[i]}
	}
	return EntitledEach(intervals, weight, patience)
}

// table has a row per slice and a column per tenant.
func (t *Trial) table() [][]float64 {
	rows := make([][]float64, t.slices())
	for i := range rows {
		rows[i] = make([]float64, len(t.Tenants))
	}
	return rows
}

// worstSecond is the most starts in any second between two instants, divided
// by what the limit allows in a second. A start is written down later than it
// was granted, by a delay that varies; a ratio a little above 1 may be that.
func (t *Trial) worstSecond(from, to time.Time) float64 {
	allowed := float64(t.Limit.Burst) + t.Limit.Rate()
	worst, oldest := 0, 0
	for n, s := range t.Starts {
		at := t.Since.Add(s.At)
		if at.Before(from) {
			oldest = n + 1
			continue
		}
		if at.After(to) {
			break
		}
		for s.At-t.Starts[oldest].At > time.Second {
			oldest++
		}
		worst = max(worst, n-oldest+1)
	}
	return round(float64(worst)/allowed, 4)
}
