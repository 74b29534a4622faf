package localshare

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A name that is taken makes a store fail, and leaves nothing behind that would make
// the next try fail, too.
func TestMetricsCanBeTriedAgain(t *testing.T) {
	registry := prometheus.NewRegistry()
	free, err := newMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	registry.MustRegister(free.debts)
	if _, err := newMetrics(registry); err == nil {
		t.Fatal("a name was taken, and nobody minded")
	}
	registry.Unregister(free.debts)
	if _, err := newMetrics(registry); err != nil {
		t.Error(err)
	}
}
