package logical

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// copyFiles copies a directory with its owners and modes.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// backUp copies the files of the server, and starts it again.
func (b *bed) backUp() (backup string) {
	b.t.Helper()
	data := b.query("SHOW data_directory")
	backup = data + ".old"
	if err := b.Stop(); err != nil {
		b.t.Fatal(err)
	}
	copyFiles(b.t, data, backup)
	b.restart()
	return backup
}

// restore restores the server from a copy. It then has its place, name and timeline, and older data.
func (b *bed) restore(backup string) {
	b.t.Helper()
	data := b.query("SHOW data_directory")
	if err := b.Stop(); err != nil {
		b.t.Fatal(err)
	}
	copyFiles(b.t, backup, data)
	b.restart()
}

func (b *bed) restart() {
	b.t.Helper()
	if err := b.Restart(context.WithoutCancel(b.t.Context())); err != nil {
		b.t.Fatal(err)
	}
}

// promote makes the server start on a timeline of its own, as a standby that is promoted does.
func (b *bed) promote() {
	b.t.Helper()
	data := b.query("SHOW data_directory")
	if err := b.Stop(); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
	b.restart()
	b.exec("SELECT pg_promote()")
	bedtest.Eventually(b.t, "it is promoted", func() bool { return b.query("SELECT pg_is_in_recovery()::text") == "false" })
}

// grow writes rows behind a checkpoint, so that the log's end does not show that it is another log.
func (b *bed) grow(from string) {
	b.t.Helper()
	p, err := parseCheckpoint(from)
	if err != nil {
		b.t.Fatal(err)
	}
	for b.query("SELECT (pg_current_wal_flush_lsn() > '"+p.LSN.String()+"')::text") != "true" {
		b.fill(100)
	}
}

// fill writes rows of another table, of 1 kB each.
func (b *bed) fill(rows int) {
	b.t.Helper()
	b.exec("CREATE TABLE IF NOT EXISTS other (note TEXT)", fmt.Sprintf("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, %d)", rows))
}

// TestRestored follows a server that was restored from older files. Its log has other changes at the
// positions that were passed on. Each row that it has was emitted, or the position is gone.
func TestRestored(t *testing.T) {
	for name, test := range map[string]struct {
		promoted bool // as a standby is that lacks changes
		slotless bool // an operator has made the slot again
		grown    bool // behind the checkpoint
		gone     string
	}{
		"shorter":            {gone: "the server's log ends at"},
		"longer":             {grown: true},
		"promoted":           {promoted: true, gone: "the server's log ends at"},
		"promoted, longer":   {promoted: true, grown: true, gone: "of timeline 1, which the server left at"},
		"promoted, new slot": {promoted: true, grown: true, slotless: true, gone: "of timeline 1, which"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := startServer(t)
			f := start(t, b.options(), "")
			f.WaitCaughtUp()
			f.Stop()
			backup := b.backUp()
			f = start(t, b.options(), f.Last())
			b.insert("lost")
			f.Want("lost")
			if !test.grown || test.slotless {
				b.fill(5000)
			}
			f.WaitCaughtUp()
			b.waitConfirmed()
			from := f.Stop()

			b.restore(backup)
			if test.promoted {
				b.promote()
			}
			b.insert("a")
			if test.slotless {
				b.exec("SELECT pg_drop_replication_slot('orders_slot')", "SELECT pg_create_logical_replication_slot('orders_slot', 'pgoutput')")
			}
			if test.grown {
				b.grow(from)
			}
			f = start(t, b.options(), from)
			if test.gone == "" {
				f.Want("a")
				return
			}
			f.WantError(follow.ErrGone, test.gone, b.password())
			if len(f.CaughtUpAt()) > 0 {
				t.Error("it was caught up")
			}
			f = start(t, b.options(), "")
			f.WaitCaughtUp()
			b.insert("b")
			f.Want("b")
		})
	}
}
