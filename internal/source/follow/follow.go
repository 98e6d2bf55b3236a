// Package follow holds what the followers of databases have in common: what they
// are told and what they answer, and how they collect IDs, keep trying and know
// that they missed nothing. The followers themselves are package binlog, for
// MariaDB and MySQL, and package logical, for PostgreSQL.
//
// A follower reads the log of changes that the database writes anyway. A place in
// that log is text that only the follower reads: whoever follows keeps the place
// once the IDs that came with it are stored, and starts again from it.
package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Both mean that orders may exist of which the follower told nothing. Whoever
// follows then begins anew, with no place, and reads the table after the first
// place was handed out.
var (
	// ErrGone is what Follow returns when the log no longer has the place. If several
	// followers share what they keep, another may just have followed further: whoever
	// finds a later place there goes on from that.
	ErrGone = errors.New("the place in the database's log of changes is gone")
	// ErrUnsure is what Follow returns when the log has changes that it cannot read
	// for certain.
	ErrUnsure = errors.New("the database's log of changes cannot be read for certain")
)

// Emit takes IDs of rows that were committed, at most [MaxChunk] of them, and the
// place from which to go on once they are safely stored. There may be no IDs, only
// a place. The slice is the follower's again when Emit returns. An error of its own
// ends Follow, which returns it.
type Emit func(ctx context.Context, ids []string, at string) error

// CaughtUp takes a moment, on this machine's monotonic clock: all that was committed
// before it, by any client of the database, was emitted. It must not block for long.
type CaughtUp func(at time.Time)

// Options are what every follower is told.
type Options struct {
	DSN      string // with the password; it is in no error and in no log
	Table    string // or schema.table
	IDColumn string

	// Every is how often the follower asks the database how far its log is: once for
	// each call of CaughtUp. Default: 200 ms.
	PollEvery time.Duration
	// Advance is how often a place is handed out while there are no IDs, so that the
	// database can remove what it keeps for us. Default: 10 s.
	Advance time.Duration
	// Bad is called with the reason when a row has no usable ID. It says where the
	// row is, and nothing of what it holds. nil: such rows are only in the log.
	OnBadRow func(reason string)
	// Lost is called with the reason when the connection to the database ended, or could not
	// be made: from then on nothing is told until the next call of CaughtUp. It must not
	// block for long. nil: it is only in the log.
	OnDisconnect func(error)
	Logger       *slog.Logger // default: none
}

// EnsureDefaults fills in what was left out.
func (o *Options) EnsureDefaults() {
	if o.PollEvery == 0 {
		o.PollEvery = 200 * time.Millisecond
	}
	if o.Advance == 0 {
		o.Advance = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnDisconnect == nil {
		o.OnDisconnect = func(error) {}
	}
	bad, logger := o.OnBadRow, o.Logger
	o.OnBadRow = func(reason string) {
		logger.Warn("a row without a usable order ID", "reason", reason)
		if bad != nil {
			bad(reason)
		}
	}
}

// Validate reports the first thing that is missing.
func (o *Options) Validate() error {
	switch {
	case o.DSN == "":
		return errors.New("no data source name")
	case o.Table == "":
		return errors.New("no table")
	case o.IDColumn == "":
		return errors.New("no column of IDs")
	case o.PollEvery < 0 || o.Advance < 0:
		return errors.New("a negative time")
	}
	return nil
}

// SplitTable returns the parts of "schema.table", with an empty schema if there is
// none.
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
