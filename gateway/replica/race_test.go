//go:build race

package replica_test

// underRace says that the race detector slows everything down: runs are then
// shorter and fewer, for the order of memory accesses does not care.
const underRace = true
