package loader

import (
	"database/sql"
	"fmt"
	"log/slog"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestCaughtUpOfTwoTables has the reply of one follower arrive twice, as a client of Redis sends a
// command again whose own reply was lost. It says nothing about the other table.
func TestCaughtUpOfTwoTables(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	client := redis.NewClient(&redis.Options{Addr: bed.Redis().Addr()})
	t.Cleanup(func() { _ = client.Close() })
	a := &asker{client: client, filter: "orders", sources: []string{"one", "two"}}
	answer := func(replies ...string) bool {
		answered := make(chan bool)
		go func() { answered <- a.ask(t.Context()) }()
		for _, source := range a.sources {
			got, err := client.BLPop(t.Context(), 10*time.Second, requestsKey("orders", source)).Result()
			bedtest.Check(t, err)
			for _, from := range replies {
				if from == source {
					bedtest.Check(t, client.RPush(t.Context(), replyKey("orders", got[1]), from).Err())
				}
			}
		}
		return <-answered
	}
	if answer("one", "one") {
		t.Error("it has caught up with a table whose follower has not replied")
	}
	if !answer("one", "one", "two") {
		t.Error("it has not caught up, and both followers have replied")
	}
}

// TestCaughtUp commits orders, as a backend does whose answers do not name them. No process answers
// Absent for one of them after CaughtUp, whichever of them follows the table.
func TestCaughtUp(t *testing.T) {
	for _, tt := range []struct {
		kind, driver, follow string
		database             func(*bedtest.Bed) (dsn string, pause func() error)
	}{
		{"mysql", "mysql", "binlog", func(b *bedtest.Bed) (string, func() error) {
			s := b.MariaDB("--log-bin", "--binlog-format=ROW", "--server-id=1")
			return s.DSN(), s.Pause
		}},
		{"postgres", "pgx", "logical", func(b *bedtest.Bed) (string, func() error) {
			return b.Postgres("-c", "wal_level=logical").DSN(), nil // it has a process for each connection
		}},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			dsn, pause := tt.database(bed)
			server := bed.Redis()
			db, err := sql.Open(tt.driver, dsn)
			bedtest.Check(t, err)
			t.Cleanup(func() { _ = db.Close() })
			_, err = db.ExecContext(t.Context(), "CREATE TABLE orders (id BIGINT PRIMARY KEY)")
			bedtest.Check(t, err)
			var hosts []*Loader
			for _, member := range []string{"one", "two"} {
				c, err := config.Parse("a.yaml", fmt.Appendf(nil, `
redis: {addresses: [%s], member: %s}
filters: {orders: {sources: [db]}}
sources: {db: {kind: %s, dsn_env: DSN, table: orders, id_column: id, follow: %s}}
rules: [{name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: digits}, lookup: {filter: orders}}]
`, server.Addr(), member, tt.kind, tt.follow), func(name string) string { return map[string]string{"DSN": dsn}[name] })
				bedtest.Check(t, err)
				h, err := build(t.Context(), c, slog.New(slog.DiscardHandler))
				bedtest.Check(t, err)
				t.Cleanup(h.Close)
				hosts = append(hosts, h.filters["orders"])
			}
			const absent = "999999999"
			bedtest.Eventually(t, "an order can be absent, and the follower replies", func() bool {
				answers := true
				for _, l := range hosts {
					answers = answers && l.CaughtUp(t.Context()) && l.filter.MayContain(absent) == presence.Absent
				}
				return answers
			})
			known := 0
			for i := range 50 {
				id := fmt.Sprint(1000 + i)
				_, err := db.ExecContext(t.Context(), "INSERT INTO orders VALUES ("+id+")")
				bedtest.Check(t, err)
				if !hosts[i%2].CaughtUp(t.Context()) {
					t.Logf("order %s: the follower is late", id) // on a busy machine
					continue
				}
				known++
				for n, l := range hosts {
					if a := l.filter.MayContain(id); a == presence.Absent {
						t.Errorf("order %s is absent at %d", id, n)
					}
				}
			}
			if known == 0 {
				t.Error("the follower was late for every order")
			}
			if pause == nil {
				return
			}
			bedtest.Check(t, pause())
			began := time.Now()
			for _, l := range hosts {
				if l.CaughtUp(t.Context()) {
					t.Error("it has caught up with a database that hangs")
				}
			}
			if took := time.Since(began); took > 10*CaughtUpWithin {
				t.Errorf("that took %v", took)
			}
		})
	}
}
