// Package binlog follows one table of MariaDB or MySQL by the server's binary log. It emits the IDs
// of rows soon after they were committed.
//
// Start with [New] and [Follower.Follow]. The server must write its log in format ROW. The caller
// reads the rows that the table had before, and decides what the IDs are for.
package binlog

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ordergate/ordergate/internal/source/dsn"
	"github.com/ordergate/ordergate/internal/source/follow"
)

// Options are the settings of a [Follower].
type Options struct {
	// DSN is in the format of github.com/go-sql-driver/mysql, or a URL mysql://...
	follow.Options

	// ServerID is the ID by which the server knows this follower among its replicas. It must differ
	// from those of all replicas and from the server's own. 0: the follower draws one for each
	// connection, from the upper half of the 2^32 numbers.
	ServerID uint32
}

// Follower follows one table. Follow must be called by one goroutine at a time.
type Follower struct {
	opts   Options
	config *mysql.Config
	table  tableName
	log    *slog.Logger

	spotEvery, spotPatience time.Duration // the constants; tests have shorter ones
}

// New returns a follower. It does not connect yet.
func New(opts Options) (*Follower, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("following a binary log: %w", err)
	}
	config, ok := dsn.MySQL(opts.DSN, opts.RereadDSN)
	if !ok {
		return nil, errors.New("following a binary log: the data source name is not of the form user:password@tcp(host:port)/database, or mysql://user:password@host:port/database")
	}
	schema, name, err := follow.SplitTable(opts.Table)
	if err != nil {
		return nil, fmt.Errorf("following a binary log: %w", err)
	}
	if schema == "" {
		schema = config.DBName
	}
	if schema == "" {
		return nil, fmt.Errorf("following a binary log: table %s: neither it nor the data source name says in which database", name)
	}
	config.Timeout = cmp.Or(config.Timeout, timeout)
	config.ReadTimeout, config.WriteTimeout = timeout, timeout
	config.Logger = &mysql.NopLogger{} // errors are also returned
	return &Follower{opts: opts, config: config, table: tableName{schema, name}, log: opts.Logger, spotEvery: spotEvery, spotPatience: spotPatience}, nil
}

const (
	// timeout bounds the wait for a reply of the server.
	timeout = 5 * time.Second
	// heartbeat is how often an idle server sends a heartbeat.
	heartbeat = time.Second
	// readTimeout is how long a connection may be silent before it counts as dead.
	readTimeout = 10 * time.Second
)

// Follow emits the IDs of all rows that were inserted, or got another ID, in transactions after the
// checkpoint from. It ends with ctx or a permanent error. For the checkpoint "" it first emits the
// present checkpoint without IDs. The caller then reads earlier rows from the table.
//
// Follow emits transactions in the order of their commits, each once it is committed. It emits one
// again if the checkpoint after it was not stored. It reconnects without limit. One goroutine calls
// emit and caughtUp. A caller can handle [follow.ErrGone] and [follow.ErrUnsure]; other errors need
// a person.
func (f *Follower) Follow(ctx context.Context, from string, emit follow.Emit, caughtUp follow.CaughtUp) error {
	at := checkpoint{}
	if from != "" {
		var err error
		if at, err = parseCheckpoint(from); err != nil {
			return f.wrap(fmt.Errorf("%w: %w", follow.ErrGone, err))
		}
	}
	client, err := newServerClient(f.config)
	if err != nil {
		return f.wrap(err)
	}
	defer client.close()
	spotClient, err := f.newSpotClient()
	if err != nil {
		return f.wrap(err)
	}
	defer spotClient.close()
	r := &tailer{Follower: f, client: client, spotClient: spotClient, spot: newSpotCheck(), caughtUp: caughtUp, at: at}
	r.batch = follow.NewBatch(emit, func() string { return r.at.String() }, from)
	return f.wrap(follow.Retry(ctx, f.opts.Options, r.session))
}

func (f *Follower) wrap(err error) error { return follow.Wrap(f.table.String(), err) }

// serverID returns the configured ID, or draws one.
func (f *Follower) serverID() uint32 {
	if f.opts.ServerID != 0 {
		return f.opts.ServerID
	}
	return 1<<31 + rand.Uint32N(1<<31)
}

// dial connects as the driver of the data source name does.
func (f *Follower) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.config.Timeout)
	defer cancel()
	if f.config.DialFunc != nil {
		return f.config.DialFunc(ctx, f.config.Net, f.config.Addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, f.config.Net, f.config.Addr)
}

// tls returns the TLS settings for reading the log: those of the driver. With tls=preferred they
// depend on whether the driver's connection is encrypted.
func (f *Follower) tls(encrypted bool) *tls.Config {
	if f.config.AllowFallbackToPlaintext && !encrypted {
		return nil
	}
	return f.config.TLS
}

// tableName is the full name of a table, as the log has it.
type tableName struct{ schema, name string }

func (t tableName) String() string { return t.schema + "." + t.name }
