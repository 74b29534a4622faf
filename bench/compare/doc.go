// Command compare puts Headway beside other limiters and beside the bare cost of
// its own script: in one run, against one redis-server that it starts, with the
// same callers, keys and seed. It is a module of its own, so that nobody who
// uses Headway downloads its rivals.
//
// # What is compared
//
// A cell is a target (a function that makes one decision) under so many callers
// in a closed loop: each asks again as soon as it is answered. Keys are drawn
// from 10,000 by Zipf's law with exponent 1.1. Limits are so high that all is
// admitted, for a refusal is cheaper than a grant in most limiters.
//
//   - bare: the text of lua/admit.lua called with one decision at a time through
//     rueidis, keys and arguments ready made. It is what a limiter could reach
//     that did nothing but call the script, and the measure of all others.
//   - store: package redisstore; limiter: package limiter on top of it; rate limit
//     service: gateway/rls on top of that, asked over gRPC by a client of Envoy's API.
//   - redis_rate and throttled as their users write them, each over a go-redis
//     client with its defaults; four limits are four calls, one after the other,
//     up to the first refusal.
//   - window: a fixed window counted by INCRBY in a script of five lines, through
//     rueidis. rueidislimiter works like that; its module is in no public proxy.
//
// Four limits are those of an API key, its user, a team of ten users and a model
// out of ten. With "lease" a decision takes one in-flight slot of the user too,
// and gives it back: one request's life.
//
// # How
//
// Server and callers share the machine, so absolute rates mean little. All cells
// are measured in rounds, one after the other in each, and compared with the
// bare script of the same round; what is reported is the median over rounds. The
// server's CPU per decision, from INFO, hardly depends on who else is running.
//
//	decisions/s = decisions / T
//	Redis µs    = (used_cpu_user + used_cpu_sys) / decisions, sockets included
//	script µs   = Σ usec of the commands that the client sends / decisions
//	× bare      = decisions/s over that of the bare script with as many limits
//	by CPU      = the same of decisions per second of processor time, of callers and
//	              server together, which is what decides on cores that they share
//
// On one hot key the callers ask for much more than its limit: admitted over
// allowed must be 1.00 ± 0.01, and never above
//
//	allowed = burst + rate × T, T from before the first call to the last answer.
package main
