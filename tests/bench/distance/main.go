// Command distance measures what a Redis that is far away changes for lookups and for creates. Run it with
// "go run ." in its directory.
//
// An Envoy, ordergate by ext_authz and ext_proc, and Redis are real; toxiproxy delays what ordergate and
// Redis send each other. The command fails on errors, never on a figure.
//
// Start with [run]; what is measured against is in servers.go. It is a module of its own for toxiproxy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

// settings are the command's flags.
type settings struct {
	distances []time.Duration // of a round trip
	window    time.Duration
	length    time.Duration
	creates   int // per second
	rounds    int
	markdown  bool
}

func main() { os.Exit(benchmark.Main("distance", run)) }

// The figures of a distance.
var (
	refusals  = benchmark.Metric{Name: "refusals/s", Format: "%.0f"}
	refused   = benchmark.Metric{Name: "refused %", Format: "%.2f"}
	lookupP50 = benchmark.Metric{Name: "refusal p50 ms", Format: "%.2f"}
	lookupP99 = benchmark.Metric{Name: "p99 ms", Format: "%.1f"}
	createP50 = benchmark.Metric{Name: "create p50 ms", Format: "%.1f"}
	createP99 = benchmark.Metric{Name: "create p99 ms", Format: "%.1f"}
	columns   = []benchmark.Metric{refusals, refused, lookupP50, lookupP99, createP50, createP99}
)

const introText = `GET /orders/{id} of orders that do not exist, on %d connections through Envoy with ordergate by ext_authz,
for %v each, and %d creates per second. The window is %v. Medians of %d rounds. Everything shares %d CPUs
(%s/%s, load average %s at the start).

`

// run measures, and writes the tables to stdout.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	out := benchmark.NewReport(stdout, s.markdown, "##")
	out.Printf(introText, connections, s.length, s.creates, s.window, s.rounds, runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, benchmark.LoadAverage())
	results := benchmark.Results{Rounds: make([][]benchmark.Sample, len(s.distances))}
	for _, d := range s.distances {
		results.Names = append(results.Names, d.String())
	}
	err = benchmark.OnBed(func(bed *testbed.Bed) (err error) {
		servers, err := start(ctx, bed, s.window)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, servers.close()) }()
		for round := range s.rounds {
			for _, i := range benchmark.Turns(round, len(s.distances)) {
				sample, err := servers.measure(ctx, s, s.distances[i])
				if err != nil {
					return fmt.Errorf("%v away: %w", s.distances[i], err)
				}
				results.Rounds[i] = append(results.Rounds[i], sample)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	table := benchmark.NewTable("Redis far away", "How far is the time of a round trip. The ratio is to the nearest, in each round.", columns)
	table.Header = append(table.Header, "refusals/s : nearest")
	targets := benchmark.NewTargets("a refusal")
	for i, name := range results.Names {
		ratios := results.Ratios(refusals, name, results.Names[0])
		ratio := ""
		if len(ratios) > 0 {
			ratio = fmt.Sprintf("%.2f", benchmark.Median(ratios))
		}
		table.Rows = append(table.Rows, append(results.Row(name, columns), ratio))
		if i > 0 && s.distances[i] < s.window/2 {
			targets.Add(name, "refusals/s : nearest", benchmark.AtLeast(0.95), ratios)
			targets.Add(name, refused.Name, benchmark.AtLeast(99.9), results.Values(name, refused))
		}
	}
	out.Table(table)
	out.Table(targets.Table)
	return out.Err()
}

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("distance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	list := flags.String("distances", "0,1,5,50,200,250,300", "how many ms a round trip to Redis takes longer, the nearest first")
	benchmark.RegisterWindow(flags, &s.window)
	flags.DurationVar(&s.length, "for", 3*time.Second, "how long each distance is measured in a round")
	flags.IntVar(&s.creates, "creates", 20, "creates per second")
	flags.IntVar(&s.rounds, "rounds", 5, "how often each distance is measured, in turns with the others")
	flags.BoolVar(&s.markdown, "markdown", false, "write Markdown")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("argument %q: there are only flags, see -help", flags.Arg(0))
	case benchmark.CheckWindow(s.window) != nil:
		return s, benchmark.CheckWindow(s.window)
	case s.length <= 0:
		return s, fmt.Errorf("-for %v: use more than 0s", s.length)
	case s.creates < 1 || s.creates > 1000:
		return s, fmt.Errorf("-creates %d: use 1 to 1000", s.creates)
	case s.rounds < 1:
		return s, fmt.Errorf("-rounds %d: use 1 or more", s.rounds)
	}
	for text := range strings.SplitSeq(*list, ",") {
		ms, err := strconv.Atoi(text)
		if err != nil || ms < 0 || ms > 500 {
			return s, fmt.Errorf("-distances %q: use 0 to 500 ms", text)
		}
		s.distances = append(s.distances, time.Duration(ms)*time.Millisecond)
	}
	return s, nil
}
