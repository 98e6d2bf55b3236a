package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// The columns of the tables. CPU is in µs per request.
var (
	rate       = benchmark.Metric{Name: "requests/s", Format: "%.0f"}
	p50        = benchmark.Metric{Name: "p50 ms", Format: "%.2f"}
	p99        = benchmark.Metric{Name: "p99 ms", Format: "%.2f"}
	proxyCPU   = benchmark.Metric{Name: "proxy CPU", Format: "%.1f"}
	sidecarCPU = benchmark.Metric{Name: "sidecar CPU", Format: "%.1f"}
	redisCPU   = benchmark.Metric{Name: "Redis CPU", Format: "%.1f"}
	allCPU     = benchmark.Metric{Name: "CPU in all", Format: "%.1f"}
)

var metrics = []benchmark.Metric{rate, p50, p99, proxyCPU, sidecarCPU, redisCPU, allCPU}

// ratio is a column that compares a row with its bases.
type ratio struct {
	metric benchmark.Metric
	base   int // of contender.bases
	name   string
}

// The bases of a row that has them all: the same proxy without a gate, the same proxy
// with one that does nothing, and what people write by hand.
const (
	plainBase = iota
	noopBase
	handBase
)

var ratios = []ratio{
	{rate, plainBase, "requests/s : plain"},
	{allCPU, plainBase, "CPU : plain"},
	{rate, noopBase, "requests/s : no-op"},
	{allCPU, noopBase, "CPU : no-op"},
	{rate, handBase, "requests/s : nginx + Lua"},
	{allCPU, handBase, "CPU : nginx + Lua"},
}

// contender is a row of a table: one of those that do the same work.
type contender struct {
	name  string
	bases []string // the rows that this one is compared with, by name
	on    *gateway
	want  answer

	suffix string // of the path, in place of that of the section; the answer is stored
}

// section is a table to be: contenders that are measured in turns.
type section struct {
	name       string // for -sections
	title      string
	note       string
	load       load
	distinct   bool // no order comes again, in any round
	locks      bool // gates take the order's lock
	contenders []contender
	ratios     []ratio // nil: the usual ones
}

// warmUp is the part of a round that is spent before the first one counts:
// connections, heaps and caches come to what they will be.
const warmUp = 4

// roundIDs is more than there are requests in two rounds: those of half a million a
// second for a minute each.
const roundIDs = 60_000_000

// Answers are given again of so many orders, of a round that nobody runs.
const (
	replayedOrders = 100
	replayedRound  = 1_000
)

// measured is a section with what it showed.
type measured struct {
	section section
	benchmark.Results
}

// measure runs the rounds. wrk runs the script.
func (s section) measure(ctx context.Context, script string, set settings, progress io.Writer) (measured, error) {
	all := measured{s, benchmark.Results{Rounds: make([][]benchmark.Sample, len(s.contenders))}}
	for _, c := range s.contenders {
		all.Names = append(all.Names, c.name)
		if _, err := s.round(ctx, c, script, set, 0, max(set.length/warmUp, leastLength)); err != nil {
			return all, fmt.Errorf("warming up %q of %q: %w", c.name, s.title, err)
		}
	}
	for number := 1; number <= set.Rounds; number++ {
		for _, i := range benchmark.Turns(number, len(s.contenders)) {
			c := s.contenders[i]
			got, err := s.round(ctx, c, script, set, number, set.length)
			if err != nil {
				return all, fmt.Errorf("measuring %q of %q: %w", c.name, s.title, err)
			}
			fmt.Fprintf(progress, "%s: round %d of %d: %s: %.0f requests/s\n",
				s.title, number, set.Rounds, c.name, got[rate])
			all.Rounds[i] = append(all.Rounds[i], got)
		}
	}
	return all, nil
}

// round measures one contender once. The number tells rounds apart.
func (s section) round(ctx context.Context, c contender, script string, set settings, number int, length time.Duration) (benchmark.Sample, error) {
	job := s.load
	if set.browser {
		job.headers = browserHeaders
	}
	if c.suffix != "" {
		job.suffix = c.suffix
	}
	switch {
	case c.want == replayed:
		job.first, job.count = job.first+replayedRound*roundIDs, replayedOrders
		if err := c.settleAll(ctx, job, number); err != nil {
			return nil, err
		}
	case s.distinct:
		job.first, job.count = job.first+int64(number)*roundIDs, roundIDs
		if c.suffix != "" {
			// Not those that another rule of the same gate settles in this round: calls that
			// wrk gave up hold their orders.
			job.first += roundIDs / 2
			job.count -= roundIDs / 2
		}
	}
	if err := s.probe(ctx, c, job); err != nil {
		return nil, err
	}
	if s.distinct && c.want != replayed {
		job.first++ // it has been asked for
	}
	var l loaded
	var used benchmark.Sample
	err := c.on.right(ctx, func() (err error) {
		used, err = c.on.metered(func() (err error) {
			l, err = job.run(ctx, script, c.on.url, length, c.want.status)
			return err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	got := benchmark.Sample{
		rate: float64(l.Requests) / float64(l.Micros) * 1e6,
		p50:  l.P50 / 1000, p99: l.P99 / 1000,
	}
	for m, micros := range used {
		got[m] = micros / float64(l.Requests)
	}
	return got, nil
}

// probe looks at single answers, with their verdicts: at a settlement while another
// has the order's lock, and at two in a row, as a lock that was not given up would
// show.
func (s section) probe(ctx context.Context, c contender, job load) error {
	if s.locks && c.on.lock != nil && c.want != replayed {
		if err := c.on.lock(ctx, job.first); err != nil {
			return err
		}
		if err := c.on.ask(ctx, job, job.first, c.on.busy); err != nil {
			return fmt.Errorf("while another settles the order: %w", err)
		}
		if err := c.on.unlock(ctx, job.first); err != nil {
			return err
		}
	}
	again := c.want
	if c.suffix != "" {
		again = replayed
	}
	for _, want := range []answer{c.want, again} {
		if err := c.on.ask(ctx, job, job.first, want); err != nil {
			return err
		}
	}
	return nil
}

// settleAll settles the orders whose answers are given again, before the first round.
func (c contender) settleAll(ctx context.Context, job load, number int) error {
	if number > 0 {
		return nil
	}
	for i := range job.count {
		if err := c.on.ask(ctx, job, job.first+i, passed); err != nil {
			return err
		}
	}
	return nil
}

// table makes the table.
func (m measured) table() benchmark.Table {
	t := benchmark.NewTable(m.section.title, m.section.note, metrics)
	columns := m.section.ratios
	if columns == nil {
		columns = ratios
	}
	for _, r := range columns {
		t.Header = append(t.Header, r.name)
	}
	for _, c := range m.section.contenders {
		row := m.Row(c.name, metrics)
		for _, r := range columns {
			cell := ""
			if r.base < len(c.bases) && c.bases[r.base] != "" {
				// The kernel may have charged less than one of its ticks for a short round,
				// which is left out.
				cell = benchmark.RatioText(m.Ratios(r.metric, c.name, c.bases[r.base]))
			}
			row = append(row, cell)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
