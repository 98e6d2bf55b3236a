package command

import (
	"database/sql"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// liveRules use each lock and filter of these tests.
const liveRules = `
rules:
  - name: lookup
    match: {methods: [GET], path: "/orders/{id}"}
    id: {path: id}
    lookup: {filter: orders}
  - name: settle
    match: {methods: [POST], path: "/orders/{id}/settle"}
    id: {path: id}
    settle: {lock: settlement}
`

// TestCheckLive has servers of which each has something wrong.
func TestCheckLive(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	good, evicts, gone := bed.Redis(), bed.Redis("--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"), bed.Redis()
	gone.Kill()
	narrow := bed.Redis("--user", "ordergate", "on", ">secret", "~order:*", "~{order:*", "~redisson*", "&*", "+@all", "-config")
	documented := bed.Redis(bedtest.DocumentedUserOnly(t)...)
	db := bed.MariaDB("--log-bin", "--binlog-format=ROW")
	setup, err := sql.Open("mysql", db.DSN())
	bedtest.Check(t, err)
	for _, statement := range []string{"CREATE DATABASE shop", "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY)", "CREATE VIEW shop.seen AS SELECT * FROM shop.orders", "CREATE TABLE shop.packed (id BIGINT PRIMARY KEY, note TEXT COMPRESSED)", "CREATE TABLE shop.numbered (id BIGINT AUTO_INCREMENT PRIMARY KEY, number VARCHAR(20))"} {
		_, err := setup.ExecContext(t.Context(), statement)
		bedtest.Check(t, err)
	}
	bedtest.Check(t, setup.Close())
	shop := db.Config()
	shop.DBName = "shop"
	dsn := shop.FormatDSN()

	file := func(redis, filters, sources, locks string) string {
		if locks == "" {
			locks = `{key: "order:lock:{id}"}`
		}
		return writeConfig(t, "redis: "+redis+"\nfilters:\n  orders: "+filters+"\nsources: {"+sources+"}\nlocks:\n  settlement: "+locks+liveRules)
	}
	at := func(r *testbed.Redis) string { return "addresses: [" + r.Addr() + "]" }
	ids := writeConfig(t, "1\n2\n")
	for _, tt := range []struct {
		name string
		file string
		want []string // lines, by their beginnings and ends
	}{
		{"good", file("{"+at(good)+"}", "{sources: [seed]}", "seed: {kind: csv, path: "+ids+"}", ""), nil},
		{"the documented user", file("{"+at(documented)+", username: ordergate, password_env: PW}", "{}", "", ""), nil},
		{"away", file("{"+at(gone)+"}", "{}", "", ""), []string{":1: redis: not reachable: dial tcp ... connection refused"}},
		{"TLS where there is none", file("{"+at(good)+", tls: {}}", "{}", "", ""), []string{":1: redis: not reachable, or redis.tls is not as it has it: ..."}},
		{"evicts", file("{"+at(evicts)+"}", "{}", "", ""), []string{":1: redis: Redis may evict locks ...: set maxmemory-policy noeviction at " + evicts.Addr() + " (volatile-lru)"}},
		{"too few keys", file("{"+at(narrow)+", username: ordergate, password_env: NARROW}", "{}", "", ""), []string{":3: filters.orders: ...ordergate:{orders}:log: NOPERM..."}},
		{"wrong password", file("{"+at(narrow)+", username: ordergate, password_env: PW}", "{}", "", ""), []string{":1: redis: it is reachable, and refuses: WRONGPASS ..."}},
		{"other servers", file("{"+at(good)+"}", "{}", "", "{kind: quorum, quorum: {addresses: ["+good.Addr()+", "+evicts.Addr()+", "+gone.Addr()+"]}, key: \"order:lock:{id}\"}"), []string{
			":6: locks.settlement.quorum.addresses[2]: not reachable: dial tcp " + gone.Addr() + "...",
			":6: locks.settlement: Redis may evict locks ... " + evicts.Addr() + " (volatile-lru)",
		}},
		{"sources", file("{"+at(good)+"}", "{sources: [seed, table, log]}", "\n  seed: {kind: csv, path: nowhere.csv},\n"+
			"  table: {kind: mysql, dsn_env: DSN, table: ordres, id_column: id},\n  log: {kind: mysql, dsn_env: DSN, table: seen, id_column: id, cursor_column: id, follow: binlog}\n", ""), []string{
			":5: sources.seed.path: reading order IDs from nowhere.csv: no such file or directory",
			":6: sources.table: ...ordres...",
			":7: sources.log: ...shop.seen is a view, and the log names only the tables below it: name the table, or use follow: poll",
		}},
		{"a followed table", file("{"+at(good)+"}", "{sources: [log]}", "log: {kind: mysql, dsn_env: DSN, table: orders, id_column: id, ascending: true, follow: binlog, server_id: 7}", ""), nil},
		{"a table that cannot be followed", file("{"+at(good)+"}", "{sources: [log]}", "log: {kind: mysql, dsn_env: DSN, table: packed, id_column: id, cursor_column: id, follow: binlog}", ""), []string{
			":4: sources.log: ...column note is of type text /*m!100301 compressed*/...use follow: poll",
		}},
		{"note: no index", file("{"+at(good)+"}", "{sources: [log]}", "log: {kind: mysql, dsn_env: DSN, table: numbered, id_column: number, cursor_column: id, follow: binlog, server_id: 8}", ""), []string{
			":4: sources.log: refusals are not verified by this table: ...no index begins with the ID column number of type varchar(20)...",
		}},
		{"no index, and no use for one", file("{"+at(good)+"}", "{sources: [log], verify: off}", "log: {kind: mysql, dsn_env: DSN, table: numbered, id_column: number, cursor_column: id, follow: binlog, server_id: 9}", ""), nil},
		{"no variable", file("{"+at(good)+"}", "{sources: [table]}", "table: {kind: mysql, dsn_env: NOPE, table: orders, id_column: id}", ""), []string{
			":4: sources.table.dsn_env: the variable of this name is not set...",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out, errs strings.Builder
			code := run(t.Context(), []string{"check", "--live", "--config", tt.file}, &out, &errs, func(name string) string {
				return map[string]string{"PW": "ordergate-secret", "NARROW": "secret", "DSN": dsn}[name]
			})
			if (code == exitDone) != (tt.want == nil || strings.HasPrefix(tt.name, "note: ")) {
				t.Errorf("exit code %d", code)
			}
			lines := strings.Split(strings.TrimSuffix(errs.String(), "\n"), "\n")
			if tt.want == nil {
				lines = lines[:min(len(lines), strings.Count(errs.String(), "\n"))]
			}
			if len(lines) != len(tt.want) {
				t.Fatalf("got %d lines, want %d:\n%s", len(lines), len(tt.want), errs.String())
			}
			for i, line := range lines {
				line := strings.TrimPrefix(line, tt.file)
				for _, part := range strings.Split(tt.want[i], "...") {
					if !strings.Contains(line, strings.TrimSpace(part)) {
						t.Errorf("line %q, want %q", line, tt.want[i])
					}
				}
				if strings.Contains(line, "secret") {
					t.Errorf("line %q has a secret", line)
				}
			}
			checkNothingLeft(t, good)
		})
	}
}

// checkNothingLeft looks for locks in a Redis.
func checkNothingLeft(t *testing.T, server *testbed.Redis) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	bedtest.Eventually(t, "no lock is left", func() bool {
		keys, err := client.Keys(t.Context(), "order:lock:*").Result()
		return err == nil && len(keys) == 0
	})
}

const onceRules = `
locks: {settlement: {key: "order:lock:{id}"}}
rules:
  - name: settle
    match: {methods: [POST], path: "/orders/{id}/settle"}
    id: {path: id}
    settle: {lock: settlement, once: {name: commission}, require: [{latch: "loaders:{id}"}, {time: {}}, {value: {key: open, is: "1"}}, {geo: {key: couriers, member: "{id}", to: "store:{header:x-store}", within: 1km}}]}
  - name: payment
    match: {methods: [POST], path: /payments}
    once: {by: idempotency-key}
`

// TestCheckLiveOnce has users that may not touch the keys of stored answers and of conditions, and
// keys that hold something else.
func TestCheckLiveOnce(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	const noRight = "NOPERM ..."
	for _, tt := range []struct {
		name, keys string
		set        func(*redis.Client) error
		want       []string
	}{
		{"all rights", "~*", nil, nil},
		{"the rights of the page", "~order:lock:* ~{order:lock:* ~redisson_* ~ordergate:* ~{ordergate:once:* ~loaders:* ~open ~couriers", nil, nil},
		{"no stored answers", "~order:lock:* ~{order:lock:*}:ordergate_holders ~redisson_* ~ordergate:* ~{ordergate:once:*}:ordergate_holders ~loaders:* ~open ~couriers", nil, []string{
			":2: locks.settlement: redis does not serve locks: the stored answer {order:lock:ordergate/probe}:ordergate_once:commission: " + noRight,
			":10: rules[1].once: redis does not serve locks: the stored answer {ordergate:once:payment:ordergate/probe}:ordergate_once:answer: " + noRight,
		}},
		{"no marks of undos", "~order:lock:* ~{order:lock:*}:ordergate_holders ~{order:lock:*}:ordergate_once:* ~redisson_* ~ordergate:* ~{ordergate:once:*}:ordergate_* ~loaders:* ~open ~couriers", nil, []string{
			":2: locks.settlement: redis does not serve locks: what is undone, {order:lock:ordergate/probe}:ordergate_undone: " + noRight,
		}},
		{"no conditions", "~order:lock:* ~{order:lock:* ~redisson_* ~ordergate:* ~{ordergate:once:* ~open", nil, []string{
			":7: rules[0].settle.require[0]: the key loaders:{id} cannot be read: " + noRight,
			":7: rules[0].settle.require[3]: the key couriers cannot be read: " + noRight,
		}},
		{"other types", "~*", func(c *redis.Client) error {
			_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				p.Set(t.Context(), "couriers", "1", 0)
				p.RPush(t.Context(), "open", "1")
				return nil
			})
			return err
		}, []string{
			":7: rules[0].settle.require[2]: the key open cannot be read: WRONGTYPE ...",
			":7: rules[0].settle.require[3]: the key couriers cannot be read: WRONGTYPE ...",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--user", "gate", "on", ">secret"}, strings.Fields(tt.keys)...)
			server := bed.Redis(append(args, "&*", "+@all")...)
			client := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer client.Close()
			if tt.set != nil {
				bedtest.Check(t, tt.set(client))
			}
			file := writeConfig(t, "redis: {addresses: ["+server.Addr()+"], username: gate, password_env: PW}"+onceRules)
			var out, errs strings.Builder
			code := run(t.Context(), []string{"check", "--live", "--config", file}, &out, &errs, func(name string) string {
				return map[string]string{"PW": "secret"}[name]
			})
			if (code == exitDone) != (tt.want == nil) {
				t.Errorf("exit code %d", code)
			}
			lines := strings.Split(strings.TrimSuffix(errs.String(), "\n"), "\n")
			if tt.want == nil {
				lines = lines[:strings.Count(errs.String(), "\n")]
			}
			if len(lines) != len(tt.want) {
				t.Fatalf("got %d lines, want %d:\n%s", len(lines), len(tt.want), errs.String())
			}
			for i, line := range lines {
				if want := strings.TrimSuffix(tt.want[i], "..."); !strings.HasPrefix(strings.TrimPrefix(line, file), want) {
					t.Errorf("line %d: %s, want %s", i, line, tt.want[i])
				}
			}
		})
	}
}

// TestCheckLiveEvictedKeys has a rule with keys as the only one that uses Redis.
func TestCheckLiveEvictedKeys(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	file := writeConfig(t, "redis: {addresses: ["+server.Addr()+"]}\nrules: [{name: payment, match: {methods: [POST], path: /payments}, once: {by: idempotency-key}}]\n")
	code, _, stderr := command(t.Context(), "check", "--live", "--config", file)
	if code != exitFailed || !strings.HasPrefix(strings.TrimPrefix(stderr, file), ":1: redis: Redis may evict locks") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// TestCheckLiveFiles has directories that are missing.
func TestCheckLiveFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := writeConfig(t, "listen: {authz: \"unix:"+dir+"/no/a\", proc: \"unix:"+dir+"/b\"}\nredis: {mode: embedded}\nfilters:\n  orders: {capacity: 100_000, snapshot: {path: "+dir+"/s}}\n"+
		"  gone: {snapshot: {path: "+dir+"/none/s}}\nlocks: {settlement: {}}"+liveRules)
	code, _, stderr := command(t.Context(), "check", "--live", "--config", file)
	want := []string{
		":1: listen.authz: no file can be made in the directory " + dir + "/no: no such file or directory",
		":5: filters.gone.snapshot.path: no file can be made in the directory " + dir + "/none: no such file or directory",
	}
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	if code != exitFailed || len(lines) != len(want) {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for i, line := range lines {
		if !strings.HasPrefix(strings.TrimPrefix(line, file), want[i]) {
			t.Errorf("%s, want %s", line, want[i])
		}
	}
}
