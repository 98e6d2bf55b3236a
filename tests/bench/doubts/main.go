// Command doubts measures what creates cost whose orders nobody learns: how many made-up
// IDs are refused meanwhile, and how many queries more the database gets. Run it with "go
// run ./tests/bench/doubts".
//
// An Envoy, ordergate with a table that the database counts up, MariaDB and Redis are real.
// It fails on errors, on an order that exists and is refused, and when no create left a
// doubt, never on a figure.
//
// Start with [run]; what is measured against is in servers.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

// settings are the command's flags.
type settings struct {
	rate     int // creates per second
	lookups  int // per second
	duration time.Duration
	how      string
	markdown bool
}

// The ways of a create that leaves a doubt.
const (
	unreadable = "unreadable" // its answer names no order
	aborted    = "aborted"    // its client leaves before the answer
)

func main() { os.Exit(benchmark.Main("doubts", run)) }

// What is asked for.
const (
	enough = 95 // percent of made-up IDs that are refused
	most   = 5  // queries a second more
)

const introText = `%d creates/s for %v whose orders nobody learns (%s), %d lookups/s. Servers, clients and
backend share %d CPUs (%s/%s, load average %s at the start).

`

// run measures, and writes the tables to stdout.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	out := benchmark.NewReport(stdout, s.markdown, "##")
	out.Printf(introText, s.rate, s.duration, s.how, s.lookups, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, benchmark.LoadAverage())
	table := benchmark.Table{
		Title:  "Doubts",
		Note:   "Made-up IDs are between those of the first orders. Queries are those of ordergate.",
		Header: []string{"", "doubts/s", "made-up IDs", "refused", "queries/s"},
	}
	targets := benchmark.NewTargets("ordergate in doubt")
	err = benchmark.OnBed(func(bed *testbed.Bed) (err error) {
		servers, err := start(ctx, bed, s.how)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, servers.close()) }()
		var before result
		for _, c := range []struct {
			name string
			rate int
		}{{"no creates", 0}, {"creates that nobody learns", s.rate}} {
			r, err := servers.measure(ctx, s, c.rate)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			table.Rows = append(table.Rows, []string{
				c.name, fmt.Sprintf("%.1f", r.doubts), fmt.Sprint(r.asked),
				fmt.Sprintf("%.2f%%", r.refused), fmt.Sprintf("%.2f", r.queries),
			})
			if c.rate == 0 {
				before = r
				continue
			}
			targets.Add(c.name, "made-up IDs refused, %", benchmark.AtLeast(enough), []float64{r.refused})
			targets.Add(c.name, "queries/s more", benchmark.AtMost(most), []float64{r.queries - before.queries})
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

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("doubts", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&s.rate, "rate", 100, "creates per second")
	flags.IntVar(&s.lookups, "lookups", 200, "lookups per second")
	flags.DurationVar(&s.duration, "for", 30*time.Second, "how long each row is measured")
	flags.StringVar(&s.how, "how", unreadable, "what is wrong with the creates: unreadable or aborted")
	flags.BoolVar(&s.markdown, "markdown", false, "write Markdown")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("argument %q: there are only flags, see -help", flags.Arg(0))
	case s.rate < 1 || s.rate > 10_000:
		return s, fmt.Errorf("-rate %d: use 1 to 10000", s.rate)
	case s.lookups < 1 || s.lookups > 10_000:
		return s, fmt.Errorf("-lookups %d: use 1 to 10000", s.lookups)
	case s.duration <= 0:
		return s, fmt.Errorf("-for %v: use more than 0s", s.duration)
	case s.how != unreadable && s.how != aborted:
		return s, fmt.Errorf("-how %s: use %s or %s", s.how, unreadable, aborted)
	}
	return s, nil
}

// result is a row.
type result struct {
	doubts, queries float64 // per second
	asked           int64   // made-up IDs
	refused         float64 // percent of them
}

// measure has creates and lookups made at once. Creates begin before the measuring, until
// what is to be measured is so: made-up IDs are refused, or that takes too long.
func (s *servers) measure(ctx context.Context, c settings, rate int) (r result, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var working sync.WaitGroup
	defer working.Wait()
	defer cancel(nil)
	work := func(rate int, one func(ctx context.Context, n int64) error) {
		working.Go(func() { every(ctx, rate, func(n int64) { fail(cancel, one(ctx, n)) }) })
	}
	if rate > 0 {
		work(rate, s.create)
	}
	if err := s.warmUp(ctx); err != nil {
		return r, err
	}
	var asked, refused atomic.Int64
	before, err := s.counts(ctx)
	if err != nil {
		return r, err
	}
	began := time.Now()
	work(c.lookups, func(ctx context.Context, n int64) error {
		absent, err := s.lookUp(ctx, 2*(n%existing)+1)
		asked.Add(1)
		if absent {
			refused.Add(1)
		}
		return err
	})
	work(max(1, c.lookups/10), func(ctx context.Context, n int64) error { return s.mustExist(ctx, 2*(n%existing)+2) })
	select {
	case <-ctx.Done():
		return r, context.Cause(ctx)
	case <-time.After(c.duration):
	}
	after, err := s.counts(ctx)
	if err != nil {
		return r, err
	}
	took := time.Since(began).Seconds()
	r.asked = asked.Load()
	r.refused = 100 * float64(refused.Load()) / float64(max(1, r.asked))
	r.doubts, r.queries = float64(after.doubts-before.doubts)/took, float64(after.queries-before.queries)/took
	if rate > 0 && after.doubts == before.doubts {
		return r, errors.New("no create left a doubt: nothing was measured")
	}
	return r, nil
}

// warmLimit is how long nothing is measured because made-up IDs are not refused yet.
const warmLimit = 30 * time.Second

func (s *servers) warmUp(ctx context.Context) error {
	deadline := time.Now().Add(warmLimit)
	for inRow := 0; inRow < 20 && time.Now().Before(deadline); {
		absent, err := s.lookUp(ctx, int64(2*inRow+1))
		if err != nil {
			return err
		}
		if inRow++; !absent {
			inRow = 0
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// every does something at a rate, each time in a goroutine of its own, until ctx ends and
// all of those have.
func every(ctx context.Context, rate int, do func(n int64)) {
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := int64(0); ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			all.Go(func() { do(n) })
		}
	}
}

// fail ends a measurement by an error, unless it was one of its end.
func fail(cancel context.CancelCauseFunc, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		cancel(err)
	}
}

// get asks for an order, and returns the status and the verdict.
func (s *servers) get(ctx context.Context, id int64) (status int, verdict string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/orders/%d", s.url, id), nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("x-ordergate-verdict"), err
}
