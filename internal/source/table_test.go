package source

import (
	"bytes"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// server is a database of a test.
type server struct {
	kind Kind
	dsn  string
	db   *sql.DB // as its superuser
	proc *testbed.Process
	bed  *bedtest.Bed
}

// servers start a server of each kind.
var servers = []struct {
	kind  Kind
	start func(b *bedtest.Bed) *server
}{
	{MySQL, func(b *bedtest.Bed) *server {
		s := b.MariaDB()
		return &server{dsn: s.DSN(), proc: s.Process}
	}},
	{Postgres, func(b *bedtest.Bed) *server {
		s := b.Postgres()
		return &server{dsn: s.DSN(), proc: s.Process}
	}},
}

// onBoth runs a test on a server of each kind.
func onBoth(t *testing.T, test func(t *testing.T, s *server)) {
	for _, one := range servers {
		t.Run(string(one.kind), func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			s := one.start(bed)
			s.kind, s.bed = one.kind, bed
			s.db = openDB(t, s.kind, s.dsn)
			test(t, s)
		})
	}
}

func openDB(t *testing.T, kind Kind, dsn string) *sql.DB {
	t.Helper()
	var db *sql.DB
	if kind == MySQL {
		config, err := mysql.ParseDSN(dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.Logger = &mysql.NopLogger{} // about servers that are gone
		connector, err := mysql.NewConnector(config)
		if err != nil {
			t.Fatal(err)
		}
		db = sql.OpenDB(connector)
	} else {
		var err error
		if db, err = sql.Open("pgx", dsn); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = db.Close() }) // the server may be gone by then
	return db
}

// connIn returns connections whose default schema is the given one.
func (s *server) connIn(t *testing.T, schema string) *sql.DB {
	t.Helper()
	if s.kind == Postgres {
		return openDB(t, s.kind, s.dsn+"&search_path="+schema)
	}
	config, err := mysql.ParseDSN(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.DBName = schema
	return openDB(t, s.kind, config.FormatDSN())
}

// both translates the words that differ between the two databases.
var both = map[Kind]*strings.Replacer{
	MySQL: strings.NewReplacer(
		"{key}", "BIGINT AUTO_INCREMENT PRIMARY KEY", "{time}", "DATETIME(6)", "{text}", "VARCHAR(300)", "{bytes}", "VARBINARY(300)", "{utf8}", " CHARACTER SET utf8mb4"),
	Postgres: strings.NewReplacer(
		"{key}", "BIGSERIAL PRIMARY KEY", "{time}", "TIMESTAMP", "{text}", "VARCHAR(300)", "{bytes}", "BYTEA", "{utf8}", ""),
}

var numbers = regexp.MustCompile(`\{1\.\.(\d+)\}`)

// sql translates {key}, {time}, {text}, {bytes} and {1..9}, a table of the numbers n.
func (s *server) sql(text string) string {
	series := "(SELECT CAST(seq AS SIGNED) AS n FROM seq_1_to_$1) AS numbers"
	if s.kind == Postgres {
		series = "generate_series(1, $1) AS n"
	}
	return both[s.kind].Replace(numbers.ReplaceAllString(text, series))
}

// exec runs statements.
func (s *server) exec(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := s.db.ExecContext(t.Context(), s.sql(text)); err != nil {
			t.Fatalf("%s: %v", s.sql(text), err)
		}
	}
}

// query returns the first column of a query.
func (s *server) query(t *testing.T, query string) (values []string) {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), s.sql(query))
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }() // Err reports errors
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			t.Fatal(err)
		}
		values = append(values, v)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return values
}

// options are those of a table with order_id and id.
func (s *server) options(table string) TableOptions {
	return TableOptions{Kind: s.kind, DSN: s.dsn, Table: table, IDColumn: "order_id", CursorColumn: "id"}
}

func newTable(t *testing.T, opts TableOptions) *Table {
	t.Helper()
	table, err := NewTable(opts)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// secret returns the password of a DSN.
func (s *server) secret(t *testing.T) string {
	t.Helper()
	if s.kind == MySQL {
		config, err := mysql.ParseDSN(s.dsn)
		if err != nil {
			t.Fatal(err)
		}
		return config.Passwd
	}
	u, err := url.Parse(s.dsn)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	return password
}

// wantError checks an error for users.
func (s *server) wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", words)
		return
	}
	text := err.Error()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("error %q, want %q in it", text, w)
		}
	}
	if strings.ContainsAny(text, "\r\n") || strings.Contains(text, s.secret(t)) {
		t.Errorf("error %q is not one line, or tells the password", text)
	}
}

// logger returns a logger with its output.
func logger() (*slog.Logger, *bytes.Buffer) {
	var out bytes.Buffer
	return slog.New(slog.NewTextHandler(&out, nil)), &out
}

// collect returns a yield that appends to ids.
func collect(ids *[]string) func(string) error {
	return func(id string) error {
		*ids = append(*ids, id)
		return nil
	}
}

// TestTable runs the tests that leave a server unchanged on one server of each kind.
func TestTable(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		for _, suite := range []struct {
			name string
			test func(*testing.T, *server)
		}{
			{"order", testOrder},
			{"parts", testParts},
			{"bad rows", testBadRows},
			{"nulls", testNulls},
			{"errors", testErrors},
			{"row security", testRowSecurity},
			{"warnings", testWarnings},
			{"manners", testLoad},
			{"places", testPositions},
			{"tail", testTail},
			{"tail of another column", testTailOfAnotherColumn},
			{"tail of late commits", testLateCommits},
			{"tail of a shorter table", testShorterTable},
			{"tail of sightings", testBounds},
			{"tail without order", testTailWithoutOrder},
			{"tail of chosen numbers", testChosenNumbers},
			{"counted", testAutoIncrement},
			{"cancel", testCancel},
			{"pace", testRateLimit},
			{"million", testMillion},
		} {
			t.Run(suite.name, func(t *testing.T) { suite.test(t, s) })
		}
	})
}

func TestTableOptions(t *testing.T) {
	good := TableOptions{Kind: MySQL, DSN: "u:hush@tcp(127.0.0.1:1)/d", Table: "orders", IDColumn: "id", CursorColumn: "id"}
	for _, tc := range []struct {
		name   string
		change func(*TableOptions)
		want   string // "": none
	}{
		{"good", func(*TableOptions) {}, ""},
		{"URL", func(o *TableOptions) { o.DSN = "mysql://u:hu%3Ash@127.0.0.1:1/d?tls=false" }, ""},
		{"schema", func(o *TableOptions) { o.Table = "d.orders" }, ""},
		{"all at once", func(o *TableOptions) { *o = TableOptions{Batch: -1, Pause: -1, MaxRate: -1, Overlap: -1, OnBad: "cry"} },
			`kind "": use mysql or postgres; no DSN; table "": use a name, or schema.table; ID column "": use a column's name; ` +
				`cursor column "": use a column's name; batch -1: use 1 to 100000; pause -1ns: use 0 or more; ` +
				`maximal rate -1: use 0 or more; overlap -1ns: use more than 0; on bad rows "cry": use fail or skip`},
		{"dots", func(o *TableOptions) { o.Table = "a.b.c" }, `table "a.b.c"`},
		{"NUL", func(o *TableOptions) { o.Table = "a\x00" }, `table "a\x00"`},
		{"not a DSN", func(o *TableOptions) { o.DSN = "u:hush@127.0.0.1" }, "the DSN is malformed"},
		{"not a URL", func(o *TableOptions) { o.DSN = "mysql://u:hush@127.0.0.1:x/d" }, "the DSN is malformed"},
		{"unknown setting", func(o *TableOptions) { o.DSN += "?parseTime=hush" }, "the DSN is malformed"},
		{"no database", func(o *TableOptions) { o.DSN = "u:hush@tcp(127.0.0.1:1)/" }, "no database"},
		{"not PostgreSQL's", func(o *TableOptions) { o.Kind, o.DSN = Postgres, "postgres://u:hush@127.0.0.1:x/d" }, "the DSN is malformed"},
		{"words", func(o *TableOptions) { o.Kind, o.DSN = Postgres, "host=127.0.0.1 password=hush sslmode=hush" }, "the DSN is malformed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := good
			tc.change(&opts)
			_, err := NewTable(opts)
			switch {
			case tc.want == "" && err != nil, tc.want != "" && err == nil:
				t.Errorf("error %v, want %q", err, tc.want)
			case err != nil && (!strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hush")):
				t.Errorf("error %q, want %q and no password", err, tc.want)
			}
			if err == nil && tc.name == "URL" {
				config, _ := parseMySQL(opts)
				if config.Passwd != "hu:sh" || config.User != "u" || config.DBName != "d" || config.Addr != "127.0.0.1:1" || config.TLSConfig != "false" {
					t.Errorf("the URL means %s", fmt.Sprintf("%+v", config))
				}
			}
		})
	}
}

// TestLocation distinguishes tables of the same name by their DSNs.
func TestLocation(t *testing.T) {
	t.Setenv("PGSERVICEFILE", "")
	for _, tc := range []struct {
		name        string
		kind        Kind
		table, a, b string
		same        bool
	}{
		{"password and settings", MySQL, "orders", "u:hush@tcp(h:3306)/d", "mysql://v:other@h/d?tls=true", true},
		{"server", MySQL, "orders", "u:hush@tcp(h:3306)/d", "u:hush@tcp(i:3306)/d", false},
		{"port", MySQL, "orders", "u:hush@tcp(h:3306)/d", "u:hush@tcp(h:3307)/d", false},
		{"socket", MySQL, "orders", "u:hush@tcp(h:3306)/d", "u:hush@unix(/h)/d", false},
		{"database", MySQL, "orders", "u:hush@tcp(h:3306)/d", "u:hush@tcp(h:3306)/e", false},
		{"database of the session only", MySQL, "d.orders", "u:hush@tcp(h:3306)/d", "u:hush@tcp(h:3306)/e", true},
		{"password and settings", Postgres, "s.orders", "postgres://u:hush@h/d?sslmode=disable", "host=h user=v password=other dbname=d", true},
		{"server", Postgres, "s.orders", "postgres://u:hush@h/d", "postgres://u:hush@i/d", false},
		{"another of several", Postgres, "s.orders", "postgres://u:hush@h,i/d", "postgres://u:hush@h,j/d", false},
		{"port", Postgres, "s.orders", "postgres://u:hush@h/d", "postgres://u:hush@h:5433/d", false},
		{"database", Postgres, "s.orders", "postgres://u:hush@h/d", "postgres://u:hush@h/e", false},
		{"database of the user's name", Postgres, "s.orders", "postgres://u:hush@h", "postgres://v:hush@h", false},
		{"schema of the user's name", Postgres, "orders", "postgres://u:hush@h/d", "postgres://v:hush@h/d", false},
		{"schema", Postgres, "orders", "postgres://u:hush@h/d?search_path=s", "postgres://u:hush@h/d?search_path=t", false},
	} {
		where := func(dsn string) string {
			return newTable(t, TableOptions{Kind: tc.kind, DSN: dsn, Table: tc.table, IDColumn: "id", CursorColumn: "id"}).Location()
		}
		a, b := where(tc.a), where(tc.b)
		if (a == b) != tc.same || strings.Contains(a+b, "hush") || strings.Contains(a+b, "other") {
			t.Errorf("%s, of %s: %s and %s, want the same: %v", tc.name, tc.kind, a, b, tc.same)
		}
	}
}
