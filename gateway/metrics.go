package gateway

import (
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter/series"
)

// noLimit is the limit_type of decisions that no limit made.
const noLimit = "none"

// metrics are the gateway's own series. No label comes from a request:
// upstreams are named in the configuration, the rest are fixed words.
type metrics struct {
	requests *prometheus.CounterVec
	exceeded *prometheus.CounterVec
	duration *prometheus.HistogramVec
	passed   *prometheus.CounterVec
	ratio    *prometheus.HistogramVec
	panics   prometheus.Counter
	draining prometheus.Gauge
	tallies  map[string]*atomic.Int64 // by decision, for people; the keys are fixed
}

// newMetrics registers the families with reg, if there is one. The duration is
// both a classic histogram and a native one (growth 1.1, at most 160 buckets):
// scrapers take the one they know.
func newMetrics(reg prometheus.Registerer, build string) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limit_requests_total",
			Help: "Requests decided, by decision and, for refusals, by the limit that refused.",
		}, []string{"decision", "limit_type"}),
		exceeded: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rate_limit_exceeded_total",
			Help: "Requests answered 429, by the limit that refused.",
		}, []string{"limit_type"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                        "headway_gateway_request_duration_seconds",
			Help:                        "Time from a request's headers to its last byte, waiting and streaming included, by upstream and status class.",
			Buckets:                     []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"upstream", "status"}),
		passed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headway_gateway_passed_over_total",
			Help: "Upstreams passed over for the next of their route, by why: exhausted (its own limits), throttled (the provider's quota), refused (by the provider) or unreachable.",
		}, []string{"upstream", "reason"}),
		ratio: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                        "headway_gateway_estimate_ratio",
			Help:                        "Estimated tokens by those that the answer told: of the input, or the total with the bound on the output; by how the input was estimated.",
			Buckets:                     []float64{.25, .5, .75, .9, .95, 1, 1.05, 1.1, 1.25, 1.5, 2, 4, 8, 16},
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, NativeHistogramMinResetDuration: time.Hour,
		}, []string{"part", "how"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headway_gateway_panics_total", Help: "Handlers that panicked; anything but zero is a bug.",
		}),
		draining: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headway_gateway_draining", Help: "1 while this replica is shutting down.",
		}),
		tallies: map[string]*atomic.Int64{},
	}
	for _, d := range decisions {
		m.tallies[d] = &atomic.Int64{}
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "headway_build_info", Help: "Always 1; the labels name the running program.",
		ConstLabels: prometheus.Labels{"version": build, "goversion": runtime.Version()},
	})
	info.Set(1)
	return m, series.Register(reg, m.requests, m.exceeded, m.duration, m.passed, m.ratio, m.panics, m.draining, info)
}

// decisions are what may become of a request.
var decisions = [...]string{"admitted", "refused", "unauthenticated", "unavailable", "overloaded", "gone", "failed"}

// decide counts a decision, one of decisions.
func (m *metrics) decide(decision, limitType string) {
	if n := m.tallies[decision]; n != nil {
		n.Add(1)
	}
	m.requests.WithLabelValues(decision, limitType).Inc()
}

// passOver counts an upstream that a request did not go to.
func (m *metrics) passOver(upstream, reason string) { m.passed.WithLabelValues(upstream, reason).Inc() }

// observe records the end of a request. Status 0 means that nothing was sent.
// Statuses are counted by class, because an upstream may invent any number.
func (m *metrics) observe(upstream string, status int, took time.Duration) {
	if upstream == "" {
		upstream = "none"
	}
	class := "none"
	if status > 0 {
		class = strconv.Itoa(status/100) + "xx"
	}
	m.duration.WithLabelValues(upstream, class).Observe(took.Seconds())
}
