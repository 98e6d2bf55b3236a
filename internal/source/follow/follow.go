// Package follow holds what the followers of databases share: options and callbacks, the batch of
// IDs, the retry loop, and the proof that no change was missed. The followers are package binlog,
// for MariaDB and MySQL, and package logical, for PostgreSQL.
//
// A follower reads the log of changes that the database writes anyway. A checkpoint in that log is
// text that only the follower can read. The caller stores it once the IDs emitted with it are
// stored, and starts from it again.
package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/orderid"
	"github.com/ordergate/ordergate/internal/runbook"
)

// Both mean that orders may exist that the follower did not emit. The caller then follows again
// without a checkpoint, and reads the table after the first checkpoint was emitted.
var (
	// ErrGone is what Follow returns when the log no longer has the checkpoint. If several
	// followers share their store, another may have stored a later checkpoint: continue from that.
	ErrGone = errors.New("the position in the database's log of changes is gone")
	// ErrUnsure is what Follow returns when it cannot interpret a change with certainty.
	ErrUnsure = errors.New("the database's log of changes may be incomplete")
)

// ErrWrong is an [ErrUnsure] that following again is likely to meet again: the follower reads other IDs
// in the log than the table has.
var ErrWrong = fmt.Errorf("%w: the table does not have the IDs that are read in it", ErrUnsure)

// Emit receives IDs of committed rows, at most [MaxChunk], and the checkpoint to continue from once
// they are safely stored. There may be a checkpoint without IDs. The follower reuses the slice when
// Emit returns. Follow ends with an error of Emit, and returns it.
type Emit func(ctx context.Context, ids []string, checkpoint string) error

// CaughtUp receives a time of this machine's monotonic clock. Every transaction that any client
// committed before it was emitted. It must not block for long.
type CaughtUp func(at time.Time)

// Options are the settings that all followers share.
type Options struct {
	DSN string // with the password; no error and no log line contains it
	// RereadDSN returns the DSN as it is now. Each new connection has its password. It is safe for
	// concurrent use; nil: the DSN stays.
	RereadDSN func() string
	Table     string // or schema.table
	IDColumn  string
	// PartColumns are the columns of the parts of an ID, in their order. IDs are emitted with
	// them: "part/id".
	PartColumns []string

	// PollEvery is how often the follower queries the end of the database's log: once for each call
	// of CaughtUp. Default: 200 ms.
	PollEvery time.Duration
	// PollNow makes the follower query the end of the log at once; nil: it does so only every
	// PollEvery.
	PollNow <-chan struct{}
	// Advance is how often the follower emits a checkpoint when there are no IDs, so that the
	// database can remove older changes. Default: 10 s.
	Advance time.Duration
	// Check returns the reason why a text is no order ID, "" if it is one. Default:
	// [orderid.Check].
	Check func(id string) (reason string)
	// OnBadRow receives the reason when a row has no usable ID, with the row's position. nil: such
	// rows are only logged.
	OnBadRow func(reason string)
	// OnDisconnect receives the reason when the connection ended or failed. The follower emits
	// nothing from then on until the next call of CaughtUp. It must not block for long. nil: the
	// reason is only logged.
	OnDisconnect func(error)
	// OnBusy receives the reason whenever the follower waits for another one, which uses its
	// replication slot, or looks whether it reads the log rightly.
	OnBusy func(error)
	Logger *slog.Logger // default: none
}

// EnsureDefaults sets the fields that are unset.
func (o *Options) EnsureDefaults() {
	o.PollEvery = cmp.Or(o.PollEvery, 200*time.Millisecond)
	o.Advance = cmp.Or(o.Advance, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.OnDisconnect == nil {
		o.OnDisconnect = func(error) {}
	}
	if o.OnBusy == nil {
		o.OnBusy = func(error) {}
	}
	if o.Check == nil {
		o.Check = orderid.Check[string]
	}
	bad, logger := o.OnBadRow, o.Logger
	o.OnBadRow = func(reason string) {
		logger.Warn("a row without a usable order ID", "reason", reason,
			runbook.BadRows.Do("nothing if the row is no order, with on_bad: skip; otherwise correct it"))
		if bad != nil {
			bad(reason)
		}
	}
}

// Validate returns the first violation.
func (o *Options) Validate() error {
	switch {
	case o.DSN == "":
		return errors.New("no data source name")
	case o.Table == "":
		return errors.New("no table")
	case o.IDColumn == "":
		return errors.New("no column of IDs")
	case slices.Contains(o.PartColumns, "") || slices.Contains(o.PartColumns, o.IDColumn):
		return errors.New("a part of the IDs without a column of its own")
	case o.PollEvery < 0 || o.Advance < 0:
		return errors.New("a negative time")
	}
	return nil
}

// SplitTable returns the parts of "schema.table"; the schema may be empty.
func SplitTable(table string) (schema, name string, err error) {
	name = table
	if before, after, ok := strings.Cut(table, "."); ok {
		schema, name = before, after
		if schema == "" || strings.Contains(name, ".") {
			return "", "", fmt.Errorf("table %q: want table or schema.table", table)
		}
	}
	if name == "" || strings.ContainsFunc(table, func(r rune) bool { return r < ' ' }) {
		return "", "", fmt.Errorf("table %q: want table or schema.table", table)
	}
	return schema, name, nil
}
