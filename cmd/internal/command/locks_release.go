package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/lockreport"
)

func locksReleaseCommand(env *environment, asJSON *bool) *cobra.Command {
	var r lockRelease
	cmd := &cobra.Command{
		Use:     "release KEY",
		Short:   "Show a lock, ask for confirmation, and release it by force",
		Example: "  ordergate locks release order:lock:42",
		Args:    oneLock,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.check("locks release"); err != nil {
				return err
			}
			r.stdin, r.stdout, r.stderr, r.asJSON = cmd.InOrStdin(), env.stdout, env.stderr, *asJSON
			if !r.yes && !isTerminal(r.stdin) {
				return usageError{errors.New("locks release: standard input is no terminal: add --yes to release without a question")}
			}
			locks, err := env.openLocksFor(r.name)
			if err != nil {
				return err
			}
			defer locks.Close()
			return r.run(cmd.Context(), locks, args[0])
		},
	}
	cmd.Flags().StringVar(&r.name, "lock", "", "the lock's name in the configuration, where several could have the key")
	cmd.Flags().StringVar(&r.owner, "owner", "", "of a semaphore: the holder whose permit is released, or the beginning of its name")
	r.flag(cmd)
	cmd.Flags().BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	return cmd
}

// lockRelease is one run of locks release.
type lockRelease struct {
	operator
	name, owner    string
	yes, asJSON    bool
	stdin          io.Reader
	stdout, stderr io.Writer
}

// releaseReport is what locks release prints as JSON.
type releaseReport struct {
	Locks    []lockreport.Lock `json:"locks"` // before the release, on each server
	Notified int               `json:"heard"` // number of waiters that Redis notified
}

func (r *lockRelease) run(ctx context.Context, locks *lockClient, key string) error {
	reports, err := locks.inspect(ctx, r.name, key)
	if err != nil {
		return err
	}
	by := lockreport.Release{Who: operatorName(), Reason: r.reason, Owner: r.owner, Logger: slog.New(slog.NewTextHandler(r.stderr, nil))}
	by.Untraced = func(err error) {
		fmt.Fprintln(r.stderr, "locks release: released, and ordergate locks audit will not show it:", err)
	}
	if err := by.Choose(reports); err != nil {
		return fmt.Errorf("locks release: %w", err)
	}
	if !r.asJSON || !r.yes {
		w := r.stdout
		if r.asJSON {
			w = r.stderr
		}
		if err := lockreport.Describe(w, reports); err != nil {
			return err
		}
		fmt.Fprint(w, "\n", lockreport.ReleaseWarning)
	}
	if !r.yes {
		if err := r.confirm(ctx); err != nil {
			return err
		}
	}
	heard, err := by.Run(ctx, reports)
	switch {
	case err != nil:
		return fmt.Errorf("locks release: %w", err)
	case r.asJSON:
		return admin.WriteJSON(r.stdout, releaseReport{reports, heard})
	}
	where := ""
	if reports[0].Servers != nil {
		where = fmt.Sprintf(" on %d of %d servers", lockreport.HeldOn(reports), len(reports))
	}
	_, err = fmt.Fprintf(r.stdout, "released%s; waiters notified: %d\n", where, heard)
	return err
}

// isTerminal reports whether stdin is a terminal.
func isTerminal(stdin io.Reader) bool {
	file, ok := stdin.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// confirm asks on stderr whether to release. It returns nil on yes, and an error on any other
// line or if ctx ends.
func (r *lockRelease) confirm(ctx context.Context) error {
	fmt.Fprint(r.stderr, "Release it? [y/N] ")
	line, _ := readLine(ctx, bufio.NewReader(r.stdin))
	if ctx.Err() != nil {
		fmt.Fprintln(r.stderr)
		return errors.New("locks release: interrupted; nothing was released")
	}
	switch strings.ToLower(line) {
	case "y", "yes":
		return nil
	}
	return errors.New("locks release: nothing was released")
}

// readLine reads a line from a terminal, without blanks around it. It returns when ctx ends.
func readLine(ctx context.Context, from *bufio.Reader) (string, error) {
	type answer struct {
		line string
		err  error
	}
	read := make(chan answer, 1)
	// A read from a terminal cannot be interrupted. After Ctrl-C this goroutine ends with the
	// process.
	go func() {
		line, err := from.ReadString('\n')
		read <- answer{strings.TrimSpace(line), err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case a := <-read:
		return a.line, a.err
	}
}
