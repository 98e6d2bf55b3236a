package main

import (
	"slices"
	"strings"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// panel is a part of the plot. What was not measured has none.
type panel struct {
	section string
	metric  benchmark.Metric
	title   string
}

var panels = []panel{
	{"refuse", rate, "Refusing an absent order: requests/s, more is better"},
	{"refuse", allCPU, "CPU of proxy, sidecar and Redis in µs, less is better"},
	{"pass", rate, "Passing an order that exists: requests/s"},
	{"pass", allCPU, "CPU of proxy, sidecar and Redis in µs"},
	{"settle", rate, "Settling distinct orders: requests/s"},
	{"settle", allCPU, "CPU of proxy, sidecar and Redis in µs"},
}

func plot(all []measured) benchmark.Plot {
	p := benchmark.Plot{PanelWidth: 510, NameWidth: 175, Ours: func(name string) bool { return strings.HasPrefix(name, "ordergate") }}
	for _, one := range panels {
		if i := slices.IndexFunc(all, func(m measured) bool { return m.section.name == one.section }); i >= 0 {
			p.Panels = append(p.Panels, benchmark.Panel{Title: one.title, Results: all[i].Results, Metric: one.metric})
		}
	}
	return p
}
