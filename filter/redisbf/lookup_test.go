package redisbf

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/redisbatch"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// gate counts the batches of a client, and holds them back while it is shut.
type gate struct {
	batches, commands atomic.Int64
	hold              atomic.Pointer[chan struct{}]
}

func (g *gate) shut() (open func()) {
	c := make(chan struct{})
	g.hold.Store(&c)
	return sync.OnceFunc(func() { g.hold.Store(nil); close(c) })
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() != "bitfield_ro" { // but what opens a connection, say
			return next(ctx, cmds)
		}
		g.batches.Add(1)
		g.commands.Add(int64(len(cmds)))
		if c := g.hold.Load(); c != nil {
			<-*c
		}
		return next(ctx, cmds)
	}
}

// gated is a set whose batches can be held back.
type gated struct {
	*Set
	*gate
}

func newGated(t *testing.T) gated {
	t.Helper()
	srv := single(t)
	g := &gate{}
	s := loaded(t, srv, variant{opts: Options{Kind: Bitmap}}.fill(), 100)
	srv.client.AddHook(g)
	return gated{s, g}
}

func (g gated) waiting() int { return g.lookups.batcher.Waiting() }

// engage has both batches on their way and held back. What waits for them returns
// how often the answer was Absent.
func (g gated) engage(t *testing.T) (wait func() int) {
	t.Helper()
	var wg sync.WaitGroup
	var absent atomic.Int64
	for i := range redisbatch.MaxWorkers {
		before := g.batches.Load()
		wg.Go(func() {
			a, err := g.Ask(context.Background(), fmt.Sprintf("engage-%d", i))
			if err != nil {
				t.Error(err)
			}
			if a == presence.Absent {
				absent.Add(1)
			}
		})
		bedtest.Eventually(t, "a batch is on its way", func() bool { return g.batches.Load() > before })
	}
	return func() int {
		wg.Wait()
		return int(absent.Load())
	}
}

func TestCallersShareBatches(t *testing.T) {
	g := newGated(t)
	open := g.shut()
	defer open()
	wait := g.engage(t)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			if a, err := g.Ask(context.Background(), fmt.Sprintf("order-%d", i)); a != presence.Maybe || err != nil {
				t.Errorf("order-%d is %v (%v)", i, a, err)
			}
		})
	}
	bedtest.Eventually(t, "64 wait", func() bool { return g.waiting() == 64 })
	open()
	wg.Wait()
	if n := wait(); n != redisbatch.MaxWorkers {
		t.Errorf("%d of the questions that were held back are answered", n)
	}
	// The role of the server is asked for in each.
	if batches, commands := g.batches.Load(), g.commands.Load(); batches != 3 || commands != 6 {
		t.Errorf("66 questions took %d batches of %d commands, want 3 of 6", batches, commands)
	}
}

func TestEqualIDs(t *testing.T) {
	g := newGated(t)
	open := g.shut()
	defer open()
	wait := g.engage(t)
	var wg sync.WaitGroup
	var cancelled atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 64 {
		ctx := ctx
		if i%2 == 0 {
			ctx = t.Context()
		}
		wg.Go(func() {
			a, err := g.Ask(ctx, "engage-0") // that is on its way already, and too old
			switch {
			case errors.Is(err, context.Canceled) && a == presence.Unknown:
				cancelled.Add(1)
			case a != presence.Maybe || err != nil:
				t.Errorf("it is %v (%v)", a, err)
			}
		})
	}
	callers := func() int {
		g.lookups.mu.Lock()
		defer g.lookups.mu.Unlock()
		if l := g.lookups.byID["engage-0"]; l != nil {
			return l.callers
		}
		return 0
	}
	bedtest.Eventually(t, "64 ask for one", func() bool { return callers() == 64 })
	cancel() // half of them leave
	bedtest.Eventually(t, "32 ask for one", func() bool { return callers() == 32 })
	if n := g.waiting(); n != 1 {
		t.Errorf("%d questions wait, want 1", n)
	}
	// Added before any of them is sent.
	other, err := New(connect(t, &redis.UniversalOptions{Addrs: []string{g.client.(*redis.Client).Options().Addr}}), g.opts)
	must(t, err)
	defer other.Close()
	must(t, other.Add(t.Context(), []string{"engage-0"}))
	before := g.batches.Load()
	open()
	wg.Wait()
	wait()
	if cancelled.Load() != 32 || g.batches.Load() != before+1 {
		t.Errorf("%d were cancelled, and %d batches were sent", cancelled.Load(), g.batches.Load()-before)
	}
}

func TestAbandoned(t *testing.T) {
	g := newGated(t)
	open := g.shut()
	defer open()
	wait := g.engage(t)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 64 {
		ctx := ctx
		if i%4 == 0 {
			ctx = t.Context()
		}
		wg.Go(func() {
			a, err := g.Ask(ctx, fmt.Sprintf("order-%d", i))
			if i%4 == 0 && (a != presence.Maybe || err != nil) || i%4 != 0 && (a != presence.Unknown || !errors.Is(err, context.Canceled)) {
				t.Errorf("order-%d is %v (%v)", i, a, err)
			}
		})
	}
	bedtest.Eventually(t, "64 wait", func() bool { return g.waiting() == 64 })
	cancel()
	bedtest.Eventually(t, "16 wait", func() bool { return g.waiting() == 16 })
	// One whose batch is held back leaves as well.
	gone, leave := context.WithCancel(t.Context())
	leave()
	if a, err := g.Ask(gone, "order-1"); a != presence.Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("it is %v (%v)", a, err)
	}
	open()
	wg.Wait()
	wait()
	if g.commands.Load() != 6 || len(g.lookups.byID) != 0 {
		t.Errorf("%d commands were sent, %d questions are left", g.commands.Load(), len(g.lookups.byID))
	}
}

func TestClose(t *testing.T) {
	g := newGated(t)
	open := g.shut()
	wait := g.engage(t)
	closed := make(chan struct{})
	go func() { g.Close(); close(closed) }()
	bedtest.Eventually(t, "it refuses questions", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := g.Ask(ctx, "late")
		return errors.Is(err, errClosed)
	})
	select {
	case <-closed:
		t.Error("it was closed before its batches landed")
	default:
	}
	open()
	wait()
	<-closed
}
