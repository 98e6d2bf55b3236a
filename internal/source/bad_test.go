package source

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/orderid"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// noWay refuses an ID that [orderid.Check] accepts.
func noWay(id string) string {
	if id == "no-way" {
		return `"no-way" does not have the form of an order ID`
	}
	return orderid.Check(id)
}

// testBadRows reads rows of orders without a usable ID.
func testBadRows(t *testing.T, s *server) {
	tab := map[Kind]string{MySQL: "CHAR(9)", Postgres: "CHR(9)"}[s.kind]
	s.exec(t,
		"CREATE TABLE bad (id INT PRIMARY KEY, order_id {text})",
		"INSERT INTO bad VALUES (1, 'a'), (2, ''), (3, '"+strings.Repeat("9", orderid.MaxBytes+1)+"'), (4, CONCAT('a', "+tab+")), (5, NULL), "+
			"(6, 'b'), (7, 'no-way'), (8, CONCAT("+tab+", 'x')), (9, '"+strings.Repeat("9", orderid.MaxBytes)+"')",
	)
	long := strings.Repeat("9", orderid.MaxBytes)
	opts := s.options("bad")
	opts.Check = noWay
	opts.OnBad = SkipBad
	log, out := logger()
	opts.Logger = log
	var steps []Step
	opts.Progress = func(s Step) { steps = append(steps, s) }
	want := Report{IDs: 3, Skipped: 6, First: []Bad{
		{"id = 2", "the ID is empty"}, {"id = 3", "an ID of more than 256 bytes"}, {"id = 4", "control characters"},
		{"id = 5", "order_id is NULL"}, {"id = 7", `"no-way" does not have the form of an order ID`},
	}}
	for _, batch := range []int{1, 2, 3, 100} {
		opts.Batch = batch
		var got []string
		report, err := newTable(t, opts).Read(t.Context(), Position{}, collect(&got), nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"a", "b", long}, got); diff != "" {
			t.Error("IDs, -want +got:", diff)
		}
		if diff := cmp.Diff(want, report); diff != "" {
			t.Error("report, -want +got:", diff)
		}
		if last := steps[len(steps)-1]; last.IDs != 3 || last.Done != 9 {
			t.Errorf("progress ended at %+v", last)
		}
	}
	if !strings.Contains(out.String(), "skipped=6") || !strings.Contains(out.String(), "id = 4: control characters") {
		t.Errorf("logged %s", out)
	}

	opts.OnBad, opts.Batch = FailOnBad, 4
	var got []string
	var at Position
	report, err := newTable(t, opts).Read(t.Context(), Position{}, collect(&got), func(p Position) error {
		at = p
		return nil
	})
	s.wantError(t, err, "table bad: 3 rows have no usable order ID: id = 2: the ID is empty; id = 3: an ID of more than 256 bytes; id = 4: control characters")
	if !errors.Is(err, ErrBadRows) || report.Skipped != 3 || !at.zero() {
		t.Errorf("report %+v, position %+v, %v", report, at, err)
	}
	s.exec(t, "DELETE FROM bad WHERE id BETWEEN 2 AND 4")
	_, err = newTable(t, opts).Read(t.Context(), Position{}, collect(&got), nil)
	s.wantError(t, err, `2 rows have no usable order ID: id = 5: order_id is NULL; id = 7: "no-way" does not`)

	if s.kind == MySQL {
		s.exec(t, "CREATE TABLE bin (id INT PRIMARY KEY, order_id VARBINARY(16))", "INSERT INTO bin VALUES (1, UNHEX('FFFE')), (2, 'a')")
		_, err := newTable(t, s.options("bin")).Read(t.Context(), Position{}, collect(&got), nil)
		s.wantError(t, err, "1 rows have no usable order ID: id = 1: not UTF-8")
	}
}

// testNulls reads rows without a position in the order.
func testNulls(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE nul (order_id {text}, made {time})",
		"INSERT INTO nul SELECT CONCAT('ord-', n), '2026-01-01 00:00:00.000001' FROM {1..20}",
		"INSERT INTO nul VALUES ('lost', NULL), (NULL, '2026-01-01 00:00:00.000002'), (NULL, '2025-01-01'), (NULL, NULL)",
	)
	opts := s.options("nul")
	opts.CursorColumn, opts.OnBad, opts.Batch = "made", SkipBad, 3
	var got []string
	report, err := newTable(t, opts).Read(t.Context(), Position{}, collect(&got), nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if want := s.query(t, "SELECT order_id FROM nul WHERE made IS NOT NULL AND order_id IS NOT NULL"); len(got) != 20 || len(want) != 20 || len(slices.Compact(got)) != 20 {
		t.Errorf("%d IDs, want %d", len(got), len(want))
	}
	// The row without both is found twice: without a position, and without an ID.
	text := fmt.Sprint(report.First)
	if report.Skipped != 5 || !strings.Contains(text, `the row with order_id = "lost": made is NULL`) || !strings.Contains(text, "made = 2025-01-01 00:00:00") {
		t.Errorf("report %+v", report)
	}
	opts.OnBad = FailOnBad
	_, err = newTable(t, opts).Read(t.Context(), Position{}, collect(&got), nil)
	s.wantError(t, err, "rows have no usable order ID", "made is NULL")
	_, _, err = newTable(t, opts).Tail(t.Context(), Mark{}, collect(&got), nil)
	s.wantError(t, err, "rows have no usable order ID", "made is NULL")

	s.exec(t, "DELETE FROM nul WHERE made IS NULL OR order_id IS NULL")
	opts.Overlap, opts.Ascending = 1, true
	table := newTable(t, opts)
	var mark Mark
	for mark.Floor.zero() {
		if mark, _, err = table.Tail(t.Context(), mark, collect(&got), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []string{"('lost', NULL)", "(NULL, '2026-01-01 00:00:00.000009')"} {
		s.exec(t, "INSERT INTO nul VALUES "+row)
		if _, _, err := table.Tail(t.Context(), mark, collect(&got), nil); !errors.Is(err, ErrBadRows) {
			t.Errorf("with the row %s: %v", row, err)
		}
		s.exec(t, "DELETE FROM nul WHERE made IS NULL OR order_id IS NULL")
	}
	if _, _, err := table.Tail(t.Context(), mark, collect(&got), nil); err != nil {
		t.Error(err)
	}
}

// testErrors reads what cannot be read.
func testErrors(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE err (id {key}, order_id {text} NOT NULL, made {time}, f DOUBLE PRECISION, doc JSON, body TEXT)",
		"CREATE TABLE secrets (id {key}, order_id {text} NOT NULL)",
		"INSERT INTO err VALUES (1, 'a', NULL, 1, NULL, '')",
	)
	s.user(t, "clerk", "GRANT SELECT ON {schema}err TO {user}")
	s.user(t, "half", "GRANT SELECT (id) ON {schema}err TO {user}")
	s.user(t, "stranger")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close() // no connection is accepted, but the port is taken
	nobody := closed.Addr().String()
	_ = closed.Close()
	for _, tc := range []struct {
		name   string
		change func(*TableOptions)
		want   []string
	}{
		{"unreachable", func(o *TableOptions) { o.DSN = s.dsnAt(t, nobody) }, []string{"connection refused", nobody}},
		{"wrong password", func(o *TableOptions) { o.DSN = s.dsnOf(t, "clerk", "wrong") }, []string{"the server refuses the user or the password", "clerk"}},
		{"no such table", func(o *TableOptions) { o.Table = "none" }, []string{"table none", "exist"}},
		{"no such schema", func(o *TableOptions) { o.Table = "none.err" }, []string{"table none.err", ""}},
		{"no such ID column", func(o *TableOptions) { o.IDColumn = "ordr_id" }, []string{"table err", "columns ordr_id and id", "ordr_id"}},
		{"no such cursor column", func(o *TableOptions) { o.CursorColumn = "idd" }, []string{"columns order_id and idd", "idd"}},
		{"no right to anything", func(o *TableOptions) { o.DSN = s.dsnOf(t, "stranger", "stranger") }, []string{"denied", "the user needs: GRANT SELECT ON "}},
		{"no right to the table", func(o *TableOptions) { o.DSN, o.Table = s.dsnOf(t, "clerk", "clerk"), "secrets" }, []string{"table secrets", "denied", "the user needs: GRANT SELECT ON " + map[Kind]string{MySQL: "`orders`.`secrets`", Postgres: `"secrets"`}[s.kind]}},
		{"no right to a column", func(o *TableOptions) { o.DSN = s.dsnOf(t, "half", "half") }, []string{"table err", "denied", "the user needs: GRANT SELECT ON " + map[Kind]string{MySQL: "`orders`.`err`", Postgres: `"err"`}[s.kind]}},
		{"no exact cursor", func(o *TableOptions) { o.CursorColumn = "f" }, []string{"cursor column f is of type double", "has no "}},
		{"no exact ID", func(o *TableOptions) { o.IDColumn = "f" }, []string{"ID column f is of type double", "has no exact text"}},
		{"a cursor without order", func(o *TableOptions) { o.CursorColumn = "doc" }, []string{"cursor column doc is of type ", "has no order to read by"}},
		{"a long text", func(o *TableOptions) { o.CursorColumn = "body" }, map[Kind][]string{MySQL: {"cursor column body is of type text, which has no order"}}[s.kind]},
	} {
		if tc.want == nil {
			continue // this server can read it
		}
		t.Run(tc.name, func(t *testing.T) {
			opts := s.options("err")
			tc.change(&opts)
			table := newTable(t, opts)
			_, err := table.Check(t.Context())
			s.wantError(t, err, tc.want...)
			_, err = table.Read(t.Context(), Position{}, nil, nil)
			s.wantError(t, err, tc.want...)
			_, _, err = table.Tail(t.Context(), Mark{}, nil, nil)
			s.wantError(t, err, tc.want...)
		})
	}
	opts := s.options("err")
	opts.DSN = s.dsnOf(t, "clerk", "clerk")
	var got []string
	if _, err := newTable(t, opts).Read(t.Context(), Position{}, collect(&got), nil); err != nil || !slices.Equal(got, []string{"a"}) {
		t.Errorf("with no right but to the table: %q, %v", got, err)
	}
	enough := errors.New("enough")
	_, err = newTable(t, opts).Read(t.Context(), Position{}, func(string) error { return enough }, nil)
	if !errors.Is(err, enough) {
		t.Errorf("%v, want yield's error", err)
	}
	_, err = newTable(t, opts).Read(t.Context(), Position{}, collect(&got), func(Position) error { return enough })
	if !errors.Is(err, enough) {
		t.Errorf("%v, want each's error", err)
	}
}

// testRowSecurity reads a table with rows that a policy hides from the user.
func testRowSecurity(t *testing.T, s *server) {
	if s.kind != Postgres {
		return // MySQL has no policies
	}
	s.exec(t,
		"CREATE TABLE hidden (id {key}, order_id {text} NOT NULL)",
		"INSERT INTO hidden SELECT n, CONCAT('ord-', n) FROM {1..20}",
		"CREATE POLICY half ON hidden USING (id % 2 = 0)",
		"CREATE VIEW unhidden AS SELECT * FROM hidden",
	)
	s.user(t, "policed", "GRANT SELECT ON {schema}hidden, {schema}unhidden TO {user}")
	opts := s.options("hidden")
	opts.DSN = s.dsnOf(t, "policed", "policed") + "&row_security=on"
	rows := func() (n int, err error) {
		_, err = newTable(t, opts).Read(t.Context(), Position{}, func(string) error { n++; return nil }, nil)
		return n, err
	}
	want := func(n int) {
		t.Helper()
		if got, err := rows(); err != nil || got != n {
			t.Errorf("%d rows, %v, want %d", got, err, n)
		}
	}
	want(20) // the policy is not enabled
	s.exec(t, "ALTER TABLE hidden ENABLE ROW LEVEL SECURITY")
	const reason = "row-level security may hide orders from this user, and they would count as absent: give the user BYPASSRLS, or read a view that the table's owner has made"
	n, err := rows()
	if s.wantError(t, err, "postgres table hidden", reason, `"hidden"`); n > 0 {
		t.Errorf("%d rows before the error", n)
	}
	_, err = newTable(t, opts).Check(t.Context())
	s.wantError(t, err, reason)
	_, _, err = newTable(t, opts).Tail(t.Context(), Mark{}, func(string) error { return nil }, nil)
	s.wantError(t, err, reason)
	opts.Table = "unhidden"
	want(20)
	opts.Table = "hidden"
	s.exec(t, "ALTER ROLE policed BYPASSRLS")
	want(20)
}

// user creates a user whose password is the name.
func (s *server) user(t *testing.T, name string, grants ...string) {
	t.Helper()
	user, schema := name, "public."
	if s.kind == MySQL {
		user, schema = name+"@'%'", "orders."
		s.exec(t, "CREATE USER "+user+" IDENTIFIED BY '"+name+"'")
	} else {
		s.exec(t, "CREATE ROLE "+user+" LOGIN PASSWORD '"+name+"'")
	}
	for _, grant := range grants {
		s.exec(t, strings.NewReplacer("{user}", user, "{schema}", schema).Replace(grant))
	}
}

// dsnOf returns the DSN of a user.
func (s *server) dsnOf(t *testing.T, user, password string) string {
	t.Helper()
	if s.kind == MySQL {
		config, err := mysql.ParseDSN(s.dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.User, config.Passwd = user, password
		return config.FormatDSN()
	}
	return strings.Replace(s.dsn, "postgres:"+s.secret(t)+"@", user+":"+password+"@", 1)
}

// dsnAt returns the DSN of another server.
func (s *server) dsnAt(t *testing.T, addr string) string {
	t.Helper()
	if s.kind == MySQL {
		config, err := mysql.ParseDSN(s.dsn)
		if err != nil {
			t.Fatal(err)
		}
		config.Addr = addr
		return config.FormatDSN()
	}
	user, rest, _ := strings.Cut(s.dsn, "@")
	_, path, _ := strings.Cut(rest, "/")
	return user + "@" + addr + "/" + path
}

// testWarnings reads tables that cause warnings.
func testWarnings(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE warn (id {key}, order_id {text} NOT NULL UNIQUE, made {time} NOT NULL, u UUID)",
		"INSERT INTO warn VALUES (1, 'a', '2026-01-01', NULL)",
	)
	whole := func(column, kind string) string {
		return "the database does not fill the cursor column " + column + " of type " + kind + " in ascending order, so new rows may appear anywhere: " +
			"catching up reads the whole table. If each new row has a greater " + column + " than all before it, set ascending: true"
	}
	ids := map[Kind][]string{
		MySQL: {"auto_increment_increment is 2: if several servers take writes, rows do not come in the order of id"},
		Postgres: {
			"the sequence of id has CACHE 20: each session uses up its own numbers, so rows do not come in the order of id; use CACHE 1",
			whole("id", "bigint"),
		},
	}[s.kind]
	for _, tc := range []struct {
		name, cursor string
		before       []string
		after        []string
		want         []string
	}{
		{"none", "id", nil, nil, nil},
		{"no index", "made", nil, nil, []string{
			"no index begins with the cursor column made: the whole table is sorted for every batch",
			whole("made", map[Kind]string{MySQL: "datetime(6)", Postgres: "timestamp without time zone"}[s.kind]),
		}},
		{"no order in time", "order_id", nil, nil, []string{whole("order_id", map[Kind]string{MySQL: "varchar(300)", Postgres: "character varying(300)"}[s.kind])}},
		{
			"numbers out of order", "id",
			[]string{map[Kind]string{MySQL: "SET GLOBAL auto_increment_increment = 2", Postgres: "ALTER SEQUENCE warn_id_seq CACHE 20"}[s.kind]},
			[]string{map[Kind]string{MySQL: "SET GLOBAL auto_increment_increment = 1", Postgres: "ALTER SEQUENCE warn_id_seq CACHE 1"}[s.kind]},
			ids,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.exec(t, tc.before...)
			defer s.exec(t, tc.after...)
			opts := s.options("warn")
			opts.CursorColumn = tc.cursor
			log, out := logger()
			opts.Logger = log
			table := newTable(t, opts)
			got, err := table.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("warnings, -want +got:\n%s", diff)
			}
			for range 2 {
				if _, err := table.Read(t.Context(), Position{}, func(string) error { return nil }, nil); err != nil {
					t.Fatal(err)
				}
			}
			if n := strings.Count(out.String(), "\n"); n != len(tc.want) {
				t.Errorf("logged %s", out)
			}
		})
	}
	if s.kind == MySQL {
		s.exec(t, "SET GLOBAL read_only = 1")
		defer s.exec(t, "SET GLOBAL read_only = 0")
		got, err := newTable(t, s.options("warn")).Check(t.Context())
		if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "the server is read-only") {
			t.Errorf("warnings %q, %v", got, err)
		}
	}
}

// testLoad checks the load of a read on the server.
func testLoad(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE manners (id {key}, order_id {text} NOT NULL, note {text})",
		"INSERT INTO manners SELECT n, CONCAT('ord-', n), 'secret' FROM {1..1000}",
	)
	s.user(t, "reader", "GRANT SELECT (id, order_id) ON {schema}manners TO {user}")
	connections := func() string {
		if s.kind == MySQL {
			return s.query(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'reader'")[0]
		}
		return s.query(t, "SELECT COUNT(*) FROM pg_stat_activity WHERE usename = 'reader' AND application_name = 'ordergate'")[0]
	}
	opts := s.options("manners")
	opts.DSN, opts.Batch = s.dsnOf(t, "reader", "reader"), 10
	n := 0
	if _, err := newTable(t, opts).Read(t.Context(), Position{}, func(string) error {
		if n++; n%300 == 0 {
			if got := connections(); got != "1" {
				t.Errorf("%s connections", got)
			}
		}
		return nil
	}, nil); err != nil || n != 1000 {
		t.Errorf("%d IDs, %v", n, err)
	}
	bedtest.Eventually(t, "no connection is left", func() bool { return connections() == "0" })

	// Without the right to read the primary key.
	s.exec(t,
		"CREATE TABLE timed (id {key}, order_id INT NOT NULL, made {time} NOT NULL)",
		"CREATE INDEX timed_made ON timed (made)",
		"INSERT INTO timed SELECT n, n, '2026-01-01' FROM {1..50}",
	)
	s.user(t, "timer", "GRANT SELECT (made, order_id) ON {schema}timed TO {user}")
	opts.DSN, opts.Table, opts.CursorColumn = s.dsnOf(t, "timer", "timer"), "timed", "made"
	var got []string
	if _, err := newTable(t, opts).Read(t.Context(), Position{}, collect(&got), nil); err != nil || len(got) != 50 {
		t.Errorf("%d IDs, %v", len(got), err)
	}

	c, _, err := newTable(t, s.options("manners")).open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	run := func(text string) (values []string, err error) {
		err = c.query(t.Context(), newStatement(s.kind, text), func(columns [][]byte) {
			for _, v := range columns {
				values = append(values, string(v))
			}
		})
		return values, err
	}
	if _, err := run("DELETE FROM manners"); err == nil || !strings.Contains(err.Error(), "read-only") && !strings.Contains(err.Error(), "READ ONLY") {
		t.Errorf("a DELETE: %v, want that it is refused", err)
	}
	settings, want := "SELECT current_setting('statement_timeout'), current_setting('TimeZone')", []string{"1min", "UTC"}
	if s.kind == MySQL {
		settings, want = "SELECT @@max_statement_time + 0, @@time_zone, @@autocommit", []string{"60", "+00:00", "1"}
	}
	if got, err := run(settings); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: %q, %v, want %q", settings, got, err, want)
	}
	limit := map[Kind]string{MySQL: "SET max_statement_time = 0.01", Postgres: "SET statement_timeout = 10"}[s.kind]
	if _, err := run(limit); err != nil {
		t.Fatal(err)
	}
	_, err = run("SELECT COUNT(*) FROM manners a, manners b, manners c")
	s.wantError(t, err, "a SELECT took longer than 1m0s, is there no index on the cursor column?")
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone home")
	cancel(gone)
	if err := c.query(ctx, newStatement(s.kind, "SELECT 1"), func([][]byte) {}); !errors.Is(err, gone) {
		t.Errorf("%v, want the cause", err)
	}
}
