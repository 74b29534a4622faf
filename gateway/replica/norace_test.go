//go:build !race

package replica_test

const underRace = false
