// Command filters measures what it costs to know whether an order exists, beside
// other ways to know it in Go: run it with "make bench-filters".
//
// Everything is a comparison, in one run and in turns: a machine that is shared
// with others is a different one every few seconds. So read the ratios; the
// figures beside them hold for one machine and one moment. It fails on errors and
// on an ID that is gone, never on a figure.
//
// Start with [run]. candidate.go says who is compared; the sections are in
// build.go, lookup.go and files.go. The peers are the reason for a module of its
// own: ordergate does not depend on them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// settings are the command's flags.
type settings struct {
	rounds     int
	sizes      []int // numbers of IDs
	large      bool
	only       string
	markdown   bool
	plot       string
	cpuProfile string
}

const (
	// falsePositiveRate is what all filters are asked for.
	falsePositiveRate = 0.001
	largeSize         = 200_000_000
	leastSize         = 1000
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-filters:", err)
		os.Exit(1)
	}
}

// run measures, and writes the tables to stdout and its progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	who, err := pick(s.only, candidates())
	if err != nil {
		return err
	}
	stopProfile, err := s.profile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopProfile()) }()
	out := &report{w: stdout, markdown: s.markdown}
	out.intro(s)
	var all []results
	for _, n := range s.sizes {
		measured, err := measure(ctx, n, who, s, stderr)
		if err != nil {
			return err
		}
		for _, r := range measured {
			out.table(r.table())
		}
		all = append(all, measured...)
		runtime.GC() // what was dropped is memory of the kernel's too
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

// measure makes sets of n IDs of all who can, and takes them through the sections.
func measure(ctx context.Context, n int, who []candidate, s settings, progress io.Writer) ([]results, error) {
	var sets []entrant
	for _, c := range who {
		if c.most > 0 && n > c.most {
			continue
		}
		set, err := c.open(n)
		if err != nil {
			return nil, fmt.Errorf("opening %s: %w", c.name, err)
		}
		sets = append(sets, entrant{c, set})
	}
	built, err := build(ctx, n, sets, s.rounds, progress)
	if err != nil {
		return nil, err
	}
	looked, err := lookups(ctx, n, sets, s.rounds, progress)
	if err != nil {
		return nil, err
	}
	filed, err := files(ctx, n, sets, min(s.rounds, 3), progress)
	if err != nil {
		return nil, err
	}
	return []results{looked, built, filed}, nil
}

// pick returns those whose names are on a comma-separated list; an empty list
// picks all.
func pick(list string, all []candidate) ([]candidate, error) {
	if list == "" {
		return all, nil
	}
	var names []string
	for _, c := range all {
		names = append(names, c.name)
	}
	wanted := strings.Split(list, ",")
	for _, w := range wanted {
		if !slices.Contains(names, w) {
			return nil, fmt.Errorf("-only %q: there are %s", w, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(all, func(c candidate) bool { return !slices.Contains(wanted, c.name) }), nil
}

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("bench-filters", flag.ContinueOnError)
	flags.SetOutput(stderr)
	sizes := flags.String("n", "1000000,10000000", "numbers of IDs, separated by commas")
	flags.IntVar(&s.rounds, "rounds", 5, "how often each candidate is measured, in turns with the others")
	flags.BoolVar(&s.large, "large", false, "also with 200,000,000 IDs: 3 GB of memory, and some minutes")
	flags.StringVar(&s.only, "only", "", "candidates to measure, by name, separated by commas")
	flags.BoolVar(&s.markdown, "markdown", false, "write Markdown")
	flags.StringVar(&s.plot, "plot", "", "write a plot of the medians to this SVG file")
	flags.StringVar(&s.cpuProfile, "cpuprofile", "", "write a CPU profile to this file; best with -only")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if *sizes != "" {
		for text := range strings.SplitSeq(*sizes, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < leastSize || n > 10*largeSize {
				return s, fmt.Errorf("-n %q: use numbers from %d to %d", text, leastSize, 10*largeSize)
			}
			s.sizes = append(s.sizes, n)
		}
	}
	if s.large {
		s.sizes = append(s.sizes, largeSize)
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("argument %q: there are only flags, see -help", flags.Arg(0))
	case s.rounds < 1:
		return s, fmt.Errorf("-rounds %d: use 1 or more", s.rounds)
	case len(s.sizes) == 0:
		return s, errors.New("nothing to measure: use -n or -large")
	}
	return s, nil
}
