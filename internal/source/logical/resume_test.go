package logical

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
	"github.com/ordergate/ordergate/tests/testbed/followtest"
)

// TestKilledAtAnyMoment stops the follower repeatedly while rows are written.
func TestKilledAtAnyMoment(t *testing.T) {
	b := startServer(t)
	f, err := New(b.options())
	if err != nil {
		t.Fatal(err)
	}
	var kept followtest.Store
	if err := kept.Begin(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	var want []string
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn := b.connect()
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := 0; ctx.Err() == nil; i++ {
			want = append(want, b.writeSome(conn, i)...)
			select {
			case <-time.After(time.Millisecond): // or the log grows faster than it is read
			case <-ctx.Done():
			}
		}
	}()
	const kills = 25
	for range kills {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(300*time.Millisecond))
		_ = f.Follow(ctx, kept.Checkpoint, kept.Emit, func(time.Time) {})
		cancel()
	}
	cancel()
	<-written
	if err := kept.CatchUp(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kills, %d IDs emitted for %d rows", kills, kept.Emitted, len(want))
	missed := slices.DeleteFunc(want, func(id string) bool { return kept.IDs[id] })
	if len(missed) > 0 {
		t.Errorf("%d rows were never emitted, the first is %s", len(missed), missed[0])
	}
}

// writeSome writes a transaction of a few rows, sometimes of many, and returns their IDs.
func (b *bed) writeSome(conn *pgx.Conn, i int) (ids []string) {
	n := 1 + rand.IntN(12)
	if i%50 == 49 {
		n = 2500
	}
	for k := range n {
		ids = append(ids, fmt.Sprintf("%d-%d", i, k+1))
	}
	ctx := context.WithoutCancel(b.t.Context())
	_, err := conn.Exec(ctx, "INSERT INTO orders (id, note) SELECT $1 || '-' || k, repeat('x', 100) FROM generate_series(1, $2) k", fmt.Sprint(i), n)
	if err != nil {
		b.t.Error(err)
		return nil
	}
	return ids
}

// TestServerRestarts stops and kills the server while a follower runs.
func TestServerRestarts(t *testing.T) {
	b := startServer(t)
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	b.insert("a")
	f.WaitCaughtUp()
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.insert("b")
	f.WaitCaughtUp()
	b.Kill()
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.insert("c")
	f.WaitCaughtUp()
	// Rows behind the slot's position are emitted again.
	for _, id := range []string{"a", "b", "c"} {
		if !slices.Contains(f.IDs(), id) {
			t.Errorf("%s was not emitted: %q", id, f.IDs())
		}
	}
}

// TestTakeover has two followers that want the slot.
func TestTakeover(t *testing.T) {
	b := startServer(t)
	opts := b.options()
	opts.Advance = time.Hour // or the first may move on without a row
	first := start(t, opts, "")
	first.WaitCaughtUp()
	b.insert("a")
	first.WaitCaughtUp()
	var log bedtest.Log
	opts.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	second := start(t, opts, first.Last())
	bedtest.Eventually(t, "the second waits", func() bool { return strings.Contains(log.String(), "in use") })
	first.WaitCaughtUp()
	if len(second.CaughtUpAt()) > 0 {
		t.Error("two have the slot")
	}
	first.Stop()
	second.Want()
	b.insert("b")
	second.Want("b")

	// A third with only an old checkpoint finds that the slot has moved on.
	bedtest.Eventually(t, "the second confirms", func() bool {
		p, err := parseCheckpoint(second.Last())
		return err == nil && b.query("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = 'orders_slot'") == p.LSN.String()
	})
	third := start(t, opts, first.Last())
	second.Stop()
	third.WantError(follow.ErrGone, "has moved on")
	start(t, opts, second.Last()).Want()
}

// swap swaps the names of two columns: every row has another ID.
var swap = []string{"BEGIN", "ALTER TABLE orders RENAME COLUMN id TO id_x", "ALTER TABLE orders RENAME COLUMN note TO id",
	"ALTER TABLE orders RENAME COLUMN id_x TO note", "COMMIT"}

func TestCheckpointIsGone(t *testing.T) {
	server := startServer(t)
	for name, test := range map[string]struct {
		lose func(b *bed)
		is   error
		want string
	}{
		"slot dropped": {func(b *bed) {
			b.exec("SELECT pg_drop_replication_slot('orders_slot')")
		}, follow.ErrGone, "there is no replication slot"},
		"slot dropped and made again": {func(b *bed) {
			b.insert("missed")
			b.exec("SELECT pg_drop_replication_slot('orders_slot')", "SELECT pg_create_logical_replication_slot('orders_slot', 'pgoutput')")
		}, follow.ErrGone, "has moved on"},
		"slot used by another": {func(b *bed) {
			b.insert("missed")
			b.exec("SELECT pg_replication_slot_advance('orders_slot', pg_current_wal_flush_lsn())")
		}, follow.ErrGone, "has moved on"},
		"too much kept": {func(b *bed) {
			b.exec("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
			bedtest.Eventually(b.t, "the slot is lost", func() bool {
				b.exec("INSERT INTO orders (id, note) SELECT gen_random_uuid(), repeat('x', 1000) FROM generate_series(1, 5000)", "SELECT pg_switch_wal()", "CHECKPOINT")
				return b.query("SELECT wal_status FROM pg_replication_slots WHERE slot_name = 'orders_slot'") == "lost"
			})
		}, follow.ErrGone, "has lost it"},
		"publication made again": {func(b *bed) {
			b.exec("DROP PUBLICATION orders_changes")
			b.insert("missed")
			b.exec("CREATE PUBLICATION orders_changes FOR TABLE orders WITH (publish = 'insert')")
		}, follow.ErrUnsure, "lacked, changes of the table"},
		"table out and in": {func(b *bed) {
			b.exec("CREATE TABLE orders_x (id INT)", "ALTER PUBLICATION orders_changes SET TABLE orders_x")
			b.insert("missed")
			b.exec("ALTER PUBLICATION orders_changes SET TABLE orders")
		}, follow.ErrUnsure, "lacked, changes of the table"},
		"columns swapped": {func(b *bed) {
			b.exec(swap...)
			b.exec("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ALTER note DROP NOT NULL")
		}, follow.ErrUnsure, "column id is, or was, another one"},
		"another rewriting": {func(b *bed) {
			b.exec("ALTER TABLE orders ALTER COLUMN id TYPE VARCHAR(40) USING id || '0'")
		}, follow.ErrUnsure, "rewritten"},
		"inherited": {func(b *bed) {
			b.exec("CREATE TABLE orders_x () INHERITS (orders)", "INSERT INTO orders_x (n, id) VALUES (1, 'x')", "ALTER TABLE orders_x NO INHERIT orders",
				"INSERT INTO orders SELECT * FROM orders_x", "VACUUM FULL orders")
		}, follow.ErrUnsure, "rewritten"},
		"table replaced": {func(b *bed) {
			b.exec("DROP TABLE orders", "CREATE TABLE orders (id VARCHAR(40) PRIMARY KEY)")
			b.insert("missed")
			b.exec("ALTER PUBLICATION orders_changes ADD TABLE orders")
		}, follow.ErrUnsure, "another of that name"},
	} {
		t.Run(name, func(t *testing.T) {
			b := server.withTable(strings.Map(underscore, name))
			f := start(t, b.options(), "")
			f.WaitCaughtUp()
			from := f.Stop()
			b.waitSlotFree()
			test.lose(b)
			f = start(t, b.options(), from)
			f.WantError(test.is, test.want, b.password())
			if len(f.IDs()) > 0 || len(f.CaughtUpAt()) > 0 {
				t.Errorf("it emitted %q, and was caught up %d times", f.IDs(), len(f.CaughtUpAt()))
			}
			// Following without a checkpoint suffices.
			f = start(t, b.options(), "")
			f.WaitCaughtUp()
			b.insert("a")
			f.Want("a")
			f.Stop()
			b.exec("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
		})
	}
}

// underscore makes text a name.
func underscore(r rune) rune {
	if r < 'a' || r > 'z' {
		return '_'
	}
	return r
}

// waitSlotFree waits until no follower uses the slot.
func (b *bed) waitSlotFree() {
	b.t.Helper()
	bedtest.Eventually(b.t, "the slot is free", func() bool {
		return b.query("SELECT count(*)::text FROM pg_replication_slots WHERE active AND slot_name = 'orders_slot'") == "0"
	})
}

// TestLostWhileFollowed removes what the follower needs.
func TestLostWhileFollowed(t *testing.T) {
	server := startServer(t, "max_replication_slots=20")
	for name, test := range map[string]struct {
		lose []string
		is   error
		want string
	}{
		"table dropped":        {[]string{"DROP TABLE orders"}, follow.ErrUnsure, ""},
		"table replaced":       {[]string{"BEGIN", "DROP TABLE orders", "CREATE TABLE orders (id TEXT)", "COMMIT"}, follow.ErrUnsure, ""},
		"table renamed":        {[]string{"ALTER TABLE orders RENAME TO orders_x", "CREATE TABLE orders (id TEXT)"}, follow.ErrUnsure, ""},
		"table taken out":      {[]string{"CREATE TABLE orders_x (id INT)", "ALTER PUBLICATION orders_changes SET TABLE orders_x"}, follow.ErrUnsure, "publication"},
		"publication dropped":  {[]string{"DROP PUBLICATION orders_changes"}, follow.ErrUnsure, "publication"},
		"inserts taken out":    {[]string{"ALTER PUBLICATION orders_changes SET (publish = 'update')"}, follow.ErrUnsure, "publication"},
		"column renamed":       {[]string{"ALTER TABLE orders RENAME COLUMN id TO order_id", "INSERT INTO orders (order_id) VALUES ('a')"}, follow.ErrUnsure, "column id"},
		"columns swapped":      {swap, follow.ErrUnsure, "column id is, or was, another one"},
		"swapped for a while":  {[]string{strings.Join(slices.Concat(swap[1:4], []string{"INSERT INTO orders (id, note) VALUES ('a', 'b')"}, swap[1:4]), "; ")}, follow.ErrUnsure, "with others in front of it"},
		"swapped to the front": {[]string{strings.ReplaceAll(strings.Join(slices.Concat(swap[1:4], []string{"INSERT INTO orders (id, note) VALUES (1, 'b')"}, swap[1:4]), "; "), "note", "n")}, follow.ErrUnsure, "with others in front of it"},
		"rows rewritten":       {[]string{"INSERT INTO orders VALUES (1, '1')", "ALTER TABLE orders ALTER COLUMN id TYPE VARCHAR(40) USING id || '0'"}, follow.ErrUnsure, "was rewritten"},
		"inherited":            {[]string{"CREATE TABLE orders_x () INHERITS (orders)", "INSERT INTO orders_x (n, id) VALUES (1, 'a')"}, follow.ErrUnsure, "lacks, or lacked"},
	} {
		t.Run(name, func(t *testing.T) {
			b := server.withTable(strings.Map(underscore, name))
			f := start(t, b.options(), "")
			f.WaitCaughtUp()
			b.exec(test.lose...)
			f.WantError(test.is, test.want, b.password())
		})
	}
}

// TestAltered changes the table's columns while it is followed, and while it is not.
func TestAltered(t *testing.T) {
	b := startServer(t)
	b.exec("ALTER TABLE orders RENAME COLUMN n TO a")
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	b.insert("a")
	b.exec("ALTER TABLE orders RENAME COLUMN a TO b")
	b.insert("b")
	f.Want("a", "b")
	from := f.Stop()
	b.waitSlotFree()
	b.insert("c")
	b.exec("ALTER TABLE orders RENAME COLUMN b TO c")
	f = start(t, b.options(), from)
	f.Want("c")
	b.exec("ALTER TABLE orders DROP COLUMN c, ADD COLUMN x INT")
	b.insert("d")
	f.Want("c", "d")
	from = f.Stop()
	b.insert("e")
	b.exec("ALTER TABLE orders RENAME COLUMN note TO id2", "ALTER TABLE orders DROP COLUMN x")
	b.insert("f")
	start(t, b.options(), from).Want("e", "f")
}

func TestInvalidCheckpoints(t *testing.T) {
	b := startServer(t)
	for _, from := range []string{
		"x", "{}", `{"server":"1@2"}`, `{"server":"1@2","timeline":1,"lsn":"0/0","watched":"1.2.3"}`,
		`{"server":"1","timeline":1,"lsn":"0/1","watched":"1.2.3"}`, `{"server":"1@2","lsn":"0/1","watched":"1.2.3"}`,
		`{"server":"1@2","timeline":1,"lsn":"x","watched":"1.2.3"}`,
	} {
		start(t, b.options(), from).WantError(follow.ErrGone, "is no position of logical replication")
	}
	start(t, b.options(), `{"server":"1@2","timeline":1,"lsn":"0/1","watched":"1.2.3"}`).WantError(follow.ErrGone, "it is of database cluster 1")
}
