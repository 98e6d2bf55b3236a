package binlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/internal/testbed"
	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logArgs have a MariaDB write what a follower needs.
var logArgs = []string{"--log-bin", "--binlog-format=ROW", "--server-id=7"}

// startServer starts a MariaDB with a table of orders.
func startServer(t *testing.T, args ...string) *bed {
	t.Helper()
	server := bedtest.New(t).MariaDB(append(logArgs, args...)...)
	db, err := sql.Open("mysql", server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	b := &bed{t: t, MariaDB: server, db: db}
	b.exec("CREATE TABLE orders (n BIGINT AUTO_INCREMENT PRIMARY KEY, id VARCHAR(40), note TEXT)")
	return b
}

type bed struct {
	t *testing.T
	*testbed.MariaDB
	db    *sql.DB
	since string // some moment, by its clock
}

func (b *bed) exec(query string, args ...any) {
	b.t.Helper()
	if _, err := b.db.ExecContext(b.t.Context(), query, args...); err != nil {
		b.t.Fatalf("%.200s: %v", query, err)
	}
}

// options are those of a follower of the table orders.
func (b *bed) options() Options {
	return Options{Options: follow.Options{
		DSN: b.DSN(), Table: "orders", IDColumn: "id", Every: 20 * time.Millisecond, Advance: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(b.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}}
}

// follower is a run of Follow, and what it told.
type follower struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done

	mu     sync.Mutex
	ids    []string
	chunks []int
	at     []string
	caught []time.Time
	bad    []string
}

// start follows from a place.
func start(t *testing.T, opts Options, from string) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &follower{t: t, cancel: cancel, done: make(chan struct{})}
	opts.Bad = func(reason string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bad = append(r.bad, reason)
	}
	f, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.done)
		r.err = f.Follow(ctx, from, r.emit, func(at time.Time) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.caught = append(r.caught, at)
		})
	}()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *follower) emit(_ context.Context, ids []string, at string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, ids...)
	r.chunks = append(r.chunks, len(ids))
	r.at = append(r.at, at)
	return nil
}

// stop ends the run and returns the place that it told last.
func (r *follower) stop() string {
	r.cancel()
	<-r.done
	return r.last()
}

func (r *follower) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.at) == 0 {
		return ""
	}
	return r.at[len(r.at)-1]
}

func (r *follower) told() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.ids...)
}

// fresh waits until all that was committed before now was told.
func (r *follower) fresh() {
	r.t.Helper()
	now := time.Now()
	bedtest.Eventually(r.t, "all that was committed was told", func() bool {
		select {
		case <-r.done:
			r.t.Fatalf("it ended: %v", r.err)
		default:
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.caught) > 0 && r.caught[len(r.caught)-1].After(now)
	})
}

// want waits until all was told, and compares.
func (r *follower) want(ids ...string) {
	r.t.Helper()
	r.fresh()
	if diff := cmp.Diff(append([]string{}, ids...), r.told()); diff != "" {
		r.t.Errorf("told (-want +got):\n%s", diff)
	}
}

// ended waits for the end of a run and returns its error.
func (r *follower) ended() error {
	r.t.Helper()
	bedtest.Eventually(r.t, "it ends", func() bool {
		select {
		case <-r.done:
			return true
		default:
			return false
		}
	})
	return r.err
}

// wantError waits for an error of one line with a text in it, and none of a password.
func (r *follower) wantError(b *bed, is error, text string) {
	r.t.Helper()
	err := r.ended()
	switch {
	case err == nil || !strings.Contains(err.Error(), text):
		r.t.Errorf("error %v, want %q in it", err, text)
	case is != nil && !errors.Is(err, is):
		r.t.Errorf("error %v, want one that is %v", err, is)
	case strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), b.Config().Passwd):
		r.t.Errorf("error %q has several lines or the password", err)
	}
}

func TestInserts(t *testing.T) {
	b := startServer(t)
	b.exec("INSERT INTO orders (id) VALUES ('before')")
	f := start(t, b.options(), "")
	f.fresh()
	if f.last() == "" {
		t.Fatal("no place")
	}
	b.exec("INSERT INTO orders (id) VALUES ('a')")
	b.exec("INSERT INTO orders (id) VALUES ('b'), ('c')")
	b.exec("INSERT INTO orders (id) SELECT CONCAT(id, id) FROM orders WHERE id IN ('b', 'c') ORDER BY id")
	b.exec("CREATE TABLE other (id VARCHAR(40))")
	b.exec("INSERT INTO other VALUES ('z')")
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"rolled", "back"} {
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders (id) VALUES (?)", id); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE orders SET id = 'd' WHERE id = 'a'")
	b.exec("UPDATE orders SET note = 'x'")
	b.exec("DELETE FROM orders WHERE id = 'b'")
	b.exec("TRUNCATE orders")
	b.exec("REPLACE INTO orders (n, id) VALUES (1, 'e')")
	f.want("a", "b", "c", "bb", "cc", "d", "e")

	// Another run from the place has nothing to tell; one from the first, all.
	again := start(t, b.options(), f.stop())
	again.want()
	start(t, b.options(), f.at[0]).want("a", "b", "c", "bb", "cc", "d", "e")
}

func TestManyRows(t *testing.T) {
	b := startServer(t)
	f := start(t, b.options(), "")
	f.fresh()
	const n = 100_000
	first := f.last()
	b.exec("INSERT INTO orders (id) SELECT seq FROM seq_1_to_100000")
	f.fresh()
	ids := f.told()
	if len(ids) != n || ids[0] != "1" || ids[n-1] != fmt.Sprint(n) {
		t.Errorf("%d IDs", len(ids))
	}
	f.stop()
	for i, size := range f.chunks {
		if size > follow.MaxChunk {
			t.Errorf("a chunk of %d", size)
		}
		// Only the end of the transaction moves the place.
		if size > 0 && i < 99 && f.at[i] != first {
			t.Errorf("chunk %d is told with place %s, want %s", i, f.at[i], first)
		}
	}
	if f.last() == first {
		t.Error("the place did not move")
	}
}
