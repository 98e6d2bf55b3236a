package binlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

// caughtSince tells whether it was caught up with a moment after this one.
func (r *follower) caughtSince(since time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.caught) > 0 && r.caught[len(r.caught)-1].After(since)
}

// TestIdle has nothing happen.
func TestIdle(t *testing.T) {
	b := startServer(t)
	opts := b.options()
	opts.Every = 0 // the default
	f := start(t, opts, "")
	f.fresh()
	began := time.Now()
	bedtest.Eventually(t, "three seconds pass", func() bool { return f.caughtSince(began.Add(3 * time.Second)) })
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := 1; i < len(f.caught); i++ {
		if gap := f.caught[i].Sub(f.caught[i-1]); f.caught[i].After(began) && gap > time.Second {
			t.Errorf("no word for %v", gap)
		}
	}
	if places := len(f.at); places != 1 {
		t.Errorf("%d places, want the first only", places)
	}
}

// TestPausedServer stops the server from running: a client cannot tell that from a
// server on which nothing happens.
func TestPausedServer(t *testing.T) {
	b := startServer(t)
	f := start(t, b.options(), "")
	f.fresh()
	if err := b.Pause(); err != nil {
		t.Fatal(err)
	}
	paused := time.Now()
	<-time.After(1500 * time.Millisecond) // for it to be wrong in
	if f.caughtSince(paused) {
		t.Error("it was caught up with a server that was paused")
	}
	if err := b.Resume(); err != nil {
		t.Fatal(err)
	}
	b.exec("INSERT INTO orders (id) VALUES ('a')")
	f.want("a")

	// The end of the context is not held up by such a server.
	if err := b.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	f.stop()
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v to end", took)
	}
	f = start(t, b.options(), f.last())
	bedtest.Eventually(t, "it connects", func() bool { return time.Since(began) > 300*time.Millisecond })
	began = time.Now()
	f.stop()
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v to end while it connected", took)
	}
	if err := b.Resume(); err != nil {
		t.Fatal(err)
	}
}

// TestCaughtUpIsTrue writes from several clients, while the server restarts once, and
// checks each word: all that had been committed by that moment was told before.
func TestCaughtUpIsTrue(t *testing.T) {
	b := startServer(t)
	f, err := New(b.options())
	if err != nil {
		t.Fatal(err)
	}
	type write struct {
		id string
		at time.Time // when it was acknowledged
	}
	var mu sync.Mutex
	var writes []write
	told := map[string]bool{}
	checked, words := 0, 0

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	ready := make(chan struct{})
	wg.Go(func() {
		var once sync.Once
		err := f.Follow(ctx, "", func(_ context.Context, ids []string, _ string) error {
			once.Do(func() { close(ready) })
			for _, id := range ids {
				told[id] = true
			}
			return nil
		}, func(at time.Time) {
			mu.Lock()
			defer mu.Unlock()
			words++
			for _, w := range writes {
				if w.at.Before(at) && !told[w.id] {
					t.Errorf("%s was committed %v before, and not told", w.id, at.Sub(w.at))
					cancel()
				}
			}
			checked = len(writes)
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	<-ready
	until := time.Now().Add(2 * time.Second)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				id := fmt.Sprintf("%d-%d", w, n)
				if _, err := b.db.ExecContext(ctx, "INSERT INTO orders (id, note) VALUES (?, ?)", id, strings.Repeat("x", n%2000)); err == nil {
					mu.Lock()
					writes = append(writes, write{id, time.Now()})
					mu.Unlock()
				}
			}
		})
	}
	bedtest.Eventually(t, "there are words", func() bool { mu.Lock(); defer mu.Unlock(); return words > 5 && len(writes) > 100 })
	b.Kill()
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	bedtest.Eventually(t, "all is told", func() bool { mu.Lock(); defer mu.Unlock(); return checked == len(writes) })
	cancel()
	wg.Wait()
	t.Logf("%d rows, %d words", len(writes), words)
}

// TestEmitFails ends with the error of the one who was told.
func TestEmitFails(t *testing.T) {
	b := startServer(t)
	f, err := New(b.options())
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("no room")
	err = f.Follow(t.Context(), "", func(context.Context, []string, string) error { return full }, func(time.Time) {
		t.Error("it was caught up")
	})
	if !errors.Is(err, full) {
		t.Errorf("error %v, want %v", err, full)
	}
}

// TestAdvance moves the place although the table has no changes.
func TestAdvance(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE TABLE other (id INT)")
	f := start(t, b.options(), "")
	f.fresh()
	first := f.last()
	b.exec("INSERT INTO other VALUES (1)")
	b.exec("FLUSH BINARY LOGS")
	bedtest.Eventually(t, "the place is in the new file", func() bool {
		p, err := parsePlace(f.last())
		return f.last() != first && err == nil && p.File == "mariadb-bin.000002" && p.Born != 0
	})
	f.want()
}
