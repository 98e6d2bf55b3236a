package command

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestCheckSpellings has columns that take several texts for the same, and rules that take them for
// different orders.
func TestCheckSpellings(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	maria, postgres := bed.MariaDB("--character-set-server=utf8mb4"), bed.Postgres()
	for driver, statements := range map[string][]string{
		"mysql": {
			"CREATE DATABASE shop", "USE shop",
			"CREATE TABLE anycase (id INT PRIMARY KEY, code VARCHAR(40) COLLATE utf8mb4_general_ci)", "INSERT INTO anycase VALUES (1, 'AB-1'), (2, 'CD-2')",
			"CREATE TABLE bytewise (id INT PRIMARY KEY, code VARCHAR(40) COLLATE utf8mb4_bin)", "INSERT INTO bytewise VALUES (1, 'AB-1'), (2, 'CD-2')",
			"CREATE TABLE numbers (id INT PRIMARY KEY, code BIGINT)", "INSERT INTO numbers VALUES (1, 42), (2, 43)",
			"CREATE TABLE uuids (id INT PRIMARY KEY, code CHAR(36))", "INSERT INTO uuids VALUES (1, '123e4567-e89b-12d3-a456-426614174000')",
			"CREATE TABLE tenants (id INT PRIMARY KEY, tenant VARCHAR(40), code BIGINT)", "INSERT INTO tenants VALUES (1, 'acme', 42)",
		},
		"pgx": {
			"CREATE EXTENSION citext", "CREATE COLLATION anymark (provider = icu, locale = 'und-u-ka-shifted', deterministic = false)",
			"CREATE TABLE anycase (id INT PRIMARY KEY, code CITEXT)", "INSERT INTO anycase VALUES (1, 'AB-1'), (2, 'CD-2')",
			"CREATE TABLE bytewise (id INT PRIMARY KEY, code TEXT)", "INSERT INTO bytewise VALUES (1, 'AB-1'), (2, 'CD-2')",
			"CREATE TABLE anymark (id INT PRIMARY KEY, code TEXT COLLATE anymark)", "INSERT INTO anymark VALUES (1, 'AB-1'), (2, 'CD-2')",
			"CREATE TABLE numbers (id INT PRIMARY KEY, code BIGINT)", "INSERT INTO numbers VALUES (1, 42), (2, 43)",
			"CREATE TABLE uuids (id INT PRIMARY KEY, code UUID)", "INSERT INTO uuids VALUES (1, '123e4567-e89b-12d3-a456-426614174000')",
			"CREATE TABLE tenants (id INT PRIMARY KEY, tenant CITEXT, code BIGINT)", "INSERT INTO tenants VALUES (1, 'acme', 42)",
		},
	} {
		dsn := map[string]string{"mysql": maria.DSN(), "pgx": postgres.DSN()}[driver]
		db, err := sql.Open(driver, dsn)
		bedtest.Check(t, err)
		db.SetMaxOpenConns(1)
		for _, s := range statements {
			_, err := db.ExecContext(t.Context(), s)
			bedtest.Check(t, err)
		}
		bedtest.Check(t, db.Close())
	}
	shop := maria.Config()
	shop.DBName = "shop"
	env := map[string]string{"MYSQL": shop.FormatDSN(), "POSTGRES": postgres.DSN()}

	const code = `format: pattern, pattern: "[A-Za-z]{2}-?[0-9]+"`
	const one = ":5: rules[0].id: "
	for _, tt := range []struct {
		name, kinds, table, id, more string // of the rule; or other rules, and another filter
		stderr                       string // "": nothing
	}{
		{"both cases", "mysql", "anycase", code, "", one + `rule settle: column code (varchar(40), collation utf8mb4_general_ci) takes "AA0" and "Aa0" for one order, and the rule for two, with a lock and a place in the filter each: write case: lower in the rule's id (table anycase, sources.db)`},
		{"both cases", "postgres", "anycase", code, "", one + `rule settle: column code (citext, collation pg_catalog."default") takes "AA0" and "Aa0" for one order, and the rule for two, with a lock and a place in the filter each: write case: lower in the rule's id`},
		{"both cases that fold", "mysql postgres", "anycase", code + ", case: upper", "", ""},
		{"one case", "mysql postgres", "anycase", `format: pattern, pattern: "[A-Z]{2}-[0-9]+"`, "", ""},
		{"both cases that differ", "mysql postgres", "bytewise", code, "", ""},
		{"observed", "mysql postgres", "anycase", code, "mode: observe, ", "note: write case: lower in the rule's id"},
		{"a mark", "postgres", "anymark", code, "", `takes "AA0" and "AA-0" for one order, and the rule for two, with a lock and a place in the filter each: let its pattern accept one of them in the rule's id`},
		{"a mark that each has", "postgres", "anymark", `format: pattern, pattern: "[A-Z]{2}-[0-9]+"`, "", ""},
		{"a number in any form", "mysql postgres", "numbers", `format: pattern, pattern: "[0-9]{1,5}"`, "", `takes "0" and "00" for one order`},
		{"text behind a number", "mysql", "numbers", `format: pattern, pattern: "[1-9][0-9]*[a-z]*"`, "", one + `rule settle: column code (bigint(20)) takes "1" and "1a" for one order, and the rule for two, with a lock and a place in the filter each: write format: digits in the rule's id`},
		{"letters behind a number", "postgres", "numbers", `format: pattern, pattern: "[1-9][0-9]*[a-z]*"`, "", ""},
		{"digits", "mysql postgres", "numbers", "format: digits, max: int64", "", ""},
		{"a UUID", "mysql postgres", "uuids", "format: uuid", "", ""},
		{"a UUID as it is", "mysql postgres", "uuids", "format: uuid, case: as_is", "", `takes "00000000-0000-0000-0000-00000000000a" and "00000000-0000-0000-0000-00000000000A" for one order`},
		{"with the lock of a lookup", "mysql", "anycase", code, `, {name: look, match: {methods: [GET], path: "/o/{id}"}, id: {path: id, format: pattern, pattern: "[A-Z-]+[0-9]+"}, lookup: {filter: orders}, settle: {lock: settlement}}`, one + "rule settle: column code"},
		{"with the lock of no lookup", "mysql", "anycase", code, `, {name: look, match: {methods: [GET], path: "/o/{id}"}, id: {path: id, format: pattern, pattern: "[A-Z-]+[0-9]+"}, lookup: {filter: orders}}`, ""},
		{"a part", "mysql postgres", "tenants", `format: digits`, `parts: {tenant: {header: x-tenant, format: pattern, pattern: "[A-Za-z]+"}}, `, `takes "A" and "a" for one order, and the rule for two, with a lock and a place in the filter each: write case: lower in the rule's part`},
	} {
		for kind := range strings.FieldsSeq(tt.kinds) {
			t.Run(tt.name+" "+kind, func(t *testing.T) {
				t.Parallel()
				parts, key, columns, filters, rules := "", "", "", "", ""
				if strings.HasPrefix(tt.more, ", {") {
					filters, rules, tt.more = ", others: {}", tt.more, ""
				}
				if strings.HasPrefix(tt.more, "parts") {
					parts, key, columns = ", parts: [tenant]", "{tenant}:", ", part_columns: {tenant: tenant}"
				}
				file := writeConfig(t, "redis: {mode: embedded}\nfilters: {orders: {sources: [db], verify: off"+parts+"}"+filters+"}\nlocks: {settlement: {key: \"order:"+key+"{id}\"}}\n"+
					"sources: {db: {kind: "+kind+", dsn_env: "+strings.ToUpper(kind)+", table: "+tt.table+", id_column: code, cursor_column: id, ascending: true"+columns+"}}\n"+
					"rules: [{name: settle, match: {methods: [POST], path: \"/o/{id}\"}, "+tt.more+"id: {path: id, "+tt.id+"}, settle: {lock: settlement}}"+rules+"]\n")
				var out, errs strings.Builder
				got := run(t.Context(), []string{"check", "--live", "--config", file}, &out, &errs, func(name string) string { return env[name] })
				want, isNote := strings.CutPrefix(tt.stderr, "note: ")
				code := exitUsage
				if tt.stderr == "" || isNote {
					code = exitDone
				}
				if got != code || !strings.Contains(errs.String(), want) || want == "" && errs.String() != "" {
					t.Errorf("exit code %d, want %d; printed %s, want %s", got, code, errs.String(), want)
				}
			})
		}
	}
}
