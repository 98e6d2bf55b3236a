package loader

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestFollowedAgain has nobody follow a table for a while after the place in its
// database's log was given up: whoever followed was killed, say. What others read
// meanwhile is not all that there is when it is followed again.
func TestFollowedAgain(t *testing.T) {
	bed := bedtest.New(t)
	server, redis := bed.MariaDB("--log-bin", "--binlog-format=ROW", "--server-id=1"), bed.Redis()
	db, err := sql.Open("mysql", server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	exec := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TABLE orders (n BIGINT PRIMARY KEY AUTO_INCREMENT, id BIGINT)")
	exec("INSERT INTO orders SELECT seq, seq FROM seq_1_to_100")
	text := fmt.Sprintf(`
redis: {addresses: [%s], member: here}
filters: {orders: {sources: [db]}}
sources: {db: {kind: mysql, dsn_env: DSN, table: orders, id_column: id, cursor_column: n, overlap: 1s, follow: binlog}}
rules: [{name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: digits}, lookup: {filter: orders}}]
`, redis.Addr())
	c, err := config.Parse("a.yaml", []byte(text), func(name string) string { return map[string]string{"DSN": server.DSN()}[name] })
	if err != nil {
		t.Fatal(err)
	}
	m, err := newHost(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	table, follower := m.filters["orders"].tables()[0], m.filters["orders"].followers[0]
	wrong, found := follow.ErrWrong, make(map[string]bool)
	read := func() error {
		return table.tail(t.Context(), func(id string) error { found[id] = true; return nil })
	}
	follow := func() (stop func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		caughtUp, ended := make(chan struct{}, 1), make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil { // what is appended to a log that has just begun takes a while
				_ = follower.follow(ctx, followEvents{caughtUp: func(time.Time) {
					select {
					case caughtUp <- struct{}{}:
					default:
					}
				}})
			}
		}()
		<-caughtUp
		return func() { cancel(); <-ended }
	}
	follow()()
	if err := follower.discardPlace(t.Context(), errors.New("a test says so")); err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "all of it was read", func() bool { return read() == nil && !table.reached().Zero() })
	exec("UPDATE orders SET id = 100005 WHERE n = 5")
	stop := follow()
	if err := read(); err != nil || !found["100005"] || !found["7"] {
		t.Errorf("the ID that a row got is missing, of %d: %v", len(found), err)
	}
	stop()
	// After IDs that the table does not have, it is not followed for a while.
	follower.wrong, follower.wrongAt = wrong, time.Now()
	for range 2 {
		if err := follower.follow(t.Context(), followEvents{}); !errors.Is(err, wrong) || follower.stored != "" {
			t.Errorf("the place is %q, error %v", follower.stored, err)
		}
	}
	follower.wrongAt = time.Now().Add(-wrongPause)
	follow()()

	// A server takes over that has an earlier place.
	place := func() string { return follower.client.HGet(t.Context(), follower.key, follower.table).Val() }
	earlier, ended := place(), make(chan error, 1)
	go func() {
		ended <- follower.follow(t.Context(), followEvents{caughtUp: func(at time.Time) { _ = follower.member.Renew(t.Context(), at) }})
	}()
	exec("INSERT INTO orders (id) VALUES (101)")
	bedtest.Eventually(t, "the place is behind the row", func() bool { return place() != earlier })
	if err := follower.client.HSet(t.Context(), follower.key, follower.table, earlier).Err(); err != nil {
		t.Fatal(err)
	}
	if err := follower.client.HSet(t.Context(), "ordergate:{orders}:meta", "term", strings.Repeat("0", 40)).Err(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !strings.Contains(err.Error(), "another place of the table is stored") {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it follows from a place that is not stored")
	}
	follow()()
}

// TestLateIsNotLost tells a table that is followed, and lags, from one that is not followed.
func TestLateIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		s := followState{problem: recurring.New(log, slog.LevelError, "lost", "again", slog.Attr{})}
		defer s.problem.Drop()
		want := func(late bool, why string) {
			t.Helper()
			if got := s.late(5 * time.Second); (got != "") != late || late && !strings.HasPrefix(got, "the table is followed, and its changes are known up to 7s ago") {
				t.Errorf("late: %q", got)
			}
			if got := s.why(); got != why {
				t.Errorf("why: %q, want %q", got, why)
			}
		}
		want(false, "")
		s.caughtUp(time.Now())
		time.Sleep(5 * time.Second)
		want(false, "")
		time.Sleep(2 * time.Second)
		want(true, "")
		s.caughtUp(time.Now())
		want(false, "")
		s.lost(errors.New("the server is away"))
		time.Sleep(7 * time.Second)
		want(false, "the table is not followed: the server is away")
		s.caughtUp(time.Now())
		want(false, "")
	})
}
