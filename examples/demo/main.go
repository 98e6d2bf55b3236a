// Command demo shows what ordergate does for two old order services that know
// nothing of it: it starts them and everything around them on this machine,
// puts the same load on each without ordergate and with it, and prints what
// became of the requests.
//
// Start reading with run. Starting and stopping servers is left to package
// testbed; the services are those of examples/legacy, the configuration is that
// of examples/envoy.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/ordergate/ordergate/tests/testbed"
)

func main() {
	// SIGPIPE too: "make demo | head" is to stop the servers and clean up.
	ctx, stop := signal.NotifyContext(context.Background(),
		os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	code := run(ctx, os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(code)
}

// run shows the demo and returns the exit code: 0, or 1 if something could not
// be started, a promise did not hold, or ctx ended before the last act. With
// ONESHOT=1 in the environment it returns after the table, otherwise the servers
// stay until ctx ends. With MODULE=1 ordergate is inside Envoy instead of beside it. Nothing that it started or wrote is left when it returns.
func run(ctx context.Context, stdout, stderr io.Writer, getenv func(string) string) int {
	oneshot, _ := strconv.ParseBool(getenv("ONESHOT")) // what is no boolean is not 1
	asModule, _ := strconv.ParseBool(getenv("MODULE"))
	out := newScreen(stdout, getenv)
	err := demo(ctx, out, newScreen(stderr, getenv), oneshot, asModule)
	if err == nil {
		return 0
	}
	// Joined errors have a line each.
	fmt.Fprintln(stderr, "demo:", strings.ReplaceAll(err.Error(), "\n", "; "))
	return 1
}

// demo runs the acts and shows what came of them on out; what is under way goes
// to progress.
func demo(ctx context.Context, out, progress *screen, oneshot, asModule bool) (err error) {
	dir, err := os.MkdirTemp("", "ordergate-demo-")
	if err != nil {
		return fmt.Errorf("making a directory for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bed, err := testbed.New(dir, nil)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := bed.Close(); err == nil {
			err = closeErr // after another error it only says the same once more
		}
	}()

	sides, err := newSides(bed)
	if err != nil {
		return err
	}
	out.printf("%s\n", out.style.bold(fmt.Sprintf("See what ordergate does, in a moment: %s/ (%s), %s/ (%s)", sides[0].admin, sides[0].name, sides[1].admin, sides[1].name)))
	results, err := perform(ctx, bed, sides, progress, asModule)
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted before the end; everything was stopped")
	}
	if err != nil {
		return err
	}
	out.print(renderTable(results, out.style))
	out.print(renderConclusions(results, out.style))
	broken := brokenPromises(results)
	for _, b := range broken {
		out.printf("%s\n", out.style.red("NOT AS PROMISED: "+b))
	}
	if !oneshot {
		out.print(renderInvitation(dir, sides, out.style))
		if err := linger(ctx, bed); err != nil {
			return err
		}
		out.printf("\nStopping everything.\n")
	}
	if len(broken) > 0 {
		return fmt.Errorf("%d of ordergate's promises did not hold: see above", len(broken))
	}
	return nil
}

// perform starts the services and ordergate, runs the acts past ordergate, and runs the same acts
// again through it.
//
// The order matters: ordergate has to be told of every order that was made past
// it, and what the first round creates is made past it.
func perform(ctx context.Context, bed *testbed.Bed, sides []*side, progress *screen, asModule bool) ([]result, error) {
	progress.heading("Starting two old order services and what goes around them")
	attach, err := build(ctx, bed, progress, asModule)
	if err != nil {
		return nil, err
	}
	for _, s := range sides {
		if err := s.start(ctx, bed, progress); err != nil {
			return nil, err
		}
		if err := attach(ctx, bed, s, progress); err != nil {
			return nil, err
		}
	}
	results := make([]result, len(sides))
	progress.heading("Without ordergate")
	for i, s := range sides {
		results[i].service = s.name
		if results[i].without, err = performActs(ctx, s, s.plain, progress); err != nil {
			return nil, err
		}
	}
	progress.heading("Telling ordergate of the orders that were created without it")
	for i, s := range sides {
		err := progress.step("ordergate for "+s.name, func() (string, error) { return "", s.add(ctx, results[i].without.created) })
		if err != nil {
			return nil, err
		}
	}
	progress.heading("With ordergate")
	for i, s := range sides {
		if results[i].with, err = performActs(ctx, s, s.gated, progress); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// linger waits until ctx ends, which is no error, or a server does.
func linger(ctx context.Context, bed *testbed.Bed) error {
	watch, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, p := range bed.Processes() {
		wg.Go(func() {
			select {
			case <-p.Done():
				cancel(fmt.Errorf("%s ended by itself; its output ends: %s", p.Name(), p.Tail()))
			case <-watch.Done():
			}
		})
	}
	wg.Wait() // the first one to return ends the others
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(watch)
}
