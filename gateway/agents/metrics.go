package agents

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter/series"
)

// metrics are the Set's own. Agents are named by the configuration, reasons are a
// closed set.
type metrics struct {
	set     *Set
	reg     prometheus.Registerer // nil: none
	all     []prometheus.Collector
	waited  *prometheus.HistogramVec
	refused *prometheus.CounterVec
	alone   *prometheus.CounterVec

	slots, held, waiting, healthy *prometheus.Desc
}

func newMetrics(s *Set, reg prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("headway_agent_"+name, help, []string{"agent"}, nil)
	}
	m := &metrics{
		set: s, reg: reg,
		waited: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "headway", Subsystem: "agent", Name: "wait_seconds",
			Help:    "Time that requests waited for the slot that they got, by agent.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"agent"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "headway", Subsystem: "agent", Name: "refused_total",
			Help: "Requests that got no slot, by why: capacity_exceeded (shed), down (no agent is well), queue_full, queue_timeout, draining, unavailable (the store is out) or gone (the client left).",
		}, []string{"reason"}),
		alone: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "headway", Subsystem: "agent", Name: "shares_total",
			Help: "Times that this replica went over to its share of an agent's slots, as the store was out or had lost what replicas hold.",
		}, []string{"agent"}),
		slots:   gauge("slots", "Requests that an agent takes at once, over the fleet."),
		held:    gauge("held", "Slots of an agent that requests of this replica hold."),
		waiting: gauge("waiting", "Requests of this replica that stand in an agent's line."),
		healthy: gauge("healthy", "Whether this replica takes an agent for well."),
	}
	m.all = []prometheus.Collector{m.waited, m.refused, m.alone, m}
	return m, series.Register(reg, m.all...)
}

// close ends the registration, so that another Set may follow in the same process.
func (m *metrics) close() { series.Unregister(m.reg, m.all...) }

func (m *metrics) granted(agent string, waited time.Duration) {
	m.waited.WithLabelValues(agent).Observe(waited.Seconds())
}

// refuse counts a request that got no slot.
func (m *metrics) refuse(err error) {
	var saturated *Saturated
	reason := "unavailable"
	switch {
	case errors.As(err, &saturated) && saturated.Down:
		reason = "down"
	case saturated != nil:
		reason = string(saturated.Reason)
	case errors.Is(err, ErrDraining):
		reason = "draining"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		reason = "gone"
	}
	m.refused.WithLabelValues(reason).Inc()
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.slots, m.held, m.waiting, m.healthy} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, a := range m.set.States() {
		tell := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, a.Name)
		}
		tell(m.slots, float64(a.Slots))
		tell(m.held, float64(a.Held))
		tell(m.waiting, float64(a.Waiting))
		well := 0.0
		if a.Healthy {
			well = 1
		}
		tell(m.healthy, well)
	}
}
