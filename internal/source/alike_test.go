package source

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/spelling"
)

// TestAlike has columns of many types and collations, and texts that the database finds by another.
func TestAlike(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		if s.kind == Postgres {
			s.exec(t, "CREATE EXTENSION IF NOT EXISTS citext",
				"CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
				"CREATE COLLATION anymark (provider = icu, locale = 'und-u-ks-level2-ka-shifted', deterministic = false)",
				"CREATE COLLATION numbered (provider = icu, locale = 'und-u-kn', deterministic = false)",
				"CREATE DOMAIN code AS citext")
			alikeByIndex(t, s)
		}
		const upper, lower = "123E4567-E89B-12D3-A456-426614174000", "123e4567-e89b-12d3-a456-426614174000"
		for i, tt := range []struct {
			only     Kind
			typ      string
			stored   string
			found    []string // by them
			unfound  []string
			isNumber bool
		}{
			{MySQL, "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", "AB-1", []string{"ab-1", "aB-1"}, []string{"AB1", "AB-01", "AC-1"}, false},
			{MySQL, "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci", "AB-1", []string{"ab-1"}, []string{"AB1"}, false},
			{MySQL, "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "AB-1", nil, []string{"ab-1"}, false},
			{MySQL, "VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_swedish_ci", "AB-1", []string{"ab-1"}, nil, false},
			{MySQL, "VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin", "AB-1", nil, []string{"ab-1"}, false},
			{MySQL, "VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_roman_ci", "IV", []string{"iv", "JU"}, []string{"IW"}, false},
			{MySQL, "CHAR(40) CHARACTER SET utf8mb3 COLLATE utf8mb3_unicode_ci", "AB-1", []string{"ab-1"}, nil, false},
			{MySQL, "VARBINARY(40)", "AB-1", nil, []string{"ab-1"}, false},
			{MySQL, "BIGINT", "42", []string{"042", "42abc"}, []string{"43"}, true},
			{MySQL, "DECIMAL(20,0)", "42", []string{"042", "42.0"}, []string{"43"}, true},
			{MySQL, "UUID", lower, []string{upper}, nil, false},
			{Postgres, "TEXT", "AB-1", nil, []string{"ab-1"}, false},
			{Postgres, "VARCHAR(40)", "AB-1", nil, []string{"ab-1"}, false},
			{Postgres, "CHAR(40)", "AB-1", nil, []string{"ab-1"}, false},
			{Postgres, "CITEXT", "AB-1", []string{"ab-1"}, []string{"AB1"}, false},
			{Postgres, "CODE", "AB-1", []string{"ab-1"}, nil, false},
			{Postgres, "TEXT COLLATE anycase", "AB-1", []string{"ab-1"}, []string{"AB1"}, false},
			{Postgres, "VARCHAR(40) COLLATE anymark", "AB-1", []string{"ab-1", "AB1"}, []string{"AB-2"}, false},
			{Postgres, "TEXT COLLATE numbered", "a7", []string{"a07"}, []string{"A7"}, false},
			{Postgres, "BIGINT", "42", []string{"042"}, []string{"43"}, true},
			{Postgres, "NUMERIC", "42", []string{"042", "42.0"}, []string{"43"}, true},
			{Postgres, "UUID", lower, []string{upper}, nil, false},
		} {
			if tt.only != s.kind {
				continue
			}
			t.Run(tt.typ, func(t *testing.T) {
				name := fmt.Sprint("alike_", i)
				s.exec(t, "CREATE TABLE "+name+" (id {key}, order_id "+tt.typ+")", "INSERT INTO "+name+" (order_id) VALUES ('"+tt.stored+"')")
				table, err := NewTable(s.options(name))
				must(t, err)
				must(t, table.Alike(t.Context(), func(columns []spelling.Column) error {
					a := columns[0]
					if a.Name != "order_id" || a.IsNumber != tt.isNumber {
						t.Errorf("%+v", a)
					}
					for _, other := range slices.Concat(tt.found, tt.unfound) {
						want := slices.Contains(tt.found, other)
						// The table itself finds it, as backends ask.
						rows := s.query(t, "SELECT COUNT(*) FROM "+name+" WHERE order_id = '"+other+"'")
						if found := rows[0] != "0"; found != want {
							t.Errorf("the table finds %s by %s: %v", tt.stored, other, found)
						}
						same, err := a.Same(tt.stored, other)
						if err != nil || same != want {
							t.Errorf("%s and %s are the same: %v, %v", tt.stored, other, same, err)
						}
						if len(other) == len(tt.stored) && !a.IsNumber {
							alike := true
							for k := range other {
								alike = alike && a.Equality.Class[other[k]] == a.Equality.Class[tt.stored[k]]
							}
							if alike != want {
								t.Errorf("%s and %s are alike: %v", tt.stored, other, alike)
							}
						}
					}
					return nil
				}))
			})
		}
	})
}

// alikeByIndex has unique indexes that take IDs in any case for one.
func alikeByIndex(t *testing.T, s *server) {
	t.Helper()
	for i, tt := range []struct {
		typ, index string
		alike      bool
	}{
		{"TEXT", "UNIQUE INDEX ON %s (lower(order_id))", true},
		{"VARCHAR(40)", "UNIQUE INDEX ON %s (id, upper(order_id))", true},
		{"TEXT", "INDEX ON %s (lower(order_id))", false},
		{"TEXT", "UNIQUE INDEX ON %s (lower(order_id)) WHERE id > 5", false},
	} {
		name := fmt.Sprint("folded_", i)
		s.exec(t, "CREATE TABLE "+name+" (id {key}, order_id "+tt.typ+")", "CREATE "+fmt.Sprintf(tt.index, name))
		table, err := NewTable(s.options(name))
		must(t, err)
		must(t, table.Alike(t.Context(), func(columns []spelling.Column) error {
			a := columns[0]
			same, err := a.Same("AB-1", "ab-1")
			other, errOther := a.Same("AB-1", "AB-2")
			if err != nil || errOther != nil || same != tt.alike || other || (a.Equality.Class['A'] == a.Equality.Class['a']) != tt.alike {
				t.Errorf("%s: the same: %v, another: %v, %v, %v", tt.index, same, other, err, errOther)
			}
			return nil
		}))
	}
}

// TestAlikeInTheLog has a table with a warning about it, which is logged once.
func TestAlikeInTheLog(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		s.exec(t, "CREATE TABLE alike (id {key}, order_id VARCHAR(40))")
		var log bytes.Buffer
		opts := s.options("alike")
		opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		asked := 0
		opts.Twins = func(columns []spelling.Column) ([]string, error) {
			asked++
			same, err := columns[0].Same("ab", "AB")
			return []string{fmt.Sprintf("%s: %v", columns[0].Name, same)}, err
		}
		table, err := NewTable(opts)
		must(t, err)
		for range 2 {
			_, err := table.Check(t.Context())
			must(t, err)
		}
		if want := fmt.Sprintf("order_id: %v", s.kind == MySQL); asked != 1 || strings.Count(log.String(), want) != 1 {
			t.Errorf("asked %d times, logged %s, want %s", asked, log.String(), want)
		}
	})
}
