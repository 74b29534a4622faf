//go:build !race

package storetest

// Effort is how long a tape of n steps is to be: n.
func Effort(n int) int { return n }
