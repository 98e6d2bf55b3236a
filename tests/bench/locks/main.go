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
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ordergate/ordergate/internal/testbed"
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
	rounds     int
	length     time.Duration
	only       string
	scenarios  string
	markdown   bool
	plot       string
	cpuProfile string
	memProfile string
}

func main() {
	// SIGPIPE, which "| head" leads to, would end us before Redis's files are
	// removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-locks:", err)
		os.Exit(1)
	}
}

// run measures, and writes the tables to stdout and its progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	who, err := pick("-only", s.only, candidates(), func(c candidate) string { return c.name })
	if err != nil {
		return err
	}
	what, err := pick("-scenarios", s.scenarios, sections(), func(s section) string { return s.name })
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "ordergate-bench-locks-")
	if err != nil {
		return fmt.Errorf("making a directory for Redis: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bed, err := testbed.New(dir, nil)
	if err != nil {
		return err
	}
	// A Redis that fell over in the middle has spoiled the figures.
	defer func() { err = errors.Join(err, bed.Close()) }()
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
	stopProfiles, err := s.profile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfiles()) }()

	out := &report{w: stdout, markdown: s.markdown}
	out.intro(s, in.version(ctx))
	var all []results
	for _, sec := range what {
		measured, err := sec.measure(ctx, in, who, s, stderr)
		if err != nil {
			return err
		}
		out.table(measured.table())
		all = append(all, measured)
	}
	out.table(targetTable(all))
	if out.err != nil {
		return fmt.Errorf("writing the tables: %w", out.err)
	}
	if s.plot != "" {
		return writePlot(s.plot, all)
	}
	return nil
}

// pick returns those of all whose names are on a comma-separated list, in their
// own order; an empty list picks all of them.
func pick[T any](flag, list string, all []T, name func(T) string) ([]T, error) {
	if list == "" {
		return all, nil
	}
	var names []string
	for _, one := range all {
		names = append(names, name(one))
	}
	var picked []T
	wanted := strings.Split(list, ",")
	for _, w := range wanted {
		if !slices.Contains(names, w) {
			return nil, fmt.Errorf("%s %q: there are %s", flag, w, strings.Join(names, ", "))
		}
	}
	for _, one := range all {
		if slices.Contains(wanted, name(one)) {
			picked = append(picked, one)
		}
	}
	return picked, nil
}

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("bench-locks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&s.rounds, "rounds", 5, "how often each candidate is measured, in turns with the others")
	flags.DurationVar(&s.length, "time", 2*time.Second, "length of a round, but for the storms, which take what they take")
	flags.StringVar(&s.only, "only", "", "candidates to measure, by name, separated by commas")
	flags.StringVar(&s.scenarios, "scenarios", "", "scenarios to measure, by name, separated by commas")
	flags.BoolVar(&s.markdown, "markdown", false, "write Markdown")
	flags.StringVar(&s.plot, "plot", "", "write a plot of the medians to this SVG file")
	flags.StringVar(&s.cpuProfile, "cpuprofile", "", "write a CPU profile to this file; best with -only and -scenarios")
	flags.StringVar(&s.memProfile, "memprofile", "", "write a profile of all allocations to this file; the figures suffer")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("argument %q: there are only flags, see -help", flags.Arg(0))
	case s.rounds < 1:
		return s, fmt.Errorf("-rounds %d: use 1 or more", s.rounds)
	case s.length < leastLength:
		return s, fmt.Errorf("-time %v: use %v or more", s.length, leastLength)
	}
	return s, nil
}
