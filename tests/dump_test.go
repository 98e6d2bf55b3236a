package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// dump is what a Redis wrote to its disk at a moment.
type dump struct {
	server *testbed.Redis
	file   string
	data   []byte
}

func takeDump(t *testing.T, server *testbed.Redis, client *redis.Client) *dump {
	t.Helper()
	must(t, client.Save(t.Context()).Err())
	dir, err := client.ConfigGet(t.Context(), "dir").Result()
	must(t, err)
	d := &dump{server: server, file: filepath.Join(dir["dir"], "dump.rdb")}
	d.data, err = os.ReadFile(d.file)
	must(t, err)
	return d
}

// restore has the server crash, and come back with what it had then.
func (d *dump) restore(t *testing.T) {
	t.Helper()
	d.server.Kill()
	must(t, os.WriteFile(d.file, d.data, 0o600))
	must(t, d.server.Restart(t.Context()))
}

// tableIsReadTo reports whether the place of the table in the set says so.
func tableIsReadTo(t *testing.T, client redis.UniversalClient, cursor string) bool {
	fields, err := client.HGetAll(t.Context(), "ordergate:{orders}:places").Result()
	for _, place := range fields {
		if strings.Contains(place, `"floor"`) && strings.Contains(place, cursor) {
			return err == nil
		}
	}
	return false
}

// TestOlderDump has Redis come back from a dump that is older than the mark up to which
// the set in it had the table. No row of the time in between is absent, of whichever
// ordergate: neither of the one that lived through it, nor of one that starts later.
func TestOlderDump(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"redis-bitmap", "redis-bloom", "redisson", "layered"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const old, rows, nobody = 1200, 1500, 900_000
			bed := bedtest.New(t)
			var args []string
			if kind == "redis-bloom" {
				args = bed.RedisBloomArgs()
			}
			server := bed.Redis(args...)
			client := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { _ = client.Close() })
			// It is read for longer than the overlap: so there is a mark at the end.
			settings := func(member string) tableSettings {
				return tableSettings{member: member, kind: kind, source: ", batch: 100, pause: 150ms"}
			}
			table := mariaTable(t, bed, old)
			one := table.gate(bed, server.Addr(), settings("one"))
			one.becomes(nobody, "absent")
			before := takeDump(t, server, client)

			for id := old + 1; id <= rows; id++ {
				table.insert(id)
			}
			bedtest.Eventually(t, "the mark is behind the new rows", func() bool {
				must(t, client.Del(t.Context(), "ordergate:{orders}:meta").Err()) // a doubt, so the table is caught up with
				one.becomes(rows, "maybe")
				one.becomes(nobody, "absent")
				if kind == "layered" {
					return true // memory has the mark, and all that is in front of it
				}
				return tableIsReadTo(t, client, `"1500"`)
			})
			before.restore(t)
			one.becomes(nobody, "absent")
			two := table.gate(bed, server.Addr(), settings("two"))
			two.becomes(nobody, "absent")
			absent := 0
			for id := old + 1; id <= rows; id += 3 {
				for _, g := range []*tableGate{one, two} {
					if g.answer(id) == "absent" {
						absent++
					}
				}
			}
			if absent > 0 {
				t.Errorf("%d answers were that an order is absent, which is in the table", absent)
			}
		})
	}
}

// TestOlderDumpOfAShard has one master of a cluster come back with less, which has a part
// of the set and neither the change log nor the mark.
func TestOlderDumpOfAShard(t *testing.T) {
	t.Parallel()
	const old, rows, nobody = 1200, 1500, 900_000
	const log = "ordergate:{orders}:log"
	bed := bedtest.New(t)
	cluster := bed.Cluster("--cluster-replica-no-failover", "yes")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	settings := func(member string) tableSettings {
		return tableSettings{member: member + `", mode: "cluster`, kind: "redis-bitmap", filter: ", shards: 16", source: ", batch: 100, pause: 150ms"}
	}
	table := mariaTable(t, bed, old)
	one := table.gate(bed, cluster.Addrs()[0], settings("one"))
	one.becomes(nobody, "absent")

	own, err := cluster.MasterOf(t.Context(), log)
	must(t, err)
	var other *testbed.Redis
	for shard := 0; other == nil || other == own; shard++ {
		other, err = cluster.MasterOf(t.Context(), fmt.Sprintf("order:bloom:orders:{%d}", shard))
		must(t, err)
	}
	node := redis.NewClient(&redis.Options{Addr: other.Addr()})
	t.Cleanup(func() { _ = node.Close() })
	before := takeDump(t, other, node)
	for id := old + 1; id <= rows; id++ {
		table.insert(id)
	}
	bedtest.Eventually(t, "the mark is behind the new rows", func() bool {
		must(t, client.Del(t.Context(), "ordergate:{orders}:meta").Err())
		one.becomes(rows, "maybe")
		one.becomes(nobody, "absent")
		return tableIsReadTo(t, client, `"1500"`)
	})
	two := table.gate(bed, cluster.Addrs()[0], settings("two")) // it knows the new rows by the set only
	two.becomes(nobody, "absent")
	before.restore(t)
	bedtest.Eventually(t, "it is noticed", func() bool { return two.said("a part of the filter in Redis was restarted or failed over") })
	two.becomes(nobody, "absent")
	three := table.gate(bed, cluster.Addrs()[0], settings("three"))
	three.becomes(nobody, "absent")
	absent := 0
	for id := old + 1; id <= rows; id++ {
		for _, g := range []*tableGate{one, two, three} {
			if g.answer(id) == "absent" {
				absent++
			}
		}
	}
	if absent > 0 {
		t.Errorf("%d answers were that an order is absent, which is in the table", absent)
	}
}

// fileGate starts an ordergate with a set in Redis that has a file's orders.
func fileGate(t *testing.T, bed *bedtest.Bed, redis, file string, shards int) *tableGate {
	t.Helper()
	return asTableGate(t, bed, bed.Gate(bed.Build("./cmd/sidecar", true), fmt.Sprintf(`
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0, token_env: TOKEN}
redis: {%s}
sources: {file: {kind: csv, path: %s}}
filters: {orders: {kind: redis-bitmap, capacity: 1_000, shards: %d, sources: [file]}}
rules:
  - {name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: digits}, lookup: {filter: orders}}
`, redis, file, shards), "TOKEN=0123456789abcdef"))
}

// TestDumpBeforeAFile has Redis come back from a dump that is older than a file's load into the set
// in it. No order of the file is absent, of an ordergate that lived through it or starts later.
func TestDumpBeforeAFile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		starts bool // an ordergate starts later
	}{{"lived", false}, {"starts later", true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			server := bed.Redis()
			client := newClient(t, server.Addr())
			file := filepath.Join(t.TempDir(), "orders.csv")
			must(t, os.WriteFile(file, []byte("1\n"), 0o600))
			g := fileGate(t, bed, fmt.Sprintf("addresses: [%s], member: one", server.Addr()), file, 1)
			g.becomes(9, "absent")
			before := takeDump(t, server, client)
			must(t, os.WriteFile(file, []byte("1\n2\n"), 0o600))
			g.post("/filters/orders/load", "")
			g.becomes(2, "maybe")
			if tc.starts {
				must(t, g.Stop())
			}
			before.restore(t)
			if tc.starts {
				must(t, g.Restart(t.Context()))
				g = asTableGate(t, bed, g.Gate)
			}
			bedtest.Eventually(t, "it is certain again", func() bool {
				if g.answer(2) == "absent" {
					t.Fatal("an order of the file is absent")
				}
				return g.answer(2) == "maybe" && g.answer(9) == "absent"
			})
		})
	}
}

// TestShardBeforeAFile has one master of a cluster come back with less, which has a part of the set
// and not the sums of the files. No order of the file is absent.
func TestShardBeforeAFile(t *testing.T) {
	t.Parallel()
	const rows, nobody = 300, 900_000
	bed := bedtest.New(t)
	cluster := bed.Cluster("--cluster-replica-no-failover", "yes")
	file := filepath.Join(t.TempDir(), "orders.csv")
	must(t, os.WriteFile(file, []byte("1\n"), 0o600))
	gate := func(member string) *tableGate {
		return fileGate(t, bed, fmt.Sprintf("mode: cluster, addresses: [%s], member: %s", cluster.Addrs()[0], member), file, 16)
	}
	one := gate("one")
	one.becomes(nobody, "absent")
	own, err := cluster.MasterOf(t.Context(), "ordergate:{orders}:log")
	must(t, err)
	var other *testbed.Redis
	for shard := 0; other == nil || other == own; shard++ {
		other, err = cluster.MasterOf(t.Context(), fmt.Sprintf("order:bloom:orders:{%d}", shard))
		must(t, err)
	}
	before := takeDump(t, other, newClient(t, other.Addr()))
	var text strings.Builder
	for id := 1; id <= rows; id++ {
		fmt.Fprintln(&text, id)
	}
	must(t, os.WriteFile(file, []byte(text.String()), 0o600))
	one.post("/filters/orders/load", "")
	one.becomes(rows, "maybe")
	before.restore(t)
	bedtest.Eventually(t, "it is noticed", func() bool { return one.said("a part of the filter in Redis was restarted or failed over") })
	one.becomes(nobody, "absent")
	later := gate("later")
	later.becomes(nobody, "absent")
	for id := 1; id <= rows; id++ {
		for _, g := range []*tableGate{one, later} {
			if g.answer(id) == "absent" {
				t.Fatalf("order %d of the file is absent", id)
			}
		}
	}
}
