// Command ordergate is a sidecar of Envoy that guards order services. It rejects lookups of
// orders that do not exist, learns new orders from the backend's answers, and brackets
// settlements with a lock.
//
// Package main has the commands. It reads the configuration, builds the engine and the
// servers, and serves until a signal stops it. Other packages make the decisions.
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

// run executes one command line and returns its exit code. It prints errors to
// stderr, one per line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	cmd := newCommand(stdout, stderr, getenv)
	cmd.SetArgs(append([]string{}, args...)) // for nil, cobra uses os.Args
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

// usageError is the error of an invalid command line or configuration.
type usageError struct{ error }
