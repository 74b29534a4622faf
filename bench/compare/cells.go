package main

// Names of the cells that goals are about.
const (
	bare1     = "bare, 1 limit"
	bare4     = "bare, 4 limits"
	bare1Few  = "bare, 1 limit, 16 callers"
	bare1Wide = "bare, 1 limit, 256 callers"
)

// Callers of the rows that say so: hardly any decision shares its call, or most.
const (
	few  = 16
	wide = 256
)

// cells are all rows of the table, bare ones first: the others are compared
// with those of the same round.
func cells(callers int) []cell {
	return []cell{
		{bare1, callers, bare1, openBare(1)},
		{bare4, callers, bare4, openBare(4)},
		{bare1Few, few, bare1Few, openBare(1)},
		{bare1Wide, wide, bare1Wide, openBare(1)},
		// The store alone: what coalescing and the two hand-offs make of it.
		{"store, 1 limit", callers, bare1, openStore(1, false)},
		{"store, 1 limit, 16 callers", few, bare1Few, openStore(1, false)},
		{"store, 4 limits", callers, bare4, openStore(4, false)},
		{"store, 4 limits and a lease", callers, bare4, openStore(4, true)},
		{"store, 1 limit, 256 callers", wide, bare1Wide, openStore(1, false)},
		// With all that a gateway does besides: demands, levels, grants, metrics.
		{"limiter, 1 limit", callers, bare1, openLimiter(1, false)},
		{"limiter, 4 limits", callers, bare4, openLimiter(4, false)},
		{"limiter, 4 limits and a lease", callers, bare4, openLimiter(4, true)},
		{"limiter, 1 limit, 256 callers", wide, bare1Wide, openLimiter(1, false)},
		// The same over gRPC, as a proxy asks: the hop costs ten times what Redis does.
		{"rate limit service, 1 descriptor", callers, bare1, openService(1)},
		{"rate limit service, 4 descriptors", callers, bare4, openService(4)},
		// Rivals, as their users write them.
		{"redis_rate, 1 limit", callers, bare1, openRedisRate(1)},
		{"redis_rate, 4 limits", callers, bare4, openRedisRate(4)},
		{"throttled, 1 limit", callers, bare1, openThrottled(1)},
		{"throttled, 4 limits", callers, bare4, openThrottled(4)},
		{"window, 1 limit", callers, bare1, openWindow(1)},
		{"window, 4 limits", callers, bare4, openWindow(4)},
	}
}
