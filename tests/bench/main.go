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
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/ordergate/ordergate/internal/testbed"
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
	rounds   int
	requests int
	markdown bool
}

func main() {
	// SIGPIPE, which "| head" leads to, would end us before the servers' files are
	// removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures, and writes the tables to stdout and its progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("h2load"); err != nil {
		return &testbed.MissingError{Program: "h2load", Fetch: "bench"}
	}
	dir, err := os.MkdirTemp("", "ordergate-bench-")
	if err != nil {
		return fmt.Errorf("making a directory for the servers: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bed, err := testbed.New(dir, nil)
	if err != nil {
		return err
	}
	// One that fell over in the middle has spoiled its figures.
	defer func() { err = errors.Join(err, bed.Close()) }()

	fmt.Fprintln(stderr, "starting the servers")
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	all, err := start(starting, bed)
	if err != nil {
		return err
	}
	defer all.close()

	out := &report{w: stdout, markdown: s.markdown}
	out.intro(s)
	for _, prepare := range []func(*servers) (*section, error){authzSection, lookupSection, settleSection} {
		sec, err := prepare(all)
		if err != nil {
			return err
		}
		measured, err := sec.measure(ctx, s, stderr)
		if err != nil {
			return err
		}
		out.table(sec.table(measured))
		if out.err != nil {
			return fmt.Errorf("writing the tables: %w", out.err)
		}
	}
	return nil
}

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&s.rounds, "rounds", 5, "how often each contender is measured, in turns with the others")
	flags.IntVar(&s.requests, "requests", 100_000, fmt.Sprintf(
		"requests a round to the gRPC port alone; through Envoy it is a %dth, and a %dth for settlements",
		lookupShare, settleShare))
	flags.BoolVar(&s.markdown, "markdown", false, "write Markdown")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("argument %q: there are only flags, see -help", flags.Arg(0))
	case s.rounds < 1:
		return s, fmt.Errorf("-rounds %d: use 1 or more", s.rounds)
	case s.requests < minRequests:
		return s, fmt.Errorf("-requests %d: use %d or more", s.requests, minRequests)
	}
	return s, nil
}
