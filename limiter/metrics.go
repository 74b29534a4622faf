package limiter

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter/series"
)

// metrics are the limiter's own series. Tenants appear as hashed ids, and only
// the busiest of them: everyone else is counted under "other".
type metrics struct {
	depth, tenants  prometheus.Gauge
	wait            prometheus.ObserverVec
	grants, refused *prometheus.CounterVec
	slotRefusals    *prometheus.CounterVec
	outage, bugs    *prometheus.CounterVec
	outageTime      *prometheus.CounterVec
	entitled        *prometheus.CounterVec
	received        *prometheus.CounterVec
	slots           *slotGauge
	tenantNames     labelCap
	ledger          *ledger // what Snapshot tells of tenants
	held            *heldMetrics
}

// maxTenantSeries bounds the tenants with a series of their own per family.
const maxTenantSeries = 100

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		depth: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rate_limit_fair_queue_depth", Help: "Requests held in wait lines.",
		}),
		tenants: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "rate_limit_fair_queue_tenants", Help: "Tenants with requests in wait lines.",
		}),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rate_limit_fair_queue_wait_seconds", Help: "Time a request spent in line before it was granted.",
			Buckets:                     []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		}, []string{"tenant_dimension"}),
		grants:       counter("rate_limit_fair_queue_grants_total", "Requests granted from a wait line.", "tenant_dimension"),
		refused:      counter("rate_limit_fair_queue_refused_total", "Requests refused instead of, or after, waiting in line.", "tenant_dimension", "reason"),
		slotRefusals: counter("rate_limit_inflight_refusals_total", "Requests refused for want of an in-flight slot.", "dimension", "tenant"),
		entitled:     counter("rate_limit_fair_queue_entitled_cost_total", "Cost that tenants of contended pools were entitled to: this replica's part of the fleet's.", "tenant"),
		received:     counter("rate_limit_fair_queue_received_cost_total", "Cost that tenants of contended pools were served here.", "tenant"),
		outage:       counter("headway_limiter_outage_decisions_total", "Requests decided by outage policy while the store could not.", "policy"),
		outageTime:   counter("headway_limiter_outage_seconds_total", "Time in which the store was unusable, for each outage policy that some limit has.", "policy"),
		bugs:         counter("headway_limiter_bugs_total", "Broken invariants seen, by kind; anything but zero is a bug.", "kind"),
		slots:        newSlotGauge(),
		tenantNames:  labelCap{seen: map[ID]bool{}},
		ledger:       newLedger(),
		held:         newHeldMetrics(),
	}
	err := series.Register(reg,
		m.depth, m.tenants, m.wait, m.grants, m.refused, m.entitled, m.received, m.slotRefusals, m.outage, m.outageTime, m.bugs, m.slots,
		m.held.depth, m.held.tenants, m.held.wait, m.held.grants, m.held.refused)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// timeOutage adds d to the policies in force if the store is unusable.
func (m *metrics) timeOutage(c Config, usable bool, d time.Duration) {
	if usable {
		return
	}
	policies := map[OutagePolicy]bool{}
	for dim := range c.Limits {
		policies[c.OutageOf(dim)] = true
	}
	for p := range policies {
		m.outageTime.WithLabelValues(string(p)).Add(d.Seconds())
	}
}

// refuseSlots counts a refusal for each slot that was full.
func (m *metrics) refuseSlots(slots []Slot, full []bool) {
	for i, s := range slots[:min(len(slots), len(full))] {
		if full[i] {
			m.slotRefusals.WithLabelValues(string(s.Slot.Dimension), m.tenantNames.name(s.Slot.ID)).Inc()
		}
	}
}

// divide books one tenant's share of an interval.
func (m *metrics) divide(id ID, p portion) {
	m.ledger.divide(id, p)
	if p.entitled == 0 && p.received == 0 {
		return
	}
	name := m.tenantNames.name(id)
	m.entitled.WithLabelValues(name).Add(p.entitled)
	m.received.WithLabelValues(name).Add(p.received)
}

// labelCap gives the first maxTenantSeries identities a label of their own.
// Counters cannot be moved between series, so first come stays.
type labelCap struct {
	mu   sync.Mutex
	seen map[ID]bool
}

func (c *labelCap) name(id ID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.seen[id] {
		if len(c.seen) >= maxTenantSeries {
			return "other"
		}
		c.seen[id] = true
	}
	return string(id)
}

// slotGauge exposes rate_limit_inflight_requests: slots held by this replica.
// A series goes away when its holder has none left.
type slotGauge struct {
	desc *prometheus.Desc

	mu   sync.Mutex
	held map[holder]int // no entry is zero
}

// holder is what a series is about: a counter, wherever its home is.
type holder struct {
	dimension Dimension
	id        ID
}

func newSlotGauge() *slotGauge {
	return &slotGauge{
		desc: prometheus.NewDesc("rate_limit_inflight_requests",
			"Requests running that hold an in-flight slot of this replica.", []string{"dimension", "tenant"}, nil),
		held: map[holder]int{},
	}
}

func (g *slotGauge) add(s SlotID, n int) {
	h := holder{s.Dimension, s.ID}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held[h] += n; g.held[h] <= 0 {
		delete(g.held, h)
	}
}

// Describe implements prometheus.Collector.
func (g *slotGauge) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements prometheus.Collector: the largest holders by name, the
// rest of a dimension under "other".
func (g *slotGauge) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	held := maps.Clone(g.held)
	g.mu.Unlock()
	all := slices.SortedFunc(maps.Keys(held), func(a, b holder) int {
		return cmp.Or(cmp.Compare(held[b], held[a]), cmp.Compare(a.id, b.id))
	})
	other := map[Dimension]int{}
	for i, h := range all {
		if i >= maxTenantSeries {
			other[h.dimension] += held[h]
			continue
		}
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(held[h]), string(h.dimension), string(h.id))
	}
	for d, n := range other {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(n), string(d), "other")
	}
}
