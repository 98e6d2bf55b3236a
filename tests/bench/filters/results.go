package main

import (
	"fmt"
	"slices"
	"strings"
)

// metric is a column of a table.
type metric string

const (
	hitTime        metric = "hit ns"
	missTime       metric = "miss ns"
	hitApart       metric = "hit apart ns"
	allocs         metric = "allocations"
	bytesPerID     metric = "bytes/ID"
	overFormula    metric = "over formula"
	falsePositives metric = "false positives"
	buildRate      metric = "M IDs/s"
	buildCPU       metric = "M IDs/s a core"
	fileSize       metric = "MB"
	writeTime      metric = "write s"
	readTime       metric = "read s"
)

// moreIsBetter decides which way round a ratio is: all that are above 1 are in
// our favour.
func (m metric) moreIsBetter() bool { return m == buildRate || m == buildCPU }

// text returns a figure with the digits that mean something.
func (m metric) text(v float64) string {
	switch m {
	case allocs, fileSize:
		return fmt.Sprintf("%.0f", v)
	case hitTime, missTime, hitApart, buildRate, buildCPU:
		return fmt.Sprintf("%.1f", v)
	case overFormula:
		return fmt.Sprintf("%.1f%%", v)
	case falsePositives:
		return fmt.Sprintf("%.3f%%", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// sample is what one candidate showed in one round.
type sample map[metric]float64

// section is one thing measured at one number of IDs, and a table to be.
type section struct {
	name    string
	title   string
	note    string
	n       int
	metrics []metric
	versus  []metric // whose ratios to ours the table has
}

// results is what a section's candidates showed, by candidate and round.
type results struct {
	section section
	names   []string
	rounds  [][]sample
}

// values returns a metric in each round of a candidate, nil if there is none.
func (r results) values(name string, m metric) []float64 {
	i := slices.Index(r.names, name)
	if i < 0 {
		return nil
	}
	var values []float64
	for _, s := range r.rounds[i] {
		if v, ok := s[m]; ok {
			values = append(values, v)
		}
	}
	return values
}

// ratios returns in each round how many times better ours is than another, nil if
// one of them is not there. The two were measured within seconds.
func (r results) ratios(m metric, ours, other string) []float64 {
	over, under := r.values(other, m), r.values(ours, m)
	if m.moreIsBetter() {
		over, under = under, over
	}
	var ratios []float64
	for i := range min(len(over), len(under)) {
		if under[i] > 0 {
			ratios = append(ratios, over[i]/under[i])
		}
	}
	return ratios
}

// median returns the middle of the values, which must not be empty, or the mean
// of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
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
