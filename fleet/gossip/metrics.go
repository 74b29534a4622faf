package gossip

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter/series"
)

// metrics are the node's own. All have one series per label value from the start.
type metrics struct {
	registerer             prometheus.Registerer
	all                    []prometheus.Collector
	members, age           prometheus.Gauge
	oversize               prometheus.Counter
	news, stale, malformed prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{registerer: r}
	m.members = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "headway_fleet_members",
		Help: "Live replicas as seen by this one, itself included; wrong for seconds after a crash.",
	})
	m.age = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "headway_fleet_view_age_seconds",
		Help: "Time since the live member that was heard of longest ago; above 0.6 estimates are local.",
	})
	m.oversize = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "headway_fleet_digest_oversize_total",
		Help: "Digests from which pools or tenants were left out because they did not fit a packet.",
	})
	received := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headway_fleet_digests_received_total",
		Help: "Digests of other replicas by what they were: news, stale (known already) or malformed.",
	}, []string{"result"})
	m.news, m.stale, m.malformed = received.WithLabelValues("news"), received.WithLabelValues("stale"), received.WithLabelValues("malformed")
	m.all = []prometheus.Collector{m.members, m.age, m.oversize, received}
	if err := series.Register(r, m.all...); err != nil {
		return nil, fmt.Errorf("gossip: metrics: %w", err)
	}
	return m, nil
}

// unregister lets another node of the process use the registerer.
func (m *metrics) unregister() { series.Unregister(m.registerer, m.all...) }
