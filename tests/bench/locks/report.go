package main

import (
	"runtime"
	"slices"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

const introText = `Medians of %d rounds of %v; in a round all take their turns. A ratio is taken
within each round, the brackets have the lowest and the highest. Only ratios mean
anything: callers and Redis %s share %d CPUs (%s/%s, load average %s at the
start). Requests are commands that the client sent, per operation or grant; a proxy
counts them in a round of its own.

`

// intro says how to read what follows.
func intro(out *benchmark.Report, s settings, redis string) {
	out.Printf(introText, s.Rounds, s.length, redis, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, benchmark.LoadAverage())
}

// table makes the table of what was measured: medians, and, where the section asks
// for it, what we did of what each did.
func (r results) table() benchmark.Table {
	t := benchmark.NewTable(r.section.title, r.section.note, r.section.metrics)
	versus := r.section.versus != benchmark.Metric{} && slices.Contains(r.Names, nameOurs)
	if versus {
		t.Header = append(t.Header, nameOurs+" : it")
	}
	for _, name := range r.Names {
		row := r.Row(name, r.section.metrics)
		if versus {
			row = append(row, benchmark.RatioText(r.Ratios(r.section.versus, nameOurs, name)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
