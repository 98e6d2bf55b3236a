package binlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-sql-driver/mysql"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// serverClient queries the server for what its log does not contain. It has one connection at most,
// and is safe for concurrent use.
type serverClient struct {
	db *sql.DB
}

func newServerClient(config *mysql.Config) (*serverClient, error) {
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, errors.New("the data source name has options that contradict each other")
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	return &serverClient{db}, nil
}

func (a *serverClient) close() { _ = a.db.Close() } // it only reads

// server is what depends on the server's configuration.
type server struct {
	flavor    string // of package mysql
	name      string // unique among servers, as far as SQL shows
	set       gtids  // transactions logged before the query
	encrypted bool   // the connection uses TLS

	namesColumns bool // the log has the names of columns (binlog_row_metadata=FULL)
	oldTimes     bool // new columns have times in the format of before 5.6
	unlogged     bool // it is a node of Galera, and does not log the rows of the others
}

// logEnd is where a server's log ended when it was queried.
type logEnd struct {
	server   string
	readOnly bool
	unlogged bool // it replicates, and does not log the rows that come so
	file     string
	pos      uint64
}

// describe reads the server's configuration. An unsuitable configuration is a permanent error.
func (a *serverClient) describe(ctx context.Context) (s server, err error) {
	vars, err := a.variables(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name IN "+
		"('version', 'log_bin', 'binlog_format', 'server_uuid', 'gtid_mode', 'gtid_executed', 'gtid_binlog_pos', 'binlog_row_metadata', 'mysql56_temporal_format', 'wsrep_on', 'log_slave_updates')")
	if err != nil {
		return s, err
	}
	if vars["log_bin"] != "ON" {
		return s, follow.Permanent(errors.New("the server writes no binary log; start it with log_bin and binlog_format=ROW"))
	}
	if format := vars["binlog_format"]; format != "ROW" {
		return s, follow.Permanent(fmt.Errorf("the server's binlog_format is %s, which does not record rows; set it to ROW", format))
	}
	status, err := a.variables(ctx, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")
	if err != nil {
		return s, err
	}
	s = server{flavor: gomysql.MySQLFlavor, encrypted: status["Ssl_cipher"] != "",
		namesColumns: vars["binlog_row_metadata"] == "FULL", oldTimes: vars["mysql56_temporal_format"] == "OFF",
		unlogged: vars["wsrep_on"] == "ON" && vars["log_slave_updates"] == "OFF"}
	executed, named := vars["gtid_executed"], vars["gtid_mode"] == "ON"
	if strings.Contains(vars["version"], "MariaDB") {
		s.flavor = gomysql.MariaDBFlavor
		executed, named = vars["gtid_binlog_pos"], true
	}
	if named {
		if s.set, err = parseGTIDs(s.flavor, executed); err != nil {
			return s, err
		}
	}
	return s, explain(a.db.QueryRowContext(ctx, "SELECT "+serverNameSQL(s.flavor)).Scan(&s.name))
}

// serverNameSQL returns the SQL expression for a server's identity. MariaDB has no unique one.
// Mistaking one MariaDB server for another does no harm, since transactions there have GTIDs.
func serverNameSQL(flavor string) string {
	if flavor == gomysql.MariaDBFlavor {
		return "CONCAT(@@global.server_id, '@', @@global.hostname, ':', @@global.port)"
	}
	return "@@global.server_uuid"
}

// logEnd returns where the log ends. Every transaction committed before lies before the end, since
// the server writes the log first.
func (a *serverClient) logEnd(ctx context.Context, flavor string) (e logEnd, err error) {
	// One connection for both queries: a proxy may lead others to different servers.
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return e, explain(err)
	}
	defer func() { _ = conn.Close() }() // returns it to the pool
	unlogged := "0"
	if flavor == gomysql.MariaDBFlavor {
		unlogged = "@@global.log_slave_updates = 0 AND @@global.gtid_slave_pos <> ''"
	}
	err = conn.QueryRowContext(ctx, "SELECT "+serverNameSQL(flavor)+", @@global.read_only NOT IN ('0', 'OFF'), "+unlogged).Scan(&e.server, &e.readOnly, &e.unlogged)
	if err != nil {
		return e, explain(err)
	}
	status, err := showLogEnd(ctx, conn)
	if err != nil {
		return e, explain(err)
	}
	if e.pos, err = strconv.ParseUint(status["Position"], 10, 64); err != nil || status["File"] == "" {
		return e, errors.New("the server does not report the position of its binary log")
	}
	e.file = status["File"]
	return e, nil
}

// checkLogged returns an error if the server does not log the changes of a database.
func (a *serverClient) checkLogged(ctx context.Context, schema string) error {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return explain(err)
	}
	defer func() { _ = conn.Close() }() // returns it to the pool
	status, err := showLogEnd(ctx, conn)
	if err != nil {
		return explain(err)
	}
	has := func(list string) bool { return slices.Contains(strings.Split(list, ","), schema) }
	if do := status["Binlog_Do_DB"]; do != "" && !has(do) || has(status["Binlog_Ignore_DB"]) {
		return follow.Permanent(fmt.Errorf("the server leaves database %s out of its binary log (binlog-do-db or binlog-ignore-db)", schema))
	}
	return nil
}

// showLogEnd returns the row of SHOW MASTER STATUS by column. MySQL 8.4 knows only the new name of
// the statement, MySQL 8.0 only the old one.
func showLogEnd(ctx context.Context, conn *sql.Conn) (map[string]string, error) {
	row, err := queryRow(ctx, conn, "SHOW MASTER STATUS")
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok && e.Number == gomysql.ER_PARSE_ERROR {
		return queryRow(ctx, conn, "SHOW BINARY LOG STATUS")
	}
	return row, err
}

// queryRow returns the first row of a result by column.
func queryRow(ctx context.Context, conn *sql.Conn, query string) (map[string]string, error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err reports errors
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	row := make(map[string]string, len(names))
	if rows.Next() {
		values := make([]sql.NullString, len(names))
		to := make([]any, len(names))
		for i := range values {
			to[i] = &values[i]
		}
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		for i, name := range names {
			row[name] = values[i].String
		}
	}
	return row, rows.Err()
}

// variables returns the result of SHOW VARIABLES or SHOW STATUS.
func (a *serverClient) variables(ctx context.Context, query string) (map[string]string, error) {
	rows, err := a.db.QueryContext(ctx, query)
	if err != nil {
		return nil, explain(err)
	}
	defer func() { _ = rows.Close() }() // Err reports errors
	vars := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		vars[name] = value
	}
	return vars, explain(rows.Err())
}
