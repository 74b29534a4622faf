package series_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-limiter/headway/limiter/series"
)

func counter(name string) prometheus.Collector {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: name})
}

// What fails leaves nothing behind, so that it can be tried again.
func TestRegisterAllOrNone(t *testing.T) {
	reg := prometheus.NewRegistry()
	taken := counter("taken_total")
	reg.MustRegister(taken)
	list := []prometheus.Collector{counter("one_total"), counter("taken_total"), counter("two_total")}
	if err := series.Register(reg, list...); err == nil {
		t.Fatal("a name was taken, and nothing said so")
	}
	reg.Unregister(taken)
	for range 2 {
		if err := series.Register(reg, list...); err != nil {
			t.Fatalf("again, with the name free: %v", err)
		}
		if all, err := reg.Gather(); err != nil || len(all) != 3 {
			t.Fatalf("%d series, %v; want 3", len(all), err)
		}
		series.Unregister(reg, list...)
		if all, err := reg.Gather(); err != nil || len(all) != 0 {
			t.Fatalf("%d series left, %v", len(all), err)
		}
	}
}

func TestNoRegistry(t *testing.T) {
	if err := series.Register(nil, counter("one_total")); err != nil {
		t.Error(err)
	}
	series.Unregister(nil, counter("one_total"))
}
