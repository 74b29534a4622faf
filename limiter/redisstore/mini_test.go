package redisstore_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
)

// startMini runs a miniredis whose keys expire by the clock, and returns its address.
func startMini(t *testing.T) string {
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	return m.Addr()
}
