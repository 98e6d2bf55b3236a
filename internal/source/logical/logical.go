// Package logical follows one table of PostgreSQL by logical replication. It emits the IDs of rows
// soon after they were committed.
//
// Start with [New] and [Follower.Follow]. The server must run with wal_level=logical. A publication
// selects the changes that the server sends. A replication slot makes the server keep them. The
// follower creates both if they are missing. The caller reads the rows that the table had before,
// and decides what the IDs are for.
package logical

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ordergate/ordergate/internal/lazyregexp"
	"github.com/ordergate/ordergate/internal/source/dsn"
	"github.com/ordergate/ordergate/internal/source/follow"
)

// Options are the settings of a [Follower].
type Options struct {
	// DSN is a URL (postgres://...) or a list of keywords and values.
	follow.Options

	// Publication and Slot are names in the database. They must be set. Each follower needs its own
	// slot, which one connection can use at a time.
	Publication, Slot string
}

// Follower follows one table. Follow must be called by one goroutine at a time.
type Follower struct {
	opts   Options
	config *pgx.ConnConfig
	table  pgx.Identifier
	log    *slog.Logger
}

// slotName matches the slot names that PostgreSQL accepts.
var slotName = lazyregexp.New(`^[a-z0-9_]{1,63}$`)

// New returns a follower. It does not connect yet.
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
	// The parser's error may quote the DSN with its password.
	config, err := pgx.ParseConfig(opts.DSN)
	if err != nil {
		return nil, errors.New("the data source name is neither a URL postgres://user:password@host:port/database nor a list of settings such as host=db")
	}
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, timeout)
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
	// timeout bounds the wait for a reply of the server.
	timeout = 5 * time.Second
	// readTimeout is how long a connection may be silent before it counts as dead: for the
	// follower, and by wal_sender_timeout for the server. Another follower may use the slot then.
	readTimeout = 10 * time.Second
)

// Follow emits the IDs of all rows that were inserted, or got another ID, in transactions after the
// checkpoint from. It ends with ctx or a permanent error. For the checkpoint "" it first emits the
// present checkpoint without IDs. The caller then reads earlier rows from the table.
//
// Follow emits transactions in the order of their commits, each once it is committed. It emits one
// again if the checkpoint after it was not stored. The server keeps the changes after the last
// checkpoint that was emitted. Follow reconnects without limit, and waits for a slot that is in
// use. One goroutine calls emit and caughtUp. A caller can handle [follow.ErrGone] and
// [follow.ErrUnsure]; other errors need a person.
func (f *Follower) Follow(ctx context.Context, from string, emit follow.Emit, caughtUp follow.CaughtUp) error {
	if from != "" {
		if _, err := parseCheckpoint(from); err != nil {
			return f.wrap(fmt.Errorf("%w: %w", follow.ErrGone, err))
		}
	}
	r := &tailer{Follower: f, caughtUp: caughtUp}
	r.batch = follow.NewBatch(emit, func() string { return r.at.String() }, from)
	return f.wrap(follow.Retry(ctx, f.opts.Options, r.session))
}

func (f *Follower) wrap(err error) error { return follow.Wrap(strings.Join(f.table, "."), err) }

// settings returns the settings of a new connection.
func (f *Follower) settings() *pgx.ConnConfig {
	config := f.config.Copy()
	config.Password = dsn.PostgresPassword(&config.Config, f.opts.RereadDSN)
	return config
}

// replication returns the settings of the connection for the changes.
func (f *Follower) replication() *pgconn.Config {
	config := &f.settings().Config
	config.RuntimeParams["replication"] = "database"
	config.RuntimeParams["wal_sender_timeout"] = fmt.Sprint(readTimeout.Milliseconds())
	return config
}
