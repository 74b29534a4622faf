//go:build race

package fleettest

// raceFlag builds the programs like the test itself.
var raceFlag = []string{"-race"}
