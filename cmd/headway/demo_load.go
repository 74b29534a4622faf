package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headway-limiter/headway/bench"
)

// scenario is a mix of tenants.
type scenario struct {
	help    string
	rate    float64 // requests per second of all tenants together
	tenants []demoTenant
}

// demoTenant is one tenant of a scenario.
type demoTenant struct {
	name   string
	weight float64
	part   float64 // of the scenario's rate, relative to the other tenants
	stream bool
}

// scenarios are the mixes that the demo knows.
var scenarios = map[string]scenario{
	"heavy-tenant": {
		help: "an importer floods; gold (weight 3) wants more than there is; two small ones want little",
		rate: 200,
		tenants: []demoTenant{
			{name: "importer", weight: 1, part: 144},
			{name: "gold", weight: 3, part: 44, stream: true},
			{name: "small-a", weight: 1, part: 6},
			{name: "small-b", weight: 1, part: 6, stream: true},
		},
	},
	"even": {
		help: "four equal tenants want more than there is",
		rate: 120,
		tenants: []demoTenant{
			{name: "north", weight: 1, part: 1}, {name: "east", weight: 1, part: 1, stream: true},
			{name: "south", weight: 1, part: 1}, {name: "west", weight: 1, part: 1, stream: true},
		},
	},
}

func scenarioNames() string {
	return strings.Join(slices.Sorted(maps.Keys(scenarios)), ", ")
}

// scenarioHelp describes every scenario with its rates.
func scenarioHelp() string {
	var b strings.Builder
	b.WriteString("Scenarios, with requests per second (--rate scales them):\n")
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		s := scenarios[name]
		fmt.Fprintf(&b, "  %-13s %s:\n               ", name, s.help)
		for i, t := range s.tenants {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%s %g", t.name, s.rateOf(t, s.rate))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// rateOf is t's part of a total rate.
func (s scenario) rateOf(t demoTenant, total float64) float64 {
	var parts float64
	for _, other := range s.tenants {
		parts += other.part
	}
	return total * t.part / parts
}

// loads is the scenario as load for the driver. run makes keys unique.
func (s scenario) loads(o demoOptions, run string) []bench.Load {
	var out []bench.Load
	for _, t := range s.tenants {
		out = append(out, bench.Load{
			Tenant: t.name, Weight: t.weight, Rate: s.rateOf(t, o.rate), Key: demoKey(t, run),
			Model: demoModel(run), Stream: t.stream, MaxTokens: 8,
		})
	}
	return out
}

// The names of one run. They occur in no other run, so that a demo on a shared
// Redis server finds full buckets and disturbs nobody.
func demoModel(run string) string              { return "demo-" + run }
func demoUser(t demoTenant, run string) string { return t.name + "-" + run }
func demoKey(t demoTenant, run string) string  { return "key-" + demoUser(t, run) }
