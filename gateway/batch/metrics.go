package batch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter/series"
)

// metrics are what a replica tells of its share of the work.
type metrics struct {
	jobs    *prometheus.CounterVec
	running prometheus.Gauge
	lost    prometheus.Counter
	refused *prometheus.CounterVec
}

// states are the label values of jobs.
var states = [...]string{"claimed", "completed", "failed", "returned", "dropped", "expired", "cancelled"}

// newMetrics registers them. oldest is asked when they are read.
func newMetrics(reg prometheus.Registerer, oldest func() time.Duration) (*metrics, error) {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "headway", Subsystem: "batch", Name: name, Help: help}
	}
	m := &metrics{
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts(opts("jobs_total",
			"Jobs by what became of them here: claimed, completed, failed (with an error for a result), returned (to be claimed again), dropped (another result was recorded before), expired, cancelled.")), []string{"state"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts(opts("jobs_running", "Jobs claimed by this replica."))),
		lost: prometheus.NewCounter(prometheus.CounterOpts(opts("claims_lost_total",
			"Claims that ended before a result: the lease of another replica found to be over, or one of this replica that was."))),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts(opts("refused_total",
			"Files and batches refused, by reason; queue_full and files are bounds of a tenant.")), []string{"reason"}),
	}
	for _, state := range states {
		m.jobs.WithLabelValues(state)
	}
	m.refused.WithLabelValues("queue_full")
	m.refused.WithLabelValues("files")
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts(opts("oldest_claim_seconds",
		"How long this replica has held the oldest of its claims.")), func() float64 { return oldest().Seconds() })
	return m, series.Register(reg, m.jobs, m.running, m.lost, m.refused, age)
}

// count adds to a state.
func (m *metrics) count(state string, n int) { m.jobs.WithLabelValues(state).Add(float64(n)) }
