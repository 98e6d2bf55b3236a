package command

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestCheckSamples holds rows of real tables against rules, and names what a user with few rights
// has misspelt.
func TestCheckSamples(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	maria, postgres, redis := bed.MariaDB("--log-bin", "--binlog-format=ROW"), bed.Postgres(), bed.Redis("--requirepass", "redis-secret")
	statements := []string{
		"CREATE TABLE oc_order (order_id INT NOT NULL PRIMARY KEY, order_no VARCHAR(40) NOT NULL, made INT)",
		"INSERT INTO oc_order SELECT n, CONCAT('156881872850', LPAD(CAST(n AS CHAR(5)), 5, '0')), n FROM (WITH RECURSIVE s AS (SELECT 1 n UNION ALL SELECT n + 1 FROM s WHERE n < 755) SELECT n FROM s) s",
		"CREATE TABLE oc_uuid (id INT NOT NULL PRIMARY KEY, code VARCHAR(40))",
		"INSERT INTO oc_uuid VALUES (1, '123e4567e89b12d3a456426614174000'), (2, NULL)",
		"CREATE TABLE oc_big (id BIGINT NOT NULL PRIMARY KEY)",
		"INSERT INTO oc_big VALUES (1), (99999999999)",
		"CREATE TABLE oc_made (id INT NOT NULL PRIMARY KEY, code CHAR(36) NOT NULL, made TIMESTAMP NOT NULL)",
		"INSERT INTO oc_made SELECT order_id, CONCAT(SUBSTRING('0123456789', 1 + MOD(order_id, 10), 1), order_no), CAST(CONCAT('2026-', LPAD(CAST(1 + MOD(order_id, 12) AS CHAR(2)), 2, '0'), '-03 04:05:06') AS TIME_TYPE) FROM oc_order",
		"CREATE INDEX by_made ON oc_made (made, id)",
		"CREATE INDEX by_code ON oc_made (code, id)",
		"CREATE TABLE oc_upper (id INT NOT NULL PRIMARY KEY, code VARCHAR(40) NOT NULL)",
		"INSERT INTO oc_upper VALUES (1, '123E4567-E89B-12D3-A456-426614174000'), (2, '00000000-0000-0000-0000-000000000000')",
		"CREATE TABLE oc_secret (id BIGINT NOT NULL PRIMARY KEY)",
	}
	db, err := sql.Open("mysql", maria.DSN())
	bedtest.Check(t, err)
	db.SetMaxOpenConns(1)
	for _, s := range append([]string{"CREATE DATABASE shop", "USE shop"}, append(statements,
		"CREATE USER few@'%' IDENTIFIED BY 'db-secret'", "GRANT SELECT ON shop.oc_order TO few@'%'", "GRANT SELECT ON shop.oc_uuid TO few@'%'")...) {
		_, err := db.ExecContext(t.Context(), strings.Replace(s, "TIME_TYPE", "DATETIME", 1))
		bedtest.Check(t, err)
	}
	bedtest.Check(t, db.Close())
	pg, err := sql.Open("pgx", postgres.DSN())
	bedtest.Check(t, err)
	for _, s := range statements {
		_, err := pg.ExecContext(t.Context(), strings.Replace(s, "TIME_TYPE", "TIMESTAMP", 1))
		bedtest.Check(t, err)
	}
	bedtest.Check(t, pg.Close())
	shop, few := maria.Config(), maria.Config()
	shop.DBName, few.DBName, few.User, few.Passwd = "shop", "shop", "few", "db-secret"
	env := map[string]string{"MYSQL": shop.FormatDSN(), "POSTGRES": postgres.DSN(), "FEW": few.FormatDSN(), "PW": "wrong"}

	dir := t.TempDir()
	csv := func(name, text string) string {
		path := filepath.Join(dir, name)
		bedtest.Check(t, os.WriteFile(path, []byte(text), 0o600))
		return "{kind: csv, path: " + path + "}"
	}
	table := func(name, column string) string {
		return "table: " + name + ", id_column: " + column + ", cursor_column: " + column + ", ascending: true}"
	}
	const number, lookup = "{query: order_id}", "{path: id}"
	for _, tt := range []struct {
		name, source, lookup, settle string
		stdout, stderr               string // parts, separated by ...; "" is none
		code                         int
	}{
		{"numbers", table("oc_order", "order_id"), "{path: id, max: int32}", "{query: order_id, max: 2147483647}",
			"sources.db: rule lookup sees 1, ..., ... in table oc_order\nsources.db: rule settle sees 1, ", "", exitDone},
		{"wider numbers", table("oc_order", "order_id"), "{path: id, max: int32}", number, "rule settle sees 1, ",
			":9: rules[1].id: the ID column order_id of type int... holds no number above 2147483647, and the rule accepts larger ones, which a backend may read as the number of an order: set max: int32 in the rule's id", exitDone},
		{"a rule with short numbers", table("oc_order", "order_id"), lookup, "{query: order_id, max_length: 2}", "rule lookup sees",
			`:9: rules[1].id: rule settle refuses the ID of a row of table oc_order (sources.db): order_id is "..." where order_id = ...; the rule accepts 1 to 2 digits without a leading zero`, exitUsage},
		{"the primary key in place of the number", table("oc_order", "order_id"), "{path: id, format: timestamped, min_length: 17, time: {epoch: ms}}", number, "rule settle sees",
			`:5: rules[0].id: rule lookup refuses the ID of a row of table oc_order (sources.db): order_id is "1" where order_id = 1; the rule accepts 17 to 19 digits with a time in ms since 1970`, exitUsage},
		{"the number", table("oc_order", "order_no"), "{path: id, format: timestamped, min_length: 17, time: {epoch: ms}}", number, "rule lookup sees 15688187285000001, 15688187285", ":4: sources.db: no index begins with the cursor column order_no", exitDone},
		{"above max", table("oc_big", "id"), "{path: id, max: int32}", number, "rule settle sees 1, ", `:5: rules[0].id: rule lookup refuses...id is "99999999999" where id = 99999999999; the rule accepts 1 to 19 digits without a leading zero, at most 2147483647`, exitUsage},
		{"another spelling", "table: oc_uuid, id_column: code, cursor_column: id, ascending: true, on_bad: skip}", "{path: id, format: uuid}", "{query: order_id, format: uuid}", "", `:5: rules[0].id: ...code is "123e4567e89b12d3a456426614174000" where id = 1; the rule accepts a UUID`, exitUsage},
		{"upper case", "table: oc_upper, id_column: code, cursor_column: id, ascending: true}", "{path: id, format: uuid, case: upper}", "{query: order_id, format: uuid}", "rule lookup sees 123E4567-E89B-12D3-A456-426614174000",
			`:9: rules[1].id: the IDs of table oc_upper (sources.db) are in another case than the names of rule settle: 123E4567-E89B-12D3-A456-426614174000 in the table is 123e4567-e89b-12d3-a456-426614174000 in locks and filters, where another service may look for 123E4567-E89B-12D3-A456-426614174000; set case: upper in the rule's id`, exitDone},
		{"no ID", "table: oc_uuid, id_column: code, cursor_column: id, ascending: true}", "{path: id}", number, "", `:4: sources.db: table oc_uuid has no usable order ID in the row with id = 2: code is NULL`, exitUsage},
		{"a time as cursor", "table: oc_made, id_column: id, cursor_column: made, ascending: true}", "{path: id, max: int32}", "{query: order_id, max: int32}", "rule lookup sees", "", exitDone},
		{"a text as cursor", "table: oc_made, id_column: id, cursor_column: code, ascending: true}", "{path: id, max: int32}", "{query: order_id, max: int32}", "rule lookup sees", "", exitDone},
		{"no rows", table("oc_secret", "id"), lookup, number, "sources.db: table oc_secret has no rows\n", "", exitDone},
		{"the prefix forgotten", table("order", "order_id"), lookup, number, "", "did you mean the table oc_order instead of order?", exitFailed},
		{"another column", table("oc_order", "id"), lookup, number, "", "did you mean the column order_id instead of id?", exitFailed},
	} {
		for _, kind := range []string{"mysql", "postgres"} {
			t.Run(tt.name+" "+kind, func(t *testing.T) {
				source := "{kind: " + kind + ", dsn_env: " + strings.ToUpper(kind) + ", " + tt.source
				checkSamples(t, env, source, tt.lookup, tt.settle, tt.stdout, tt.stderr, tt.code)
			})
		}
	}
	for _, tt := range []struct{ name, source, stdout, stderr string }{
		{"few rights, the prefix forgotten", "{kind: mysql, dsn_env: FEW, " + table("order", "order_id"), "", "SELECT command denied...; did you mean the table oc_order instead of order?; if the table and its columns exist, the user needs: GRANT SELECT ON `shop`.`order`"},
		{"few rights, another table", "{kind: mysql, dsn_env: FEW, " + table("bestellung", "id"), "", "; there is no table bestellung that the user may read, only oc_order, oc_uuid; if the table"},
		{"few rights, another column", "{kind: mysql, dsn_env: FEW, " + table("oc_order", "nr"), "", "there is no column nr that the user may read, only made, order_id, order_no"},
		{"a file", csv("good.csv", "1\n2\n3\n4\n"), "sources.db: rule lookup sees 1, 3, 4 in file", ""},
		{"an empty file", csv("empty.csv", ""), "", "it is empty"},
		{"a file with a header alone", csv("header.csv", "order_id\n"), "has no rows", "header.csv has no orders: ordergate refuses every order that it has not learned"},
		{"a cut file", csv("cut.csv", "1001\n1002\n10"), "", "line 3 has no line end"},
		{"a file of another kind", csv("other.csv", "a,b\nc,d\n"), "", "none of 2 lines has an order ID"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code := exitDone
			if tt.stderr != "" && tt.stdout == "" {
				code = exitFailed
			}
			checkSamples(t, env, tt.source, lookup, number, tt.stdout, tt.stderr, code)
		})
	}
	t.Run("no password", func(t *testing.T) {
		file := writeConfig(t, "redis: {addresses: ["+redis.Addr()+"]}\nfilters: {orders: {}}\nlocks: {settlement: {}}"+liveRules)
		_, _, stderr := command(t.Context(), "check", "--live", "--config", file)
		if !strings.Contains(stderr, ":1: redis: it is reachable, and asks for a password: set redis.password_file or redis.password_env: NOAUTH") {
			t.Error(stderr)
		}
	})
}

// checkSamples runs check --live on a source and two rules.
func checkSamples(t *testing.T, env map[string]string, source, lookup, settle, stdout, stderr string, code int) {
	t.Helper()
	file := writeConfig(t, "redis: {mode: embedded}\nfilters: {orders: {sources: [db]}}\nlocks: {settlement: {}}\nsources: {db: "+source+"}\nrules: [{name: lookup, match: {methods: [GET], path: \"/o/{id}\"}, id: "+lookup+
		",\n\n lookup: {filter: orders}},\n\n {name: settle, match: {methods: [POST], path: /pay}, id: "+settle+",\n settle: {lock: settlement}}]\n")
	var out, errs strings.Builder
	got := run(t.Context(), []string{"check", "--live", "--config", file}, &out, &errs, func(name string) string { return env[name] })
	if got != code || stderr == "" && errs.String() != "" {
		t.Errorf("exit code %d, want %d; printed %s", got, code, errs.String())
	}
	for _, pair := range [][2]string{{out.String(), stdout}, {errs.String(), stderr}} {
		for part := range strings.SplitSeq(pair[1], "...") {
			if !strings.Contains(pair[0], part) {
				t.Errorf("printed %q, want %q", pair[0], part)
			}
		}
		if strings.Contains(pair[0], "secret@") || strings.Contains(pair[0], "db-secret") {
			t.Errorf("%q has a secret", pair[0])
		}
	}
}
