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
// fleet brought news. When it leaves, it wakes the next. Nobody interactive waits
// who is told to wait longer than it may: the answer is then known already.
//
// # Batch work
//
// Batch work is never refused because there is too little at the moment: it waits
// until its deadline. Between tenants its line is deficit round robin by cost
// (package fairq), inside each first come first served: of 500 jobs of one tenant
// and 3 of another that cost the same, the latter's are 2nd, 4th and 6th; of jobs of
// 1,000 and of 100 tokens each tenant gets as many tokens; a weight of 3 gets three
// times as many. A quantum of one token makes turns as fine as that, and laps in
// which nobody can be served are skipped by arithmetic, whatever jobs cost. What a
// job has really cost is settled when it is known, against its tenant's deficit;
// one that the provider refused has cost nothing.
//
// How many of one tenant wait is bounded (Want.Most), for that tenant alone. Who is
// dropped at its deadline (when its time is up, when its turn comes, or when its
// tenant's queue is full, whichever is first) uses nothing of any quota. Finding the
// next takes O(log tenants), and one step for each that is dropped.
//
// Every interactive waiter goes first. So where interactive work alone asks for more
// than the quota, batch work stops entirely, and headway_batch_stopped_seconds says
// for how long it has.
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
