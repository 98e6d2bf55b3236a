package benchmark

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

	"github.com/ordergate/ordergate/tests/testbed"
)

// Main runs a command until it is done or is told to stop, and returns its exit
// code. An error goes to stderr, after the name.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) int {
	// SIGPIPE, which "| head" leads to, would end us before the servers' files are
	// removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// OnBed calls do with a bed for servers, whose files are removed after it. A server
// that fell over meanwhile is an error: it has spoiled the figures.
func OnBed(do func(*testbed.Bed) error) (err error) {
	dir, err := os.MkdirTemp("", "ordergate-bench-")
	if err != nil {
		return fmt.Errorf("making a directory for the servers: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bed, err := testbed.New(dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	return do(bed)
}

// RegisterWindow adds the flag -window to a set, for [CheckWindow].
func RegisterWindow(flags *flag.FlagSet, window *time.Duration) {
	flags.DurationVar(window, "window", 500*time.Millisecond, "ordergate's window")
}

// CheckWindow returns an error for a window that ordergate does not have.
func CheckWindow(window time.Duration) error {
	if window < 100*time.Millisecond || window > 10*time.Second {
		return fmt.Errorf("-window %v: use 100ms to 10s", window)
	}
	return nil
}

// Settings are the flags that all commands have.
type Settings struct {
	Rounds   int
	Markdown bool
}

// Register adds the flags to a set.
func (s *Settings) Register(flags *flag.FlagSet) {
	flags.IntVar(&s.Rounds, "rounds", 5, "how often each candidate is measured, in turns with the others")
	flags.BoolVar(&s.Markdown, "markdown", false, "write Markdown")
}

// Parse parses the arguments, and says what is wrong with them or with these flags.
func (s *Settings) Parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("argument %q: there are only flags, see -help", flags.Arg(0))
	case s.Rounds < 1:
		return fmt.Errorf("-rounds %d: use 1 or more", s.Rounds)
	}
	return nil
}

// Pick returns those of all whose names are on a comma-separated list, the value of
// a flag, in their own order. An empty list picks all of them.
func Pick[T any](flag, list string, all []T, name func(T) string) ([]T, error) {
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
