package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// defaultLimit is the number of entries that a person may read.
const defaultLimit = 100

func locksListCommand(env *environment, asJSON *bool) *cobra.Command {
	var name string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the locks that are held, the oldest first",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usageError{errors.New("locks list: --limit is negative: give how many locks to list, or 0 for all")}
			}
			locks, err := env.openLocks()
			if err != nil {
				return err
			}
			defer locks.close()
			l := &lockList{locks: locks, limit: limit, Locks: []lockReport{}, unreachable: env.stderr}
			if err := l.collect(cmd.Context(), name); err != nil {
				return err
			}
			if *asJSON {
				return admin.WriteJSON(env.stdout, l)
			}
			return l.print(env.stdout)
		},
	}
	cmd.Flags().StringVar(&name, "lock", "", "only the locks of this name in the configuration")
	cmd.Flags().IntVar(&limit, "limit", defaultLimit, "how many to print at most, 0 for all")
	return cmd
}

// lockList collects the held locks, and the keys of locks that store another value. It
// keeps the oldest.
type lockList struct {
	Locks []lockReport `json:"locks"`
	Total int          `json:"total"` // including those cut off

	locks       *lockClient
	limit       int // 0: no limit
	unreachable io.Writer
}

// collect lists the locks of one name, or of all names if name is empty.
func (l *lockList) collect(ctx context.Context, name string) error {
	names := []string{name}
	if name == "" {
		names = slices.Sorted(maps.Keys(l.locks.config.Locks))
	} else if err := l.locks.requireLock(name); err != nil {
		return fmt.Errorf("locks: %w", err)
	}
	asked := make(map[string]bool) // by template: the sides of a read-write lock share one
	for _, name := range names {
		if lock := l.locks.config.Locks[name]; !asked[lock.Key] {
			asked[lock.Key] = true
			if err := l.list(ctx, name, lock); err != nil {
				return err
			}
		}
	}
	l.truncate(l.limit)
	return nil
}

// list adds the locks of one name. It fails if no server answers. If some answer, it
// prints the errors of the others.
func (l *lockList) list(ctx context.Context, name string, lock config.Lock) error {
	servers, err := l.locks.servers(ctx, lock)
	if err != nil {
		return err
	}
	texts := l.locks.config.LockKey(name).Texts
	before, after := texts[0], texts[len(texts)-1]
	votes := make(quorumVotes)
	var failures []error
	for _, server := range servers {
		err := redislock.List(ctx, server.client, kindOf(lock), redislock.Format(lock.Format), before, after, func(s redislock.State) error {
			if !matchesTemplate(l.locks.config.LockKey(name), s.Key) || !l.belongsTo(s.Key, lock) {
				return nil
			}
			r := newLockReport(name, lock, s, server)
			if server.address == nil {
				l.add(r)
				return nil
			}
			votes.add(r)
			return nil
		})
		if err != nil {
			failures = append(failures, fmt.Errorf("locks list: %w%s", err, server.onServer()))
		}
	}
	if len(failures) == len(servers) {
		return failures[0]
	}
	for _, err := range failures {
		fmt.Fprintln(l.unreachable, err)
	}
	for _, reports := range votes {
		l.add(*majority(reports))
	}
	return nil
}

// belongsTo reports whether a key belongs to a lock. It returns false if another lock's
// template has more text around the ID, and for the lock of a rule in mode observe, which
// protects nothing.
func (l *lockList) belongsTo(key string, lock config.Lock) bool {
	if strings.HasSuffix(key, config.ObservedSuffix) {
		return false
	}
	name, err := l.locks.nameOf(key)
	return err != nil || l.locks.config.Locks[name].Key == lock.Key
}

func (l *lockList) add(r lockReport) {
	l.Total++
	l.Locks = append(l.Locks, r)
	if l.limit > 0 && len(l.Locks) >= 2*l.limit+1000 { // rarely, so that sorting costs little
		l.truncate(l.limit)
	}
}

// truncate sorts the locks by age and keeps the oldest. Locks of unknown age come last.
func (l *lockList) truncate(limit int) {
	slices.SortFunc(l.Locks, func(a, b lockReport) int {
		return cmp.Or(a.since().Compare(b.since()), cmp.Compare(a.Key, b.Key))
	})
	if limit > 0 && len(l.Locks) > limit {
		l.Locks = l.Locks[:limit]
	}
}

// oldest returns the holder with the earliest known Since, or the first if none is known.
// It returns nil without holders.
func (r *lockReport) oldest() *holderReport {
	var oldest *holderReport
	for i := range r.Holders {
		h := &r.Holders[i]
		if oldest == nil || h.Since != nil && (oldest.Since == nil || h.Since.Before(*oldest.Since)) {
			oldest = h
		}
	}
	return oldest
}

// since returns when the lock was acquired, or a time in the far future if that is not known.
// Ages cannot be compared: servers report them at different moments.
func (r *lockReport) since() time.Time {
	if h := r.oldest(); h != nil && h.Since != nil {
		return *h.Since
	}
	return time.Unix(1<<40, 0)
}

func (l *lockList) print(w io.Writer) error {
	if l.Total == 0 {
		_, err := fmt.Fprintln(w, "no lock is held")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tKIND\tHOLDER\tAGE\tFENCE\tWAITING\tENDS IN\tREQUEST")
	for _, r := range l.Locks {
		fmt.Fprintln(table, strings.Join(r.row(), "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if cut := l.Total - len(l.Locks); cut > 0 {
		_, err := fmt.Fprintf(w, "... and %d more, younger or of unknown age (--limit)\n", cut)
		return err
	}
	return nil
}

// maxColumn bounds the text of a request or a reason in the table, in bytes.
const maxColumn = 64

// row returns the cells of a line of the table.
func (r *lockReport) row() []string {
	const none = "-"
	cells := []string{r.Key, r.Kind, none, none, none, none, none, none}
	if r.Servers != nil {
		cells[1] = fmt.Sprintf("%s %d/%d", r.Kind, len(r.Servers), len(r.lock.Quorum.Addresses))
	}
	if r.Waiting != nil {
		cells[5] = fmt.Sprint(*r.Waiting)
	}
	left := admin.Seconds(math.MaxInt64)
	for _, h := range r.Holders {
		if h.Left != nil {
			left = min(left, *h.Left) // the next permit or reader to expire
		}
	}
	switch {
	case left != math.MaxInt64:
		cells[6] = duration(left)
	case len(r.Holders) > 0:
		cells[6] = "never"
	}
	h := r.oldest()
	switch {
	case r.Foreign != nil:
		cells[2] = *r.Foreign
		return cells
	case h == nil: // only Java services have permits
		return cells
	}
	cells[2] = h.Owner
	if more := len(r.Holders) - 1 + r.MoreHolders; more > 0 {
		cells[2] += fmt.Sprintf(" +%d", more)
	}
	switch {
	case h.Age == nil:
	case h.Recorded:
		cells[3] = duration(*h.Age)
	default: // no record: the age is an upper bound, from the last fence
		cells[3] = "<=" + duration(*h.Age)
	}
	if h.Fence != nil {
		cells[4] = fmt.Sprint(*h.Fence)
	}
	cells[7] = cmp.Or(h.work(), none)
	return cells
}

// work describes the holder's request, and its hold if there is one.
func (h *holderReport) work() string {
	var words []string
	if h.Request != nil {
		words = append(words, shorten(*h.Request))
	}
	if h.LeftHeld {
		left := "left held"
		if h.Reason != nil {
			left += ": " + *h.Reason
		}
		words = append(words, shorten(left))
	}
	return strings.Join(words, "; ")
}

func shorten(text string) string {
	if len(text) <= maxColumn {
		return text
	}
	return text[:maxColumn-3] + "..."
}
