// Command waiting measures the memory of settlements that wait for their locks: run it
// with "make bench-waiting".
//
// Other settlements hold the orders. So many calls wait for them, all at once, in the
// lock package alone, in a sidecar whose ext_proc streams come from this process, and in
// an Envoy with ordergate as a module. Then all of them leave. What the process holds
// more than while it was idle, divided by the calls, is the figure. It fails on errors
// only, never on a figure.
//
// Start with [run]. attachments.go says how calls are made, memory.go what is read.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

const (
	// startLimit bounds the start of a server, its build from nothing included.
	startLimit = 5 * time.Minute
	// waitLimit bounds the time until all calls wait.
	waitLimit = 2 * time.Minute
	// steadyTime is how long all calls wait before memory is read: longer than until a
	// waiter has asked again, and its subscription stands.
	steadyTime = 5 * time.Second
)

// settings are the command's flags.
type settings struct {
	calls    int
	orders   int
	only     string
	back     time.Duration
	markdown bool
}

func main() { os.Exit(benchmark.Main("bench-waiting", run)) }

// way is one by which a call comes to ordergate.
type way struct {
	name  string
	start func(ctx context.Context, r *rig) (attachment, error)
}

// attachments are what is measured, in this order.
var attachments = []way{
	{"locks alone", startLocker},
	{"ext_proc", startSidecar},
	{"module", startModule},
}

var (
	rss        = benchmark.Metric{Name: "RSS", Format: "%.1f"}
	heap       = benchmark.Metric{Name: "heap", Format: "%.1f"}
	stacks     = benchmark.Metric{Name: "stacks", Format: "%.1f"}
	goroutines = benchmark.Metric{Name: "goroutines", Format: "%.2f"}
	kept       = benchmark.Metric{Name: "RSS after", Format: "%.1f"}
	backAfter  = benchmark.Metric{Name: "back after, s", Format: "%.0f"}
)

var columns = []benchmark.Metric{rss, heap, stacks, goroutines, kept, backAfter}

const noteText = `kB (1000 bytes) for each call, above the process when it was idle. RSS is that of the
whole process: of Envoy with the module, whose own streams are in it. Heap and stacks
are what Go uses. After is when all calls have left: RSS then, and when nine tenths of
what it had grown by had been given back to the system.`

// run measures, and writes the table to stdout and its progress to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	chosen, err := benchmark.Pick("-only", s.only, attachments, func(a way) string { return a.name })
	if err != nil {
		return err
	}
	table := benchmark.NewTable(fmt.Sprintf("%d calls that wait for the locks of %d orders each", s.calls, s.orders), noteText, columns)
	for _, a := range chosen {
		fmt.Fprintf(stderr, "%s\n", a.name)
		var got benchmark.Sample
		// With a Redis of its own, and nothing left of the one before.
		err := benchmark.OnBed(func(bed *testbed.Bed) (err error) {
			got, err = measure(ctx, bed, a.start, s, stderr)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		row := []string{a.name}
		for _, m := range columns {
			cell := "more than " + s.back.String()
			if value, known := got[m]; known {
				cell = fmt.Sprintf(m.Format, value)
			}
			row = append(row, cell)
		}
		table.Rows = append(table.Rows, row)
	}
	out := benchmark.NewReport(stdout, s.markdown, "##")
	out.Table(table)
	return out.Err()
}

// measure has all calls wait for their locks in one attachment, and leave.
func measure(ctx context.Context, bed *testbed.Bed, start func(context.Context, *rig) (attachment, error), s settings, progress io.Writer) (benchmark.Sample, error) {
	starting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	r, err := newRig(starting, bed, s)
	if err != nil {
		return nil, err
	}
	defer r.close()
	a, err := start(starting, r)
	if err != nil {
		return nil, err
	}
	defer a.close()
	if err := a.warmUp(starting); err != nil {
		return nil, fmt.Errorf("one call: %w", err)
	}
	idle, err := a.memory(starting)
	if err != nil {
		return nil, err
	}
	calls, leave := context.WithCancel(ctx)
	defer leave()
	begun := time.Now()
	done := a.begin(calls)
	entering, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	wait := 0
	if err := poll(entering, func() (_ bool, err error) {
		wait, err = a.waiting(entering)
		return wait == s.calls, err
	}); err != nil { // the others may have failed: a machine that is busy with more makes Redis late
		return nil, fmt.Errorf("%d of %d calls wait: %w", wait, s.calls, err)
	}
	fmt.Fprintf(progress, "all wait after %v\n", time.Since(begun).Round(time.Millisecond))
	select {
	case <-time.After(steadyTime):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	full, err := a.memory(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(progress, "idle %v\nfull %v\n", idle, full)
	each := func(more float64) float64 { return more / 1000 / float64(s.calls) }
	got := benchmark.Sample{
		rss: each(full.rss - idle.rss), heap: each(full.heap - idle.heap), stacks: each(full.stacks - idle.stacks),
		goroutines: (full.goroutines - idle.goroutines) / float64(s.calls),
	}
	leave()
	<-done
	left := time.Now()
	after := full
	leaving, cancel := context.WithTimeout(ctx, s.back)
	defer cancel()
	_ = poll(leaving, func() (bool, error) { // what is not given back in time is a figure too
		now, err := a.memory(leaving)
		if err != nil {
			return false, err
		}
		after = now
		return now.rss-idle.rss <= (full.rss-idle.rss)/10, nil
	})
	fmt.Fprintf(progress, "left %v\n", after)
	got[kept] = each(after.rss - idle.rss)
	if leaving.Err() == nil {
		got[backAfter] = time.Since(left).Seconds()
	}
	return got, ctx.Err()
}

// poll asks a few times a second until it is so.
func poll(ctx context.Context, is func() (bool, error)) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		if ok, err := is(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func parseFlags(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("bench-waiting", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&s.calls, "calls", 20_000, "calls that wait at once")
	flags.IntVar(&s.orders, "orders", 1, "orders that each of them settles")
	flags.StringVar(&s.only, "only", "", "what to measure, by name, separated by commas; all if empty")
	flags.DurationVar(&s.back, "back", 5*time.Minute, "how long to wait for memory to be given back")
	flags.BoolVar(&s.markdown, "markdown", false, "write Markdown")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("argument %q: there are only flags, see -help", flags.Arg(0))
	case s.calls < 1 || s.calls > mostCalls:
		return s, fmt.Errorf("-calls %d: use 1 to %d", s.calls, mostCalls)
	case s.orders < 1 || s.orders > mostOrders:
		return s, fmt.Errorf("-orders %d: use 1 to %d", s.orders, mostOrders)
	}
	return s, nil
}
