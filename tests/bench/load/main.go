// Command load measures how fast order IDs are read from a table, beside one SELECT
// that streams all of them to the same driver and does nothing with them: run it with
// "go run ./tests/bench/load".
//
// The two take turns in one run, so read the ratio: what a batch after another, with
// its place in the order, takes of what the database and the driver can do. It fails
// on errors and on IDs that are missing, never on a figure.
//
// Start with [run]. servers.go has the two databases.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/ordergate/ordergate/internal/source"
	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

// settings are the command's flags.
type settings struct {
	benchmark.Settings
	rows  int
	batch int
	only  string
}

// startLimit bounds the start of a server and the making of its table, for each
// million rows.
const startLimit = 2 * time.Minute

func main() { os.Exit(benchmark.Main("bench-load", run)) }

// run measures, and writes the tables to stdout and its progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	chosen, err := benchmark.Pick("-only", s.only, databases, func(d database) string { return d.name })
	if err != nil {
		return err
	}
	out := benchmark.NewReport(stdout, s.Markdown, "##")
	out.Printf(introText, s.Rounds, s.rows, s.batch, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, benchmark.LoadAverage())
	targets := benchmark.NewTargets("ordergate")
	err = benchmark.OnBed(func(bed *testbed.Bed) error {
		for _, d := range chosen {
			if err := measure(ctx, bed, d, s, out, targets, stderr); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	out.Table(targets.Table)
	return out.Err()
}

const introText = `Medians of %d rounds; in a round all take their turns. A ratio is taken within each
round, the brackets have the lowest and the highest. The table has %d rows of
about 150 bytes, a batch %d. Only ratios mean anything: the server and the
reader share %d CPUs (%s/%s, load average %s at the start).

`

var rate = benchmark.Metric{Name: "million rows/s", Format: "%.2f"}

// reading is one way to read the IDs.
type reading struct {
	name   string
	query  string // one SELECT; "": in batches
	column string // of the IDs
	cursor string
	alone  string // the reading of nothing but the IDs
	same   string // the reading of the same columns in the same order, by one SELECT
}

// readings are what is compared. Numbers are their own cursor; texts need two columns
// of each row, and the time is one that rows share.
var readings = []reading{
	{name: selectNumbers, query: "SELECT id FROM orders"},
	{name: "numbers, in batches", column: "id", cursor: "id", alone: selectNumbers, same: selectNumbers},
	{name: selectTexts, query: "SELECT order_id FROM orders"},
	{name: selectByNumber, query: "SELECT order_id, id FROM orders ORDER BY id", alone: selectTexts},
	{name: "texts, in batches by number", column: "order_id", cursor: "id", alone: selectTexts, same: selectByNumber},
	{name: selectByTime, query: "SELECT order_id, created_at FROM orders ORDER BY created_at, order_id", alone: selectTexts},
	{name: "texts, in batches by time", column: "order_id", cursor: "created_at", alone: selectTexts, same: selectByTime},
}

const (
	selectNumbers  = "numbers, one SELECT"
	selectTexts    = "texts, one SELECT"
	selectByNumber = "texts and numbers in order, one SELECT"
	selectByTime   = "texts and times in order, one SELECT"
	least          = 0.7 // is asked for
)

// measure measures all readings of one database.
func measure(ctx context.Context, bed *testbed.Bed, d database, s settings, out *benchmark.Report, targets *benchmark.Targets, progress io.Writer) error {
	fmt.Fprintf(progress, "%s: making %d rows\n", d.name, s.rows)
	starting, cancel := context.WithTimeout(ctx, startLimit*time.Duration(1+s.rows/1_000_000))
	defer cancel()
	dsn, server, err := d.start(starting, bed, s.rows)
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }() // what was asked of it is measured
	r := benchmark.Results{Rounds: make([][]benchmark.Sample, len(readings))}
	for _, one := range readings {
		r.Names = append(r.Names, one.name)
	}
	for round := range s.Rounds {
		for _, i := range benchmark.Turns(round, len(readings)) {
			one := readings[i]
			runtime.GC()
			began := time.Now()
			n, err := one.read(ctx, d, dsn, s.batch)
			took := time.Since(began)
			if err == nil && n != int64(s.rows) {
				err = fmt.Errorf("%d rows of %d", n, s.rows)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", one.name, err)
			}
			r.Rounds[i] = append(r.Rounds[i], benchmark.Sample{rate: float64(n) / 1e6 / took.Seconds()})
			fmt.Fprintf(progress, "%s: %s: round %d of %d: %v\n", d.name, one.name, round+1, s.Rounds, took.Round(time.Millisecond))
		}
	}
	show(r, d.name, out, targets)
	return out.Err()
}

// show writes the table of a database.
func show(r benchmark.Results, name string, out *benchmark.Report, targets *benchmark.Targets) {
	t := benchmark.NewTable(name, "Connecting is in the figures; yield does nothing.", []benchmark.Metric{rate})
	t.Header = append(t.Header, "of the IDs alone", "of the same columns")
	for _, one := range readings {
		row := r.Row(one.name, []benchmark.Metric{rate})
		alone, same := r.Ratios(rate, one.name, one.alone), r.Ratios(rate, one.name, one.same)
		t.Rows = append(t.Rows, append(row, benchmark.RatioText(alone), benchmark.RatioText(same)))
		if one.query == "" {
			targets.Add(name, one.name+" : "+one.same, benchmark.AtLeast(least), same)
		}
	}
	out.Table(t)
}

// read reads all IDs and returns how many.
func (one *reading) read(ctx context.Context, d database, dsn string, batch int) (int64, error) {
	if one.query != "" {
		return d.stream(ctx, dsn, one.query)
	}
	table, err := source.NewTable(source.TableOptions{
		Kind: d.kind, DSN: dsn, Table: "orders", IDColumn: one.column, CursorColumn: one.cursor, Batch: batch,
	})
	if err != nil {
		return 0, err
	}
	report, err := table.Read(ctx, source.Position{}, func(string) error { return nil }, nil)
	return report.IDs, err
}

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("bench-load", flag.ContinueOnError)
	flags.SetOutput(stderr)
	s.Register(flags)
	flags.IntVar(&s.rows, "rows", 1_000_000, "rows of the table")
	flags.IntVar(&s.batch, "batch", source.DefaultBatch, "rows of a batch")
	flags.StringVar(&s.only, "only", "", "databases to measure, by name, separated by commas")
	if err := s.Parse(flags, args); err != nil {
		return s, err
	}
	if s.rows < 1 {
		return s, fmt.Errorf("-rows %d: use 1 or more", s.rows)
	}
	return s, nil
}
