package limiter

import "github.com/prometheus/client_golang/prometheus"

// heldMetrics are the series of the lines that are not the fair queue's: the same
// for each kind, deferred and batch.
type heldMetrics struct {
	depth, tenants  *prometheus.GaugeVec
	wait            *prometheus.HistogramVec
	grants, refused *prometheus.CounterVec
}

func newHeldMetrics() *heldMetrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"kind"})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"kind"}, labels...))
	}
	return &heldMetrics{
		depth:   gauge("headway_held_requests", "Requests held until their limits can cover them, by kind: deferred for a token budget, or batch work."),
		tenants: gauge("headway_held_tenants", "Tenants with requests held."),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "headway_held_wait_seconds", Help: "Time for which a request was held before it was granted.",
			Buckets:                     []float64{.01, .1, .5, 1, 5, 15, 60, 300, 1800},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		}, []string{"kind", "tenant_dimension"}),
		grants:  counter("headway_held_grants_total", "Requests granted after they were held.", "tenant_dimension"),
		refused: counter("headway_held_refused_total", "Requests refused instead of being held, or after they were.", "tenant_dimension", "reason"),
	}
}

// of is what the lines of one kind count by.
func (h *heldMetrics) of(m manner) *metrics {
	kind := prometheus.Labels{"kind": m.String()}
	return &metrics{
		depth: h.depth.With(kind), tenants: h.tenants.With(kind), wait: h.wait.MustCurryWith(kind),
		grants: h.grants.MustCurryWith(kind), refused: h.refused.MustCurryWith(kind),
	}
}
