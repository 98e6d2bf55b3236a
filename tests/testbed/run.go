package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	pollEvery = 10 * time.Millisecond // while a server starts
	tailLines = 5                     // of the output, in an error
	tailBytes = 16 << 10
)

// run is one life of a process.
type run struct {
	p     *Process
	pid   int
	from  int64         // where its output starts in the file
	done  chan struct{} // closed when it has ended
	err   error         // how; readable after done
	asked bool          // somebody wanted it to end; guarded by p.mu
	addrs sync.Map      // by name: the listeners that it has logged and were asked for
}

// says waits until the process has written where it listens, the pattern's group,
// and notes it. A restart is on the same address, which may be read meanwhile.
func (r *run) says(ctx context.Context, where *regexp.Regexp, addr *string) error {
	return r.until(ctx, func() error {
		m := where.FindStringSubmatch(r.text())
		if m == nil {
			return errors.New("it has not said that it listens")
		}
		if *addr == "" {
			*addr = m[1]
		}
		return nil
	})
}

// until calls check every few milliseconds until it returns nil. It gives up,
// naming the last error of check, when the context or the process ends.
func (r *run) until(ctx context.Context, check func() error) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-r.done:
			return fmt.Errorf("it ended (%w); its output ends: %s", ending(r.err), r.tail())
		case <-ctx.Done():
			return fmt.Errorf("%w (%w); its output ends: %s", err, context.Cause(ctx), r.tail())
		case <-ticker.C:
		}
	}
}

// text returns what this run has written so far.
func (r *run) text() string {
	data, err := os.ReadFile(r.p.output)
	if err != nil || int64(len(data)) < r.from {
		return ""
	}
	return string(data[r.from:])
}

func (r *run) tail() string {
	text := r.text()
	lines := strings.Split(strings.TrimSpace(text[max(0, len(text)-tailBytes):]), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], " | ")
}

// ending returns the exit error of a run as something to print: exec has none
// for status 0.
func ending(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// endedBy tells whether an exit is what the signal should lead to: status 0,
// death by it, or 128 plus its number, as the JVM has it.
func endedBy(err error, s syscall.Signal) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err == nil
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && (status.Signaled() && status.Signal() == s || status.ExitStatus() == 128+int(s))
}
