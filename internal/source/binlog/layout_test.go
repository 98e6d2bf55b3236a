package binlog

import (
	"fmt"
	"net"
	"testing"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// TestRefusedLayouts has tables whose rows cannot be read from the log for certain.
func TestRefusedLayouts(t *testing.T) {
	b := startServer(t)
	b.db.SetMaxOpenConns(1) // one session
	b.exec("CREATE TABLE codes (code INT PRIMARY KEY)")
	for name, test := range map[string]struct{ before, table, after, want string }{
		"compressed text":    {table: "(id INT, note TEXT COMPRESSED)", want: "column note is of type text /*m!100301 compressed*/"},
		"compressed varchar": {table: "(note VARCHAR(50) COMPRESSED, id INT)", want: "column note is of type varchar(50)"},
		"compressed ID":      {table: "(id VARCHAR(50) COMPRESSED)", want: "column id is of type varchar(50)"},
		"old time":           {"OFF", "(note TIME(3), id INT)", "ON", "column note is of type time(3)"},
		"old datetime":       {"OFF", "(id INT, note DATETIME)", "ON", "column note is of type datetime"},
		"old timestamp":      {"OFF", "(id INT, note TIMESTAMP(2))", "ON", "column note is of type timestamp(2)"},
		"old times are new":  {"OFF", "(note TIME(3), id INT)", "OFF", "set mysql56_temporal_format=ON"},
		"virtual":            {table: "(n INT PRIMARY KEY, id INT AS (n + 1) VIRTUAL)", want: "column id: it is VIRTUAL"},
		"versioned":          {table: "(id INT) WITH SYSTEM VERSIONING", want: "orders.orders has SYSTEM VERSIONING"},
		"cascade":            {table: "(id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES codes (code) ON UPDATE CASCADE)", want: "column id changes by foreign key orders_ibfk_1 with ON UPDATE CASCADE"},
		"long unique key":    {table: "(id INT, note TEXT UNIQUE)", want: "index note of orders.orders has a hidden column in the log: set binlog_row_metadata=FULL"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, format := range []string{test.before, test.after} {
				if format != "" {
					b.exec("SET GLOBAL mysql56_temporal_format = " + format)
				}
				if format == test.before {
					b.exec("CREATE OR REPLACE TABLE orders " + test.table)
				}
			}
			defer b.exec("SET GLOBAL mysql56_temporal_format = ON")
			start(t, b.options(), "").WantError(nil, test.want, b.Config().Passwd)
		})
	}
}

// TestUnknownCode follows as a user who may not see a column whose values cannot be decoded.
func TestUnknownCode(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE OR REPLACE TABLE orders (note TEXT COMPRESSED, id INT PRIMARY KEY)")
	b.exec("CREATE USER gate@'127.0.0.1' IDENTIFIED BY 'geheim'")
	b.exec("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO gate@'127.0.0.1'")
	b.exec("GRANT SELECT (id) ON orders.orders TO gate@'127.0.0.1'")
	opts := b.options()
	opts.DSN = "gate:geheim@tcp(" + b.Addr() + ")/orders"
	for n, metadata := range []string{"NO_LOG", "FULL"} {
		b.exec("SET GLOBAL binlog_row_metadata = " + metadata)
		f := start(t, opts, "")
		f.WaitCaughtUp()
		b.exec(fmt.Sprintf("INSERT INTO orders VALUES (REPEAT('x', 500), %d)", n))
		f.WantError(follow.ErrUnsure, "column 1 (not shown to the user) has type 140", "geheim")
		if ids := f.IDs(); len(ids) > 0 {
			t.Errorf("it emitted %q", ids)
		}
	}
}

// TestReplicates follows a server that begins to replicate, and does not log what comes so.
func TestReplicates(t *testing.T) {
	primary, b := startServer(t), startServer(t, "--server-id=8", "--skip-log-slave-updates")
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	row, err := primary.db.QueryContext(t.Context(), "SHOW MASTER STATUS")
	if err != nil {
		t.Fatal(err)
	}
	var file, pos string
	for row.Next() {
		if err := row.Scan(&file, &pos, new(string), new(string)); err != nil {
			t.Fatal(err)
		}
	}
	if err := row.Err(); err != nil {
		t.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(primary.Addr())
	b.exec(fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = 'root', MASTER_PASSWORD = '%s', MASTER_LOG_FILE = '%s', MASTER_LOG_POS = %s, MASTER_USE_GTID = no",
		host, port, primary.Config().Passwd, file, pos))
	b.exec("START SLAVE")
	primary.exec("INSERT INTO orders (id) VALUES ('unseen')")
	f.WantError(follow.ErrUnsure, "its log lacks those rows", b.Config().Passwd)
	start(t, b.options(), f.Last()).WantError(follow.ErrUnsure, "log_slave_updates=ON", b.Config().Passwd)
	start(t, b.options(), "").WantError(nil, "log_slave_updates=ON", b.Config().Passwd)
}
