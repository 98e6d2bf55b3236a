// Package command has the commands of ordergate. It reads the configuration, builds the engine
// and the servers, and serves until a signal stops it. Other packages make the decisions.
package command

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	_ "time/tzdata" // for an image with nothing else

	"github.com/spf13/cobra"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/ordergate/ordergate/internal/systemd"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // wrong usage or configuration
)

// Main executes the process's command line and exits. releaseVersion "" stands for the version that
// the Go toolchain knows.
func Main(releaseVersion string) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		setTimerSlack()
	}
	version = releaseVersion
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends a command that reads, but not serve
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv)
	stop()
	os.Exit(code)
}

// Root returns the commands, for their manual pages.
func Root() *cobra.Command {
	root := newCommand(io.Discard, io.Discard, os.Getenv)
	root.DisableAutoGenTag = true
	return root
}

// trustAuthorities is for an image without certificates of authorities. Parsing them takes some
// milliseconds.
var trustAuthorities = sync.OnceFunc(func() {
	pool := x509.NewCertPool()
	for root := range bundle.Roots() {
		if c, err := x509.ParseCertificate(root.Certificate); err == nil {
			pool.AddCertWithConstraint(c, root.Constraint)
		}
	}
	x509.SetFallbackRoots(pool)
})

// run executes one command line and returns its exit code. It prints errors to
// stderr, one per line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	cmd := newCommand(stdout, stderr, getenv)
	cmd.SetArgs(append([]string{}, args...)) // for nil, cobra uses os.Args
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(err.Error(), "reading configuration "+defaultFile+":") {
		err = usageError{fmt.Errorf("%w (ordergate init writes one, and --config names another)", err)}
	}
	fmt.Fprintln(stderr, err)
	systemd.Failed(err)
	var usage usageError
	var asked *net.OpError // of a socket that is not there
	if errors.As(err, &usage) || errors.Is(err, fs.ErrNotExist) && !errors.As(err, &asked) {
		return exitUsage
	}
	return exitFailed
}

// usageError is the error of an invalid command line or configuration.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
