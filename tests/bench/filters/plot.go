package main

import (
	"slices"
	"strings"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// panels are drawn for each number of IDs that was measured.
var panels = []struct {
	section string
	metric  benchmark.Metric
	title   string
}{
	{"lookup", hitTime, "hit in ns, less is better"},
	{"lookup", missTime, "miss in ns, less is better"},
	{"lookup", hitApart, "hit apart in ns, less is better"},
	{"build", buildCPU, "M IDs/s added a core, more is better"},
	{"redis", hitRate, "in Redis, hits/s, more is better"},
	{"redis", missRate, "in Redis, misses/s, more is better"},
}

func plot(all []results) benchmark.Plot {
	ours := func(name string) bool { return strings.HasPrefix(name, nameBlocked) } // other layouts and kinds too
	p := benchmark.Plot{PanelWidth: 500, NameWidth: 150, Ours: ours}
	var sizes []int
	for _, r := range all {
		if !slices.Contains(sizes, r.section.n) {
			sizes = append(sizes, r.section.n)
		}
	}
	for _, n := range sizes {
		for _, one := range panels {
			i := slices.IndexFunc(all, func(r results) bool { return r.section.n == n && r.section.name == one.section })
			if i >= 0 {
				p.Panels = append(p.Panels, benchmark.Panel{
					Title: count(n) + " IDs: " + one.title, Results: all[i].Results, Metric: one.metric,
				})
			}
		}
	}
	return p
}
