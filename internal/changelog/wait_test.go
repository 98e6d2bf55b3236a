package changelog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/orderid"
)

// countMisses appends through a, and looks up each ID at b right after its acknowledgement, from
// many goroutines. It returns how many IDs b did not have.
func countMisses(t *testing.T, a, b *instance, wait bool) (missed int64) {
	const writers, each = 20, 100
	var misses atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				id := fmt.Sprintf("%d-%d", w, n)
				if err := a.Append(t.Context(), id); err != nil {
					t.Error(err)
					return
				}
				if wait {
					if err := b.Wait(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
				if !b.has(id) {
					misses.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return misses.Load()
}

func TestWaitSeesEveryAcknowledgedEntry(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, b := runInstance(t, s, Options{Timeout: 10 * time.Second}), runInstance(t, s, idle)
		// A flood of lookups shares the reads with those of the test.
		ctx, cancel := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		defer flood.Wait()
		defer cancel()
		for range 20 {
			flood.Go(func() {
				for ctx.Err() == nil {
					if err := b.Wait(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		if n := countMisses(t, a, b, true); n != 0 {
			t.Errorf("%d acknowledged IDs were not there after Wait", n)
		}
		if got := b.Position(); got != 2000 {
			t.Errorf("position %d, want 2000", got)
		}
	})
}

// Without Wait the check of the test above must fail.
func TestEntriesAreMissedWithoutWait(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, b := runInstance(t, s, idle), runInstance(t, s, idle)
		b.mustWait(t) // b has completed its first read
		if n := countMisses(t, a, b, false); n != 2000 {
			t.Errorf("%d of 2000 IDs were missed by an instance that had no reason to read", n)
		}
	})
}

func TestAppendBeforeTheFirstRead(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a := newInstance(t, s, idle)
		const n = 25
		for i := range n {
			a.mustAppend(t, fmt.Sprint(i))
		}
		// With pages of 10, the first read takes three.
		b := runInstance(t, s, Options{PollEvery: time.Hour, Timeout: 10 * time.Second, PageSize: 10})
		b.mustWait(t)
		if b.count() != n || b.Position() != n {
			t.Errorf("%d IDs, position %d; want %d", b.count(), b.Position(), n)
		}
		st := b.State()
		if st.Phase != Following || st.Tail != n || st.LastRead.IsZero() || st.Err != nil {
			t.Errorf("state %+v", st)
		}
	})
}

func TestPollFollowsWithoutWait(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a := newInstance(t, s, idle)
		b := runInstance(t, s, Options{PollEvery: time.Millisecond, Timeout: 10 * time.Second})
		a.mustAppend(t, "1001")
		eventually(t, "the ID arrives by polling", func() bool { return b.has("1001") })
	})
}

// gate holds back the replies of a client's scripts until it is opened.
type gate struct {
	entered chan struct{} // receives after a script has run
	open    chan struct{}
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }
func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") {
			select {
			case g.entered <- struct{}{}:
			default:
			}
			<-g.open
		}
		return err
	}
}

func TestCallersOfWaitShareALaterRead(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, b := newInstance(t, s, idle), runInstance(t, s, idle)
		b.mustWait(t)
		before := b.State().Reads
		g := &gate{entered: make(chan struct{}, 1), open: make(chan struct{})}
		b.client.AddHook(g)

		var wg sync.WaitGroup
		wait := func(id string) {
			wg.Go(func() {
				if err := b.Wait(t.Context()); err != nil {
					t.Error(err)
				} else if id != "" && !b.has(id) {
					t.Error("Wait returned after a read that had begun before it was called")
				}
			})
		}
		wait("")
		<-g.entered // the read of the first caller has seen the tail
		a.mustAppend(t, "1001")
		const n = 1000
		for range n {
			wait("1001")
		}
		eventually(t, "all of them wait", func() bool { return b.waiting() == n })
		close(g.open)
		wg.Wait()
		if got := b.State().Reads - before; got != 2 {
			t.Errorf("%d reads, want 2: the one under way, and one for all that came after it began", got)
		}
	})
}

func TestFloodCostsFewReads(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		b := runInstance(t, s, idle)
		b.mustWait(t)
		before := b.State().Reads
		start := make(chan struct{})
		var wg sync.WaitGroup
		const n = 1000
		for range n {
			wg.Go(func() {
				<-start
				if err := b.Wait(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		if got := b.State().Reads - before; got > n/2 {
			t.Errorf("%d reads for %d callers at once", got, n)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		b := newInstance(t, s, idle) // not running: only its context ends the wait
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait = %v, want the context's error", err)
		}
		b.opts.Timeout = time.Millisecond
		if err := b.Wait(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Wait = %v, want ErrUnavailable after the limit", err)
		}
	})
}

func TestRunEnds(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		b := runInstance(t, s, idle)
		b.mustWait(t)
		if err := b.Run(t.Context()); err == nil {
			t.Error("a second Run was accepted")
		}
		b.stop()
		if err := b.Wait(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Wait after Run = %v, want ErrUnavailable", err)
		}
		if got := b.State().Phase; got != Stopped {
			t.Errorf("phase %s", got)
		}
	})
}

func TestRedisStopsAndRestarts(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a := newInstance(t, s, idle)
		b := runInstance(t, s, Options{PollEvery: time.Millisecond, Timeout: 10 * time.Second})
		a.mustAppend(t, "1")
		b.mustWait(t)
		s.stop(t)
		if err := a.Append(t.Context(), "2"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Append = %v, want ErrUnavailable", err)
		}
		eventually(t, "the loss is noticed", func() bool { return b.State().Phase == Unavailable })
		if err := b.Wait(t.Context()); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBroken) {
			t.Errorf("Wait = %v, want ErrUnavailable", err)
		}
		s.start(t)
		eventually(t, "the log is read again", func() bool { return b.Wait(t.Context()) == nil })
		a.mustAppend(t, "2")
		b.mustWait(t)
		if !b.has("1") || !b.has("2") {
			t.Errorf("IDs %v", b.ids)
		}
	})
}

// A Redis that accepts connections and never answers must not block callers beyond the timeout.
func TestRedisThatHangs(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client := newClient(t, &redis.Options{Addr: ln.Addr().String(), ContextTimeoutEnabled: true})
	log, err := New(client, "orders", func(string) {}, Options{Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- log.Run(ctx) }()
	if err := log.Wait(t.Context()); !errors.Is(err, ErrUnavailable) {
		t.Errorf("Wait = %v, want ErrUnavailable", err)
	}
	eventually(t, "the reader gives up", func() bool { return log.State().Phase == Unavailable })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestScriptsAreLoadedAgain(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, b := newInstance(t, s, idle), runInstance(t, s, idle)
		a.mustAppend(t, "1")
		b.mustWait(t)
		if err := a.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		a.mustAppend(t, "2")
		if err := a.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		b.mustWait(t)
		if !b.has("2") {
			t.Error("the second ID is missing")
		}
	})
}

func TestIDsAreBounded(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		b := runInstance(t, s, idle)
		for _, tc := range []struct {
			name string
			id   string
			ok   bool
		}{
			{"empty", "", false},
			{"one byte", "x", true},
			{"longest", strings.Repeat("x", orderid.MaxBytes), true},
			{"too long", strings.Repeat("x", orderid.MaxBytes+1), false},
			{"binary", "\x00\xff\r\n", true},
		} {
			err := b.Append(t.Context(), tc.id)
			if tc.ok != (err == nil) || !tc.ok && !errors.Is(err, ErrBadID) {
				t.Errorf("%s: Append = %v", tc.name, err)
			}
			b.mustWait(t)
			if b.has(tc.id) != tc.ok {
				t.Errorf("%s: applied %v, want %v", tc.name, b.has(tc.id), tc.ok)
			}
		}
	})
}

func TestNewRefusesNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a{b", "a}b"} {
		if _, err := New(nil, name, nil, Options{}); err == nil {
			t.Errorf("New accepted filter %q", name)
		}
	}
}

// waiting returns the callers of Wait whose read has not begun.
func (l *Log) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nextRead == nil {
		return 0
	}
	return l.nextRead.waiters
}
