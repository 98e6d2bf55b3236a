package loader

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/timeouts"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestCaughtUpOfTwoTables has the reply of one follower arrive twice, as a client of Redis sends a
// command again whose own reply was lost. It says nothing about the other table.
func TestCaughtUpOfTwoTables(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	client := redis.NewClient(&redis.Options{Addr: bed.Redis().Addr()})
	t.Cleanup(func() { _ = client.Close() })
	a := &asker{client: client, filter: "orders", tables: []string{"one", "two"}}
	answer := func(replies ...string) bool {
		answered := make(chan bool)
		go func() { answered <- a.ask(t.Context()) }()
		for _, source := range a.tables {
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
				hosts = append(hosts, followingHost(t, server.Addr(), member, tt.kind, tt.follow, dsn).filters["orders"])
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
			if took := time.Since(began); took > 10*timeouts.Append {
				t.Errorf("that took %v", took)
			}
		})
	}
}

// followingHost runs a process that may follow a table, with a lease of 6 s.
func followingHost(t *testing.T, redis, member, kind, follow, dsn string) *host {
	t.Helper()
	c, err := config.Parse("a.yaml", fmt.Appendf(nil, `
redis: {addresses: [%s], member: %s}
filters: {orders: {sources: [db], change_log: {lease: 6s}}}
sources: {db: {kind: %s, dsn_env: DSN, table: orders, id_column: id, follow: %s}}
rules: [{name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: digits}, lookup: {filter: orders}}]
`, redis, member, kind, follow), func(name string) string { return map[string]string{"DSN": dsn}[name] })
	bedtest.Check(t, err)
	h, err := build(t.Context(), c, slog.New(slog.DiscardHandler))
	bedtest.Check(t, err)
	t.Cleanup(h.Close)
	return h
}

// TestCaughtUpAfterAFailover has a follower append an order at a Redis that was just promoted, and
// end. No process answers Absent for that order once the next follower has replied, not even one
// that still uses the demoted primary.
func TestCaughtUpAfterAFailover(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	dsn := bed.MariaDB("--log-bin", "--binlog-format=ROW", "--server-id=1").DSN()
	db, err := sql.Open("mysql", dsn)
	bedtest.Check(t, err)
	t.Cleanup(func() { _ = db.Close() })
	exec := func(statement string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), statement)
		bedtest.Check(t, err)
	}
	exec("CREATE TABLE orders (id BIGINT PRIMARY KEY)")
	former := bed.Redis("--repl-diskless-sync-delay", "0")
	present := redis.NewClient(&redis.Options{Addr: bed.Replica(former).Addr()})
	t.Cleanup(func() { _ = present.Close() })
	moving := newRelay(t, former.Addr())
	first := followingHost(t, moving.addr(), "first", "mysql", "binlog", dsn)
	isAbsent := func(h *host, id string) bool { return h.filters["orders"].filter.MayContain(id) == presence.Absent }
	bedtest.Eventually(t, "the first follows", func() bool { return isAbsent(first, "1001") })
	second := followingHost(t, moving.addr(), "second", "mysql", "binlog", dsn)
	staying := followingHost(t, former.Addr(), "staying", "mysql", "binlog", dsn)
	bedtest.Eventually(t, "all have the same members", func() bool {
		return isAbsent(second, "1001") && isAbsent(staying, "1001") &&
			present.ZCard(t.Context(), "ordergate:{orders}:members").Val() == 4
	})

	bedtest.Check(t, present.ReplicaOf(t.Context(), "NO", "ONE").Err())
	moving.move(present.Options().Addr)
	exec("INSERT INTO orders VALUES (1001)")
	bedtest.Eventually(t, "the promoted server has the order", func() bool {
		entries := present.XRevRangeN(t.Context(), "ordergate:{orders}:log", "+", "-", 10).Val()
		return slices.ContainsFunc(entries, func(e redis.XMessage) bool { return e.Values["id"] == "1001" })
	})
	if !isAbsent(staying, "1001") {
		t.Fatal("the process at the demoted primary refuses nothing")
	}
	first.Close()
	asker := second.filters["orders"].asker // a third process may ask before it has seen the failover
	bedtest.Eventually(t, "the second follower replies", func() bool { return asker.ask(t.Context()) })
	if isAbsent(staying, "1001") {
		t.Error("the order is absent at the demoted primary")
	}
}

// relay passes connections on to a server.
type relay struct {
	net.Listener
	mu    sync.Mutex
	to    string
	conns []net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	bedtest.Check(t, err)
	r := &relay{Listener: l, to: to}
	var ends sync.WaitGroup
	ends.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			to, err := net.Dial("tcp", r.to)
			if err != nil {
				to = from // it is closed twice
			}
			r.conns = append(r.conns, from, to)
			r.mu.Unlock()
			for _, c := range [][2]net.Conn{{from, to}, {to, from}} {
				ends.Go(func() {
					_, _ = io.Copy(c[0], c[1])
					_ = errors.Join(c[0].Close(), c[1].Close())
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		r.move("")
		ends.Wait()
	})
	return r
}

func (r *relay) addr() string { return r.Addr().String() }

// move ends all connections, and passes later ones on to another server.
func (r *relay) move(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.to, r.conns = to, nil
}
