// Package binlog follows one table of MariaDB or MySQL by the server's binary log:
// it tells the IDs of rows soon after they were committed.
//
// Start with [New] and [Follower.Follow]. The server must write the log in format
// ROW. What the IDs are for is the caller's affair, and so is reading what the table
// had before.
package binlog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// Options are the settings of a [Follower].
type Options struct {
	// DSN is in the format of github.com/go-sql-driver/mysql, or a URL mysql://...
	follow.Options

	// ServerID is the name by which the server knows this follower among its replicas,
	// which must differ from all of theirs and its own. 0: a number is drawn whenever
	// one is needed, from the upper half of the 2^32 that there are.
	ServerID uint32
}

// Follower follows one table. Follow must be called by one goroutine at a time.
type Follower struct {
	opts   Options
	config *mysql.Config
	table  tableName
	log    *slog.Logger
}

// New returns a follower. It connects to nothing yet.
func New(opts Options) (*Follower, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("following a binary log: %w", err)
	}
	config, err := parseDSN(opts.DSN)
	if err != nil {
		return nil, fmt.Errorf("following a binary log: %w", err)
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
	if config.Timeout == 0 {
		config.Timeout = timeout
	}
	config.ReadTimeout, config.WriteTimeout = timeout, timeout
	config.Logger = &mysql.NopLogger{} // its errors are returned, too
	return &Follower{opts: opts, config: config, table: tableName{schema, name}, log: opts.Logger}, nil
}

// parseDSN takes a data source name in the driver's form, or as a URL. The errors of
// the parsers may quote it, and it has the password.
func parseDSN(dsn string) (*mysql.Config, error) {
	bad := errors.New("the data source name is not of the form user:password@tcp(host:port)/database, or mysql://user:password@host:port/database")
	u := &url.URL{}
	if strings.HasPrefix(dsn, "mysql://") {
		var err error
		if u, err = url.Parse(dsn); err != nil || u.Host == "" {
			return nil, bad
		}
		dsn = "tcp(" + u.Host + ")/" + strings.TrimPrefix(u.EscapedPath(), "/") + "?" + u.RawQuery
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, bad
	}
	if u.User != nil {
		config.User = u.User.Username()
		config.Passwd, _ = u.User.Password()
	}
	return config, nil
}

const (
	// patience is how long an answer of the server may take.
	timeout = 5 * time.Second
	// heartbeat is how often a server that has no changes says so.
	heartbeat = time.Second
	// silence is after how long without changes and heartbeats a connection is dead.
	readTimeout = 10 * time.Second
)

// Follow tells the IDs of all rows that were inserted, or got another ID, in
// transactions after the place from, until ctx ends or an error is permanent. For the
// place "" it first emits the present place with no IDs: what was committed before it
// is for the caller to read from the table, afterwards.
//
// Transactions are told in the order of their commits, each when it was committed,
// and again if the follower or its caller was stopped before the place after them
// was kept. Lost connections are made again, forever. emit and caughtUp are called by
// one goroutine, never at the same time. See [follow.ErrGone] and [follow.ErrUnsure]
// for the errors that a caller can do something about; others want a person.
func (f *Follower) Follow(ctx context.Context, from string, emit follow.Emit, caughtUp follow.CaughtUp) error {
	at := checkpoint{}
	if from != "" {
		var err error
		if at, err = parseCheckpoint(from); err != nil {
			return f.wrap(fmt.Errorf("%w: %w", follow.ErrGone, err))
		}
	}
	asker, err := newServerClient(f.config)
	if err != nil {
		return f.wrap(err)
	}
	defer asker.close()
	r := &tailer{Follower: f, client: asker, caughtUp: caughtUp, at: at}
	r.batch = follow.NewBatch(emit, func() string { return r.at.String() }, from)
	return f.wrap(follow.Retry(ctx, f.log, f.opts.OnDisconnect, r.session))
}

// wrap says what was being done, unless it was ended by the caller.
func (f *Follower) wrap(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("following the changes of table %s: %w", f.table, err)
}

// serverID returns the one that was set, or draws one.
func (f *Follower) serverID() uint32 {
	if f.opts.ServerID != 0 {
		return f.opts.ServerID
	}
	return 1<<31 + rand.Uint32N(1<<31)
}

// dial connects as the driver does that the data source name is for.
func (f *Follower) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, f.config.Timeout)
	defer cancel()
	if f.config.DialFunc != nil {
		return f.config.DialFunc(ctx, f.config.Net, f.config.Addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, f.config.Net, f.config.Addr)
}

// tls returns what the log is to be read with: the same as the driver uses. With
// tls=preferred that depends on the server, which the driver's connection has asked.
func (f *Follower) tls(encrypted bool) *tls.Config {
	if f.config.AllowFallbackToPlaintext && !encrypted {
		return nil
	}
	return f.config.TLS
}

// tableName is the full name of a table, as it is in the log.
type tableName struct{ schema, name string }

func (t tableName) String() string { return t.schema + "." + t.name }
