package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ordergate/ordergate/internal/source/dsn"
)

// newPostgres returns the opener of a table in PostgreSQL, and where that is.
func newPostgres(opts TableOptions) (open opener, at location, err error) {
	config, err := parsePostgres(opts.DSN)
	if err != nil {
		return nil, at, err
	}
	return func(ctx context.Context) (conn, *layout, error) {
		c, err := connectPostgres(ctx, config, opts.RereadDSN)
		if err != nil {
			return nil, nil, err
		}
		l, err := (&postgresTable{conn: c, opts: opts}).describe(ctx)
		if err != nil {
			c.close()
			return nil, nil, err
		}
		return c, l, nil
	}, postgresLocation(config, opts.Table), nil
}

// postgresLocation identifies the servers and the database of a table. Without a schema, the table depends on the
// user and on the session's settings.
func postgresLocation(config *pgconn.Config, table string) location {
	servers := []string{fmt.Sprintf("%q:%d", config.Host, config.Port)}
	for _, other := range config.Fallbacks { // with and without TLS
		if s := fmt.Sprintf("%q:%d", other.Host, other.Port); !slices.Contains(servers, s) {
			servers = append(servers, s)
		}
	}
	database := fmt.Sprintf("%q", cmp.Or(config.Database, config.User))
	if !strings.Contains(table, ".") {
		database += fmt.Sprintf(" %q %q %q", config.User, config.RuntimeParams["search_path"], config.RuntimeParams["options"])
	}
	return location{fmt.Sprint(servers), database}
}

func parsePostgres(name string) (*pgconn.Config, error) {
	config, err := pgconn.ParseConfig(name)
	if err != nil {
		// The parser's error may quote a part of the DSN.
		return nil, errors.New("the DSN is malformed, or names a file that cannot be read: use postgres://user:password@host:5432/database or host=HOST user=USER password=PASSWORD dbname=NAME")
	}
	config.ConnectTimeout = min(config.ConnectTimeout, connectLimit)
	for name, value := range map[string]string{
		"client_encoding": "UTF8", "DateStyle": "ISO", "TimeZone": "UTC", "IntervalStyle": "postgres", "bytea_output": "hex",
		"default_transaction_read_only": "on", "statement_timeout": strconv.FormatInt(statementLimit.Milliseconds(), 10),
		// An index that has the order must be used. Estimates that take a large LIMIT for most of
		// the table would prefer a sort.
		"enable_sort": "off",
		// Rows that a policy hides are an error, and do not count as absent.
		"row_security": "off",
		"jit":          "off", // compiling a SELECT of few rows never pays off
	} {
		config.RuntimeParams[name] = value
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = applicationName
	}
	return config, nil
}

// postgresConn is a connection to PostgreSQL.
type postgresConn struct {
	conn     *pgconn.PgConn
	prepared map[string]string // names of prepared statements, by text
}

func connectPostgres(ctx context.Context, config *pgconn.Config, reread func() string) (*postgresConn, error) {
	config = config.Copy()
	config.Password = dsn.PostgresPassword(config, reread)
	c, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, postgresError(ctx, err)
	}
	return &postgresConn{conn: c, prepared: map[string]string{}}, nil
}

// closeLimit bounds closing a connection.
const closeLimit = time.Second

func (c *postgresConn) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = c.conn.Close(ctx) // the connection has no more use
	// After an interrupted statement, the driver cancels it in the background.
	select {
	case <-c.conn.CleanupDone():
	case <-ctx.Done():
	}
}

func (c *postgresConn) query(ctx context.Context, s *statement, row func([][]byte)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerLimit, errNoAnswer)
	defer cancel()
	args := make([][]byte, len(s.args))
	for i, a := range s.args {
		args[i] = []byte(a.text)
	}
	var rows *pgconn.ResultReader
	if s.prepared {
		name, err := c.prepare(ctx, s.text)
		if err != nil {
			return postgresError(ctx, err)
		}
		rows = c.conn.ExecPrepared(ctx, name, args, nil, nil)
	} else {
		rows = c.conn.ExecParams(ctx, s.text, args, nil, nil, nil)
	}
	for rows.NextRow() {
		row(rows.Values())
	}
	_, err := rows.Close()
	return postgresError(ctx, err)
}

// prepare returns the name of a prepared statement. Its parameters have the types of the columns
// that they are compared with.
func (c *postgresConn) prepare(ctx context.Context, text string) (name string, err error) {
	name, ok := c.prepared[text]
	if !ok {
		name = "ordergate_" + strconv.Itoa(len(c.prepared))
		if _, err := c.conn.Prepare(ctx, name, text, nil); err != nil {
			return "", err
		}
		c.prepared[text] = name
	}
	return name, nil
}

// Codes of server errors.
const (
	pgInvalidAuthorization = "28"
	pgTooManyConnections   = "53300"
	pgNoRight              = "42501"
	pgNoTable              = "42P01"
	pgNoColumn             = "42703"
	pgCanceled             = "57014" // by a time limit: we cancel on a separate connection
	pgNoOrder              = "42883"
	pgShutDown             = "57P"

	// pgRowSecurity is the server's function that refuses to apply a policy. The error's code is
	// that of any missing right, and its text is in the server's language.
	pgRowSecurity = "check_enable_rls"
)

// postgresError adds an explanation to an error; nil for nil.
func postgresError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		if _, connecting := errors.AsType[*pgconn.ConnectError](err); !connecting {
			return fmt.Errorf("the connection was lost: %w", oneLine(err))
		}
	case strings.HasPrefix(e.Code, pgShutDown):
		return fmt.Errorf("the connection was lost: %w", oneLine(err))
	case strings.HasPrefix(e.Code, pgInvalidAuthorization):
		return fmt.Errorf("the server refuses the user or the password: %w", oneLine(err))
	case e.Routine == pgRowSecurity:
		return fmt.Errorf("row-level security may hide orders from this user, and they would count as absent: "+
			"give the user BYPASSRLS, or read a view that the table's owner has made: %w", oneLine(err))
	case e.Code == pgTooManyConnections:
		return fmt.Errorf("the server has no connection to spare: %w", oneLine(err))
	case e.Code == pgCanceled:
		return fmt.Errorf("a SELECT took longer than %v, is there no index on the cursor column? %w", statementLimit, oneLine(err))
	}
	return oneLine(err)
}
