// Command gateway measures what a gate costs in front of orders, beside other ways to
// build one: run it with "make bench-gateway".
//
// Compared are a proxy without a gate, one whose sidecar does nothing, ordergate as a
// sidecar and as a module within Envoy, and nginx with Lua that asks RedisBloom, as one
// would write it by hand. Each proxy has one worker, and wrk makes the requests. It is
// one run and in turns, since a machine that is shared with others is a different one
// every few seconds: read the ratios. It fails on errors and wrong answers only, never
// on a figure.
//
// Start with [run]. sections.go says what is compared, servers.go what is started for
// it, and compare.go how turns are taken.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

const (
	// startLimit bounds the start of all servers, builds from nothing included.
	startLimit = 5 * time.Minute
	// leastLength keeps a round above what its first milliseconds cost, mostLength
	// below what roundIDs are enough for.
	leastLength = 100 * time.Millisecond
	mostLength  = time.Minute
)

// settings are the command's flags.
type settings struct {
	benchmark.Settings
	length   time.Duration
	window   time.Duration
	sections string
	plot     string
	browser  bool
}

func main() { os.Exit(benchmark.Main("bench-gateway", run)) }

// run measures, and writes the tables to stdout and its progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("wrk"); err != nil {
		return &testbed.MissingError{Program: "wrk", Fetch: "gateway"}
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
		what, err := benchmark.Pick("-sections", s.sections, sections(all), func(s section) string { return s.name })
		if err != nil {
			return err
		}
		return measureAll(ctx, bed.Dir(), what, s, stdout, stderr)
	})
}

const introText = `Medians of %d rounds of %v; in a round all take their turns. wrk has one thread and
64 connections, and sends %s; each proxy has one worker. CPU is
in µs per request, user and system time. A ratio is taken within each round, the
brackets have the lowest and the highest. Only ratios mean anything: client, proxies,
sidecars, Redis and backend share %d CPUs (%s/%s, load average %s at the start).

`

// measureAll measures every section, and writes its table when it is done.
func measureAll(ctx context.Context, dir string, what []section, s settings, stdout, stderr io.Writer) error {
	script, err := writeScript(dir)
	if err != nil {
		return err
	}
	out := benchmark.NewReport(stdout, s.Markdown, "##")
	sends := "no header but Host"
	if s.browser {
		sends = "the headers of a browser's script"
	}
	out.Printf(introText, s.Rounds, s.length, sends, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, benchmark.LoadAverage())
	var all []measured
	for _, sec := range what {
		m, err := sec.measure(ctx, script, s, stderr)
		if err != nil {
			return err
		}
		out.Table(m.table())
		if err := out.Err(); err != nil {
			return err
		}
		all = append(all, m)
	}
	if s.plot == "" {
		return nil
	}
	return plot(all).Write(s.plot)
}

// writeScript writes wrk's script below dir, and returns its path.
func writeScript(dir string) (string, error) {
	path := filepath.Join(dir, "load.lua")
	if err := os.WriteFile(path, []byte(loadScript), 0o600); err != nil {
		return "", fmt.Errorf("writing wrk's script: %w", err)
	}
	return path, nil
}

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("bench-gateway", flag.ContinueOnError)
	flags.SetOutput(stderr)
	s.Register(flags)
	flags.DurationVar(&s.length, "time", 4*time.Second, "length of a round")
	benchmark.RegisterWindow(flags, &s.window)
	flags.StringVar(&s.sections, "sections", "", "sections to measure, by name, separated by commas: refuse, pass, settle, once; all if empty")
	flags.BoolVar(&s.browser, "browser", false, "send the headers of a browser's script, not Host alone")
	flags.StringVar(&s.plot, "plot", "", "write a plot of the medians to this SVG file")
	if err := s.Parse(flags, args); err != nil {
		return s, err
	}
	if s.length < leastLength || s.length > mostLength {
		return s, fmt.Errorf("-time %v: use %v to %v", s.length, leastLength, mostLength)
	}
	return s, benchmark.CheckWindow(s.window)
}
