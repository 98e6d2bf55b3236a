package binlog

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// checkpoint returns the checkpoint of a server without further changes.
func (b *bed) checkpoint() string {
	b.t.Helper()
	f := start(b.t, b.options(), "")
	f.WaitCaughtUp()
	return f.Stop()
}

func TestCheckpointIsGone(t *testing.T) {
	for name, test := range map[string]struct {
		lose func(b *bed)
		want string
	}{
		"purged": {func(b *bed) {
			b.exec("INSERT INTO orders (id) VALUES ('missed')")
			b.exec("FLUSH BINARY LOGS")
			b.exec("FLUSH BINARY LOGS")
			// The server keeps what the stopped follower reads, as far as it knows.
			bedtest.Eventually(b.t, "the log is purged", func() bool {
				b.exec("PURGE BINARY LOGS TO 'mariadb-bin.000003'")
				var first string
				if err := b.db.QueryRowContext(b.t.Context(), "SHOW BINARY LOGS").Scan(&first, new(int)); err != nil {
					b.t.Fatal(err)
				}
				return first == "mariadb-bin.000003"
			})
		}, "Could not find first log file"},
		"reset": {func(b *bed) { b.exec("RESET MASTER") }, "RESET MASTER?"},
		"reset, grown past us": {func(b *bed) {
			// Files differ by the second of their creation.
			bedtest.Eventually(b.t, "a second passes", func() bool {
				b.exec("RESET MASTER")
				b.exec("INSERT INTO orders (id, note) VALUES ('missed', REPEAT('x', 10000))")
				var same bool
				if err := b.db.QueryRowContext(b.t.Context(), "SELECT NOW() < ? + INTERVAL 2 SECOND", b.since).Scan(&same); err != nil {
					b.t.Fatal(err)
				}
				return !same
			})
		}, "another file of that name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startServer(t)
			if err := b.db.QueryRowContext(t.Context(), "SELECT NOW()").Scan(&b.since); err != nil {
				t.Fatal(err)
			}
			from := b.checkpoint()
			test.lose(b)
			f := start(t, b.options(), from)
			f.WantError(follow.ErrGone, test.want, b.Config().Passwd)
			if len(f.IDs()) > 0 || len(f.CaughtUpAt()) > 0 {
				t.Errorf("it emitted %q, and was caught up %d times", f.IDs(), len(f.CaughtUpAt()))
			}
			// Following without a checkpoint suffices.
			f = start(t, b.options(), "")
			f.WaitCaughtUp()
			b.exec("INSERT INTO orders (id) VALUES ('a')")
			f.Want("a")
		})
	}
}

// TestResetWhileFollowed resets the log while a follower runs.
func TestResetWhileFollowed(t *testing.T) {
	b := startServer(t)
	b.exec("INSERT INTO orders (id) VALUES ('a'), ('b')")
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	b.exec("RESET MASTER")
	f.WantError(follow.ErrGone, "", b.Config().Passwd)
}

func TestInvalidCheckpoints(t *testing.T) {
	b := startServer(t)
	for _, from := range []string{"x", "{}", `{"server":"s"}`, `{"server":"s","gtid":"0-1-2"}`, `{"server":"s","file":"f","pos":-1}`} {
		f := start(t, b.options(), from)
		f.WantError(follow.ErrGone, "is no position in a binary log", b.Config().Passwd)
	}
	f := start(t, b.options(), `{"server":"another","file":"mariadb-bin.000001","pos":4}`)
	f.WantError(follow.ErrGone, "transactions have no names", b.Config().Passwd)
	f = start(t, b.options(), `{"server":"another","gtid":"mariadb:0-99-1000"}`)
	f.WantError(follow.ErrGone, "", b.Config().Passwd)
	f = start(t, b.options(), `{"server":"another","gtid":"mysql:3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"}`)
	f.WantError(follow.ErrGone, "", b.Config().Passwd)
}

// TestAnotherServer continues with a server that was a replica of the first.
func TestAnotherServer(t *testing.T) {
	b := startServer(t)
	replica := startReplica(t, b)
	b.exec("INSERT INTO orders (id) VALUES ('a')")
	from := b.checkpoint()
	b.exec("INSERT INTO orders (id) VALUES ('b'), ('c')")
	replica.has("c")
	b.Kill()
	replica.exec("STOP SLAVE")
	replica.exec("INSERT INTO orders (id) VALUES ('d')")

	f := start(t, replica.options(), from)
	f.Want("b", "c", "d")
	replica.exec("FLUSH BINARY LOGS")
	replica.exec("INSERT INTO orders (id) VALUES ('e')")
	f.Want("b", "c", "d", "e")
	// From now on it is a checkpoint on this server.
	p, err := parseCheckpoint(f.Stop())
	if err != nil || p.Pos == 0 || p.File != "mariadb-bin.000002" {
		t.Errorf("checkpoint %+v, %v", p, err)
	}
	replica.exec("INSERT INTO orders (id) VALUES ('f')")
	start(t, replica.options(), f.Last()).Want("f")
}

// TestDiverged continues with a server that lacks transactions that the follower saw.
func TestDiverged(t *testing.T) {
	b := startServer(t)
	replica := startReplica(t, b)
	replica.exec("STOP SLAVE")
	b.exec("INSERT INTO orders (id) VALUES ('lost')")
	from := b.checkpoint()
	for range 3 {
		replica.exec("INSERT INTO orders (id) VALUES ('x')")
	}
	start(t, replica.options(), from).WantError(follow.ErrGone, "", replica.Config().Passwd)
}

// TestReadOnly follows a read-only server. It emits correct IDs, but its lag behind the writable
// server is unknown.
func TestReadOnly(t *testing.T) {
	b := startServer(t)
	replica := startReplica(t, b)
	replica.exec("SET GLOBAL read_only = 1")
	f := start(t, replica.options(), "")
	bedtest.Eventually(t, "the first checkpoint", func() bool { return f.Last() != "" })
	b.exec("INSERT INTO orders (id) VALUES ('a')")
	bedtest.Eventually(t, "the row", func() bool { return len(f.IDs()) == 1 })
	if caught := len(f.CaughtUpAt()); caught != 0 {
		t.Errorf("it was caught up %d times", caught)
	}
	replica.exec("STOP SLAVE")
	replica.exec("SET GLOBAL read_only = 0")
	f.Want("a")
}

// TestPromotedBehind continues with a replica that was promoted, lacks transactions that the follower
// saw, and has none of its own yet.
func TestPromotedBehind(t *testing.T) {
	t.Parallel()
	b := startServer(t)
	replica := startReplica(t, b)
	replica.exec("STOP SLAVE")
	b.exec("INSERT INTO orders (id) VALUES ('lost')")
	from := b.checkpoint()
	start(t, replica.options(), from).WantError(follow.ErrGone, "", replica.Config().Passwd)
}

// TestNewFile emits no checkpoint in a file whose creation time is not known yet: another file of that
// name would pass for it.
func TestNewFile(t *testing.T) {
	b := startServer(t)
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	var ids []string
	for n := range 50 {
		ids = append(ids, strconv.Itoa(n))
		b.exec(fmt.Sprintf("INSERT INTO orders (id) VALUES ('%d')", n))
		b.exec("FLUSH BINARY LOGS")
	}
	f.Want(ids...)
	for _, c := range f.Chunks() {
		p, err := parseCheckpoint(c.Checkpoint)
		if err != nil || p.Created == 0 {
			t.Errorf("checkpoint %s: %v", c.Checkpoint, err)
		}
	}
}

// TestRestored follows a server that was restored from older files, with its name and logs. It has
// other changes at the positions that were passed on.
func TestRestored(t *testing.T) {
	for name, rows := range map[string]int{"shorter": 1, "longer": 200} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startServer(t)
			b.exec("INSERT INTO orders (id) VALUES ('kept')")
			var data string
			if err := b.db.QueryRowContext(t.Context(), "SELECT @@datadir").Scan(&data); err != nil {
				t.Fatal(err)
			}
			data = filepath.Clean(data)
			replace := func(from, to string) {
				t.Helper()
				if err := b.Stop(); err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(to); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				if err := b.Restart(context.WithoutCancel(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			replace(data, data+".old")
			for range 50 {
				b.insert("lost")
			}
			from := b.checkpoint()
			// The files of two logs differ by the second of their creation.
			created, err := parseCheckpoint(from)
			if err != nil {
				t.Fatal(err)
			}
			bedtest.Eventually(t, "a second passes", func() bool { return time.Now().Unix() > int64(created.Created) })
			replace(data+".old", data)
			for range rows {
				b.insert("a")
			}
			f := start(t, b.options(), from)
			f.WantError(follow.ErrGone, "", b.Config().Passwd)
			if len(f.IDs()) > 0 || len(f.CaughtUpAt()) > 0 {
				t.Errorf("it emitted %d IDs, and was caught up %d times", len(f.IDs()), len(f.CaughtUpAt()))
			}
		})
	}
}

// startReplica starts a replica of b.
func startReplica(t *testing.T, b *bed) *bed {
	t.Helper()
	r := startServer(t, "--server-id=8", "--log-slave-updates")
	r.exec("DROP TABLE orders")
	r.exec("RESET MASTER")
	_, port, err := net.SplitHostPort(b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	r.exec("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = " + port + ", MASTER_USER = 'root', MASTER_PASSWORD = '" + b.Config().Passwd +
		"', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1")
	r.exec("START SLAVE")
	b.exec("INSERT INTO orders (id) VALUES ('joined')")
	r.has("joined")
	return r
}

func (b *bed) has(id string) {
	b.t.Helper()
	bedtest.Eventually(b.t, "the replica has "+id, func() bool {
		var n int
		err := b.db.QueryRowContext(b.t.Context(), "SELECT COUNT(*) FROM orders WHERE id = ?", id).Scan(&n)
		return err == nil && n > 0
	})
}
