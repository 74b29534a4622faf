package near

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter/series"
)

// metrics are all series of a Store; labels come from closed sets.
type metrics struct {
	denied, granted            prometheus.Counter
	prefetched, returned, lost prometheus.Counter
	again                      prometheus.Counter // often: what is left is seen too late
}

func newMetrics(reg prometheus.Registerer, t *table) (*metrics, error) {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headway_near_decisions_total",
		Help: "Requests decided by this replica without asking the store: denied, as it had just refused, or granted from tokens taken in advance.",
	}, []string{"kind"})
	tokens := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headway_near_tokens_total",
		Help: "Tokens taken from the store in advance, and those of them given back unused, or lost unused by expiry or a changed limit.",
	}, []string{"fate"})
	m := &metrics{
		denied: decisions.WithLabelValues("denied"), granted: decisions.WithLabelValues("granted"),
		prefetched: tokens.WithLabelValues("prefetched"), returned: tokens.WithLabelValues("returned"), lost: tokens.WithLabelValues("lost"),
		again: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headway_near_asked_again_total", Help: "Calls repeated without tokens in advance because the store refused them with these.",
		}),
	}
	err := series.Register(reg, decisions, tokens, m.again,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "headway_near_buckets", Help: "Buckets of which this replica remembers something.",
		}, func() float64 { n, _ := t.sizes(); return float64(n) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "headway_near_buckets_dropped_total", Help: "Times that a bucket was not remembered for want of room.",
		}, func() float64 { _, n := t.sizes(); return float64(n) }))
	return m, err
}
