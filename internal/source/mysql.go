package source

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// connectLimit bounds a connection where the DSN does not.
	connectLimit = 10 * time.Second
	// statementLimit bounds a statement, on the server. One that takes longer has no
	// index to go by.
	statementLimit = time.Minute
	// answerLimit bounds it here: for a server that is not there any more.
	answerLimit = statementLimit + 5*time.Second
	// applicationName is what we are called in the server's lists.
	applicationName = "ordergate"
)

var errNoAnswer = fmt.Errorf("the server has not answered for %v", answerLimit)

// newMySQL returns how a table in MySQL or MariaDB is opened, and where it is.
func newMySQL(opts TableOptions) (open opener, where string, err error) {
	config, err := parseMySQL(opts.DSN)
	if err != nil {
		return nil, "", err
	}
	schema, table, found := strings.Cut(opts.Table, ".")
	if !found {
		schema, table = config.DBName, opts.Table
	}
	if schema == "" {
		return nil, "", errors.New("no database: name one in the DSN, or the table as database.table")
	}
	return func(ctx context.Context) (conn, *layout, error) {
		c, err := connectMySQL(ctx, config)
		if err != nil {
			return nil, nil, err
		}
		l, err := (&mysqlTable{conn: c, opts: opts, schema: schema, table: table}).describe(ctx)
		if err != nil {
			c.close()
			return nil, nil, err
		}
		return c, l, nil
	}, fmt.Sprintf("%s %q %q", config.Net, config.Addr, schema), nil
}

// parseMySQL takes a DSN in the driver's form, or a mysql:// URL.
func parseMySQL(dsn string) (*mysql.Config, error) {
	// The parser's own words may hold a part of the DSN.
	bad := errors.New("the DSN is none: use user:password@tcp(host:3306)/database or mysql://user:password@host:3306/database")
	var user *url.Userinfo
	if strings.HasPrefix(dsn, "mysql://") {
		u, err := url.Parse(dsn)
		if err != nil || u.Host == "" {
			return nil, bad
		}
		user = u.User
		dsn = "tcp(" + u.Host + ")" + "/" + strings.TrimPrefix(u.EscapedPath(), "/")
		if u.RawQuery != "" {
			dsn += "?" + u.RawQuery
		}
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, bad
	}
	if user != nil {
		config.User = user.Username()
		config.Passwd, _ = user.Password()
	}
	config.Timeout = cmp.Or(config.Timeout, connectLimit)
	config.Logger = &mysql.NopLogger{} // what it has to say is in the errors
	config.InterpolateParams = true    // a number is compared as one, a text as the column's type; one round trip
	config.ParseTime = false           // the text is exact
	config.MultiStatements = false
	config.RejectReadOnly = false
	config.ConnectionAttributes = strings.TrimPrefix(config.ConnectionAttributes+",program_name:"+applicationName, ",")
	return config, config.Apply(mysql.Charset("utf8mb4", ""))
}

// mysqlConn is a connection to MySQL or MariaDB.
type mysqlConn struct {
	db   *sql.DB
	conn *sql.Conn
}

// session makes the connection independent of what the server or the DSN has set.
// Times are those of UTC: in a zone with summer time an hour comes twice.
const session = "SET SESSION time_zone = '+00:00', sql_mode = '', autocommit = 1, "

func connectMySQL(ctx context.Context, config *mysql.Config) (*mysqlConn, error) {
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, errors.New("the DSN has settings that do not fit each other")
	}
	c := &mysqlConn{db: sql.OpenDB(connector)}
	c.db.SetMaxOpenConns(1)
	if err := c.begin(ctx); err != nil {
		c.close()
		return nil, fmt.Errorf("connecting to %s: %w", config.Addr, err)
	}
	return c, nil
}

// begin makes the one connection and sets it up.
func (c *mysqlConn) begin(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerLimit, errNoAnswer)
	defer cancel()
	if c.conn, err = c.db.Conn(ctx); err != nil {
		return mysqlError(ctx, err)
	}
	var version string
	if err := c.conn.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return mysqlError(ctx, err)
	}
	limit := fmt.Sprintf("max_execution_time = %d", statementLimit.Milliseconds())
	if strings.Contains(version, "MariaDB") {
		limit = fmt.Sprintf("max_statement_time = %d", int(statementLimit.Seconds()))
	}
	for _, set := range []string{session + limit, "SET SESSION TRANSACTION READ ONLY"} {
		if _, err := c.conn.ExecContext(ctx, set); err != nil {
			return mysqlError(ctx, err)
		}
	}
	return nil
}

func (c *mysqlConn) close() {
	if c.conn != nil {
		_ = c.conn.Close() // it has answered, or it has gone
	}
	_ = c.db.Close()
}

func (c *mysqlConn) query(ctx context.Context, s *statement, row func([][]byte)) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerLimit, errNoAnswer)
	defer cancel()
	args, err := mysqlArgs(s.args)
	if err != nil {
		return err
	}
	rows, err := c.conn.QueryContext(ctx, s.text, args...)
	if err != nil {
		return mysqlError(ctx, err)
	}
	defer func() { _ = rows.Close() }() // Err has said it
	names, err := rows.Columns()
	if err != nil {
		return mysqlError(ctx, err)
	}
	raw := make([]sql.RawBytes, len(names))
	columns := make([][]byte, len(names))
	into := make([]any, len(names))
	for i := range raw {
		into[i] = &raw[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return mysqlError(ctx, err)
		}
		for i := range raw {
			columns[i] = raw[i]
		}
		row(columns)
	}
	return mysqlError(ctx, rows.Err())
}

// mysqlArgs returns the values as the driver writes them into the statement: a
// number without quotes, or a large one would be compared as a floating-point one.
func mysqlArgs(args []arg) (values []any, err error) {
	for _, a := range args {
		if !a.number {
			values = append(values, a.text)
			continue
		}
		n, err := strconv.ParseInt(a.text, 10, 64)
		if err == nil {
			values = append(values, n)
			continue
		}
		u, err := strconv.ParseUint(a.text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q in a place that was kept is no whole number", a.text)
		}
		values = append(values, u)
	}
	return values, nil
}

// Numbers of the server's errors.
const (
	mysqlTooManyConnections = 1040
	mysqlDatabaseDenied     = 1044
	mysqlDenied             = 1045 // the user, or the password
	mysqlTableDenied        = 1142
	mysqlColumnDenied       = 1143
	mysqlMariaDBTimedOut    = 1969
	mysqlTimedOut           = 3024
)

// tellMySQL returns an error as we say it, nil for nil.
func mysqlError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, mysql.ErrInvalidConn) {
		return fmt.Errorf("the connection was lost: %w", err)
	}
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		switch e.Number {
		case mysqlDenied:
			return fmt.Errorf("the server refuses the user or the password: %w", oneLine(err))
		case mysqlTooManyConnections:
			return fmt.Errorf("the server has no connection to spare: %w", oneLine(err))
		case mysqlTimedOut, mysqlMariaDBTimedOut:
			return fmt.Errorf("a SELECT took longer than %v, is there no index on the cursor column? %w", statementLimit, oneLine(err))
		}
	}
	return oneLine(err)
}
