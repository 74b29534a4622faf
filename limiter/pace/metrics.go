package pace

import (
	"errors"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter/quota"
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
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "headway", Subsystem: "throttle", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("headway_throttle_"+name, help, labels, nil)
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
	}
}

// register registers all of m.
func (m *metrics) register(r prometheus.Registerer) error {
	var errs []error
	for _, c := range []prometheus.Collector{m.refused, m.waited, m.provider, m.paused, m.unknown, m} {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// priorities name classes.
var priorities = [...]string{throttle.Interactive: "interactive", throttle.Batch: "batch"}

// count counts a wait or a refusal.
func (p *Pacer) count(c *prometheus.CounterVec, class throttle.Class, why throttle.Why) {
	p.mu.Lock()
	upstream := p.upstream
	p.mu.Unlock()
	c.WithLabelValues(upstream, priorities[class], string(why)).Inc()
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
func (m *metrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.left; ch <- m.reserve; ch <- m.age }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	type series struct{ upstream, unit string }
	least, ages := map[series]throttle.Status{}, map[string]time.Duration{}
	now := time.Now()
	for _, p := range m.set.all() {
		p.mu.Lock()
		upstream, all := p.upstream, p.throttle.Status(now)
		p.mu.Unlock()
		for _, s := range all {
			if upstream == "" {
				continue
			}
			at := series{upstream, unitOf(s.Unit)}
			if was, ok := least[at]; !ok || s.Left/float64(s.Limit) < was.Left/float64(was.Limit) {
				least[at] = s
			}
			if was, ok := ages[upstream]; !ok || s.Age < was {
				ages[upstream] = s.Age
			}
		}
	}
	for at, s := range least {
		ch <- prometheus.MustNewConstMetric(m.left, prometheus.GaugeValue, math.Floor(s.Left), at.upstream, at.unit)
		ch <- prometheus.MustNewConstMetric(m.reserve, prometheus.GaugeValue, s.Reserve, at.upstream, at.unit)
	}
	for upstream, age := range ages {
		ch <- prometheus.MustNewConstMetric(m.age, prometheus.GaugeValue, age.Seconds(), upstream)
	}
}

// unitOf names a unit; providers may invent some.
func unitOf(u quota.Unit) string {
	switch u {
	case quota.Requests, quota.Tokens, quota.InputTokens, quota.OutputTokens, quota.Concurrency, quota.Bytes:
		return string(u)
	}
	return "other"
}
