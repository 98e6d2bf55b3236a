// Command ordergate is a sidecar of Envoy that guards order services: it turns
// lookups of orders that do not exist away, learns new orders from the backend's
// answers, and brackets settlements with a lock.
//
// Package main only wires: it reads the configuration, builds what the other
// packages offer, and serves until it is told to stop.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // wrong usage or configuration
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(code)
}

// run executes one command line and returns its exit code. Errors go to stderr,
// a line each.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	cmd := newCommand(stdout, stderr, getenv)
	cmd.SetArgs(append([]string{}, args...)) // cobra takes nil for the process's own
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	fmt.Fprintln(stderr, err)
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// usageError is a command line or a configuration that makes no sense.
type usageError struct{ error }
