package main

import (
	"context"
	"fmt"
	"io"
	"slices"
)

// metric is a column of a table.
type metric string

const (
	rate       metric = "requests/s"
	p50        metric = "p50 ms"
	p99        metric = "p99 ms"
	envoyCPU   metric = "Envoy CPU"   // µs per request
	sidecarCPU metric = "sidecar CPU" // µs per request
	redisCPU   metric = "Redis CPU"   // µs per request
	scripts    metric = "Redis scripts"
)

// sample is what one contender showed in one round.
type sample map[metric]float64

// contender is a row of a table: one of those that do the same work.
type contender struct {
	name string
	// bases are the rows that this one is compared with, by name. None makes it
	// one of them.
	bases []string
	// round makes that many requests. Its number tells rounds apart.
	round func(ctx context.Context, number, requests int) (sample, error)
}

// section is a table to be: contenders that are measured in turns.
type section struct {
	title      string
	note       string
	share      int // of the requests of a round, one in so many
	metrics    []metric
	ratios     []ratio
	contenders []contender
}

// ratio is a column that compares rows.
type ratio struct {
	metric metric
	base   int // of contender.bases
	name   string
}

// warmUp is the part of a round that is made before the first one counts:
// connections, heaps and caches come to what they will be.
const warmUp = 10

// minRequests keeps the smallest share of a round, warming up, at one request a
// connection.
const minRequests = warmUp * settleShare * connections

// measure runs the rounds. The result is by contender, then by round.
func (s *section) measure(ctx context.Context, set settings, progress io.Writer) ([][]sample, error) {
	requests := set.requests / s.share
	for _, c := range s.contenders {
		if _, err := c.round(ctx, 0, requests/warmUp); err != nil {
			return nil, fmt.Errorf("warming up %q of %q: %w", c.name, s.title, err)
		}
	}
	measured := make([][]sample, len(s.contenders))
	for number := 1; number <= set.rounds; number++ {
		for i := range s.contenders {
			// Each begins a round in its turn, so that none is always right after the
			// same one.
			i = (i + number) % len(s.contenders)
			c := s.contenders[i]
			got, err := c.round(ctx, number, requests)
			if err != nil {
				return nil, fmt.Errorf("measuring %q of %q: %w", c.name, s.title, err)
			}
			fmt.Fprintf(progress, "%s: round %d of %d: %s: %.0f requests/s\n",
				s.title, number, set.rounds, c.name, got[rate])
			measured[i] = append(measured[i], got)
		}
	}
	return measured, nil
}

// table makes the table of what measure returned: medians, and the medians of
// each round's ratios with the lowest and the highest. A ratio within a round is
// of two measurements made within seconds.
func (s *section) table(measured [][]sample) table {
	t := table{title: s.title, note: s.note, header: []string{""}}
	for _, m := range s.metrics {
		t.header = append(t.header, string(m))
	}
	for _, r := range s.ratios {
		t.header = append(t.header, r.name)
	}
	for i, c := range s.contenders {
		row := []string{c.name}
		for _, m := range s.metrics {
			row = append(row, figure(m, measured[i]))
		}
		for _, r := range s.ratios {
			row = append(row, s.compare(measured, i, r))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// compare returns one row's cell of a ratio column.
func (s *section) compare(measured [][]sample, row int, r ratio) string {
	if r.base >= len(s.contenders[row].bases) {
		return ""
	}
	base := slices.IndexFunc(s.contenders, func(c contender) bool { return c.name == s.contenders[row].bases[r.base] })
	var ratios []float64
	for round, got := range measured[row] {
		// The kernel may have charged less than one of its ticks for a short round.
		if of := measured[base][round][r.metric]; of > 0 {
			ratios = append(ratios, got[r.metric]/of)
		}
	}
	if len(ratios) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f (%.2f-%.2f)", median(ratios), slices.Min(ratios), slices.Max(ratios))
}

// figure returns the median of a metric, with the digits that mean something.
func figure(m metric, rounds []sample) string {
	var values []float64
	for _, s := range rounds {
		if v, ok := s[m]; ok {
			values = append(values, v)
		}
	}
	switch {
	case len(values) == 0:
		return ""
	case m == rate:
		return fmt.Sprintf("%.0f", median(values))
	case m == envoyCPU || m == sidecarCPU || m == redisCPU:
		return fmt.Sprintf("%.1f", median(values))
	}
	return fmt.Sprintf("%.2f", median(values))
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
