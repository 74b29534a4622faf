package main

import (
	"cmp"
	"slices"
	"time"
)

// middle is the median of what of returns for each of list.
func middle[T any, V cmp.Ordered](list []T, of func(T) V) V {
	var values []V
	for _, x := range list {
		values = append(values, of(x))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// median is taken of every number by itself.
func (r *result) median() reading {
	m := reading{
		rate:   middle(r.readings, func(x reading) float64 { return x.rate }),
		p50:    middle(r.readings, func(x reading) time.Duration { return x.p50 }),
		p99:    middle(r.readings, func(x reading) time.Duration { return x.p99 }),
		redis:  middle(r.readings, func(x reading) float64 { return x.redis }),
		script: middle(r.readings, func(x reading) float64 { return x.script }),
		calls:  middle(r.readings, func(x reading) float64 { return x.calls }),
		failed: middle(r.readings, func(x reading) float64 { return x.failed }),
		client: middle(r.readings, func(x reading) float64 { return x.client }),
	}
	for _, x := range r.readings {
		m.refused += x.refused
		m.errors += x.errors
		if x.lastError != nil {
			m.lastError = x.lastError
		}
	}
	return m
}

// over is the median, over rounds, of a number of one cell by that of another.
func over(of, by *result, what func(reading) float64) float64 {
	if of == nil || by == nil {
		return 0
	}
	var ratios []float64
	for i := range of.readings {
		ratios = append(ratios, what(of.readings[i])/what(by.readings[i]))
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// What can be compared.
func rate(r reading) float64 { return r.rate }

// perCPU is how many decisions a second of processor time buys, of this process
// and the server together: the rate on cores that both share, whoever else runs.
func perCPU(r reading) float64 { return 1e6 / (r.redis + r.client) }

func redisCPU(r reading) float64 { return r.redis }

// find returns the result of a cell, nil if it was not measured.
func find(all []*result, name string) *result {
	for _, r := range all {
		if r.cell.name == name {
			return r
		}
	}
	return nil
}
