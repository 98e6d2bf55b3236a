package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// The columns of the tables.
var (
	hitTime        = benchmark.Metric{Name: "hit ns", Format: "%.1f"}
	missTime       = benchmark.Metric{Name: "miss ns", Format: "%.1f"}
	hitApart       = benchmark.Metric{Name: "hit apart ns", Format: "%.1f"}
	allocs         = benchmark.Metric{Name: "allocations", Format: "%.0f"}
	bytesPerID     = benchmark.Metric{Name: "bytes/ID", Format: "%.2f"}
	overFormula    = benchmark.Metric{Name: "over formula", Format: "%.1f%%"}
	falsePositives = benchmark.Metric{Name: "false positives", Format: "%.3f%%"}
	buildRate      = benchmark.Metric{Name: "M IDs/s", Format: "%.1f"}
	buildCPU       = benchmark.Metric{Name: "M IDs/s a core", Format: "%.1f"}
	fileSize       = benchmark.Metric{Name: "MB", Format: "%.0f"}
	writeTime      = benchmark.Metric{Name: "write s", Format: "%.2f"}
	readTime       = benchmark.Metric{Name: "read s", Format: "%.2f"}
	hitRate        = benchmark.Metric{Name: "hits/s", Format: "%.0f"}
	missRate       = benchmark.Metric{Name: "misses/s", Format: "%.0f"}
	clientCPU      = benchmark.Metric{Name: "client CPU µs", Format: "%.1f"} // per question
	redisCPU       = benchmark.Metric{Name: "Redis CPU µs", Format: "%.1f"}  // per question
	bothCPU        = benchmark.Metric{Name: "CPU µs", Format: "%.1f"}        // the sum of these
)

// moreIsBetter decides which way round a ratio is: all that are above 1 are in
// our favour.
func moreIsBetter(m benchmark.Metric) bool {
	return slices.Contains([]benchmark.Metric{buildRate, buildCPU, hitRate, missRate}, m)
}

// section is one thing measured at one number of IDs, and a table to be.
type section struct {
	name    string
	title   string
	note    string
	n       int
	metrics []benchmark.Metric
	versus  []benchmark.Metric // whose ratios the table has
	// yardstick is the row that all are compared with. "" compares ours, the blocked
	// layout, with all.
	yardstick string
}

// results is what a section's candidates showed.
type results struct {
	benchmark.Results
	section section
}

// newResults returns a section without a round.
func newResults(s section, names []string) results {
	return results{benchmark.Results{Names: names, Rounds: make([][]benchmark.Sample, len(names))}, s}
}

// better returns in each round how many times better one candidate is than another.
func (r results) better(m benchmark.Metric, one, than string) []float64 {
	if moreIsBetter(m) {
		return r.Ratios(m, one, than)
	}
	return r.Ratios(m, than, one)
}

// table makes the table of what was measured: medians, and how many times better
// ours is.
func (r results) table() benchmark.Table {
	t := benchmark.NewTable(r.section.title, r.section.note, r.section.metrics)
	var versus []benchmark.Metric
	if slices.Contains(r.Names, r.base()) {
		versus = r.section.versus
	}
	for _, m := range versus {
		switch {
		case r.section.yardstick != "" && !moreIsBetter(m):
			t.Header = append(t.Header, fmt.Sprintf("%s, %s : it", m.Name, r.base()))
		case r.section.yardstick != "":
			t.Header = append(t.Header, fmt.Sprintf("%s, it : %s", m.Name, r.base()))
		case moreIsBetter(m):
			t.Header = append(t.Header, fmt.Sprintf("%s, %s : it", m.Name, r.base()))
		default:
			t.Header = append(t.Header, fmt.Sprintf("%s, it : %s", strings.TrimSuffix(m.Name, " ns"), r.base()))
		}
	}
	for _, name := range r.Names {
		row := r.Row(name, r.section.metrics)
		for _, m := range versus {
			one, than := r.base(), name
			if r.section.yardstick != "" {
				one, than = than, one
			}
			row = append(row, benchmark.RatioText(r.better(m, one, than)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// base is the row that ratios are about.
func (r results) base() string {
	if r.section.yardstick != "" {
		return r.section.yardstick
	}
	return nameBlocked
}

// count writes a number with commas.
func count(n int) string {
	digits := fmt.Sprint(n)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
