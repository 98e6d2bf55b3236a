package lockreport

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// ReleaseWarning describes the risk of a release. A release cannot be undone.
const ReleaseWarning = "The backend may still work on this order. Once the lock is free, the next call runs\n" +
	"beside the old one. Only a fence that the database checks makes late writes of the old\n" +
	"call harmless.\n"

// Release releases a lock by force.
type Release struct {
	Who, Reason string
	Owner       string // of a semaphore: the holder whose permit is released, or the beginning of its name
	Logger      *slog.Logger
	// Untraced is called for a lock that was released, and that ordergate locks audit will not show.
	Untraced func(error)
}

// Choose checks that the reports have a lock to release. For a semaphore it keeps only the
// chosen holder in the report.
func (r *Release) Choose(reports []Lock) error {
	answered := 0
	for _, report := range reports {
		if report.State == StateOther {
			return fmt.Errorf("%s is not a lock of this kind: it holds %s", report.Key, *report.Foreign)
		}
		if report.State != StateUnreachable {
			answered++
		}
	}
	switch {
	case 2*answered <= len(reports):
		return fmt.Errorf("only %d of %d servers answer", answered, len(reports))
	case HeldOn(reports) == 0:
		return fmt.Errorf("%s is not held", reports[0].Key)
	}
	if only := &reports[0]; only.state.Kind == redislock.Semaphore {
		return r.chooseHolder(only)
	} else if r.Owner != "" {
		return errors.New("--owner is for semaphores: other locks are released from all holders")
	}
	return nil
}

// HeldOn counts the servers on which a lock is held.
func HeldOn(reports []Lock) (n int) {
	for _, report := range reports {
		if report.State == StateHeld {
			n++
		}
	}
	return n
}

func (r *Release) chooseHolder(report *Lock) error {
	var is []int
	for i, h := range report.state.Holders {
		if r.Owner == "" || strings.HasPrefix(h.Owner, r.Owner) || report.Holders[i].Owner == r.Owner {
			is = append(is, i)
		}
	}
	switch n := len(is); {
	case len(report.state.Holders) == 0:
		return fmt.Errorf("the permits of %s are held by others than ordergate: they have no names", report.Key)
	case n == 0:
		return fmt.Errorf("no holder of %s is called %s", report.Key, admin.Visible(r.Owner))
	case n > 1:
		return fmt.Errorf("%s has %d such holders: say which with --owner (ordergate locks show names them)", report.Key, n)
	}
	i := is[0]
	report.Holders, report.state.Holders = report.Holders[i:i+1], report.state.Holders[i:i+1]
	return nil
}

// Run frees the lock on each server that reported it as held, and appends an audit entry
// there. After an error of the audit it goes on, because a full Redis refuses the entry.
// It returns the largest number of waiters that one server notified. Call Choose before.
func (r *Release) Run(ctx context.Context, reports []Lock) (heard int, err error) {
	var failures []string
	var released *Lock
	run := rand.Text()
	for i := range reports {
		report := &reports[i]
		if report.State != StateHeld {
			continue
		}
		n, err := redislock.ForceRelease(ctx, report.server.Client, report.state)
		if err != nil {
			failures = append(failures, err.Error()+report.server.OnServer())
			continue
		}
		heard, released = max(heard, n), report
		entry := report.entry()
		entry.Run, entry.Who, entry.Reason = run, r.Who, r.Reason
		if err := audit.Append(ctx, report.server.Client, entry); err != nil {
			r.Untraced(fmt.Errorf("%w%s", err, report.server.OnServer()))
		}
	}
	if released != nil {
		released.log(r, heard)
	}
	if len(failures) > 0 {
		return heard, errors.New(strings.Join(failures, "; "))
	}
	return heard, nil
}

// entry returns the audit entry of a release.
func (r *Lock) entry() audit.Entry {
	e := audit.Entry{Action: audit.Released, Lock: r.Lock, Key: r.state.Key}
	e.Holder, e.Request = r.heldBy()
	return e
}

// heldBy returns the owners, as shown, and their requests, each separated by commas.
func (r *Lock) heldBy() (holders, requests string) {
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
func (r *Lock) log(by *Release, heard int) {
	holders, requests := r.heldBy()
	attrs := []any{"who", by.Who, "lock", r.Lock, "key", r.Key, "kind", r.Kind, "owner", holders, "fence", r.state.Fence}
	if requests != "" {
		attrs = append(attrs, "request", requests)
	}
	if by.Reason != "" {
		attrs = append(attrs, "reason", by.Reason)
	}
	by.Logger.Warn("lock released by hand", append(attrs, "heard", heard, runbook.ByHand.Do("nothing if you know who did"))...)
}
