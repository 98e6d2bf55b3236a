package logical

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
	"github.com/ordergate/ordergate/tests/testbed/followtest"
)

// wantReports fails if CaughtUp was not called for more than two seconds, during a time.
func wantReports(t *testing.T, f *followtest.Run, long time.Duration) {
	t.Helper()
	began := time.Now()
	bedtest.Eventually(t, "some time passes", func() bool { return f.CaughtUpSince(began.Add(long)) })
	caught := f.CaughtUpAt()
	for i := 1; i < len(caught); i++ {
		if gap := caught[i].Sub(caught[i-1]); caught[i].After(began) && gap > 2*time.Second {
			t.Errorf("no report for %v", gap)
		}
	}
}

// TestIdle makes no changes.
func TestIdle(t *testing.T) {
	b := startServer(t)
	opts := b.options()
	opts.PollEvery = 0 // the default
	f := start(t, opts, "")
	f.WaitCaughtUp()
	wantReports(t, f, 3*time.Second)
}

// TestOpenTransaction has uncommitted changes in the log, which the server leaves in memory. A user
// without special rights can make the server write them.
func TestOpenTransaction(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE ROLE gate LOGIN REPLICATION PASSWORD 'geheim'", "CREATE PUBLICATION orders_changes FOR TABLE orders WITH (publish = 'insert')")
	opts := b.options()
	opts.DSN, opts.PollEvery = b.dsnOf("gate"), 0
	f := start(t, opts, "")
	f.WaitCaughtUp()
	conn := b.connect()
	for _, statement := range []string{"BEGIN", "INSERT INTO orders (id) VALUES ('open')"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if b.query("SELECT (pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn())::text") != "true" {
		t.Log("the server has written them by now")
	}
	wantReports(t, f, 3*time.Second)
	if _, err := conn.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	f.Want("open")
}

// TestBusyWithOthers changes tables that are not published.
func TestBusyWithOthers(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE TABLE other (id TEXT)")
	opts := b.options()
	opts.PollEvery = 0
	f := start(t, opts, "")
	f.WaitCaughtUp()
	first := f.Last()
	ctx, cancel := context.WithCancel(t.Context())
	conn := b.connect()
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			_, _ = conn.Exec(ctx, "INSERT INTO other SELECT generate_series(1, 1000)")
		}
	})
	wantReports(t, f, 3*time.Second)
	cancel()
	wg.Wait()
	// The server need not keep what it wrote meanwhile.
	if f.Last() == first {
		t.Error("the checkpoint has not moved")
	}
	bedtest.Eventually(t, "the slot moves on", func() bool {
		p, err := parseCheckpoint(first)
		return err == nil && b.query("SELECT (confirmed_flush_lsn > '"+p.LSN.String()+"')::text FROM pg_replication_slots") == "true"
	})
	f.Want()
}

// TestPausedServer pauses the server. A client cannot distinguish it from an idle one.
func TestPausedServer(t *testing.T) {
	b := startServer(t)
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	var pids []int
	signal := func(s syscall.Signal) {
		t.Helper()
		// Each process of the server is in its own group.
		for _, pid := range pids {
			_ = syscall.Kill(pid, s) // it may have ended meanwhile
		}
	}
	pids = b.processes()
	t.Cleanup(func() { signal(syscall.SIGCONT) })
	signal(syscall.SIGSTOP)
	paused := time.Now()
	bedtest.Eventually(t, "time for it to be wrong in", func() bool {
		if f.CaughtUpSince(paused) {
			t.Fatal("it was caught up with a server that was paused")
		}
		return time.Since(paused) > 1500*time.Millisecond
	})
	signal(syscall.SIGCONT)
	b.insert("a")
	f.Want("a")

	// Such a server does not delay the end of the context.
	pids = b.processes()
	signal(syscall.SIGSTOP)
	began := time.Now()
	f.Stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v to end", took)
	}
	f = start(t, b.options(), f.Last())
	bedtest.Eventually(t, "it connects", func() bool { return time.Since(began) > 300*time.Millisecond })
	began = time.Now()
	f.Stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v to end while it connected", took)
	}
	signal(syscall.SIGCONT)
}

// processes returns the server's processes.
func (b *bed) processes() []int {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", b.PID()))
	if err != nil {
		b.t.Skip("the server's processes are found on Linux only: ", err)
	}
	pids := []int{b.PID()}
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			b.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// TestCaughtUpIsTrue writes from several clients, some of which do not wait for the disk, while the
// server restarts once. It checks that every transaction committed before a call of CaughtUp was
// emitted.
func TestCaughtUpIsTrue(t *testing.T) {
	b := startServer(t)
	f, err := New(b.options())
	if err != nil {
		t.Fatal(err)
	}
	truth := followtest.NewOracle(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.Follow(ctx, "", truth.Emit, truth.CaughtUp); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	bedtest.Eventually(t, "it follows", func() bool { return truth.Reports() > 0 })
	write := func(run string, until time.Time) {
		var writers sync.WaitGroup
		for w := range 4 {
			conn, err := pgx.Connect(ctx, b.DSN())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(ctx) }()
			if w%2 == 1 {
				if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil {
					t.Fatal(err)
				}
			}
			writers.Go(func() {
				for n := 0; time.Now().Before(until); n++ {
					id := fmt.Sprintf("%s-%d-%d", run, w, n)
					if _, err := conn.Exec(ctx, "INSERT INTO orders (id, note) VALUES ($1, $2)", id, strings.Repeat("x", n%2000)); err != nil {
						t.Error(err)
						return
					}
					truth.Committed(id)
				}
			})
		}
		writers.Wait()
	}
	sure := func() {
		bedtest.Eventually(t, "all is emitted", func() bool { all, sure := truth.Writes(); return all == sure && all > 0 })
	}
	write("a", time.Now().Add(time.Second))
	sure()
	if err := b.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	write("b", time.Now().Add(time.Second))
	sure()
	cancel()
	wg.Wait()
	all, _ := truth.Writes()
	t.Logf("%d rows, %d words", all, truth.Reports())
}

// TestEmitFails ends with the error of Emit, and confirms nothing that was not stored.
func TestEmitFails(t *testing.T) {
	b := startServer(t)
	f, err := New(b.options())
	if err != nil {
		t.Fatal(err)
	}
	var kept followtest.Store
	if err := kept.Begin(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	b.insert("a", "b")
	full := errors.New("no room")
	err = f.Follow(t.Context(), kept.Checkpoint, func(context.Context, []string, string) error { return full }, func(time.Time) {
		t.Error("it was caught up")
	})
	if !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
	if err := kept.CatchUp(t.Context(), f); err != nil || !kept.IDs["a"] || !kept.IDs["b"] {
		t.Errorf("afterwards %v, %v", kept.IDs, err)
	}
}

func TestPages(t *testing.T) {
	p := pages{page: 8192, file: 1 << 24}
	for insert, want := range map[lsn]lsn{
		1<<24 + 40:     1 << 24, // behind the header of a file
		1<<24 + 24:     1<<24 + 24,
		1<<24 + 8192:   1<<24 + 8192,
		8192*3 + 24:    8192 * 3, // behind the header of a page
		8192*3 + 40:    8192*3 + 40,
		8192*3 + 32:    8192*3 + 32,
		8192*3 - 8:     8192*3 - 8,
		5<<24 + 8192*2: 5<<24 + 8192*2,
	} {
		if got := p.end(insert); got != want {
			t.Errorf("%s: the last record ends at %s, want %s", insert, got, want)
		}
	}
}
