// Command filters measures what it costs to know whether an order exists, beside
// other ways to know it in Go: run it with "make bench-filters".
//
// Everything is a comparison, in one run and in turns: a machine that is shared
// with others is a different one every few seconds. So read the ratios; the
// figures beside them hold for one machine and one moment. It fails on errors and
// on an ID that is gone, never on a figure.
//
// Start with [run]. candidate.go says who is compared in memory; the sections are in
// build.go, lookup.go and files.go. Sets in Redis are in stored.go, and what is asked
// of them in callers.go. The peers are the reason for a module of its own: ordergate
// does not depend on them.
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
)

// settings are the command's flags.
type settings struct {
	benchmark.Settings
	sizes    []int // numbers of IDs in memory
	stored   []int // and in Redis
	rate     float64
	length   time.Duration
	only     string
	plot     string
	profiles benchmark.Profiles
}

const (
	largeSize = 200_000_000
	leastSize = 1000
	// leastLength keeps a round above what the first millisecond of everything
	// costs.
	leastLength = 10 * time.Millisecond
)

func main() { os.Exit(benchmark.Main("bench-filters", run)) }

// run measures, and writes the tables to stdout and its progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	chosen, err := benchmark.Pick("-only", s.only, allNames(), func(name string) string { return name })
	if err != nil {
		return err
	}
	stopProfiles, err := s.profiles.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfiles()) }()
	out := benchmark.NewReport(stdout, s.Markdown, "##")
	out.Printf(introText, s.Rounds, nameBlocked, 100*s.rate, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, benchmark.LoadAverage())
	var all []results
	show := func(measured []results) {
		for _, r := range measured {
			out.Table(r.table())
		}
		all = append(all, measured...)
	}
	if who := pick(candidates(), chosen); len(who) > 0 {
		for _, n := range s.sizes {
			measured, err := measure(ctx, n, who, s, stderr)
			if err != nil {
				return err
			}
			show(measured)
			runtime.GC() // what was dropped is memory of the kernel's too
		}
	}
	if who := pickStored(storedCandidates(), chosen); len(who) > 0 && len(s.stored) > 0 {
		measured, err := measureStored(ctx, who, s, stderr)
		if err != nil {
			return err
		}
		show(measured)
	}
	out.Table(targetTable(all))
	if err := out.Err(); err != nil || s.plot == "" {
		return err
	}
	return plot(all).Write(s.plot)
}

const introText = `Medians of %d rounds; in a round all take their turns. A ratio is taken within each
round, the brackets have the lowest and the highest; above 1 is in favour of
%s, the blocked layout. Filters are asked for %g%% false positives. Only ratios mean
anything: %d CPUs (%s/%s) were shared with others, load average %s at the start.

`

// measure makes sets of n IDs of all who can, and takes them through the sections.
func measure(ctx context.Context, n int, who []candidate, s settings, progress io.Writer) ([]results, error) {
	var sets []entrant
	for _, c := range who {
		if c.most > 0 && n > c.most {
			continue
		}
		set, err := c.open(n, s.rate)
		if err != nil {
			return nil, fmt.Errorf("opening %s: %w", c.name, err)
		}
		sets = append(sets, entrant{c, set})
	}
	built, err := build(ctx, n, sets, s.Rounds, progress)
	if err != nil {
		return nil, err
	}
	looked, err := lookups(ctx, n, sets, s.Rounds, progress)
	if err != nil {
		return nil, err
	}
	filed, err := files(ctx, n, sets, min(s.Rounds, 3), progress)
	if err != nil {
		return nil, err
	}
	return []results{looked, built, filed}, nil
}

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("bench-filters", flag.ContinueOnError)
	flags.SetOutput(stderr)
	s.Register(flags)
	sizes := flags.String("n", "1000000,10000000", "numbers of IDs in memory, separated by commas")
	stored := flags.String("redis", "1000000", "numbers of IDs in Redis, separated by commas")
	large := flags.Bool("large", false, "also with 200,000,000 IDs in memory: 3 GB, and some minutes")
	flags.Float64Var(&s.rate, "rate", 0.001, "the share of false positives that all filters are asked for")
	flags.DurationVar(&s.length, "time", time.Second, "for how long a set in Redis is asked for hits, and for misses, in a round")
	flags.StringVar(&s.only, "only", "", "candidates to measure, by name, separated by commas")
	flags.StringVar(&s.plot, "plot", "", "write a plot of the medians to this SVG file")
	flags.StringVar(&s.profiles.CPU, "cpuprofile", "", "write a CPU profile to this file; best with -only")
	if err := s.Parse(flags, args); err != nil {
		return s, err
	}
	if s.sizes, err = numbers("-n", *sizes); err != nil {
		return s, err
	}
	if s.stored, err = numbers("-redis", *stored); err != nil {
		return s, err
	}
	if *large {
		s.sizes = append(s.sizes, largeSize)
	}
	switch {
	case len(s.sizes)+len(s.stored) == 0:
		return s, errors.New("nothing to measure: use -n, -large or -redis")
	case !(s.rate > 0 && s.rate < 1): // NaN is neither
		return s, fmt.Errorf("-rate %v: use more than 0 and less than 1", s.rate)
	case s.length < leastLength:
		return s, fmt.Errorf("-time %v: use %v or more", s.length, leastLength)
	}
	return s, nil
}

// numbers reads a list of numbers of IDs.
func numbers(flag, list string) ([]int, error) {
	if list == "" {
		return nil, nil
	}
	var all []int
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < leastSize || n > 10*largeSize {
			return nil, fmt.Errorf("%s %q: use numbers from %d to %d", flag, text, leastSize, 10*largeSize)
		}
		all = append(all, n)
	}
	return all, nil
}
