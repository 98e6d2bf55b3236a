package binlog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
	"github.com/ordergate/ordergate/tests/testbed/followtest"
)

// TestKilledAtAnyMoment stops the follower repeatedly while rows are written.
func TestKilledAtAnyMoment(t *testing.T) {
	b := startServer(t, "--max-binlog-size=65536") // some forty files
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
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := 0; ctx.Err() == nil; i++ {
			want = append(want, b.writeSome(i)...)
			select {
			case <-time.After(time.Millisecond): // or the log grows faster than it is read
			case <-ctx.Done():
			}
		}
	}()
	kills := 0
	for ; kills < 25; kills++ {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(100*time.Millisecond))
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
func (b *bed) writeSome(i int) (ids []string) {
	ctx := context.WithoutCancel(b.t.Context())
	if i%50 == 49 {
		if _, err := b.db.ExecContext(ctx, "INSERT INTO orders (id) SELECT CONCAT(?, seq) FROM seq_1_to_2500", fmt.Sprintf("%d-", i)); err != nil {
			b.t.Error(err)
			return nil
		}
		for n := range 2500 {
			ids = append(ids, fmt.Sprintf("%d-%d", i, n+1))
		}
		return ids
	}
	query, rows := "INSERT INTO orders (note, id) VALUES (REPEAT('x', 1000), ?)", []any{}
	for n := range 1 + rand.IntN(12) {
		if n > 0 {
			query += ", ('y', ?)"
		}
		ids = append(ids, fmt.Sprintf("%d-%d", i, n))
		rows = append(rows, ids[n])
	}
	if _, err := b.db.ExecContext(ctx, query, rows...); err != nil {
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
	b.exec("INSERT INTO orders (id) VALUES ('a')")
	f.WaitCaughtUp()
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.insert("b")
	f.Want("a", "b")
	b.Kill()
	if err := b.MariaDB.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.insert("c")
	f.Want("a", "b", "c")
}

// insert inserts an ID once the server has restarted.
func (b *bed) insert(id string) {
	b.t.Helper()
	bedtest.Eventually(b.t, "the server takes a row", func() bool {
		_, err := b.db.ExecContext(b.t.Context(), "INSERT INTO orders (id) VALUES (?)", id)
		return err == nil
	})
}
