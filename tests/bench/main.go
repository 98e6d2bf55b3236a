// Command bench measures what ordergate costs: run it with "make bench".
//
// Everything is a comparison with a server that does nothing (package noop), in
// one run and in turns, since a machine that is shared with others is a
// different one every few seconds. So read the ratios; the figures beside them
// hold for one machine and one moment. It fails on errors and wrong answers
// only, never on a figure.
//
// Start with [run]. The sections, one file each, say what is compared; how is in
// compare.go, and h2load makes the requests.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

// Of the requests of a round, what each section makes. A request through Envoy
// takes about eight times as long as one to the sidecar alone, a settlement longer
// still.
const (
	lookupShare = 8
	settleShare = 10
)

// startLimit bounds the start of all servers, a build from nothing included.
const startLimit = 5 * time.Minute

// settings are the command's flags.
type settings struct {
	benchmark.Settings
	requests int
	window   time.Duration
}

func main() { os.Exit(benchmark.Main("bench", run)) }

// run measures, and writes the tables to stdout and its progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("h2load"); err != nil {
		return &testbed.MissingError{Program: "h2load", Fetch: "bench"}
	}
	return benchmark.OnBed(func(bed *testbed.Bed) error {
		fmt.Fprintln(stderr, "starting the servers")
		starting, cancel := context.WithTimeout(ctx, startLimit)
		defer cancel()
		all, err := start(starting, bed, s.window)
		if err != nil {
			return err
		}
		defer all.close()
		return measureAll(ctx, all, s, stdout, stderr)
	})
}

const introText = `Medians of %d rounds; in a round everything of a table is measured in turns. CPU is
in µs per request, user and system time of the process. A ratio is taken within
each round, the brackets have the lowest and the highest. Only ratios mean
anything: client, servers and backend share %d CPUs (%s/%s, load average %s
at the start).

`

// measureAll measures every section, and writes its table when it is done.
func measureAll(ctx context.Context, all *servers, s settings, stdout, stderr io.Writer) error {
	out := benchmark.NewReport(stdout, s.Markdown, "###")
	out.Printf(introText, s.Rounds, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, benchmark.LoadAverage())
	for _, prepare := range []func(*servers) (*section, error){authzSection, floodSection, lookupSection, settleSection} {
		sec, err := prepare(all)
		if err != nil {
			return err
		}
		measured, err := sec.measure(ctx, s, stderr)
		if err != nil {
			return err
		}
		out.Table(sec.table(measured))
		if err := out.Err(); err != nil {
			return err
		}
	}
	return nil
}

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	s.Register(flags)
	flags.IntVar(&s.requests, "requests", 100_000, fmt.Sprintf(
		"requests a round to the gRPC port alone; through Envoy it is a %dth, and a %dth for settlements",
		lookupShare, settleShare))
	benchmark.RegisterWindow(flags, &s.window)
	if err := s.Parse(flags, args); err != nil {
		return s, err
	}
	if s.requests < minRequests {
		return s, fmt.Errorf("-requests %d: use %d or more", s.requests, minRequests)
	}
	return s, benchmark.CheckWindow(s.window)
}
