package main

import "fmt"

// goal is something to be met, with what was found.
type goal struct {
	text  string
	found string
	met   bool
}

// findings are all results of a run; parts that were not measured are empty.
type findings struct {
	cells []*result
	hot   []judged
	saved *saved
}

// goals checks every goal of which the run has the rows.
func (f findings) goals() (list []goal) {
	const noBound = 1e9
	ratio := func(text, of, by string, what func(reading) float64, least, most float64) {
		a, b := find(f.cells, of), find(f.cells, by)
		if a == nil || b == nil {
			return
		}
		r := over(a, b, what)
		found := fmt.Sprintf("%.2f", r)
		if most == noBound {
			found += fmt.Sprintf(" (by CPU %.2f)", over(a, b, perCPU))
		}
		list = append(list, goal{text, found, r >= least && r <= most})
	}
	ratio("1 limit, 64 callers: at least 0.9 × bare", "store, 1 limit", bare1, rate, 0.9, noBound)
	ratio("1 limit, 16 callers: at least 0.9 × bare", "store, 1 limit, 16 callers", bare1Few, rate, 0.9, noBound)
	ratio("4 limits: at least 3 × redis_rate's four calls", "store, 4 limits", "redis_rate, 4 limits", rate, 3, noBound)
	ratio("4 limits: at most 0.45 × redis_rate's Redis CPU", "store, 4 limits", "redis_rate, 4 limits", redisCPU, 0, 0.45)
	ratio("4 limits and a lease: at least 0.65 × bare, 4 limits", "store, 4 limits and a lease", bare4, rate, 0.65, noBound)
	ratio("1 limit, 256 callers, coalesced: at least 1.7 × bare", "store, 1 limit, 256 callers", bare1Wide, rate, 1.7, noBound)
	ratio("rate limit service: at least 0.14 × bare", "rate limit service, 1 descriptor", bare1, rate, 0.14, noBound)
	for _, j := range f.hot {
		if j.name == denyRow {
			list = append(list, goal{"a hot denied key, deny cache: at least 1,000,000 refusals/s",
				fmt.Sprintf("%.0f/s", j.rate), j.rate >= 1e6})
		}
	}
	if s := f.saved; s != nil {
		list = append(list,
			goal{"prefetch, 8 replicas, load 0.95: at least 20 × fewer calls", fmt.Sprintf("%.1f ×", s.fewer()), s.fewer() >= 20},
			goal{"prefetch: utilisation at least 0.99", fmt.Sprintf("%.3f", s.used()), s.used() >= 0.99})
	}
	return append(list, f.exactness()...)
}

// exactness is one goal over all ways to decide about one hot key.
func (f findings) exactness() []goal {
	if len(f.hot) == 0 {
		return nil
	}
	g := goal{text: "one hot key: admitted / allowed is 1.00 ± 0.01, never above", met: true}
	least, most := f.hot[0].admitted, f.hot[0].admitted
	for _, j := range f.hot {
		least, most = min(least, j.admitted), max(most, j.admitted)
		g.met = g.met && j.exact()
	}
	g.found = fmt.Sprintf("%.4f to %.4f", least, most)
	return []goal{g}
}
