package logical

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// waitConfirmed waits until the slot has passed the present end of the log.
func (b *bed) waitConfirmed() {
	b.t.Helper()
	end := b.query("SELECT pg_current_wal_flush_lsn()::text")
	bedtest.Eventually(b.t, "the slot has passed the end of the log", func() bool {
		return b.query("SELECT (confirmed_flush_lsn >= '"+end+"')::text FROM pg_replication_slots") == "true"
	})
}

// TestLostCheckpoint follows without a checkpoint while the slot has changes that were not emitted.
func TestLostCheckpoint(t *testing.T) {
	t.Parallel()
	b := startServer(t)
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	f.Stop()
	b.waitSlotFree()
	b.insert("a")
	start(t, b.options(), "").Want("a")
}

// TestFirstCheckpointIsVisible has a row in the log, before the first checkpoint, that is not visible
// yet: its commit waits for a synchronous standby. The caller reads the table after the checkpoint.
func TestFirstCheckpointIsVisible(t *testing.T) {
	t.Parallel()
	b := startServer(t, "synchronous_commit=local")
	b.exec("ALTER SYSTEM SET synchronous_standby_names = 'away'", "SELECT pg_reload_conf()")
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	conn := b.connect()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for _, statement := range []string{"SET synchronous_commit = on", "INSERT INTO orders (id) VALUES ('a')"} {
			if _, err := conn.Exec(context.WithoutCancel(t.Context()), statement); err != nil {
				t.Errorf("%s: %v", statement, err)
			}
		}
	})
	defer b.exec("ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
	bedtest.Eventually(t, "the row is in the log", func() bool { return len(f.IDs()) == 1 })
	b.waitConfirmed()
	f.Stop()
	b.waitSlotFree()

	var log bedtest.Log
	opts := b.options()
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	f = start(t, opts, "")
	bedtest.Eventually(t, "it waits", func() bool {
		return strings.Contains(log.String(), "waiting for the end of transactions") || f.Last() != ""
	})
	if f.Last() != "" && b.query("SELECT count(*)::text FROM orders") == "0" {
		t.Error("a checkpoint behind a row that is not visible")
	}
	b.exec("ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
	f.WaitCaughtUp()
}
