// Package benchmark is what the benchmark commands below tests/bench share: the
// figures of candidates that are measured in rounds, in turns, and the tables, plots
// and targets that are made of them.
//
// Start with [Results]: all else shows it. What is compared, and how, is left to the
// commands, which begin with [Main].
package benchmark

import (
	"fmt"
	"slices"
	"time"
)

// Metric is a figure that is measured, and a column of a table.
type Metric struct {
	Name   string // with its unit
	Format string // for fmt, with the digits that mean something
}

// Text returns a figure as a table shows it.
func (m Metric) Text(v float64) string { return fmt.Sprintf(m.Format, v) }

// Sample is what one candidate showed in one round.
type Sample map[Metric]float64

// Results is what candidates showed, by candidate and round. In a round each has its
// turn, within seconds of the others.
type Results struct {
	Names  []string
	Rounds [][]Sample
}

// Turns returns the order in which n candidates have their turns in a round. Each
// begins a round in its turn, so that none is always right after the same one.
func Turns(round, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (i + round) % n
	}
	return order
}

// rounds returns those of a candidate, nil if there is none of this name.
func (r Results) rounds(name string) []Sample {
	if i := slices.Index(r.Names, name); i >= 0 {
		return r.Rounds[i]
	}
	return nil
}

// Values returns a metric in each round in which a candidate has it.
func (r Results) Values(name string, m Metric) []float64 {
	var values []float64
	for _, s := range r.rounds(name) {
		if v, ok := s[m]; ok {
			values = append(values, v)
		}
	}
	return values
}

// Ratios returns in each round a metric of one candidate over that of another. A
// round in which one of them has none, or the other has 0, is left out.
func (r Results) Ratios(m Metric, over, under string) []float64 {
	a, b := r.rounds(over), r.rounds(under)
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if v, ok := a[i][m]; ok && b[i][m] > 0 {
			ratios = append(ratios, v/b[i][m])
		}
	}
	return ratios
}

// Row returns a row of a table: the name, and the median of each metric, "" where
// the candidate has none.
func (r Results) Row(name string, metrics []Metric) []string {
	row := []string{name}
	for _, m := range metrics {
		cell := ""
		if values := r.Values(name, m); len(values) > 0 {
			cell = m.Text(Median(values))
		}
		row = append(row, cell)
	}
	return row
}

// RatioText returns the median of the rounds' ratios with the lowest and the
// highest, "" if there are none.
func RatioText(ratios []float64) string {
	if len(ratios) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f (%.2f-%.2f)", Median(ratios), slices.Min(ratios), slices.Max(ratios))
}

// Median returns the middle of the values, which must not be empty, or the mean of
// the two in the middle.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Percentile returns the smallest of the sorted durations that so many percent of
// them do not exceed, 0 if there are none.
func Percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*percent + 99) / 100
	return sorted[max(rank, 1)-1]
}
