package pace

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter/quota"
	"github.com/headway-limiter/headway/limiter/series"
	"github.com/headway-limiter/headway/limiter/throttle"
)

// metrics are the Set's own. Upstreams are named by the configuration; units,
// priorities, classes and reasons are closed sets. Of an upstream's models, the one
// with the least left is shown.
type metrics struct {
	set             *Set
	refused, waited *prometheus.CounterVec
	provider        *prometheus.CounterVec
	paused, unknown *prometheus.CounterVec

	left, reserve, age *prometheus.Desc

	expired, full      *prometheus.CounterVec // of batch work
	served, weighed    *prometheus.CounterVec
	depth, old, idling *prometheus.Desc
	tenants            names
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "headway", Subsystem: "throttle", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("headway_throttle_"+name, help, labels, nil)
	}
	batch := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "headway", Subsystem: "batch", Name: name, Help: help}, []string{label})
	}
	gauges := func(name, help, label string) *prometheus.Desc {
		return prometheus.NewDesc("headway_batch_"+name, help, []string{label}, nil)
	}
	return &metrics{
		refused:  counter("refused_total", "Starts that would have had to wait too long, by priority and reason.", "upstream", "priority", "reason"),
		waited:   counter("waited_total", "Starts that had to wait, by priority and the first reason.", "upstream", "priority", "reason"),
		provider: counter("provider_refusals_total", "Refusals by the provider, by what they mean: quota, daily, terminal or overload.", "upstream", "class"),
		paused:   counter("paused_seconds_total", "Time for which nothing may start, counted when a pause begins or becomes longer.", "upstream"),
		unknown:  counter("unknown_headers_total", "Headers of the provider's that should tell of its quota and hold nothing sensible.", "upstream"),
		left:     gauge("remaining", "What is known to be left of the provider's quota, less what this replica has under way.", "upstream", "unit"),
		reserve:  gauge("reserve", "The part of the quota that batch work leaves alone.", "upstream", "unit"),
		age:      gauge("snapshot_age_seconds", "Age of the newest word of the provider's.", "upstream"),

		expired: batch("expired_total", "Batch requests dropped because their deadline had passed; they used nothing.", "upstream"),
		full:    batch("queue_full_total", "Batch requests refused because too many of their tenant waited.", "upstream"),
		served:  batch("served_cost_total", "Tokens that batch requests have used, by tenant, hashed; those of many others as other.", "tenant"),
		weighed: batch("served_cost_by_weight_total", "The same divided by the tenant's weight: it grows alike for all that wait.", "tenant"),
		depth:   gauges("depth", "Batch requests that wait for the provider.", "upstream"),
		old:     gauges("oldest_age_seconds", "For how long the one waits that came first.", "upstream"),
		idling:  gauges("stopped_seconds", "For how long batch requests have waited with none of them started: interactive ones, or a pause, take all.", "upstream"),
		tenants: names{},
	}
}

// register registers all of m, or none.
func (m *metrics) register(r prometheus.Registerer) error {
	return series.Register(r, m.refused, m.waited, m.provider, m.paused, m.unknown, m.expired, m.full, m.served, m.weighed, m)
}

// priorities name classes.
var priorities = [...]string{throttle.Interactive: "interactive", throttle.Batch: "batch"}

// maxTenantSeries bounds the tenants with a series of their own.
const maxTenantSeries = 100

// names are the tenants that have a series of their own. Counters cannot move
// between series, so first come stays.
type names map[string]bool

// of is the label of a tenant.
func (n names) of(tenant string) string {
	switch {
	case tenant == "":
		return "none"
	case n[tenant]:
	case len(n) >= maxTenantSeries:
		return "other"
	}
	n[tenant] = true
	return tenant
}

// serve counts what a batch request has used.
func (m *metrics) serve(w *waiter, cost float64) {
	if w.Class != throttle.Batch {
		return
	}
	m.set.naming.Lock()
	name := m.tenants.of(w.Tenant)
	m.set.naming.Unlock()
	m.served.WithLabelValues(name).Add(cost)
	m.weighed.WithLabelValues(name).Add(cost / w.Weight)
}

// refuse counts a refusal.
func (p *Pacer) refuse(w *waiter, r *Refused) {
	p.count(p.set.metrics.refused, w.Class, r.Why)
	if r.Cause == Full {
		p.set.metrics.full.WithLabelValues(p.name()).Inc()
	}
}

// name is that of p's upstream, as it is now.
func (p *Pacer) name() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.upstream
}

// count counts a wait or a refusal.
func (p *Pacer) count(c *prometheus.CounterVec, class throttle.Class, why throttle.Why) {
	c.WithLabelValues(p.name(), priorities[class], string(why)).Inc()
}

// answered counts what a response said.
func (m *metrics) answered(upstream string, r quota.Reading, class quota.Class) {
	switch class {
	case quota.ClassQuota, quota.ClassDaily, quota.ClassTerminal, quota.ClassOverload:
		m.provider.WithLabelValues(upstream, string(class)).Inc()
	}
	if n := len(r.Unknown); n > 0 {
		m.unknown.WithLabelValues(upstream).Add(float64(n))
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.left, m.reserve, m.age, m.depth, m.old, m.idling} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	type series struct{ upstream, unit string }
	least, ages, queues := map[series]throttle.Status{}, map[string]time.Duration{}, map[string]queue{}
	now := time.Now()
	for _, p := range m.set.all() {
		p.mu.Lock()
		upstream, all, q := p.upstream, p.throttle.Status(now), p.queueLocked(now)
		p.mu.Unlock()
		if upstream == "" {
			continue
		}
		queues[upstream] = queues[upstream].and(q)
		for _, s := range all {
			at := series{upstream, unitOf(s.Unit)}
			if was, ok := least[at]; !ok || s.Left/float64(s.Limit) < was.Left/float64(was.Limit) {
				least[at] = s
			}
			if was, ok := ages[upstream]; !ok || s.Age < was {
				ages[upstream] = s.Age
			}
		}
	}
	gauge := func(d *prometheus.Desc, x float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
	}
	for at, s := range least {
		gauge(m.left, math.Floor(s.Left), at.upstream, at.unit)
		gauge(m.reserve, s.Reserve, at.upstream, at.unit)
	}
	for upstream, age := range ages {
		gauge(m.age, age.Seconds(), upstream)
	}
	for upstream, q := range queues {
		gauge(m.depth, float64(q.depth), upstream)
		gauge(m.old, q.oldest.Seconds(), upstream)
		gauge(m.idling, q.stopped.Seconds(), upstream)
	}
}

// queue is the state of a backlog.
type queue struct {
	depth           int
	oldest, stopped time.Duration
}

// and joins the backlogs of an upstream's models.
func (q queue) and(o queue) queue {
	return queue{q.depth + o.depth, max(q.oldest, o.oldest), max(q.stopped, o.stopped)}
}

// queueLocked describes p's backlog.
func (p *Pacer) queueLocked(now time.Time) (q queue) {
	if q.depth = p.backlog.queue.Len(); q.depth > 0 {
		since := p.backlog.oldest()
		q.oldest = now.Sub(since)
		q.stopped = q.oldest
		if p.batch.After(since) {
			q.stopped = now.Sub(p.batch)
		}
	}
	return q
}

// unitOf names a unit; providers may invent some.
func unitOf(u quota.Unit) string {
	switch u {
	case quota.Requests, quota.Tokens, quota.InputTokens, quota.OutputTokens, quota.Concurrency, quota.Bytes:
		return string(u)
	}
	return "other"
}
