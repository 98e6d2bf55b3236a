package source

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// confirmer returns a Confirmer of the column order_id of a table.
func (s *server) confirmer(t testing.TB, table string, change func(*ConfirmerOptions)) *Confirmer {
	t.Helper()
	opts := ConfirmerOptions{Timeout: 10 * time.Second, MaxQueries: 4}
	if change != nil {
		change(&opts)
	}
	c, err := NewConfirmer(s.options(table), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// sameUUID is that of a rule with UUIDs.
func sameUUID(text, id string) bool { return strings.ToLower(text) == id }

// existsCase is a column with IDs, some of which exist.
type existsCase struct {
	only    Kind // "": both
	column  string
	rows    []string // SQL literals
	same    func(text, id string) bool
	exist   []string
	missing []string
}

const (
	lowerUUID = "5b6ef3c2-1111-4222-8333-44445555666a"
	upperUUID = "5B6EF3C2-1111-4222-8333-44445555666A"
	otherUUID = "5b6ef3c2-1111-4222-8333-44445555666b"
)

var existsCases = []existsCase{
	{column: "BIGINT", rows: []string{"42", "9223372036854775807", "-7"}, exist: []string{"42", "9223372036854775807", "-7"},
		missing: []string{"43", "042", "4.2e1", "42.0", "ord-42", "42x", "+42", "18446744073709551615", "99999999999999999999"}},
	{column: "SMALLINT", rows: []string{"42"}, exist: []string{"42"}, missing: []string{"40000", "5000000000", "x"}},
	{column: "INTEGER", rows: []string{"42"}, exist: []string{"42"}, missing: []string{"5000000000", "x"}},
	{only: MySQL, column: "BIGINT UNSIGNED", rows: []string{"18446744073709551615"}, exist: []string{"18446744073709551615"}, missing: []string{"18446744073709551614", "-1"}},
	{only: MySQL, column: "INT(5) ZEROFILL", rows: []string{"42"}, exist: []string{"42"}, missing: []string{"00042"}}, // a reader drops the zeros
	{column: "DECIMAL(20,0)", rows: []string{"42", "0", "99999999999999999999"}, exist: []string{"42", "0", "99999999999999999999"},
		missing: []string{"43", "042", "42.0", "999999999999999999999", "x"}},
	{column: "VARCHAR(40)", rows: []string{"'042'", "'ORD-1'", "'pad '", "'42'"}, exist: []string{"042", "ORD-1", "42"},
		missing: []string{"0042", "ord-1", "Ord-1", "pad", "42.0", "4.2e1", "'OR'1'='1", "042'--", "$1", "?", "%", "___", "0x3432"}},
	{column: "CHAR(40)", rows: []string{"'042'", "'ORD-1'"}, exist: []string{"042", "ORD-1"}, missing: []string{"42", "ord-1"}},
	{column: "VARCHAR(40)", rows: []string{"'" + upperUUID + "'"}, same: sameUUID, exist: []string{lowerUUID}, missing: []string{otherUUID}},
	{column: "CHAR(36)", rows: []string{"'" + lowerUUID + "'"}, same: sameUUID, exist: []string{lowerUUID}, missing: []string{otherUUID}},
	{column: "UUID", rows: []string{"'" + upperUUID + "'"}, same: sameUUID, exist: []string{lowerUUID}, missing: []string{otherUUID}},
	{column: "UUID", rows: []string{"'" + upperUUID + "'"}, exist: []string{lowerUUID}, missing: []string{otherUUID, strings.ReplaceAll(lowerUUID, "-", ""), "x", "42"}},
	{column: "DATE", rows: []string{"'2026-01-02'"}, exist: []string{"2026-01-02"}, missing: []string{"2026-01-03", "20260102", "x", "2026-13-02"}},
	{only: MySQL, column: "VARCHAR(40) COLLATE utf8mb4_bin", rows: []string{"'ORD-1'"}, exist: []string{"ORD-1"}, missing: []string{"ord-1"}},
	{only: MySQL, column: "VARCHAR(40) CHARACTER SET latin1", rows: []string{"'ORD-1'"}, exist: []string{"ORD-1"}, missing: []string{"ord-1"}},
	{only: MySQL, column: "VARBINARY(40)", rows: []string{"'ORD-1'"}, exist: []string{"ORD-1"}, missing: []string{"ord-1"}},
	{only: MySQL, column: "BINARY(36)", rows: []string{"'" + lowerUUID + "'"}, exist: []string{lowerUUID}, missing: []string{otherUUID}},
	// A reader gets the sixteen bytes, which are no ID by any rule.
	{only: MySQL, column: "BINARY(16)", rows: []string{"UNHEX('" + strings.ReplaceAll(lowerUUID, "-", "") + "')"}, missing: []string{lowerUUID}},
	{only: MySQL, column: "ENUM('ORD-1', '2')", rows: []string{"'ORD-1'"}, exist: []string{"ORD-1"}, missing: []string{"1", "ord-1", "2", "x"}},
	{only: Postgres, column: "TEXT", rows: []string{"'ORD-1'"}, exist: []string{"ORD-1"}, missing: []string{"ord-1"}},
	{only: Postgres, column: "NUMERIC", rows: []string{"42", "42.50"}, exist: []string{"42", "42.50"}, missing: []string{"42.5", "042", "x"}},
}

// TestElsewhere looks IDs up in the other columns of a table. One has no index, and one a type that no
// ID has.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.exec(t, "CREATE TABLE elsewhere (order_id BIGINT NOT NULL PRIMARY KEY, number VARCHAR(20) UNIQUE, customer INT, free VARCHAR(20), weight FLOAT)",
			"CREATE INDEX by_customer ON elsewhere (customer)", "CREATE INDEX by_weight ON elsewhere (weight)",
			"INSERT INTO elsewhere VALUES (1, '2026001', 71, '81', 1), (2, '2026002', 71, '82', 2), (3, '2026003', 72, '83', 3)")
		opts := s.options("elsewhere")
		opts.CursorColumn = opts.IDColumn
		table, err := NewTable(opts)
		must(t, err)
		for ids, want := range map[string]Found{
			"2026001 2026003 9": {"number", 2, 2},
			"71 72 2026003":     {"customer", 2, 2},
			"81 82 9000 x":      {"", 0, 2},
		} {
			if got, err := table.Elsewhere(t.Context(), strings.Fields(ids)); err != nil || got != want {
				t.Errorf("%s: %+v, %v, want %+v", ids, got, err, want)
			}
		}
	})
}

// TestExistsByType looks orders up in columns of every type, by an index. The texts that a reader
// of the column gets exist, and no others.
func TestExistsByType(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		for i, tt := range existsCases {
			if tt.only != "" && tt.only != s.kind {
				continue
			}
			t.Run(fmt.Sprint(i, " ", tt.column), func(t *testing.T) {
				table := fmt.Sprint("exists_", i)
				s.exec(t, "CREATE TABLE "+table+" (id {key}, order_id "+tt.column+" UNIQUE)")
				for _, row := range tt.rows {
					s.exec(t, "INSERT INTO "+table+" (order_id) VALUES ("+row+")")
				}
				// Rows enough that a plan matters.
				if tt.column == "BIGINT" || tt.column == "TEXT" {
					s.exec(t, "INSERT INTO "+table+" (order_id) SELECT n + 1000000 FROM {1..2000}")
				}
				c := s.confirmer(t, table, func(o *ConfirmerOptions) { o.Same = tt.same })
				if err := c.Check(t.Context()); err != nil {
					t.Error(err)
				}
				for want, ids := range map[bool][]string{true: tt.exist, false: tt.missing} {
					for _, id := range ids {
						if got, err := c.Exists(t.Context(), id); got != want || err != nil {
							t.Errorf("%q exists: %t, %v", id, got, err)
						}
					}
				}
			})
		}
	})
}

// TestExistsUsesTheIndex has a column without an index, and one with.
func TestExistsUsesTheIndex(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.exec(t, "CREATE TABLE plain (id {key}, order_id {text})", "CREATE TABLE keyed (id {key}, order_id {text})",
			"CREATE INDEX keyed_x ON keyed (order_id)", "CREATE VIEW seen AS SELECT * FROM plain", "CREATE VIEW found AS SELECT * FROM keyed")
		for _, rows := range []int{0, 1, 2000} {
			if rows > 0 {
				for _, table := range []string{"plain", "keyed"} {
					s.exec(t, "DELETE FROM "+table, fmt.Sprintf("INSERT INTO %s SELECT n, CONCAT('ord-', n) FROM {1..%d}", table, rows))
				}
			}
			for _, table := range []string{"plain", "seen"} {
				s.wantError(t, s.confirmer(t, table, nil).Check(t.Context()), "no index begins with the ID column order_id")
			}
			for _, table := range []string{"keyed", "found"} {
				if err := s.confirmer(t, table, nil).Check(t.Context()); err != nil {
					t.Errorf("%d rows in %s: %v", rows, table, err)
				}
			}
		}
		log, out := logger()
		c := s.confirmer(t, "plain", func(o *ConfirmerOptions) { o.Logger = log })
		for range 3 {
			if exists, err := c.Exists(t.Context(), "ord-1"); !exists || err != nil {
				t.Errorf("exists: %t, %v", exists, err)
			}
		}
		c.Close()
		if n := strings.Count(out.String(), "no index begins with"); n != 1 {
			t.Errorf("%d warnings, want 1:\n%s", n, out)
		}
	})
}

// TestExistsAmongEquals has rows that the column takes for the same ID.
func TestExistsAmongEquals(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	s := &server{kind: MySQL, dsn: bed.MariaDB().DSN(), bed: bed}
	s.db = openDB(t, s.kind, s.dsn)
	s.exec(t, "CREATE TABLE equals (id {key}, order_id {text}, KEY (order_id))")
	for range maxEqual - 1 {
		s.exec(t, "INSERT INTO equals (order_id) VALUES ('ORD-1')")
	}
	c := s.confirmer(t, "equals", nil)
	want := func(id string, exists bool, words ...string) {
		t.Helper()
		got, err := c.Exists(t.Context(), id)
		if got != exists || (err != nil) != (len(words) > 0) {
			t.Errorf("%q exists: %t, %v", id, got, err)
		} else if err != nil {
			s.wantError(t, err, words...)
		}
	}
	want("ord-1", false)
	want("ORD-1", true)
	s.exec(t, "INSERT INTO equals (order_id) VALUES ('Ord-1')")
	want("ord-1", false, "more than 16 rows")
}

// TestExistsWithoutTheTable has errors for operators.
func TestExistsWithoutTheTable(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.exec(t, "CREATE TABLE there (id {key}, order_id {text})")
		_, err := s.confirmer(t, "gone", nil).Exists(t.Context(), "1")
		s.wantError(t, err, "looking up an order in "+string(s.kind)+" table gone", "column order_id")
		opts := s.options("there")
		opts.IDColumn = "none"
		c, err := NewConfirmer(opts, ConfirmerOptions{Timeout: time.Second, MaxQueries: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Exists(t.Context(), "1")
		s.wantError(t, err, "column none")
		s.wantError(t, c.Check(t.Context()), "checking", "column none")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(fmt.Errorf("gone home"))
		_, err = s.confirmer(t, "there", nil).Exists(ctx, "1")
		s.wantError(t, err, "gone home")
	})
}

// TestExistsReads compares a Confirmer with a reader: each text that a reader gets exists.
func TestExistsReads(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		for i, tt := range existsCases {
			if tt.only != "" && tt.only != s.kind {
				continue
			}
			table := fmt.Sprint("reads_", i)
			s.exec(t, "CREATE TABLE "+table+" (id {key}, order_id "+tt.column+")")
			for _, row := range tt.rows {
				s.exec(t, "INSERT INTO "+table+" (order_id) VALUES ("+row+")")
			}
			opts := s.options(table)
			opts.OnBad = SkipBad
			var ids []string
			if _, err := newTable(t, opts).Read(t.Context(), Position{}, collect(&ids), nil); err != nil {
				t.Errorf("%s: %v", tt.column, err)
			}
			c := s.confirmer(t, table, nil)
			for _, id := range ids {
				if exists, err := c.Exists(t.Context(), id); !exists || err != nil {
					t.Errorf("%s: a reader gets %q, and it exists: %t, %v", tt.column, id, exists, err)
				}
			}
		}
	})
}
