package binlog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

// kept is a caller that keeps the last place, and all IDs that came before it.
type kept struct {
	mu  sync.Mutex
	at  string
	ids map[string]bool
	all int
}

func (k *kept) emit(ctx context.Context, ids []string, at string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err() // it is too late to be kept
	}
	for _, id := range ids {
		k.ids[id] = true
	}
	k.at, k.all = at, k.all+len(ids)
	return nil
}

// TestKilledAtAnyMoment stops the follower again and again while rows come.
func TestKilledAtAnyMoment(t *testing.T) {
	b := startServer(t, "--max-binlog-size=65536") // some forty files
	k := &kept{ids: map[string]bool{}}
	f, err := New(b.options())
	if err != nil {
		t.Fatal(err)
	}
	first, stop := context.WithCancel(t.Context())
	_ = f.Follow(first, "", func(ctx context.Context, ids []string, at string) error {
		defer stop()
		return k.emit(ctx, ids, at)
	}, func(time.Time) {})
	if k.at == "" {
		t.Fatal("no first place")
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
		_ = f.Follow(ctx, k.at, k.emit, func(time.Time) {})
		cancel()
	}
	cancel()
	<-written
	// The rest.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	since := time.Now()
	err = f.Follow(ctx, k.at, k.emit, func(at time.Time) {
		if at.After(since) {
			cancel()
		}
	})
	t.Logf("%d kills, %d IDs told for %d rows: %v", kills, k.all, len(want), err)
	missed := slices.DeleteFunc(want, func(id string) bool { return k.ids[id] })
	if len(missed) > 0 {
		t.Errorf("%d rows were never told, the first is %s", len(missed), missed[0])
	}
}

// writeSome writes a transaction of a few rows, now and then of many, and returns
// their IDs.
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

// TestServerRestarts stops and kills the server below a follower.
func TestServerRestarts(t *testing.T) {
	b := startServer(t)
	f := start(t, b.options(), "")
	f.fresh()
	b.exec("INSERT INTO orders (id) VALUES ('a')")
	f.fresh()
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.insert("b")
	f.want("a", "b")
	b.Kill()
	if err := b.MariaDB.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.insert("c")
	f.want("a", "b", "c")
}

// insert inserts an ID once the server is there again.
func (b *bed) insert(id string) {
	b.t.Helper()
	bedtest.Eventually(b.t, "the server takes a row", func() bool {
		_, err := b.db.ExecContext(b.t.Context(), "INSERT INTO orders (id) VALUES (?)", id)
		return err == nil
	})
}
