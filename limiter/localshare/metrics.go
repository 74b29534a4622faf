package localshare

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter/series"
)

// metrics are what an operator sees of shares; decisions by policy are counted
// by the limiter.
type metrics struct {
	divisor    prometheus.Gauge
	debts      prometheus.Counter
	registerer prometheus.Registerer
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		divisor: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headway_share_divisor", Help: "Replicas that limits are divided by while the store is out.",
		}),
		debts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headway_share_debt_tokens_total", Help: "Tokens charged after outages for what was granted meanwhile, requests and LLM tokens alike.",
		}),
		registerer: reg,
	}
	if err := series.Register(reg, m.divisor, m.debts); err != nil {
		return nil, err
	}
	return m, nil
}

// close lets another store in this process register the same names.
func (m *metrics) close() { series.Unregister(m.registerer, m.divisor, m.debts) }
