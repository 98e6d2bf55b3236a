package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// compareViolations compares what is wrong with a file with whole lines; nil wants it
// accepted.
func compareViolations(t *testing.T, file string, e env, want []string) {
	t.Helper()
	if want == nil {
		if err := mustParse(t, file, e).Validate(); err != nil {
			t.Errorf("accepted, then refused: %v", err)
		}
		return
	}
	if diff := cmp.Diff(want, violations(t, file, e)); diff != "" {
		t.Errorf("unexpected violations (-want +got):\n%s", diff)
	}
}

// TestTables has a case for each rule about tables.
func TestTables(t *testing.T) {
	const needed = "dsn_env: ORDERS_DSN, table: orders, id_column: order_id"
	mysql := func(more string) string { return "{kind: mysql, " + needed + more + "}" }
	postgres := func(more string) string { return "{kind: postgres, " + needed + more + "}" }
	long := strings.Repeat("a", 64)
	wide := strings.Repeat("ä", 32) // 64 bytes
	for _, tt := range []struct {
		name, source string
		want         []string // behind "f.yaml:2: sources.db"; nil: accepted
	}{
		{"the least", mysql(""), nil},
		{"the least of the other", postgres(""), nil},
		{"by its other name", "{kind: mariadb, follow: binlog, " + needed + "}", nil},
		{"the other by its other name", "{kind: postgresql, follow: logical, " + needed + "}", nil},
		{"all", mysql(", cursor_column: id, batch: 10, pause: 1m, max_rate: 10_000_000, on_bad: skip, overlap: 24h, follow: poll, every: 100ms"), nil},
		{"all, the other ends", mysql(", batch: 100_000, pause: 0, max_rate: 0, overlap: 1s, follow: poll, every: 1h, grace: 0"), nil},
		{"binlog", mysql(", follow: binlog, server_id: 1"), nil},
		{"logical", postgres(", follow: logical, slot: a_1, publication: A b"), nil},
		{"a schema", "{kind: postgres, dsn_env: ORDERS_DSN, table: shop.Order Items, id_column: Größe}", nil},

		{"nothing", "{kind: mysql}", []string{
			": id_column is missing: give the name of the column with the order IDs",
			": does not name the database: give one of dsn_file, dsn_env",
			": table is missing: give the name of the table, or schema.table",
		}},
		{"empty", `{kind: postgres, dsn_env: "", table: "", id_column: "", cursor_column: ""}`, []string{
			".id_column: is empty: give the name of the column with the order IDs",
			": does not name the database: give one of dsn_file, dsn_env",
			".table: is empty: give the name of the table, or schema.table",
			`.cursor_column: "" is not the name of a column: names are 1 to 63 bytes that can be printed`,
		}},
		{"two places of the DSN", mysql(", dsn_file: b"), []string{".dsn_env: excludes dsn_file: give one of the two"}},
		{"a DSN for a name", "{kind: mysql, dsn_env: 'u:hunter2@tcp(a)/b', table: t, id_column: id}", []string{".dsn_env: is not the name of an environment variable: names are letters, digits and _"}},
		{"a DSN that is not there", "{kind: mysql, dsn_env: NO_DSN, table: t, id_column: id}", []string{".dsn_env: the variable of this name is not set or is empty: put the data source name there"}},
		{"a DSN in no file", "{kind: mysql, dsn_file: testdata/none, table: t, id_column: id}", []string{".dsn_file: reading the data source name: no such file or directory"}},
		{"a path", mysql(", path: ids.csv"), []string{".path: is for kind csv only: set it, or remove this"}},
		{"no path", mysql(`, path: ""`), []string{".path: is for kind csv only: set it, or remove this"}},

		{"names of three parts", "{kind: mysql, dsn_env: ORDERS_DSN, table: a.b.c, id_column: id}", []string{`.table: "a.b.c" is not the name of a table, or schema.table: names are 1 to 64 characters that can be printed`}},
		{"a name of no parts", "{kind: mysql, dsn_env: ORDERS_DSN, table: a., id_column: id}", []string{`.table: "a." is not the name of a table, or schema.table: names are 1 to 64 characters that can be printed`}},
		{"a table with a NUL", `{kind: mysql, dsn_env: ORDERS_DSN, table: "a\0", id_column: id}`, []string{`.table: "a\x00" is not the name of a table, or schema.table: names are 1 to 64 characters that can be printed`}},
		{"a column with a line break", `{kind: mysql, dsn_env: ORDERS_DSN, table: a, id_column: "a\nb"}`, []string{`.id_column: "a\nb" is not the name of a column: names are 1 to 64 characters that can be printed`}},
		{"the longest names", mysql(", cursor_column: " + long), nil},
		{"the longest names in characters", mysql(", cursor_column: " + wide + wide), nil},
		{"a longer name", mysql(", cursor_column: " + long + "a"), []string{`.cursor_column: "` + long[:60] + `"... is not the name of a column: names are 1 to 64 characters that can be printed`}},
		{"the longest name of the other", postgres(", cursor_column: " + long[1:]), nil},
		{"a longer name of the other", postgres(", cursor_column: " + wide), []string{`.cursor_column: "` + wide[:60] + `"... is not the name of a column: names are 1 to 63 bytes that can be printed`}},

		{"below each range", mysql(", batch: 9, pause: -1s, max_rate: -1, overlap: 999ms, follow: poll, every: 99ms, grace: -1s"), []string{
			".batch: 9 is out of range: 10 to 100000 are allowed",
			".pause: -1s is out of range: 0s to 1m are allowed",
			".max_rate: -1 is out of range: 0 to 10000000 are allowed",
			".overlap: 999ms is out of range: 1s to 24h are allowed",
			".every: 99ms is out of range: 100ms to 1h are allowed",
			".grace: -1s is out of range: 0s to 24h are allowed",
		}},
		{"above each range", mysql(", batch: 100_001, pause: 61s, max_rate: 10_000_001, overlap: 25h, follow: poll, every: 61m, grace: 25h"), []string{
			".batch: 100001 is out of range: 10 to 100000 are allowed",
			".pause: 1m1s is out of range: 0s to 1m are allowed",
			".max_rate: 10000001 is out of range: 0 to 10000000 are allowed",
			".overlap: 25h is out of range: 1s to 24h are allowed",
			".every: 1h1m is out of range: 100ms to 1h are allowed",
			".grace: 25h is out of range: 0s to 24h are allowed",
		}},
		{"zeros", mysql(", batch: 0, overlap: 0s, follow: binlog, server_id: 0"), []string{
			".batch: 0 is out of range: 10 to 100000 are allowed",
			".overlap: 0s is out of range: 1s to 24h are allowed",
			".server_id: 0 is out of range: 1 to 4_294_967_295 are allowed",
		}},
		{"another word for bad rows", mysql(", on_bad: warn"), []string{`.on_bad: "warn" is not one of fail, skip`}},

		{"another way to follow", mysql(", follow: cdc"), []string{`.follow: "cdc" is not one of none, poll, binlog`}},
		{"the other's way", mysql(", follow: logical, slot: a"), []string{".follow: logical is for kind postgres only: choose none, poll, binlog"}},
		{"the other's way of the other", postgres(", follow: binlog, server_id: 1"), []string{".follow: binlog is for kind mysql only: choose none, poll, logical"}},
		{"keys of no way", postgres(", every: 1s, server_id: 1, slot: a, publication: b"), []string{
			".every: is for follow poll only: set it, or remove this",
			".server_id: is for follow binlog only: set it, or remove this",
			".slot: is for follow logical only: set it, or remove this",
			".publication: is for follow logical only: set it, or remove this",
		}},
		{"keys of another way", mysql(", follow: binlog, every: 0s"), []string{".every: is for follow poll only: set it, or remove this"}},
		{"keys of a way that was not understood", postgres(", follow: [logical], slot: a"), []string{".follow: is a list: it has to be text"}},
		{"names of the other that it does not take", postgres(", follow: logical, slot: A-b, publication: ''"), []string{
			`.publication: "" is not the name of a publication: names are 1 to 63 bytes that can be printed`,
			`.slot: "A-b" is not the name of a slot: give 1 to 63 of a-z, 0-9 and _`,
		}},
		{"keys of tables", "{kind: csv, path: a, " + needed + ", cursor_column: a, batch: 0, pause: 0s, max_rate: 0, on_bad: skip, overlap: 1s, follow: none, every: 1s, grace: 0s, server_id: 0, slot: a, publication: a}", []string{
			".dsn_env: is for kinds mysql and postgres only: set one of them, or remove this",
			".table: is for kinds mysql, postgres and kafka only: set one of them, or remove this",
			".id_column: is for kinds mysql and postgres only: set one of them, or remove this",
			".cursor_column: is for kinds mysql and postgres only: set one of them, or remove this",
			".batch: is for kinds mysql and postgres only: set one of them, or remove this",
			".pause: is for kinds mysql and postgres only: set one of them, or remove this",
			".max_rate: is for kinds mysql and postgres only: set one of them, or remove this",
			".on_bad: is for kinds mysql and postgres only: set one of them, or remove this",
			".overlap: is for kinds mysql and postgres only: set one of them, or remove this",
			".follow: is for kinds mysql and postgres only: set one of them, or remove this",
			".every: is for kinds mysql and postgres only: set one of them, or remove this",
			".grace: is for kinds mysql and postgres only: set one of them, or remove this",
			".server_id: is for kinds mysql and postgres only: set one of them, or remove this",
			".slot: is for kinds mysql and postgres only: set one of them, or remove this",
			".publication: is for kinds mysql and postgres only: set one of them, or remove this",
		}},
		{"a DSN of a file", "{kind: csv, path: a, dsn_env: NO_DSN}", []string{".dsn_env: is for kinds mysql and postgres only: set one of them, or remove this"}},
		{"keys of no kind", "{kind: oracle, " + needed + ", path: a}", []string{`.kind: "oracle" is not one of csv, mysql, postgres, kafka`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want []string
			for _, text := range tt.want {
				want = append(want, "f.yaml:2: sources.db"+text)
			}
			compareViolations(t, "sources:\n  db: "+tt.source+"\n", env{"ORDERS_DSN": "somewhere"}, want)
		})
	}
}

// TestFeeds has sources of kind kafka. The filter has the table of the orders, too.
func TestFeeds(t *testing.T) {
	const redis, needed = "redis: {addresses: [a:1]}\n", "kind: kafka, brokers: ['a:9092'], topic: orders"
	feed := func(keys string) string { return "{" + needed + ", format: canal-json, id: order_id" + keys + "}" }
	for _, tt := range []struct {
		name, source string
		want         []string
	}{
		{"least", feed(""), nil},
		{"all keys", feed(", table: shop.orders, tls: {}, username: u, password_env: P, mechanism: scram-sha-512"), nil},
		{"a path", "{" + needed + ", format: json, id: order.id}", nil},
		{"nothing", "{kind: kafka}", []string{
			": brokers is missing: give the address of one Kafka server or more, such as [10.0.0.1:9092]",
			": topic is missing: give the name of the topic", ": format is missing: give the format of the messages: canal-json, debezium or json",
			": id is missing: give the column with the order IDs, or the path of the member in format json",
		}},
		{"no format", "{" + needed + ", format: avro, id: a}", []string{`.format: "avro" is not one of canal-json, debezium, json`}},
		{"no brokers", "{kind: kafka, brokers: [a, 'unix:/b', 'c:0'], topic: t, format: json, id: a}", []string{
			`.brokers[0]: "a" is not host:port or unix:/path`, `.brokers[1]: "unix:/b" is a socket: Kafka takes host:port`,
			`.brokers[2]: "c:0" has no valid port: 1 to 65535 are allowed`,
		}},
		{"no topic", "{kind: kafka, brokers: ['a:1'], topic: a b, format: json, id: a}", []string{`.topic: "a b" is not the name of a topic: names are 1 to 249 letters, digits, dots, - and _`}},
		{"no path", "{" + needed + ", format: json, id: a..b, table: t}", []string{
			`.id: "a..b" is not the path of a member: give names with dots between them, 256 bytes at most`,
			".table: is for formats canal-json and debezium, whose messages name their table: remove this",
		}},
		{"no login", feed(", username: u"), []string{": username needs a password: give password_file or password_env"}},
		{"a login of nobody", feed(", password_env: P"), []string{".password_env: is for username only: set it, or remove this"}},
		{"a key of tables", feed(", cursor_column: a"), []string{".cursor_column: is for kinds mysql and postgres only: set one of them, or remove this"}},
		{"half a certificate", feed(", tls: {cert: a}"), []string{".tls.cert: goes with key, its private key"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want []string
			for _, text := range tt.want {
				want = append(want, "f.yaml:3: sources.topic"+text)
			}
			compareViolations(t, redis+"sources:\n  topic: "+tt.source+"\n", env{"P": "secret"}, want)
		})
	}
	compareViolations(t, redis+"sources:\n  topic: "+feed("")+"\nfilters:\n  orders: {sources: [topic]}\n", nil, []string{
		"f.yaml:5: filters.orders.sources: has only topics, which never have all orders: name the table of the orders too, or a file",
	})
}

func TestFollowersDiffer(t *testing.T) {
	const file = `sources:
  a: {kind: mysql, dsn_env: A, table: t, id_column: id, follow: binlog, server_id: 7}
  b: {kind: mysql, dsn_env: A, table: u, id_column: id, follow: binlog, server_id: 7}
  c: {kind: mysql, dsn_env: B, table: u, id_column: id, follow: binlog, server_id: 7}
  d: {kind: mysql, dsn_env: A, table: u, id_column: id, follow: binlog}
  e: {kind: mysql, dsn_env: A, table: u, id_column: id, follow: binlog}
  f-1: {kind: postgres, dsn_env: C, table: t, id_column: id, follow: logical}
  f_1: {kind: postgres, dsn_env: C, table: u, id_column: id, follow: logical}
  g: {kind: postgres, dsn_env: C, table: u, id_column: id, follow: logical, slot: ordergate_f_2}
  h: {kind: postgres, table: u, id_column: id, follow: logical, slot: a}
  i: {kind: postgres, table: u, id_column: id, follow: logical, slot: a}
`
	compareViolations(t, file, env{"A": "a", "B": "b", "C": "c"}, []string{
		`f.yaml:3: sources.b.server_id: source "a" has the same, at the same server: choose another`,
		`f.yaml:8: sources.f_1.slot: source "f-1" has the same, at the same server: choose another`,
		"f.yaml:10: sources.h: does not name the database: give one of dsn_file, dsn_env",
		"f.yaml:11: sources.i: does not name the database: give one of dsn_file, dsn_env",
	})
}

// TestFollowedForOneFilter has sources that are used twice.
func TestFollowedForOneFilter(t *testing.T) {
	const file = `filters:
  a: {sources: [slot, chance, id, polled]}
  b: {sources: [chance, polled, slot]}
  c: {sources: [id]}
sources:
  slot: {kind: postgres, dsn_env: A, table: t, id_column: id, follow: logical}
  chance: {kind: mysql, dsn_env: A, table: t, id_column: id, follow: binlog}
  id: {kind: mysql, dsn_env: A, table: t, id_column: id, follow: binlog, server_id: 7}
  polled: {kind: mysql, dsn_env: A, table: t, id_column: id, follow: poll}
`
	compareViolations(t, file, env{"A": "a"}, []string{
		`f.yaml:3: filters.b.sources[2]: "slot" is followed for filter "a", and its slot is for one: define another source of the same table`,
		`f.yaml:4: filters.c.sources[0]: "id" is followed for filter "a", and its server_id is for one: define another source of the same table`,
	})
}

func TestGrace(t *testing.T) {
	for _, tt := range []struct {
		name, id string // of the rule that looks up
		filter   string // that it looks up in
		want     []string
	}{
		{"of digits", "{path: id}", "orders", []string{`f.yaml:1: sources.db.grace: the IDs of rule "look" have format digits, which has no date: give them format timestamped or snowflake, or remove this`}},
		{"of times", "{path: id, format: timestamped}", "orders", nil},
		{"of times of another order", `{path: id, format: timestamped, time: {layout: "150405060102"}}`, "orders", nil},
		{"of numbers with a time", `{path: id, format: snowflake, time: {epoch: "2010-11-04T01:42:54.657Z"}}`, "orders", nil},
		{"of days", `{path: id, format: timestamped, time: {layout: "20060102"}}`, "orders", []string{`f.yaml:1: sources.db.grace: the IDs of rule "look" have a date without a time: give them a layout to the second, such as 20060102150405, or remove this`}},
		{"of minutes", `{path: id, format: timestamped, time: {layout: "200601021504"}}`, "orders", []string{`f.yaml:1: sources.db.grace: the IDs of rule "look" have a date without a time: give them a layout to the second, such as 20060102150405, or remove this`}},
		{"of one of two", "[{header: x-id, format: timestamped}, {query: id, format: uuid}]", "orders", []string{`f.yaml:1: sources.db.grace: the IDs of rule "look" have format uuid, which has no date: give them format timestamped or snowflake, or remove this`}},
		{"of no date", `{path: id, format: timestamped, time: {layout: now}}`, "orders", []string{`f.yaml:3: rules[0].id.time.layout: "now" is not a layout of digits for a whole date, such as 20060102150405, 20060102 or 060102`}},
		{"of another filter", "{path: id}", "others", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := "sources: {db: {kind: mysql, dsn_env: D, table: t, id_column: id, grace: 5s}}\n" +
				"filters: {orders: {sources: [db]}, others: {}}\n" +
				`rules: [{name: look, match: {methods: [GET], path: "/orders/{id}"}, id: ` + tt.id + ", lookup: {filter: " + tt.filter + "}}]\n"
			compareViolations(t, file, env{"D": "somewhere"}, tt.want)
		})
	}
}

func TestDefaultsOfTables(t *testing.T) {
	const file = `
sources:
  seed: {kind: csv, path: a}
  db-1: {kind: mariadb, dsn_env: D, table: t, id_column: a}
  db-2: {kind: postgresql, dsn_env: D, table: t, id_column: a, cursor_column: b, follow: logical}
  db-3: {kind: postgres, dsn_env: D, table: t, id_column: a, follow: poll, max_rate: 0, pause: 0s, grace: 0s}
`
	c := mustParse(t, file, env{"D": "somewhere"})
	table := func(kind, follow string, change func(*Source)) Source {
		s := Source{
			Kind: kind, DSNEnv: "D", DSN: "somewhere", Table: "t", IDColumn: "a", CursorColumn: "a",
			Batch: 10_000, OnBad: "fail", Overlap: time.Minute, Follow: follow,
		}
		change(&s)
		return s
	}
	want := map[string]Source{
		"seed": {Kind: "csv", Path: "a"},
		"db-1": table("mysql", "none", func(*Source) {}),
		"db-2": table("postgres", "logical", func(s *Source) {
			s.CursorColumn, s.Slot, s.Publication = "b", "ordergate_db_2", "ordergate_db_2"
		}),
		"db-3": table("postgres", "poll", func(s *Source) { s.Every = time.Second }),
	}
	if diff := cmp.Diff(want, c.Sources); diff != "" {
		t.Errorf("unexpected sources (-want +got):\n%s", diff)
	}
	long := "db-" + strings.Repeat("a", 60)
	compareViolations(t, "sources: {"+long+": {kind: postgres, dsn_env: D, table: t, id_column: a, follow: logical, publication: p}}", env{"D": "somewhere"}, []string{
		`f.yaml:1: sources.` + long + `.slot: "ordergate_db_` + strings.Repeat("a", 47) + `"... is not the name of a slot: give 1 to 63 of a-z, 0-9 and _`,
	})
}

// TestSecretsOfTables reads a DSN and a token from files and variables, and sees them
// in nothing that is printed.
func TestSecretsOfTables(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const dsn, token = "gate:hunter2@tcp(db:3306)/shop", "hunter2 hunter2 hunter2"
	e := env{"D": dsn, "T": token, "SHORT": "hunter2"}
	for name, file := range map[string]string{
		"variables": "listen: {token_env: T}\nsources: {db: {kind: mysql, dsn_env: D, table: t, id_column: a}}\n",
		"files": "listen: {token_file: " + write("token", token+"\n") + "}\n" +
			"sources: {db: {kind: mysql, dsn_file: " + write("dsn", dsn+"\r\n") + ", table: t, id_column: a}}\n",
	} {
		c := mustParse(t, file, e)
		if got := string(c.Sources["db"].DSN); got != dsn {
			t.Errorf("%s: read the DSN %q", name, got)
		}
		if got := string(c.Listen.Token); got != token {
			t.Errorf("%s: read the token %q", name, got)
		}
		var log strings.Builder
		slog.New(slog.NewTextHandler(&log, nil)).Info("loaded", "source", c.Sources["db"], "dsn", c.Sources["db"].DSN, "listen", c.Listen, "config", c)
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		s := c.Sources["db"]
		for _, shown := range []string{
			string(text), log.String(), fmt.Sprintf("%v %+v %#v", *c, *c, *c), fmt.Sprintf("%v %+v %#v", s, &s, s),
			fmt.Sprintf("%s %q %x %d", s.DSN, c.Listen.Token, s.DSN, c.Listen.Token),
		} {
			if strings.Contains(shown, "hunter2") || strings.Contains(shown, fmt.Sprintf("%x", "hunter2")) {
				t.Errorf("%s: a secret is in %s", name, shown)
			}
		}
	}

	for _, tt := range []struct{ name, listen, want string }{
		{"both", "{token_file: a, token_env: T}", "token_env: excludes token_file: give one of the two"},
		{"a token for a name", "{token_env: 'hunter2!'}", "token_env: is not the name of an environment variable: names are letters, digits and _"},
		{"none there", "{token_env: NONE}", "token_env: the variable of this name is not set or is empty: put the token there"},
		{"no file", "{token_file: " + dir + "/none}", "token_file: reading the token: no such file or directory"},
		{"short", "{token_env: SHORT}", "token_env: the token there is too short: give at least 16 bytes"},
		{"short, in a file", "{token_file: " + write("short", "hunter2\n") + "}", "token_file: the token there is too short: give at least 16 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			compareViolations(t, "listen: "+tt.listen, e, []string{"f.yaml:1: listen." + tt.want})
		})
	}
}

// TestTableMadeInGo needs no variable for a DSN that it has.
func TestTableMadeInGo(t *testing.T) {
	c := &Config{Sources: map[string]Source{
		"a": {Kind: "mariadb", DSN: "somewhere", Table: "t", IDColumn: "id"},
		"b": {Kind: "postgresql", Path: "ids.csv", Table: "t", IDColumn: "id"},
		"c": {Kind: "postgres", DSN: "here", Table: "t", IDColumn: "id", Follow: "logical", Slot: "s"},
		"d": {Kind: "postgres", DSN: "there", Table: "t", IDColumn: "id", Follow: "logical", Slot: "s"},
	}}
	c.EnsureDefaults()
	want := []Violation{
		{Path: "sources.b.path", Message: "is for kind csv only: set it, or remove this"},
		{Path: "sources.b", Message: "does not name the database: give one of dsn_file, dsn_env"},
	}
	var wrong *InvalidError
	if err := c.Validate(); !errors.As(err, &wrong) {
		t.Fatalf("got error %v, want an InvalidError", err)
	}
	if diff := cmp.Diff(want, wrong.Violations); diff != "" {
		t.Errorf("unexpected violations (-want +got):\n%s", diff)
	}
}
