// Command lag measures how long after its commit a row's ID is told by the followers
// of databases: of MariaDB by its binary log, of PostgreSQL by logical replication.
// Run it with "go run ./tests/bench/lag".
//
// The rows are inserted one a transaction at a steady rate. The lag is counted from
// before the statement is sent, so that it has the commit itself in it, and again from
// its acknowledgement. It fails on errors and on rows that are not told, never on a
// figure.
//
// Start with [run]; what is measured against is in databases.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

// settings are the command's flags.
type settings struct {
	rate     int // rows per second
	duration time.Duration
	only     string
	markdown bool
}

func main() { os.Exit(benchmark.Main("lag", run)) }

// run measures, and writes the table to stdout.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	picked, err := benchmark.Pick("-only", s.only, databases, func(d database) string { return d.name })
	if err != nil {
		return err
	}
	out := benchmark.NewReport(stdout, s.markdown, "##")
	out.Printf(introText, s.rate, s.duration, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, benchmark.LoadAverage())
	table := benchmark.Table{
		Title: "Lag", Note: "In milliseconds. The last columns are how old a word is, when it comes, that all was told.",
		Header: []string{
			"", "rows", "from sending p50", "p99", "max", "from the answer p50", "p99", "max", "all told p50", "max",
		},
	}
	targets := benchmark.NewTargets("a follower")
	err = benchmark.OnBed(func(bed *testbed.Bed) error {
		for _, d := range picked {
			r, err := measure(ctx, bed, d, s)
			if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			sent, row := r.row(d.name)
			table.Rows = append(table.Rows, row)
			targets.Add(d.name, "lag from sending, p99, ms", benchmark.AtMost(enough), []float64{milliseconds(sent, 0.99)})
		}
		return nil
	})
	if err != nil {
		return err
	}
	out.Table(table)
	out.Table(targets.Table)
	return out.Err()
}

// enough is the lag that is asked for, in milliseconds.
const enough = 50

const introText = `%d rows/s for %v, one a transaction, on one connection. Server, client and
follower share %d CPUs (%s/%s, load average %s at the start).

`

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("lag", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&s.rate, "rate", 100, "rows per second")
	flags.DurationVar(&s.duration, "for", 20*time.Second, "how long rows are inserted")
	flags.StringVar(&s.only, "only", "", "which databases, separated by commas; all if empty")
	flags.BoolVar(&s.markdown, "markdown", false, "write Markdown")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("argument %q: there are only flags, see -help", flags.Arg(0))
	case s.rate < 1 || s.rate > 100_000:
		return s, fmt.Errorf("-rate %d: use 1 to 100000", s.rate)
	case s.duration <= 0:
		return s, fmt.Errorf("-for %v: use more than 0s", s.duration)
	}
	return s, nil
}

// row is when things happened to one.
type row struct{ sent, answered, told time.Time }

// measure inserts rows into one database and follows it.
func measure(ctx context.Context, bed *testbed.Bed, d database, s settings) (*recorder, error) {
	server, err := d.start(ctx, bed)
	if err != nil {
		return nil, err
	}
	defer server.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &recorder{rows: map[string]*row{}, began: make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- server.follower.Follow(ctx, "", r.emit, r.caughtUp) }()
	select {
	case <-r.began:
	case err := <-ended:
		return nil, err
	}
	if err := r.insert(ctx, server, s); err != nil {
		return nil, err
	}
	if err := r.wait(ctx, ended); err != nil {
		return nil, err
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		return nil, err
	}
	return r, nil
}

// recorder keeps when things happened.
type recorder struct {
	mu     sync.Mutex // guards rows, untold and caught
	rows   map[string]*row
	untold int
	caught []time.Duration // how old each word was that all was told

	once  sync.Once
	began chan struct{} // closed when the follower has begun
}

func (r *recorder) emit(_ context.Context, ids []string, _ string) error {
	now := time.Now()
	r.once.Do(func() { close(r.began) })
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if one := r.rows[id]; one != nil && one.told.IsZero() {
			one.told = now
			r.untold--
		}
	}
	return nil
}

func (r *recorder) caughtUp(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.caught = append(r.caught, time.Since(at))
}

// insert inserts rows at the rate. One that is late does not delay the next.
func (r *recorder) insert(ctx context.Context, server *server, s settings) error {
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ; n++ {
		due := time.Duration(n) * time.Second / time.Duration(s.rate)
		if due >= s.duration {
			return nil
		}
		timer.Reset(time.Until(began.Add(due)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		one := &row{sent: time.Now()}
		id := fmt.Sprint(n)
		r.mu.Lock()
		r.rows[id] = one
		r.untold++
		r.mu.Unlock()
		if err := server.insert(ctx, id); err != nil {
			return err
		}
		r.mu.Lock()
		one.answered = time.Now()
		r.mu.Unlock()
	}
}

// tellLimit bounds how long the last row may take to be told.
const tellLimit = 10 * time.Second

// wait waits until all rows were told.
func (r *recorder) wait(ctx context.Context, ended chan error) error {
	deadline := time.Now().Add(tellLimit)
	for {
		r.mu.Lock()
		untold := r.untold
		r.mu.Unlock()
		if untold == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d rows were not told within %v", untold, tellLimit)
		}
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// row returns the lags from sending, and the row of a database.
func (r *recorder) row(name string) (sent []time.Duration, cells []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var answered []time.Duration
	for _, one := range r.rows {
		sent = append(sent, one.told.Sub(one.sent))
		answered = append(answered, max(0, one.told.Sub(one.answered)))
	}
	cells = []string{name, fmt.Sprint(len(r.rows))}
	for _, lags := range [][]time.Duration{sent, answered} {
		for _, quantile := range []float64{0.5, 0.99, 1} {
			cells = append(cells, fmt.Sprintf("%.2f", milliseconds(lags, quantile)))
		}
	}
	return sent, append(cells, fmt.Sprintf("%.2f", milliseconds(r.caught, 0.5)), fmt.Sprintf("%.2f", milliseconds(r.caught, 1)))
}

// milliseconds returns a quantile, 0 of nothing.
func milliseconds(all []time.Duration, quantile float64) float64 {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	n := min(int(quantile*float64(len(all))), len(all)-1)
	return all[n].Seconds() * 1000
}
