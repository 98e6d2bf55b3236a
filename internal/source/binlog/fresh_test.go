package binlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
	"github.com/ordergate/ordergate/tests/testbed/followtest"
)

// TestIdle makes no changes.
func TestIdle(t *testing.T) {
	b := startServer(t)
	opts := b.options()
	opts.PollEvery = 0 // the default
	f := start(t, opts, "")
	f.WaitCaughtUp()
	began := time.Now()
	bedtest.Eventually(t, "three seconds pass", func() bool { return f.CaughtUpSince(began.Add(3 * time.Second)) })
	caught := f.CaughtUpAt()
	for i := 1; i < len(caught); i++ {
		if gap := caught[i].Sub(caught[i-1]); caught[i].After(began) && gap > 2*time.Second {
			t.Errorf("no report for %v", gap)
		}
	}
	if checkpoints := len(f.Chunks()); checkpoints != 1 {
		t.Errorf("%d checkpoints, want the first only", checkpoints)
	}
}

// TestPausedServer pauses the server. A client cannot distinguish it from an idle one.
func TestPausedServer(t *testing.T) {
	b := startServer(t)
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	if err := b.Pause(); err != nil {
		t.Fatal(err)
	}
	paused := time.Now()
	bedtest.Eventually(t, "time for it to be wrong in", func() bool {
		if f.CaughtUpSince(paused) {
			t.Fatal("it was caught up with a server that was paused")
		}
		return time.Since(paused) > 1500*time.Millisecond
	})
	if err := b.Resume(); err != nil {
		t.Fatal(err)
	}
	b.exec("INSERT INTO orders (id) VALUES ('a')")
	f.Want("a")

	// Such a server does not delay the end of the context.
	if err := b.Pause(); err != nil {
		t.Fatal(err)
	}
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
	if err := b.Resume(); err != nil {
		t.Fatal(err)
	}
}

// TestCaughtUpIsTrue writes from several clients, while the server restarts once. It checks that
// every transaction committed before a call of CaughtUp was emitted.
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
	until := time.Now().Add(2 * time.Second)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for n := 0; time.Now().Before(until); n++ {
				id := fmt.Sprintf("%d-%d", w, n)
				if _, err := b.db.ExecContext(ctx, "INSERT INTO orders (id, note) VALUES (?, ?)", id, strings.Repeat("x", n%2000)); err == nil {
					truth.Committed(id)
				}
			}
		})
	}
	bedtest.Eventually(t, "there are rows", func() bool { all, _ := truth.Writes(); return all > 100 })
	b.Kill()
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	bedtest.Eventually(t, "all is emitted", func() bool { all, sure := truth.Writes(); return all == sure })
	cancel()
	wg.Wait()
	all, _ := truth.Writes()
	t.Logf("%d rows, %d words", all, truth.Reports())
}

// TestEmitFails ends with the error of Emit.
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

// TestAdvance moves the checkpoint although the table has no changes.
func TestAdvance(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE TABLE other (id INT)")
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	first := f.Last()
	b.exec("INSERT INTO other VALUES (1)")
	b.exec("FLUSH BINARY LOGS")
	bedtest.Eventually(t, "the checkpoint is in the new file", func() bool {
		p, err := parseCheckpoint(f.Last())
		return f.Last() != first && err == nil && p.File == "mariadb-bin.000002" && p.Created != 0
	})
	f.Want()
}
