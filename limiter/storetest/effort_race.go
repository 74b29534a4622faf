//go:build race

package storetest

// Effort is how long a tape of n steps is to be under the race detector, which
// makes the scripts' interpreter twenty times slower and finds as much in an
// eighth: the order of memory accesses does not hang on the draw.
func Effort(n int) int { return max(1, n/8) }
