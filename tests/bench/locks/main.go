// Command locks measures what a lock costs, beside the other ways to lock in
// Redis from Go: run it with "make bench-locks".
//
// Everything is a comparison, in one run and in turns, on one Redis of its own:
// a machine that is shared with others is a different one every few seconds. So
// read the ratios; the figures beside them hold for one machine and one moment.
// It fails on errors and on two holders at a time, never on a figure.
//
// Start with [run]. candidate.go says who is compared; the scenarios are in
// steady.go, relay.go and storm.go, and section.go takes the turns. The peers are
// the reason for a module of its own: ordergate does not depend on them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

const (
	// startLimit bounds the start of Redis.
	startLimit = time.Minute
	// leastLength keeps a round above what the first millisecond of everything
	// costs.
	leastLength = 50 * time.Millisecond
)

// settings are the command's flags.
type settings struct {
	benchmark.Settings
	length    time.Duration
	only      string
	scenarios string
	plot      string
	profiles  benchmark.Profiles
}

func main() { os.Exit(benchmark.Main("bench-locks", run)) }

// run measures, and writes the tables to stdout and its progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	who, err := benchmark.Pick("-only", s.only, candidates(), func(c candidate) string { return c.name })
	if err != nil {
		return err
	}
	what, err := benchmark.Pick("-scenarios", s.scenarios, sections(), func(s section) string { return s.name })
	if err != nil {
		return err
	}
	return benchmark.OnBed(func(bed *testbed.Bed) error {
		starting, cancel := context.WithTimeout(ctx, startLimit)
		defer cancel()
		server, err := bed.Redis(starting)
		if err != nil {
			return err
		}
		in, err := newArena(server.Addr())
		if err != nil {
			return err
		}
		defer in.close()
		return measureAll(ctx, in, who, what, s, stdout, stderr)
	})
}

// measureAll takes the candidates through the scenarios.
func measureAll(ctx context.Context, in *arena, who []candidate, what []section, s settings, stdout, stderr io.Writer) (err error) {
	stopProfiles, err := s.profiles.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfiles()) }()
	out := benchmark.NewReport(stdout, s.Markdown, "##")
	intro(out, s, benchmark.RedisVersion(ctx, in.control))
	var all []results
	for _, sec := range what {
		measured, err := sec.measure(ctx, in, who, s, stderr)
		if err != nil {
			return err
		}
		out.Table(measured.table())
		all = append(all, measured)
	}
	out.Table(targetTable(all))
	if err := out.Err(); err != nil || s.plot == "" {
		return err
	}
	return plot(all).Write(s.plot)
}

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("bench-locks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	s.Register(flags)
	flags.DurationVar(&s.length, "time", 2*time.Second, "length of a round, but for the storms, which take what they take")
	flags.StringVar(&s.only, "only", "", "candidates to measure, by name, separated by commas")
	flags.StringVar(&s.scenarios, "scenarios", "", "scenarios to measure, by name, separated by commas")
	flags.StringVar(&s.plot, "plot", "", "write a plot of the medians to this SVG file")
	flags.StringVar(&s.profiles.CPU, "cpuprofile", "", "write a CPU profile to this file; best with -only and -scenarios")
	flags.StringVar(&s.profiles.Allocations, "memprofile", "", "write a profile of all allocations to this file; the figures suffer")
	if err := s.Parse(flags, args); err != nil {
		return s, err
	}
	if s.length < leastLength {
		return s, fmt.Errorf("-time %v: use %v or more", s.length, leastLength)
	}
	return s, nil
}
