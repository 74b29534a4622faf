// Package pace lets requests wait until a provider can be asked: it is the shell
// around the pure rules of package throttle. A [Set] is what one replica knows of
// all accounts, with one [Pacer] for each upstream and model, which is what
// providers count by.
//
// # Waiting
//
// A waiter is the goroutine of its request, and there is no other. Waiters of one
// Pacer stand in two lines, interactive before batch; only the first of all asks the
// throttle, sleeps as long as it is told to, and asks again when an answer or the
// fleet brought news. When it leaves, it wakes the next. Nobody waits who is told to
// wait longer than it may: the answer is then known already.
//
// # The fleet
//
// A Set is a Source of package gossip: it tells what this replica heard first-hand,
// merges what others did, and divides each quota by the live members. That a pause
// began or ended is told at once. Instants travel as spans (see package fleet).
//
// # Bounds
//
// Models are named by callers, so their number is bounded: past 256 Pacers, those
// that nobody used for ten minutes go; if there are none, the requests of an
// upstream's further models share one.
package pace
