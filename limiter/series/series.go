// Package series registers the metrics of one part of a replica with Prometheus.
//
// A part that fails to start can be started again, in the same process and with the
// same registry: whatever it had registered before it failed must be gone then, or the
// next try fails for that alone. So metrics are registered all or none.
package series

import "github.com/prometheus/client_golang/prometheus"

// Register registers every one of list with reg, or none of them and says which name
// is taken. A nil reg keeps them private, which is no error. Safe for concurrent use
// where reg is.
func Register(reg prometheus.Registerer, list ...prometheus.Collector) error {
	if reg == nil {
		return nil
	}
	for i, c := range list {
		if err := reg.Register(c); err != nil {
			Unregister(reg, list[:i]...)
			return err
		}
	}
	return nil
}

// Unregister ends that, so that another part may use the names. A nil reg has none.
func Unregister(reg prometheus.Registerer, list ...prometheus.Collector) {
	if reg == nil {
		return
	}
	for _, c := range list {
		reg.Unregister(c)
	}
}
