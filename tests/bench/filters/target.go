package main

import "github.com/ordergate/ordergate/tests/bench/benchmark"

// target is what one of ours is to reach: a figure, or how many times better it is
// than a peer.
type target struct {
	section string
	of      string
	metric  benchmark.Metric
	peer    string // "" for the figure itself
	target  benchmark.Target
	from    int // IDs; below it nothing is asked for
}

var targets = []target{
	{"lookup", nameBlocked, hitApart, nameBlobloomSync, benchmark.AtLeast(1), largeSize},
	{"lookup", nameBlocked, hitTime, nameBlobloomSync, benchmark.AtLeast(1), largeSize},
	{"lookup", nameBlocked, missTime, nameBlobloomSync, benchmark.AtLeast(1), largeSize},
	{"lookup", nameBlocked, hitTime, nameBlobloomKey, benchmark.AtLeast(1), largeSize},
	{"lookup", nameBlocked, missTime, nameBlobloomKey, benchmark.AtLeast(1), largeSize},
	{"lookup", nameBlocked, hitTime, nameUnkeyed, benchmark.AtLeast(1.4), largeSize},
	{"lookup", nameBlocked, missTime, nameUnkeyed, benchmark.AtLeast(1.4), largeSize},
	{"lookup", nameBlocked, allocs, "", benchmark.AtMost(0), 0},
	{"lookup", nameBlocked, overFormula, "", benchmark.AtMost(2), 0},
	{"build", nameBlocked, buildRate, "", benchmark.AtLeast(3), 0},
	{"files", nameBlocked, readTime, "", benchmark.AtMost(1), largeSize},
	{"redis", nameBloom, hitRate, nameEach, benchmark.AtLeast(3), 0},
	{"redis", nameBloom, missRate, nameEach, benchmark.AtLeast(3), 0},
	{"redis", nameBitmap, hitRate, nameEach, benchmark.AtLeast(3), 0},
	{"redis", nameBitmap, missRate, nameEach, benchmark.AtLeast(3), 0},
	{"redis", nameRedisson, hitRate, nameEach, benchmark.AtLeast(3), 0},
	{"redis", nameRedisson, missRate, nameEach, benchmark.AtLeast(3), 0},
}

// targetTable says how far we are. Those that were not measured have no row.
func targetTable(all []results) benchmark.Table {
	t := benchmark.NewTargets("ordergate")
	for _, r := range all {
		for _, want := range targets {
			if want.section != r.section.name || r.section.n < want.from {
				continue
			}
			what, values := want.metric.Name, r.Values(want.of, want.metric)
			switch {
			case r.section.yardstick != "":
				what, values = want.of+"'s "+what+" : "+want.peer, r.better(want.metric, want.of, want.peer)
			case want.peer != "":
				what, values = want.peer+"'s "+what+" : ours", r.better(want.metric, want.of, want.peer)
			}
			t.Add(r.section.title, what, want.target, values)
		}
	}
	return t.Table
}
