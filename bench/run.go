package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Run is the report of one run of a scenario. Its JSON keys are stable.
// Figures are of the measured part. A figure of nothing (no small tenant, no
// foretold wait) is 0 and its count says so.
type Run struct {
	Scenario     string  `json:"scenario"`
	Scope        string  `json:"scope"`
	Replicas     int     `json:"replicas"`
	TenantsCount int     `json:"tenants_count"`
	Seed         uint64  `json:"seed"`
	DurationS    float64 `json:"duration_s"`
	WarmS        float64 `json:"warm_s"`
	Redis        string  `json:"redis"`
	Machine      string  `json:"machine"`
	Version      string  `json:"version"`
	LimitPerS    float64 `json:"limit_per_s"`
	Burst        int64   `json:"burst"`
	// OnOutage and RedisVersion are empty where they play no part.
	OnOutage     string `json:"on_outage,omitempty"`
	RedisVersion string `json:"redis_version,omitempty"`

	// Jain is the index over received/entitled of the backlogged tenants, by
	// requests; JainCost likewise with received cost, in tokens. Jain1sP10 is
	// the index of single seconds that nine in ten reach.
	Jain      float64 `json:"jain"`
	JainCost  float64 `json:"jain_cost"`
	Jain1sP10 float64 `json:"jain_1s_p10"`
	// WorstShare is the least received/entitled of a backlogged tenant, BestShare
	// the most.
	WorstShare float64 `json:"worst_share"`
	BestShare  float64 `json:"best_share"`
	// Starved counts the backlogged tenants with less than nine tenths of what
	// they are entitled to, less one request: nobody can be served a part of one.
	Starved     int     `json:"starved_tenants"`
	Utilisation float64 `json:"utilisation"`
	// OverAdmissionRatio is of the worst second, OverAdmissionTotal of the whole
	// run: starts divided by what the limit allows.
	OverAdmissionRatio float64 `json:"over_admission_ratio"`
	OverAdmissionTotal float64 `json:"over_admission_total"`
	// CallsPerGrant counts the script calls that ask for admission, one by one
	// or in turns; PoolCallsPerGrant those in turns alone; AllCallsPerGrant also
	// those for slots and settlements.
	CallsPerGrant     float64 `json:"calls_per_grant"`
	PoolCallsPerGrant float64 `json:"pool_calls_per_grant"`
	AllCallsPerGrant  float64 `json:"all_calls_per_grant"`

	SmallP50MS float64 `json:"small_p50_ms"`
	SmallP99MS float64 `json:"small_p99_ms"`
	SmallMaxMS float64 `json:"small_max_ms"`
	SmallWaits int     `json:"small_waits"` // how many of these there were
	// The error of a foretold wait is |foretold − real|/real. Tenants that stay
	// on one replica, and those that do not, are told apart.
	EtaWithin50pct       float64 `json:"eta_within_50pct"`
	EtaMedianError       float64 `json:"eta_median_error"`
	EtaWaits             int     `json:"eta_waits"`
	EtaSpreadWithin50pct float64 `json:"eta_spread_within_50pct"`
	EtaSpreadMedianError float64 `json:"eta_spread_median_error"`
	EtaSpreadWaits       int     `json:"eta_spread_waits"`

	Provider429PerMin float64 `json:"provider_429_per_min"`
	// The interactive figures are of all tenants together: there is no batch
	// work in these scenarios.
	InteractiveRefusedRatio float64 `json:"interactive_refused_ratio"`
	InteractiveP99MS        float64 `json:"interactive_p99_ms"`

	Tenants      []RunTenant   `json:"tenants"`
	Faults       []FaultReport `json:"faults"`
	ReplicasUsed []Usage       `json:"replicas_used"`
	// DriverLateP99MS and DriverLateMaxMS are how much later than due requests
	// were really sent, and Machine what kept the machine busy meanwhile.
	DriverLateP99MS float64     `json:"driver_late_p99_ms"`
	DriverLateMaxMS float64     `json:"driver_late_max_ms"`
	Load            MachineLoad `json:"machine_load"`

	// Slots is nil where nothing caps requests in flight.
	Slots *Slots `json:"slots,omitempty"`

	// JainSeries is Jain per second, from the begin of the load; EntitledSmall
	// and the like are not needed by machines.
	JainSeries []float64 `json:"jain_series"`
	// WaitQuantilesMS are the small tenants' waits at WaitQuantiles.
	WaitQuantilesMS []float64 `json:"small_wait_quantiles_ms"`
}

// RunTenant is one tenant's part of a Run.
type RunTenant struct {
	Name     string           `json:"name"`
	Class    Class            `json:"class"`
	Weight   float64          `json:"weight"`
	Offered  int64            `json:"offered"`
	Entitled float64          `json:"entitled"` // requests
	Received int64            `json:"received"` // requests that reached the provider
	Cost     int64            `json:"cost"`     // of their answers, in tokens
	Admitted int64            `json:"admitted"` // answered to the last byte
	Refused  map[string]int64 `json:"refused"`
	Failed   map[string]int64 `json:"failed,omitempty"`
	WaitMS   WaitStats        `json:"wait_ms"`
}

// WaitQuantiles are the points of Run.WaitQuantilesMS.
var WaitQuantiles = []float64{0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 1}

// Run works out the figures.
func (t *Trial) Run() *Run {
	r := &Run{
		Scenario: t.Scenario, Scope: t.Scope, Replicas: t.Replicas, TenantsCount: len(t.Tenants), Seed: t.Seed,
		DurationS: t.Measured.Seconds(), WarmS: t.Warm.Seconds(), Redis: t.Redis, Machine: t.Machine, Version: t.Version,
		LimitPerS: t.Limit.Rate(), Burst: t.Limit.Burst,
		Faults: append([]FaultReport{}, t.Faults...), ReplicasUsed: append([]Usage{}, t.Used...),
		OnOutage: t.OnOutage, RedisVersion: t.RedisVersion, Load: t.Load,
	}
	late := t.lateness(t.Begin.Add(t.Warm), t.Begin.Add(t.Warm+t.Measured))
	r.DriverLateP99MS, r.DriverLateMaxMS = quantile(late, 0.99), quantile(late, 1)
	for i := range r.Faults {
		t.judgeFault(&r.Faults[i])
	}
	t.meet(r)
	t.share(r)
	t.judge(r)
	t.judgeSlots(r)
	t.foretell(r)
	return r
}

// meet fills in what requests met: waits and refusals, by tenant and together.
func (t *Trial) meet(r *Run) {
	r.Tenants = make([]RunTenant, len(t.Tenants))
	waits := make([][]float64, len(t.Tenants))
	for i, tenant := range t.Tenants {
		r.Tenants[i] = RunTenant{
			Name: tenant.Tenant, Class: tenant.Class, Weight: tenant.Weight,
			Cost: t.Cost[tenant.Tenant], Refused: map[string]int64{}, Failed: map[string]int64{},
		}
	}
	for _, e := range t.Events {
		out := &r.Tenants[e.Tenant]
		if t.measured(e.Due) {
			out.Offered++
		}
		if !t.measured(e.End) {
			continue
		}
		switch e.Kind {
		case Admitted:
			out.Admitted++
			waits[e.Tenant] = append(waits[e.Tenant], millis(e.Wait))
		case Refused:
			count(out.Refused, e.Reason)
		case Failed:
			count(out.Failed, e.Reason)
		}
	}
	var all, small []float64
	var ended, refused int64
	for i, w := range waits {
		out := &r.Tenants[i]
		all = append(all, w...)
		if out.Class == Small {
			small = append(small, w...)
		}
		slices.Sort(w)
		out.WaitMS = WaitStats{P50: quantile(w, 0.5), P90: quantile(w, 0.9), P99: quantile(w, 0.99), Max: quantile(w, 1)}
		refused += total(out.Refused)
		ended += total(out.Refused) + total(out.Failed) + out.Admitted
	}
	slices.Sort(all)
	slices.Sort(small)
	r.SmallWaits, r.SmallP50MS, r.SmallP99MS, r.SmallMaxMS = len(small), quantile(small, 0.5), quantile(small, 0.99), quantile(small, 1)
	for _, q := range WaitQuantiles {
		r.WaitQuantilesMS = append(r.WaitQuantilesMS, quantile(small, q))
	}
	r.InteractiveP99MS = quantile(all, 0.99)
	r.InteractiveRefusedRatio = round(float64(refused)/math.Max(float64(ended), 1), 4)
}

// share fills in who received how much of what it was entitled to.
func (t *Trial) share(r *Run) {
	received, entitled := t.received(), t.entitled()
	n := len(t.Tenants)
	gotAll, dueAll, cost := make([]float64, n), make([]float64, n), make([]float64, n)
	var starts float64
	for s := range entitled {
		var got, due []float64 // of the backlogged in this second
		for i, tenant := range t.Tenants {
			if s >= t.warmSlices() {
				gotAll[i] += received[s][i]
				dueAll[i] += entitled[s][i]
				starts += received[s][i]
			}
			if tenant.Class.Backlogged() {
				got, due = append(got, received[s][i]), append(due, entitled[s][i])
			}
		}
		r.JainSeries = append(r.JainSeries, round(Jain(Satisfaction(got, due)), 4))
	}
	var got, due, spent []float64
	for i, tenant := range t.Tenants {
		cost[i] = float64(t.Cost[tenant.Tenant])
		r.Tenants[i].Entitled, r.Tenants[i].Received = round(dueAll[i], 2), int64(gotAll[i])
		if tenant.Class.Backlogged() {
			got, due, spent = append(got, gotAll[i]), append(due, dueAll[i]), append(spent, cost[i])
			if gotAll[i] < starvedShare*dueAll[i]-1 {
				r.Starved++
			}
		}
	}
	satisfied := Satisfaction(got, due)
	r.Jain, r.JainCost = round(Jain(satisfied), 5), round(Jain(Satisfaction(spent, due)), 5)
	if len(satisfied) > 0 {
		r.WorstShare, r.BestShare = round(slices.Min(satisfied), 4), round(slices.Max(satisfied), 4)
	}
	seconds := slices.Sorted(slices.Values(r.JainSeries[min(t.warmSlices(), len(r.JainSeries)):]))
	r.Jain1sP10 = quantile(seconds, 0.1)
	measured := float64(len(entitled)-t.warmSlices()) * slice.Seconds()
	r.Utilisation = round(starts/(t.Limit.Rate()*measured), 4)
	grants := math.Max(starts, 1)
	r.CallsPerGrant = round((t.Calls.Admit+t.Calls.Pool)/grants, 3)
	r.PoolCallsPerGrant, r.AllCallsPerGrant = round(t.Calls.Pool/grants, 3), round(t.Calls.Total/grants, 3)
}

// judge fills in what the provider saw against the limit, over the whole run:
// warm-up is no excuse.
func (t *Trial) judge(r *Run) {
	r.OverAdmissionRatio = t.worstSecond(t.Begin, t.Begin.Add(t.Warm+t.Measured))
	r.Provider429PerMin = round(float64(t.Refused)/(t.Warm+t.Measured).Minutes(), 2)
	if len(t.Starts) == 0 {
		return
	}
	last := t.Since.Add(t.Starts[len(t.Starts)-1].At)
	allowed := float64(t.Limit.Burst) + t.Limit.Rate()*last.Sub(t.Begin).Seconds()
	r.OverAdmissionTotal = round(float64(len(t.Starts))/allowed, 4)
}

// foretell fills in how good foretold waits were.
func (t *Trial) foretell(r *Run) {
	var settled, spread []float64
	for _, e := range t.Events {
		if e.Kind != Admitted || e.Told < 0 || e.Wait <= etaFloor || !t.measured(e.End) {
			continue
		}
		miss := math.Abs(float64(e.Told-e.Wait)) / float64(e.Wait)
		if t.Tenants[e.Tenant].Settled {
			settled = append(settled, miss)
		} else {
			spread = append(spread, miss)
		}
	}
	r.EtaWaits, r.EtaWithin50pct, r.EtaMedianError = misses(settled)
	r.EtaSpreadWaits, r.EtaSpreadWithin50pct, r.EtaSpreadMedianError = misses(spread)
}

// misses counts errors, and returns the part of at most a half and the median.
func misses(errors []float64) (n int, within, median float64) {
	slices.Sort(errors)
	n = len(errors)
	good, _ := slices.BinarySearch(errors, 0.5+1e-9)
	return n, round(float64(good)/math.Max(float64(n), 1), 4), round(quantile(errors, 0.5), 4)
}

// judgeFault fills in what requests and the provider show of a fault.
func (t *Trial) judgeFault(f *FaultReport) {
	begin := t.Begin.Add(t.Warm + time.Duration(f.AtS*float64(time.Second)))
	end := begin.Add(time.Duration(f.ForS * float64(time.Second)))
	f.OverAdmissionRatio = t.worstSecond(begin, end.Add(recoverySpan))
	if kind := TroubleKind(f.Kind); kind.TakesStore() || kind == Crash {
		t.judgeOutage(f, begin, end)
		return
	}
	if f.Kind != string(GossipCut) {
		return
	}
	// What is told to requests says how far their replica saw when they joined
	// the line, so it is of the instant at which they were due.
	f.DetectMS, f.HealMS = -1, 0
	for _, e := range t.Events {
		if e.Told < 0 || e.Kind != Admitted || e.Fleet || e.Due.Before(begin) {
			continue
		}
		if d := millis(e.Due.Sub(begin)); f.DetectMS < 0 || d < f.DetectMS {
			f.DetectMS = d
		}
		f.HealMS = max(f.HealMS, millis(e.Due.Sub(end)))
	}
}

// quantile is the least value that a part q of the sorted values does not
// exceed; 0 of nothing.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(at, 0), len(sorted)-1)]
}

// millis is d in milliseconds with three digits.
func millis(d time.Duration) float64 { return round(d.Seconds()*1000, 3) }

// WriteJSON writes the report as one line.
func (r *Run) WriteJSON(w io.Writer) error {
	if err := json.NewEncoder(w).Encode(r); err != nil {
		return fmt.Errorf("bench: write report: %w", err)
	}
	return nil
}
