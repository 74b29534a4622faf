// Package batch is work that outlives connections and replicas: files of requests
// (jobs) that are uploaded, run by whichever replica has room, and read again as
// files of results. The API is that of OpenAI's Batch API, so that its SDKs, unmodified, can
// use it. README.md beside this file has a walk-through.
//
// # Who does what
//
//	files and batches   any replica, for the tenant that owns them   (http.go, upload.go)
//	chores              one replica at a time, per batch             (chore.go)
//	jobs                every replica, as many as it has workers     (worker.go)
//	what is true        scripts in Redis, lua/job_*.lua              (store.go)
//
// A replica keeps nothing that must not be lost. A job runs through the gateway's own
// pipeline ([gateway.Gateway.Perform]) as a batch request of its owner, so that every
// limit, the throttle, agents and metrics hold for it as for any other.
//
// # States of a batch
//
//	validating ──► in_progress ──► completed
//	    │  │            │  └─ deadline ─► finalizing ──► expired
//	    │  └► failed    └──── cancel ──► cancelling ──► cancelled
//	    └── cancel ──► cancelled
//
// All lines are read before the first runs; one that is wrong fails the batch, and
// every mistake is told with its line. A batch ends when each of its jobs has a result;
// those of expired and cancelled ones that did not run get an error for a result
// (batch_expired, batch_cancelled), written by a chore. So in every state
//
//	total = completed + failed + without a result
//
// and files of results and errors, told of at the end, have total lines together.
//
// # A job, and its one result
//
// A job is a line of the input and its number; nothing is stored per job until it
// runs. It is fresh (its number is not below next of its batch), claimed (in run, until
// the end of a lease), returned (in r:<tenant>, not before some time), or ended (its bit
// is set). A claim has a number that rises over the fleet, and is the only way from
// fresh or returned on.
//
//   - Never lost: claiming moves a job to run in one script, and leaving run is either
//     its result, or a return: by the replica (job_back), or by whoever claims after the
//     lease has ended (job_claim). A replica that is killed delays its jobs by a lease.
//   - Run at least once: there is no result without a run, or a chore after the batch's
//     end. A job may run twice: its replica died, or slept past its lease, after the
//     upstream had begun.
//   - Recorded exactly once: the script that records sets the job's bit and appends the
//     line in one step, and does nothing if the bit is set. It does not ask whether the
//     claim is still in force: the result of a claim that is over is as good as any
//     while there is no other, and is dropped, whoever brings it, when there is one. A
//     replica that got no answer sends a result again until it gets one.
//
// Every script may run twice, or after its caller was told of an error, as
// redisstore's Eval demands: lines of files are kept by number, costs by position, a batch by
// an id that its creator drew. A claim whose answer was lost is the one thing that
// costs something: its jobs wait for the end of the lease. That is why it is fenced.
//
// # Whose job is next
//
// Start-time fair queueing over the whole fleet (see limiter/fairq), at the claim: each
// tenant that has something to claim stands in one sorted set by its start tag S. The least is
// served, virtual time V becomes its tag, and S moves on by cost / weight. A tenant that comes
// back gets max(V, its old finish tag). For tenants i, j that always have jobs,
// over any stretch of claims,
//
//	|W_i/w_i - W_j/w_j| ≤ c_i/w_i + c_j/w_j
//
// where W is the cost served, w the weight and c the largest cost: 500 jobs of one and 3
// of another interleave, the small one's being 2nd, 4th and 6th. Equal tags are served
// in the order of joining or of the latest service. The cost is estimated when the batch is
// checked; what the answer's usage says corrects the tag. A job that went back without
// running gives its cost back; one whose replica died does not, for it may have cost it.
// Inside a tenant, returned jobs come first, then batches one after the other, in the
// order of their files.
//
// # Speed
//
// A replica runs at most batch.workers jobs, and claims no more while four of them wait
// for a budget, an agent or a provider: the order of turns is that of claims, and a job
// that waits here is ahead of all turns. A job that gets none of these within a second
// goes back, with the wait that the answer names, and no other job of
// its tenant is claimed until then: a tenant that is out of budget costs a second per
// wait, not a worker. It earns nothing meanwhile: V passes it by.
//
//	429, 503, 529            back until the batch's deadline; quota that somebody has to pay for is a result
//	500, 502, 504, 408, cut  back, three times; then it is the result
//	other errors             the result, in the file of errors
//
// The least rest is 0.2 s and doubles, the longest a minute, unless Retry-After says.
//
// # Bounds
//
// Per tenant: jobs without a result, files, batches, the size of a file; per line 1 MiB, per
// response 3 MiB. Answers name the bound. Uploads live for batch.retention from their arrival,
// or as long as a batch needs them; everything of a batch for as long from its end; one
// that never ends cannot be, for it has a deadline. All keys have one tag, so one
// master of a cluster keeps them. A job takes it about 0.2 ms of processor time, 65 µs for its part of a
// claim of eight and 120 µs for its result (redis-server 7.0, 4,000 jobs of 4 tenants), so
// one server is good for some thousand jobs a second.
//
// # Leaving
//
// A replica that drains claims no more. Its jobs finish inside the grace; what is left
// is given back, without rest, and another replica has it at the next claim.
package batch
