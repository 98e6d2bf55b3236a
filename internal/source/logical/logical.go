// Package logical follows one table of PostgreSQL by logical replication: it tells the
// IDs of rows soon after they were committed.
//
// Start with [New] and [Follower.Follow]. The server must run with wal_level=logical.
// A publication says which changes the server sends, a replication slot which it keeps
// for us; the follower makes both if they are missing. What the IDs are for is the
// caller's affair, and so is reading what the table had before.
package logical

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// Options are the settings of a [Follower].
type Options struct {
	// DSN is a URL (postgres://...) or a list of keywords and values.
	follow.Options

	// Publication and Slot are the names of the two in the database: for each follower
	// its own slot, which only one connection can use at a time. They must be set.
	Publication, Slot string
}

// Follower follows one table. Follow must be called by one goroutine at a time.
type Follower struct {
	opts   Options
	config *pgx.ConnConfig
	table  pgx.Identifier
	log    *slog.Logger
}

// slotName is what PostgreSQL takes for the name of a slot.
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// New returns a follower. It connects to nothing yet.
func New(opts Options) (*Follower, error) {
	opts.EnsureDefaults()
	f, err := newFollower(opts)
	if err != nil {
		return nil, fmt.Errorf("following by logical replication: %w", err)
	}
	return f, nil
}

func newFollower(opts Options) (*Follower, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if !slotName.MatchString(opts.Slot) {
		return nil, fmt.Errorf("slot %q: want 1 to 63 of a-z, 0-9 and _", opts.Slot)
	}
	if p := opts.Publication; p == "" || len(p) > 63 || strings.ContainsAny(p, "\x00'\"\\") {
		return nil, fmt.Errorf("publication %q: want 1 to 63 bytes without quotes", p)
	}
	schema, name, err := follow.SplitTable(opts.Table)
	if err != nil {
		return nil, err
	}
	// The parser's own error may quote the DSN, which has the password.
	config, err := pgx.ParseConfig(opts.DSN)
	if err != nil {
		return nil, errors.New("the data source name is neither a URL postgres://user:password@host:port/database nor a list of settings such as host=db")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = timeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "ordergate"
	}
	table := pgx.Identifier{name}
	if schema != "" {
		table = pgx.Identifier{schema, name}
	}
	return &Follower{opts: opts, config: config, table: table, log: opts.Logger}, nil
}

const (
	// patience is how long an answer of the server may take.
	timeout = 5 * time.Second
	// silence is after how long without an answer a connection is dead, to us and, with
	// wal_sender_timeout, to the server: then another may use the slot.
	readTimeout = 10 * time.Second
)

// Follow tells the IDs of all rows that were inserted, or got another ID, in
// transactions after the place from, until ctx ends or an error is permanent. For the
// place "" it first emits the present place with no IDs: what was committed before it
// is for the caller to read from the table, afterwards.
//
// Transactions are told in the order of their commits, each when it was committed,
// and again if the follower or its caller was stopped before the place after them
// was kept. The server keeps what is behind the place that was emitted last. Lost
// connections are made again, forever, and a slot that is in use is waited for. emit
// and caughtUp are called by one goroutine, never at the same time. See
// [follow.ErrGone] and [follow.ErrUnsure] for the errors that a caller can do
// something about; others want a person.
func (f *Follower) Follow(ctx context.Context, from string, emit follow.Emit, caughtUp follow.CaughtUp) error {
	if from != "" {
		if _, err := parseCheckpoint(from); err != nil {
			return f.wrap(fmt.Errorf("%w: %w", follow.ErrGone, err))
		}
	}
	r := &tailer{Follower: f, caughtUp: caughtUp}
	r.batch = follow.NewBatch(emit, func() string { return r.at.String() }, from)
	return f.wrap(follow.Retry(ctx, f.log, f.opts.OnDisconnect, r.session))
}

// wrap says what was being done, unless it was ended by the caller.
func (f *Follower) wrap(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("following the changes of table %s: %w", strings.Join(f.table, "."), err)
}

// replication returns how to connect for the changes.
func (f *Follower) replication() *pgconn.Config {
	config := f.config.Config.Copy()
	config.RuntimeParams["replication"] = "database"
	config.RuntimeParams["wal_sender_timeout"] = fmt.Sprint(readTimeout.Milliseconds())
	return config
}
