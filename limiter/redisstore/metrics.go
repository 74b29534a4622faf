package redisstore

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter/series"
)

// Calls counts what was sent to Redis since the store began. Time counts
// the plain TIME commands that start a fence after a connection, Eval the scripts
// about documents.
type Calls struct {
	Admit, Pool, Settle, Lease, Inspect, Eval, Time uint64
	// Decisions is how many admissions the calls of Admit were about: those that
	// are outstanding together share a call.
	Decisions uint64
	// Timeouts is how many calls had no answer when their callers gave up.
	Timeouts uint64
}

// Total is the number of all calls.
func (c Calls) Total() uint64 {
	return c.Admit + c.Pool + c.Settle + c.Lease + c.Inspect + c.Eval + c.Time
}

// callCounts counts without allocation or lookup of labels.
type callCounts struct {
	admit, pool, settle, lease, inspect, eval, time atomic.Uint64
	decisions, timeouts                             atomic.Uint64
}

func (c *callCounts) of(name string) *atomic.Uint64 {
	switch name {
	case "admit":
		return &c.admit
	case "pool":
		return &c.pool
	case "settle":
		return &c.settle
	case "lease":
		return &c.lease
	case "inspect":
		return &c.inspect
	case "eval":
		return &c.eval
	}
	return &c.time
}

func (c *callCounts) count(name string) { c.of(name).Add(1) }

func (c *callCounts) snapshot() Calls {
	return Calls{
		Admit: c.admit.Load(), Pool: c.pool.Load(), Settle: c.settle.Load(), Lease: c.lease.Load(),
		Inspect: c.inspect.Load(), Eval: c.eval.Load(), Time: c.time.Load(), Decisions: c.decisions.Load(),
		Timeouts: c.timeouts.Load(),
	}
}

// metrics are all series of a store. They work unregistered too. Labels come
// from closed sets: op, kind of failure, script.
type metrics struct {
	calls       callCounts
	admitTime   prometheus.Observer
	peekTime    prometheus.Observer
	turnsTime   prometheus.Observer
	settleTime  prometheus.Observer
	evalTime    prometheus.Observer
	errors      *prometheus.CounterVec
	open        prometheus.Gauge   // a rising edge is an outage
	restated    prometheus.Counter // more than 0: replicas sleep, or Redis loses data
	late        prometheus.Counter // often: the budget is too short
	resent      prometheus.Counter // often: one replica's calls overtake each other
	compensated prometheus.Counter // each cost two more calls: see deny_cache
	dropped     prometheus.Counter // more than 0: token budgets have drifted
}

// latencyBuckets span 50 µs to 400 ms: the budget is 50 ms, and a probe or a
// settlement may take longer.
var latencyBuckets = prometheus.ExponentialBuckets(50e-6, 2, 14)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{}
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "headway_store_seconds", Buckets: latencyBuckets,
		Help: "Time of store operations in seconds, as the caller sees it; settle is one batch in the background.",
	}, []string{"op"})
	m.turnsTime = seconds.WithLabelValues("turns")
	m.evalTime = seconds.WithLabelValues("eval")
	m.admitTime, m.peekTime, m.settleTime = seconds.WithLabelValues("admit"), seconds.WithLabelValues("peek"), seconds.WithLabelValues("settle")
	m.errors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headway_store_errors_total",
		Help: "Failed store calls by kind; calls refused by an open breaker are not counted.",
	}, []string{"kind"})
	m.open = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "headway_store_breaker_open", Help: "How many of the store's servers are taken for unusable.",
	})
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m.restated = counter("headway_store_leases_restated_total",
		"In-flight slots that Redis had lost or let expire while their requests ran, and that were stated again.")
	m.late = counter("headway_store_late_grants_total", "Grants that came after their caller had given up, and were given back.")
	m.resent = counter("headway_store_resent_total", "Calls sent again because their reply proved that nothing had run.")
	m.compensated = counter("headway_store_compensated_total",
		"Parts of requests that were granted and given back because another part was refused or failed.")
	m.dropped = counter("headway_store_settlements_dropped_total", "Settlements given up after repeated failures.")
	collectors := []prometheus.Collector{seconds, m.errors, m.open, m.restated, m.late, m.resent, m.compensated, m.dropped}
	for _, name := range []string{"admit", "pool", "settle", "lease", "inspect", "eval", "time"} {
		n := m.calls.of(name)
		collectors = append(collectors, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "headway_store_calls_total", Help: "Calls sent to Redis by script; eval are all those about documents.",
			ConstLabels: prometheus.Labels{"script": name},
		}, func() float64 { return float64(n.Load()) }))
	}
	collectors = append(collectors, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "headway_store_decisions_total", Help: "Admissions decided by the calls of the admit script.",
	}, func() float64 { return float64(m.calls.decisions.Load()) }))
	if err := series.Register(reg, collectors...); err != nil {
		return nil, err
	}
	return m, nil
}

// failed counts one failed call.
func (m *metrics) failed(kind string) {
	if kind == kindTimeout {
		m.calls.timeouts.Add(1)
	}
	m.errors.WithLabelValues(kind).Inc()
}

// since observes the time from start on, in seconds.
func since(o prometheus.Observer, start time.Time) { o.Observe(time.Since(start).Seconds()) }
