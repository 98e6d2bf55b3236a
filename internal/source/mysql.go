package source

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ordergate/ordergate/internal/source/dsn"
)

const (
	// connectLimit bounds connecting if the DSN does not.
	connectLimit = 10 * time.Second
	// statementLimit bounds a statement on the server. A slower one has no index.
	statementLimit = time.Minute
	// answerLimit bounds a statement here, in case the server is gone.
	answerLimit = statementLimit + 5*time.Second
	// applicationName is the program's name in the server's lists.
	applicationName = "ordergate"
)

var errNoAnswer = fmt.Errorf("the server has not answered for %v", answerLimit)

// newMySQL returns the opener of a table in MySQL or MariaDB, and where that is.
func newMySQL(opts TableOptions) (open opener, at location, err error) {
	config, schema, table, err := parseMySQLTable(opts)
	if err != nil {
		return nil, at, err
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
	}, location{fmt.Sprintf("%s %q", config.Net, config.Addr), fmt.Sprintf("%q", schema)}, nil
}

// parseMySQLTable parses the DSN and the name of a table.
func parseMySQLTable(opts TableOptions) (config *mysql.Config, schema, table string, err error) {
	if config, err = parseMySQL(opts); err != nil {
		return nil, "", "", err
	}
	schema, table, found := strings.Cut(opts.Table, ".")
	if !found {
		schema, table = config.DBName, opts.Table
	}
	if schema == "" {
		return nil, "", "", errors.New("no database: name one in the DSN, or the table as database.table")
	}
	return config, schema, table, nil
}

// parseMySQL parses a DSN in the driver's form, or a mysql:// URL.
func parseMySQL(opts TableOptions) (*mysql.Config, error) {
	config, ok := dsn.MySQL(opts.DSN, opts.RereadDSN)
	if !ok {
		return nil, errors.New("the DSN is malformed: use user:password@tcp(host:3306)/database or mysql://user:password@host:3306/database")
	}
	config.Timeout = cmp.Or(config.Timeout, connectLimit)
	config.Logger = &mysql.NopLogger{} // errors are also returned
	config.InterpolateParams = true    // numbers compare as numbers, texts as the column's type; one round trip
	config.ParseTime = false           // text is exact
	config.MultiStatements = false
	config.RejectReadOnly = false
	config.ConnectionAttributes = strings.TrimPrefix(config.ConnectionAttributes+",program_name:"+applicationName, ",")
	return config, config.Apply(mysql.Charset("utf8mb4", ""))
}

// mysqlConn is a connection to MySQL or MariaDB.
type mysqlConn struct {
	db      *sql.DB
	conn    *sql.Conn
	mariaDB bool
}

// session makes the connection independent of the settings of the server and the DSN. Times are in
// UTC: with daylight saving time an hour would come twice.
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

// begin opens the one connection and sets it up.
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
	c.mariaDB = strings.Contains(version, "MariaDB")
	for _, set := range []string{session + c.limitOf(statementLimit), "SET SESSION TRANSACTION READ ONLY"} {
		if _, err := c.conn.ExecContext(ctx, set); err != nil {
			return mysqlError(ctx, err)
		}
	}
	return nil
}

// limitOf returns the assignment that has the server stop a statement after a time.
func (c *mysqlConn) limitOf(d time.Duration) string {
	if c.mariaDB {
		return fmt.Sprintf("max_statement_time = %g", d.Seconds())
	}
	return fmt.Sprintf("max_execution_time = %d", d.Milliseconds())
}

func (c *mysqlConn) close() {
	if c.conn != nil {
		_ = c.conn.Close() // the connection has no more use
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
	defer func() { _ = rows.Close() }() // Err reports errors
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

// mysqlArgs returns the values as the driver writes them into the statement. An integer comes
// without quotes: a large one in quotes would be compared as a floating-point number.
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
			return nil, fmt.Errorf("%q in a stored position is not an integer", a.text)
		}
		values = append(values, u)
	}
	return values, nil
}

// Codes of server errors.
const (
	mysqlTooManyConnections = 1040
	mysqlDatabaseDenied     = 1044
	mysqlDenied             = 1045 // the user or the password
	mysqlNoColumn           = 1054
	mysqlTableDenied        = 1142
	mysqlColumnDenied       = 1143
	mysqlNoTable            = 1146
	mysqlMariaDBTimedOut    = 1969
	mysqlTimedOut           = 3024
)

// mysqlError adds an explanation to an error; nil for nil.
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
		case mysqlDatabaseDenied:
			return fmt.Errorf("%w; if the database exists, the user needs: GRANT SELECT ON the table", oneLine(err))
		case mysqlTooManyConnections:
			return fmt.Errorf("the server has no connection to spare: %w", oneLine(err))
		case mysqlTimedOut, mysqlMariaDBTimedOut:
			return fmt.Errorf("a SELECT took longer than %v, is there no index on the cursor column? %w", statementLimit, oneLine(err))
		}
	}
	return oneLine(err)
}
