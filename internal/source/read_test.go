package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// testPositions continues from positions, including those of other tables.
func testPositions(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE places (id {key}, order_id {text} NOT NULL UNIQUE, made {time} NOT NULL)",
		"INSERT INTO places SELECT n, CONCAT('ord-', n), '2026-01-01' FROM {1..10}",
	)
	opts := s.options("places")
	table := newTable(t, opts)
	var at Position
	var got []string
	if _, err := table.Read(t.Context(), Position{}, collect(&got), func(p Position) error {
		at = p
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	got = nil
	read := func(table *Table, from Position) error {
		_, err := table.Read(t.Context(), from, collect(&got), nil)
		return err
	}
	if err := read(table, at); err != nil || len(got) > 0 {
		t.Errorf("read %q behind the end, %v", got, err)
	}
	s.exec(t, "INSERT INTO places VALUES (11, 'new', '2026-01-02')", "DELETE FROM places WHERE id = 10")
	if err := read(table, at); err != nil || fmt.Sprint(got) != "[new]" {
		t.Errorf("read %q behind a row that was deleted, %v", got, err)
	}
	other := opts
	other.CursorColumn = "made"
	err := read(newTable(t, other), at)
	s.wantError(t, err, "the stored position belongs to another table or to other columns")
	if !errors.Is(err, ErrPosition) {
		t.Errorf("%v, want ErrPosition", err)
	}
	got = nil
	if _, _, err := newTable(t, other).Tail(t.Context(), Mark{Floor: at}, collect(&got), nil); err != nil || len(got) != 10 {
		t.Errorf("catching up from there: %q, %v, want all", got, err)
	}
	other = opts
	other.IDColumn = "id"
	if err := read(newTable(t, other), at); !errors.Is(err, ErrPosition) {
		t.Errorf("with another ID column: %v", err)
	}
	at.Cursor = "many"
	s.wantError(t, read(table, at), "many")
}

// testCancel ends reads early.
func testCancel(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE cancel (id {key}, order_id {text} NOT NULL)",
		"INSERT INTO cancel SELECT n, CONCAT('ord-', n) FROM {1..20000}",
	)
	opts := s.options("cancel")
	opts.Batch = 100
	table := newTable(t, opts)
	gone := errors.New("gone home")
	ctx, cancel := context.WithCancelCause(t.Context())
	n, after := 0, 0
	report, err := table.Read(ctx, Position{}, func(string) error {
		if n++; n == 1234 {
			cancel(gone)
		}
		return nil
	}, func(Position) error {
		after = n
		return nil
	})
	if !errors.Is(err, gone) || n < 1234 || n > 1234+checkRows || report.IDs != int64(n) || after%100 != 0 || n-after > 100 {
		t.Errorf("%d IDs, %d of them in whole batches, %v", n, after, err)
	}
	s.wantError(t, err, "behind id = "+strconv.Itoa(after))

	// While the server does not answer.
	unlock := s.lock(t, "cancel")
	ctx, cancel = context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := table.Read(ctx, Position{}, func(string) error { return nil }, nil)
		done <- err
	}()
	waiting := map[Kind]string{
		MySQL:    "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table%'",
		Postgres: "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
	}[s.kind]
	bedtest.Eventually(t, "the read waits for the table", func() bool { return s.query(t, waiting)[0] == "1" })
	cancel(gone)
	select {
	case err := <-done:
		if !errors.Is(err, gone) {
			t.Errorf("%v, want the cause", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("a read did not end with its context")
	}
	unlock()

	// While yield blocks.
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a panic of yield was lost")
			}
		}()
		_, _ = table.Read(t.Context(), Position{}, func(string) error { panic("help") }, nil)
	}()
	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := table.Check(ctx); !errors.Is(err, gone) {
		t.Errorf("%v before it began, want the cause", err)
	}
}

// lock locks a table for others until unlock is called.
func (s *server) lock(t *testing.T, table string) (unlock func()) {
	t.Helper()
	conn, err := s.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	exec := func(text string) {
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Error(err)
		}
	}
	if s.kind == MySQL {
		exec("LOCK TABLES " + table + " WRITE")
	} else {
		exec("BEGIN")
		exec("LOCK TABLE " + table)
	}
	return func() {
		exec(map[Kind]string{MySQL: "UNLOCK TABLES", Postgres: "ROLLBACK"}[s.kind])
		_ = conn.Close() // returns it to the pool
	}
}

// testRateLimit reads slowly.
func testRateLimit(t *testing.T, s *server) {
	s.exec(t,
		"CREATE TABLE pace (id {key}, order_id {text} NOT NULL)",
		"INSERT INTO pace SELECT n, CONCAT('ord-', n) FROM {1..50}",
	)
	for _, tc := range []struct {
		name    string
		change  func(*TableOptions)
		least   time.Duration
		batches int
	}{
		{"pause", func(o *TableOptions) { o.Pause = 20 * time.Millisecond }, 100 * time.Millisecond, 5},
		{"rate", func(o *TableOptions) { o.MaxRate = 500 }, 80 * time.Millisecond, 5},
		{"low rate", func(o *TableOptions) { o.MaxRate = 5; o.IDColumn = "id" }, 0, 10},
	} {
		opts := s.options("pace")
		opts.Batch = 10
		tc.change(&opts)
		table := newTable(t, opts)
		if tc.least == 0 {
			if table.opts.Batch != 5 {
				t.Errorf("%s: batches of %d", tc.name, table.opts.Batch)
			}
			continue
		}
		began, batches := time.Now(), 0
		_, err := table.Read(t.Context(), Position{}, func(string) error { return nil }, func(Position) error {
			batches++
			return nil
		})
		if took := time.Since(began); err != nil || took < tc.least || batches != tc.batches {
			t.Errorf("%s: %d batches in %v, %v", tc.name, batches, took, err)
		}
	}
}

// testMillion reads many rows in little memory, with an interruption at each tenth. With SOAK there
// are ten million. With the race detector, which is ten times slower, there are fewer.
func testMillion(t *testing.T, s *server) {
	rows := 1_000_000
	switch {
	case os.Getenv("SOAK") != "":
		rows = 10_000_000
	case bedtest.Race:
		rows = 50_000
	}
	made := "timestamp '2026-01-01' + n / 5000 * interval '1 microsecond'"
	if s.kind == MySQL {
		made = "'2026-01-01' + INTERVAL n DIV 5000 MICROSECOND"
	}
	s.exec(t,
		"CREATE TABLE million (id BIGINT PRIMARY KEY, order_id VARCHAR(40) NOT NULL, made {time} NOT NULL)",
		"CREATE INDEX million_made ON million (made, id)",
		fmt.Sprintf("INSERT INTO million SELECT n, CONCAT('ord-', n), %s FROM {1..%d}", made, rows),
	)
	if s.kind == Postgres {
		s.exec(t, "ANALYZE million") // or there is no estimate yet
	}
	for _, cursor := range []string{"id", "made"} {
		t.Run(cursor, func(t *testing.T) {
			opts := s.options("million")
			opts.CursorColumn = cursor
			var last Step
			opts.Progress = func(s Step) { last = s }
			seen := make([]bool, rows+1)
			took := s.interrupted(t, newTable(t, opts), rows, seen)
			for n, ok := range seen[1:] {
				if !ok {
					t.Fatalf("row %d is missing", n+1)
				}
			}
			t.Logf("%d rows by %s in %v", rows, cursor, took)

			var before, now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			n, peak := 0, uint64(0)
			report, err := newTable(t, opts).Read(t.Context(), Position{}, func(string) error {
				if n++; n%(rows/5) == 0 {
					runtime.GC()
					runtime.ReadMemStats(&now)
					peak = max(peak, now.HeapAlloc)
				}
				return nil
			}, nil)
			if err != nil || report.IDs != int64(rows) {
				t.Fatalf("%+v, %v", report, err)
			}
			const enough = 8 << 20 // for batches and the driver's buffers, for any number of rows
			if peak > before.HeapAlloc+enough {
				t.Errorf("%d bytes on the heap while reading, %d before", peak, before.HeapAlloc)
			}
			if last.Done != int64(rows) || !last.Rough || last.Total < int64(rows)/2 || last.Total > int64(rows)*2 {
				t.Errorf("progress ended at %+v", last)
			}
		})
	}
}

// interrupted reads a table with an interruption at each tenth, and continues from the stored
// position. It returns the duration. Only rows of batches that were not stored may come twice.
func (s *server) interrupted(t *testing.T, table *Table, rows int, seen []bool) time.Duration {
	t.Helper()
	began := time.Now()
	var at Position
	total := 0
	for tenth := 1; tenth <= 10; tenth++ {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := table.Read(ctx, at, func(id string) error {
			n, err := strconv.Atoi(strings.TrimPrefix(id, "ord-"))
			if err != nil {
				return err
			}
			seen[n] = true
			if total++; total == rows*tenth/10 && tenth < 10 {
				cancel()
			}
			return nil
		}, func(p Position) error {
			at = p
			return nil
		})
		cancel()
		if tenth < 10 && !errors.Is(err, context.Canceled) || tenth == 10 && err != nil {
			t.Fatalf("tenth %d: %v", tenth, err)
		}
	}
	if most := rows + 10*(table.opts.Batch+checkRows); total > most {
		t.Errorf("%d rows were given, of %d", total, rows)
	}
	return time.Since(began)
}

// TestTableServerGone ends the server in several ways in the middle of a read.
func TestTableServerGone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *server) {
		const rows = 20_000
		s.exec(t,
			"CREATE TABLE gone (id {key}, order_id {text} NOT NULL)",
			fmt.Sprintf("INSERT INTO gone SELECT n, CONCAT('ord-', n) FROM {1..%d}", rows),
		)
		s.db.SetMaxIdleConns(0) // or it would find its old connections broken
		opts := s.options("gone")
		// Slowly: a PostgreSQL whose first process was killed ends when it notices.
		opts.Batch, opts.Pause = 1000, 20*time.Millisecond
		table := newTable(t, opts)
		end := map[Kind]string{
			MySQL:    "SELECT CONCAT('KILL ', ID) FROM information_schema.PROCESSLIST WHERE USER = 'root' AND ID <> CONNECTION_ID()",
			Postgres: "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ordergate'",
		}[s.kind]
		for _, tc := range []struct {
			name   string
			harm   func(cancel func())
			mend   func() error
			words  []string
			cancel bool
		}{
			{"killed", func(func()) { s.proc.Kill() }, func() error { return s.proc.Restart(t.Context()) }, []string{"the connection was lost"}, false},
			{"stopped", func(func()) {
				if err := s.proc.Stop(); err != nil {
					t.Error(err)
				}
			}, func() error { return s.proc.Restart(t.Context()) }, nil, false},
			{"connection ended", func(func()) {
				for _, text := range s.query(t, end) {
					if s.kind == MySQL {
						_, _ = s.db.ExecContext(t.Context(), text) // one of the test's own connections may be among them
					}
				}
			}, func() error { return nil }, nil, false},
			{"paused", func(cancel func()) {
				if err := s.proc.Pause(); err != nil {
					t.Error(err)
				}
				cancel()
			}, s.proc.Resume, []string{"context canceled"}, true},
		} {
			t.Run(tc.name, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				seen := map[string]int{}
				var at Position
				keep := func(p Position) error {
					at = p
					return nil
				}
				_, err := table.Read(ctx, Position{}, func(id string) error {
					if seen[id]++; len(seen) == rows/3 {
						tc.harm(cancel)
					}
					return nil
				}, keep)
				s.wantError(t, err, append([]string{"mysql table gone", "behind id = "}[map[Kind]int{MySQL: 0, Postgres: 1}[s.kind]:], tc.words...)...)
				if at.zero() {
					t.Fatal("no position was stored")
				}
				if tc.name == "killed" {
					_, err := table.Read(t.Context(), at, nil, nil)
					s.wantError(t, err, "connection refused")
				}
				if err := tc.mend(); err != nil {
					t.Fatal(err)
				}
				if _, err := table.Read(t.Context(), at, func(id string) error {
					seen[id]++
					return nil
				}, keep); err != nil {
					t.Fatal(err)
				}
				if len(seen) != rows {
					t.Errorf("%d orders, want %d", len(seen), rows)
				}
				twice := 0
				for _, n := range seen {
					twice += n - 1
				}
				if twice > opts.Batch {
					t.Errorf("%d orders came again", twice)
				}
			})
		}
	})
}
