package command

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// releaseWarning describes the risk of a release. A release cannot be undone.
const releaseWarning = "The backend may still work on this order. Once the lock is free, the next call runs\n" +
	"beside the old one. Only a fence that the database checks makes late writes of the old\n" +
	"call harmless.\n"

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
			defer locks.close()
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
	Locks    []lockReport `json:"locks"` // before the release, on each server
	Notified int          `json:"heard"` // number of waiters that Redis notified
}

func (r *lockRelease) run(ctx context.Context, locks *lockClient, key string) error {
	reports, err := locks.inspect(ctx, r.name, key)
	if err != nil {
		return err
	}
	if err := r.choose(reports); err != nil {
		return fmt.Errorf("locks release: %w", err)
	}
	if !r.asJSON || !r.yes {
		w := r.stdout
		if r.asJSON {
			w = r.stderr
		}
		if err := describe(w, reports); err != nil {
			return err
		}
		fmt.Fprint(w, "\n", releaseWarning)
	}
	if !r.yes {
		if err := r.confirm(ctx); err != nil {
			return err
		}
	}
	heard, err := r.release(ctx, reports)
	switch {
	case err != nil:
		return fmt.Errorf("locks release: %w", err)
	case r.asJSON:
		return admin.WriteJSON(r.stdout, releaseReport{reports, heard})
	}
	where := ""
	if reports[0].server.address != nil {
		where = fmt.Sprintf(" on %d of %d servers", heldOn(reports), len(reports))
	}
	_, err = fmt.Fprintf(r.stdout, "released%s; waiters notified: %d\n", where, heard)
	return err
}

// choose checks that the reports have a lock to release. For a semaphore it keeps only the
// chosen holder in the report.
func (r *lockRelease) choose(reports []lockReport) error {
	answered := 0
	for _, report := range reports {
		if report.State == stateOther {
			return fmt.Errorf("%s is not a lock of this kind: it holds %s", report.Key, *report.Foreign)
		}
		if report.State != stateUnreachable {
			answered++
		}
	}
	switch {
	case 2*answered <= len(reports):
		return fmt.Errorf("only %d of %d servers answer", answered, len(reports))
	case heldOn(reports) == 0:
		return fmt.Errorf("%s is not held", reports[0].Key)
	}
	if only := &reports[0]; only.state.Kind == redislock.Semaphore {
		return r.chooseHolder(only)
	} else if r.owner != "" {
		return errors.New("--owner is for semaphores: other locks are released from all holders")
	}
	return nil
}

// heldOn counts the servers on which a lock is held.
func heldOn(reports []lockReport) (n int) {
	for _, report := range reports {
		if report.State == stateHeld {
			n++
		}
	}
	return n
}

func (r *lockRelease) chooseHolder(report *lockReport) error {
	var is []int
	for i, h := range report.state.Holders {
		if r.owner == "" || strings.HasPrefix(h.Owner, r.owner) || report.Holders[i].Owner == r.owner {
			is = append(is, i)
		}
	}
	switch n := len(is); {
	case len(report.state.Holders) == 0:
		return fmt.Errorf("the permits of %s are held by others than ordergate: they have no names", report.Key)
	case n == 0:
		return fmt.Errorf("no holder of %s is called %s", report.Key, visible(r.owner))
	case n > 1:
		return fmt.Errorf("%s has %d such holders: say which with --owner (ordergate locks show names them)", report.Key, n)
	}
	i := is[0]
	report.Holders, report.state.Holders = report.Holders[i:i+1], report.state.Holders[i:i+1]
	return nil
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
	answer := make(chan string, 1)
	// A read from a terminal cannot be interrupted. After Ctrl-C this goroutine ends with the
	// process.
	go func() {
		line, _ := bufio.NewReader(r.stdin).ReadString('\n')
		answer <- line
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(r.stderr)
		return errors.New("locks release: interrupted; nothing was released")
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errors.New("locks release: nothing was released")
	}
}

// release frees the lock on each server that reported it as held, and appends an audit entry
// there. It prints an error of the audit and goes on, because a full Redis refuses the entry.
// It returns the largest number of waiters that one server notified.
func (r *lockRelease) release(ctx context.Context, reports []lockReport) (heard int, err error) {
	var failures []string
	var released *lockReport
	run := rand.Text()
	for i := range reports {
		report := &reports[i]
		if report.State != stateHeld {
			continue
		}
		n, err := redislock.ForceRelease(ctx, report.server.client, report.state)
		if err != nil {
			failures = append(failures, err.Error()+report.server.onServer())
			continue
		}
		heard, released = max(heard, n), report
		entry := report.entry()
		entry.Run, entry.Reason = run, r.reason
		if err := audit.Append(ctx, report.server.client, entry); err != nil {
			fmt.Fprintf(r.stderr, "locks release: released, and ordergate locks audit will not show it: %v%s\n", err, report.server.onServer())
		}
	}
	if released != nil {
		released.log(slog.New(slog.NewTextHandler(r.stderr, nil)), r.reason, heard)
	}
	if len(failures) > 0 {
		return heard, errors.New(strings.Join(failures, "; "))
	}
	return heard, nil
}

// entry returns the audit entry of a release.
func (r *lockReport) entry() audit.Entry {
	e := audit.Entry{Who: operatorName(), Action: audit.Released, Lock: r.Lock, Key: r.state.Key}
	e.Holder, e.Request = r.heldBy()
	return e
}

// heldBy returns the owners, as shown, and their requests, each separated by commas.
func (r *lockReport) heldBy() (holders, requests string) {
	var owners, wanted []string
	for _, h := range r.Holders {
		owners = append(owners, h.Owner)
		if h.Request != nil {
			wanted = append(wanted, *h.Request)
		}
	}
	return strings.Join(owners, ", "), strings.Join(wanted, ", ")
}

// log logs a release by hand.
func (r *lockReport) log(log *slog.Logger, reason string, heard int) {
	holders, requests := r.heldBy()
	attrs := []any{"who", operatorName(), "lock", r.Lock, "key", r.Key, "kind", r.Kind, "owner", holders, "fence", r.state.Fence}
	if requests != "" {
		attrs = append(attrs, "request", requests)
	}
	if reason != "" {
		attrs = append(attrs, "reason", reason)
	}
	log.Warn("lock released by hand", append(attrs, "heard", heard)...)
}
