package main

import (
	"context"
	"fmt"
	"io"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// The columns of the tables.
var (
	rate       = benchmark.Metric{Name: "requests/s", Format: "%.0f"}
	p50        = benchmark.Metric{Name: "p50 ms", Format: "%.2f"}
	p99        = benchmark.Metric{Name: "p99 ms", Format: "%.2f"}
	envoyCPU   = benchmark.Metric{Name: "Envoy CPU", Format: "%.1f"}   // µs per request
	sidecarCPU = benchmark.Metric{Name: "sidecar CPU", Format: "%.1f"} // µs per request
	redisCPU   = benchmark.Metric{Name: "Redis CPU", Format: "%.1f"}   // µs per request
	scripts    = benchmark.Metric{Name: "Redis scripts", Format: "%.2f"}
)

// contender is a row of a table: one of those that do the same work.
type contender struct {
	name string
	// bases are the rows that this one is compared with, by name. None makes it
	// one of them.
	bases []string
	// round makes that many requests. Its number tells rounds apart.
	round func(ctx context.Context, number, requests int) (benchmark.Sample, error)
}

// section is a table to be: contenders that are measured in turns.
type section struct {
	title      string
	note       string
	share      int // of the requests of a round, one in so many
	metrics    []benchmark.Metric
	ratios     []ratio
	contenders []contender
}

// ratio is a column that compares rows.
type ratio struct {
	metric benchmark.Metric
	base   int // of contender.bases
	name   string
}

// warmUp is the part of a round that is made before the first one counts:
// connections, heaps and caches come to what they will be.
const warmUp = 10

// minRequests keeps the smallest share of a round, warming up, at one request a
// connection.
const minRequests = warmUp * settleShare * connections

// measure runs the rounds.
func (s *section) measure(ctx context.Context, set settings, progress io.Writer) (benchmark.Results, error) {
	requests := set.requests / s.share
	measured := benchmark.Results{Rounds: make([][]benchmark.Sample, len(s.contenders))}
	for _, c := range s.contenders {
		measured.Names = append(measured.Names, c.name)
		if _, err := c.round(ctx, 0, requests/warmUp); err != nil {
			return measured, fmt.Errorf("warming up %q of %q: %w", c.name, s.title, err)
		}
	}
	for number := 1; number <= set.Rounds; number++ {
		for _, i := range benchmark.Turns(number, len(s.contenders)) {
			c := s.contenders[i]
			got, err := c.round(ctx, number, requests)
			if err != nil {
				return measured, fmt.Errorf("measuring %q of %q: %w", c.name, s.title, err)
			}
			fmt.Fprintf(progress, "%s: round %d of %d: %s: %.0f requests/s\n",
				s.title, number, set.Rounds, c.name, got[rate])
			measured.Rounds[i] = append(measured.Rounds[i], got)
		}
	}
	return measured, nil
}

// table makes the table of what measure returned.
func (s *section) table(measured benchmark.Results) benchmark.Table {
	t := benchmark.NewTable(s.title, s.note, s.metrics)
	for _, r := range s.ratios {
		t.Header = append(t.Header, r.name)
	}
	for _, c := range s.contenders {
		row := measured.Row(c.name, s.metrics)
		for _, r := range s.ratios {
			cell := ""
			if r.base < len(c.bases) {
				// The kernel may have charged less than one of its ticks for a short round,
				// which is left out.
				cell = benchmark.RatioText(measured.Ratios(r.metric, c.name, c.bases[r.base]))
			}
			row = append(row, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
