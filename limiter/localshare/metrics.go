package localshare

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
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
	if reg == nil {
		return m, nil
	}
	return m, errors.Join(reg.Register(m.divisor), reg.Register(m.debts))
}

// close lets another store in this process register the same names.
func (m *metrics) close() {
	if m.registerer != nil {
		m.registerer.Unregister(m.divisor)
		m.registerer.Unregister(m.debts)
	}
}
