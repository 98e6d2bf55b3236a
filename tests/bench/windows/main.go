// Command windows measures how long the answer to a create is held until every reader of the
// change log has the order, and what that costs Redis. Run it with "go run
// ./tests/bench/windows".
//
// Redis is real. The readers are ordergate's own code, each with connections of its own, in
// this process, which shares the CPUs with Redis. The command fails on errors, never on a
// figure.
//
// Start with [run]; the readers are in readers.go.
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
	cases    []load
	window   time.Duration
	length   time.Duration
	rounds   int
	commands bool
	profiles benchmark.Profiles
	markdown bool
}

// load is one case: so many readers, and creates per second.
type load struct{ readers, rate int }

func (l load) String() string { return fmt.Sprintf("%d x %d/s", l.readers, l.rate) }

// creators is how many of the readers append orders.
const creators = 4

func main() { os.Exit(benchmark.Main("windows", run)) }

// The figures of a case.
var (
	ping      = benchmark.Metric{Name: "PING p50 ms", Format: "%.2f"}
	appendP50 = benchmark.Metric{Name: "append p50 ms", Format: "%.2f"}
	p50       = benchmark.Metric{Name: "create p50 ms", Format: "%.2f"}
	p99       = benchmark.Metric{Name: "p99 ms", Format: "%.1f"}
	trips     = benchmark.Metric{Name: "round trips above the append", Format: "%.1f"}
	certain   = benchmark.Metric{Name: "windows hold %", Format: "%.1f"}
	redisCPU  = benchmark.Metric{Name: "Redis CPU %", Format: "%.1f"}
	ownCPU    = benchmark.Metric{Name: "readers' CPU %", Format: "%.1f"}
	calls     = benchmark.Metric{Name: "calls/s", Format: "%.0f"}
	columns   = []benchmark.Metric{ping, appendP50, p50, trips, p99, certain, redisCPU, ownCPU, calls}
)

const introText = `Readers x creates per second, by %d of the readers, for %v, with a window of %v. Medians of %d
rounds. Redis and all readers, which are one process, share %d CPUs (%s/%s, load average %s at
the start).

`

// run measures, and writes the tables to stdout.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	out := benchmark.NewReport(stdout, s.markdown, "##")
	out.Printf(introText, creators, s.length, s.window, s.rounds, runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH, benchmark.LoadAverage())
	results := benchmark.Results{Rounds: make([][]benchmark.Sample, len(s.cases))}
	for _, c := range s.cases {
		results.Names = append(results.Names, c.String())
	}
	stop, err := s.profiles.Start()
	if err != nil {
		return err
	}
	err = benchmark.OnBed(func(bed *testbed.Bed) error {
		for round := range s.rounds {
			for _, i := range benchmark.Turns(round, len(s.cases)) {
				sample, err := measure(ctx, bed, s, s.cases[i], stderr)
				if err != nil {
					return fmt.Errorf("%v: %w", s.cases[i], err)
				}
				results.Rounds[i] = append(results.Rounds[i], sample)
			}
		}
		return nil
	})
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	table := benchmark.NewTable("Creates", "The CPU is a share of one core. The calls are those that Redis gets, of all readers.", columns)
	for _, name := range results.Names {
		table.Rows = append(table.Rows, results.Row(name, columns))
	}
	out.Table(table)
	out.Table(targets(s.cases, results).Table)
	return out.Err()
}

// targets says which figures are asked for: four readers, and fifty with a thousand creates.
func targets(cases []load, results benchmark.Results) *benchmark.Targets {
	t := benchmark.NewTargets("a create")
	for _, c := range cases {
		name := c.String()
		switch {
		case c.readers == 4:
			t.Add(name, "p99, ms", benchmark.AtMost(20), results.Values(name, p99))
			t.Add(name, trips.Name, benchmark.AtMost(3), results.Values(name, trips))
		case c.readers >= 50:
			t.Add(name, "p99, ms", benchmark.AtMost(50), results.Values(name, p99))
			t.Add(name, "Redis, % of a core", benchmark.AtMost(30), results.Values(name, redisCPU))
		}
	}
	return t
}

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("windows", flag.ContinueOnError)
	flags.SetOutput(stderr)
	list := flags.String("cases", "4x50,4x500,50x1000", "readers and creates per second, each \"<readers>x<creates>\"")
	flags.DurationVar(&s.window, "window", 500*time.Millisecond, "how long each reader's window lasts")
	flags.DurationVar(&s.length, "for", 5*time.Second, "how long each case is measured in a round")
	flags.IntVar(&s.rounds, "rounds", 5, "how often each case is measured, in turns with the others")
	flags.BoolVar(&s.commands, "commands", false, "write what each command costs Redis to stderr")
	flags.StringVar(&s.profiles.CPU, "cpuprofile", "", "write a profile of the readers' CPU to this `file`")
	flags.BoolVar(&s.markdown, "markdown", false, "write Markdown")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("argument %q: there are only flags, see -help", flags.Arg(0))
	case s.window < 100*time.Millisecond || s.window > 10*time.Second:
		return s, fmt.Errorf("-window %v: use 100ms to 10s", s.window)
	case s.length <= 0:
		return s, fmt.Errorf("-for %v: use more than 0s", s.length)
	case s.rounds < 1:
		return s, fmt.Errorf("-rounds %d: use 1 or more", s.rounds)
	}
	for text := range strings.SplitSeq(*list, ",") {
		readers, rate, _ := strings.Cut(text, "x")
		var c load
		var errs [2]error
		c.readers, errs[0] = strconv.Atoi(readers)
		c.rate, errs[1] = strconv.Atoi(rate)
		if errs != [2]error{} || c.readers < 1 || c.readers > 200 || c.rate < 1 || c.rate > 10_000 {
			return s, fmt.Errorf("-cases %q: use 1 to 200 readers and 1 to 10000 creates, such as 4x50", text)
		}
		s.cases = append(s.cases, c)
	}
	return s, nil
}
