package main

import (
	"slices"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// panel is a part of the plot. What was not measured has none.
type panel struct {
	scenario string
	metric   benchmark.Metric
	title    string
}

var panels = []panel{
	{"uncontended", rate, "Uncontended: ops/s, more is better"},
	{"uncontended", allocs, "Uncontended: allocations, less is better"},
	{"distinct", rate, "64 callers, distinct keys: ops/s, more is better"},
	{"relay", grants, "Relay on one key: grants/s of an ideal 500"},
	{"storm", waitP99, "Storm of 500: p99 wait in ms, less is better"},
	{"tries", granted, "Storm, few tries: granted of 500"},
}

func plot(all []results) benchmark.Plot {
	p := benchmark.Plot{PanelWidth: 450, NameWidth: 105, Ours: func(name string) bool { return name == nameOurs }}
	for _, one := range panels {
		if i := slices.IndexFunc(all, func(r results) bool { return r.section.name == one.scenario }); i >= 0 {
			p.Panels = append(p.Panels, benchmark.Panel{Title: one.title, Results: all[i].Results, Metric: one.metric})
		}
	}
	return p
}
