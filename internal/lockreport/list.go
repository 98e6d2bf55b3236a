package lockreport

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// List is the locks that are held, and the keys of locks that store another value: the oldest first.
type List struct {
	Locks []Lock `json:"locks"`
	Total int    `json:"total"` // including those cut off

	client *Client
	limit  int // 0: no limit
	failed func(error)
}

// List lists the locks of the given names, at most limit of them, the oldest; 0: all. It reads every
// key of the servers, in steps that keep no other client waiting. Failed is called with the error of a
// server of a quorum, while another one answers.
func (d *Client) List(ctx context.Context, limit int, failed func(error), names ...string) (*List, error) {
	l := &List{Locks: []Lock{}, client: d, limit: limit, failed: failed}
	asked := make(map[string]bool) // by template: the sides of a read-write lock share one
	for _, name := range names {
		if lock := d.Config.Locks[name]; !asked[lock.Key] {
			asked[lock.Key] = true
			if err := l.list(ctx, name, lock); err != nil {
				return nil, err
			}
		}
	}
	l.truncate(l.limit)
	return l, nil
}

// list adds the locks of one name. It fails if no server answers.
func (l *List) list(ctx context.Context, name string, lock config.Lock) error {
	servers, err := l.client.Servers(ctx, lock)
	if err != nil {
		return err
	}
	texts := l.client.Config.LockKey(name).Texts
	before, after := texts[0], texts[len(texts)-1]
	votes := make(quorumVotes)
	var failures []error
	for _, server := range servers {
		err := redislock.List(ctx, server.Client, KindOf(lock), redislock.Format(lock.Format), before, after, func(s redislock.State) error {
			if !MatchesTemplate(l.client.Config.LockKey(name), s.Key) || !l.belongsTo(s.Key, lock) {
				return nil
			}
			r := newLock(name, lock, s, server)
			if server.Address == nil {
				l.add(r)
				return nil
			}
			votes.add(r)
			return nil
		})
		if err != nil {
			failures = append(failures, fmt.Errorf("locks list: %w%s", err, server.OnServer()))
		}
	}
	if len(failures) == len(servers) {
		return failures[0]
	}
	for _, err := range failures {
		l.failed(err)
	}
	for _, reports := range votes {
		l.add(*majority(reports))
	}
	return nil
}

// belongsTo reports whether a key belongs to a lock. It returns false if another lock's
// template has more text around the ID, and for the lock of a rule in mode observe, which
// protects nothing.
func (l *List) belongsTo(key string, lock config.Lock) bool {
	if strings.HasSuffix(key, config.ObservedSuffix) {
		return false
	}
	name, err := l.client.NameOf(key)
	return err != nil || l.client.Config.Locks[name].Key == lock.Key
}

func (l *List) add(r Lock) {
	l.Total++
	l.Locks = append(l.Locks, r)
	if l.limit > 0 && len(l.Locks) >= 2*l.limit+1000 { // rarely, so that sorting costs little
		l.truncate(l.limit)
	}
}

// truncate sorts the locks by age and keeps the oldest. Locks of unknown age come last.
func (l *List) truncate(limit int) {
	slices.SortFunc(l.Locks, func(a, b Lock) int {
		return cmp.Or(a.since().Compare(b.since()), cmp.Compare(a.Key, b.Key))
	})
	if limit > 0 && len(l.Locks) > limit {
		l.Locks = l.Locks[:limit]
	}
}

// oldest returns the holder with the earliest known Since, or the first if none is known.
// It returns nil without holders.
func (r *Lock) oldest() *Holder {
	var oldest *Holder
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
func (r *Lock) since() time.Time {
	if h := r.oldest(); h != nil && h.Since != nil {
		return *h.Since
	}
	return time.Unix(1<<40, 0)
}

// Print writes a table.
func (l *List) Print(w io.Writer) error {
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
func (r *Lock) row() []string {
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
func (h *Holder) work() string {
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
