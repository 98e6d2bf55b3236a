package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGrants has names that have to be quoted, and keys that are no patterns.
func TestGrants(t *testing.T) {
	t.Parallel()
	file := writeConfig(t, `
redis: {mode: sentinel, addresses: ["h:1"], username: gate, password_env: PW}
filters:
  orders: {sources: [own, other], kind: redis-bitmap, key_prefix: "shop[1]:bits"}
  byday: {sources: [pg]}
sources:
  own: {kind: mysql, dsn_env: MY, table: order, id_column: order-no, cursor_column: id}
  other: {kind: mysql, dsn_env: MY, table: old.orders, id_column: id, follow: binlog}
  pg: {kind: postgres, dsn_env: PG, table: Orders, id_column: id, follow: logical, publication: pub}
locks: {settlement: {key: "order:{id}:lock"}, other: {key: "shop:{{tenant}}:{id}"}}
rules:
  - {name: look, match: {methods: [GET], path: "/o/{id}"}, id: {path: id}, lookup: {filter: orders}}
  - {name: day, match: {methods: [GET], path: "/d/{id}"}, id: {path: id}, lookup: {filter: byday}}
  - name: settle
    match: {methods: [POST], path: "/o/{id}/settle"}
    id: {path: id}
    settle: {lock: settlement, require: [{latch: "loaders:{id}"}, {exists: "a:{header:x-b}:c"}, {time: {}}]}
  - name: other
    match: {methods: [POST], path: "/p/{id}"}
    id: {path: id}
    parts: {tenant: {header: x-tenant}}
    settle: {lock: other}
    once: {by: idempotency-key}
`)
	var out, errs strings.Builder
	code := run(t.Context(), []string{"grants", "--config", file}, &out, &errs, func(name string) string {
		return map[string]string{"MY": "o'neill:geheim@tcp(h:1)/shop", "PG": "postgres://gate:geheim@h/db", "PW": "geheim"}[name]
	})
	want := "-- MY, mysql\n" +
		"CREATE USER IF NOT EXISTS 'o''neill'@'%' IDENTIFIED BY 'PASSWORD';\n" +
		"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'o''neill'@'%';\n" +
		"GRANT SELECT (id) ON old.orders TO 'o''neill'@'%';\n" +
		"GRANT SELECT (id, `order-no`) ON shop.`order` TO 'o''neill'@'%';\n\n" +
		"-- PG, postgres\n" +
		"CREATE ROLE gate LOGIN REPLICATION PASSWORD 'PASSWORD';\n" +
		"GRANT USAGE ON SCHEMA public TO gate;\n" +
		"GRANT SELECT (id) ON public.\"Orders\" TO gate;\n" +
		"-- Publish inserts alone where the ID is no part of the table's replica identity.\n" +
		"CREATE PUBLICATION pub FOR TABLE public.\"Orders\" WITH (publish = 'insert, update');\n\n" +
		"# Redis\n" +
		`user gate on >PASSWORD ~shop:{* ~{shop:{* ~order:* ~{order:* ~redisson_* ~ordergate:* ~{ordergate:once:* ~shop\[1\]:bits* ~loaders:* ~a:* resetchannels &redisson_* -@all +@read +@write -@dangerous +eval +evalsha +publish +subscribe +unsubscribe +time +wait +ping +client|setname +info +multi +exec` +
		"\nuser watcher on >PASSWORD " + sentinelRights + "\n"
	if code != exitDone || out.String() != want {
		t.Errorf("exit code %d, %s%s, want\n%s", code, out.String(), errs.String(), want)
	}
	bare := writeConfig(t, `locks: {settlement: {key: "{id}:lock"}}`)
	if code, stdout, stderr := command(t.Context(), "grants", "--config", bare); code != exitDone || !strings.Contains(stdout, " ~* ~{* ") {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

// TestGrantsOfPages compares the users of the pages with the command's.
func TestGrantsOfPages(t *testing.T) {
	t.Parallel()
	page := func(path string) string {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	printed := func(config string) string {
		code, stdout, stderr := command(t.Context(), "grants", "--config", writeConfig(t, config))
		if code != exitDone {
			t.Fatal(stderr)
		}
		return stdout
	}
	cluster := printed(`
redis: {mode: cluster, addresses: ["h:1"]}
filters: {orders: {kind: redisson, key_prefix: "order:bloom:"}}
locks: {settlement: {}}
rules: [{name: pay, match: {methods: [POST], path: "/o/{id}"}, id: {path: id}, settle: {lock: settlement}, once: {by: idempotency-key}}]
`)
	sentinel := printed("redis: {mode: sentinel, addresses: [\"h:1\"]}\nlocks: {settlement: {}}\n")
	for _, user := range regexp.MustCompile(`(?m)^user .*$`).FindAllString(page("docs/redis.md"), -1) {
		if !strings.Contains(cluster+sentinel, user+"\n") {
			t.Errorf("docs/redis.md has %q; the command prints\n%s", user, cluster+sentinel)
		}
	}
	const sources = "\nredis: {}\nfilters: {orders: {sources: [my]}, pgs: {sources: [pg]}}\nsources:\n" +
		"  my: {kind: mysql, dsn_env: MY, table: shop.orders, id_column: order_id, cursor_column: id, follow: binlog}\n" +
		"  pg: {kind: postgres, dsn_env: PG, table: shop.orders, id_column: order_id, cursor_column: id, follow: logical, publication: ordergate_orders_db}\n" +
		"  compose: {kind: mysql, dsn_env: COMPOSE, table: shop.shop_order, id_column: order_id, follow: binlog}\n"
	all := strings.NewReplacer("IF NOT EXISTS ", "", "'PASSWORD'", "'...'").Replace(printed(sources))
	count := 0
	for _, path := range []string{"docs/follow.md", "docs/sources.md", "examples/compose/grants.sql"} {
		for _, s := range regexp.MustCompile(`(?m)^(?:CREATE|GRANT) [^.].*;$`).FindAllString(page(path), -1) {
			if s = strings.Replace(s, "'ordergate'", "'...'", 1); strings.HasPrefix(s, "CREATE ROLE ordergate LOGIN PASSWORD") {
				s = strings.Replace(s, "LOGIN", "LOGIN REPLICATION", 1) // that of a table that is only read
			}
			if count++; !strings.Contains(all, s+"\n") {
				t.Errorf("%s has %q; the command prints\n%s", path, s, all)
			}
		}
	}
	if count < 10 {
		t.Errorf("the pages have %d statements", count)
	}
}
