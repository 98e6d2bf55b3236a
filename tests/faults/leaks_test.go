package faults

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const (
	leakCallers = 64
	// leakHeap is what a heap may differ by after millions of locks: buffers of
	// connections, the detector's own.
	leakHeap = 8 << 20
)

// TestManyKeys takes and releases the locks of very many orders. Afterwards Redis
// has their fences and nothing else; the process has what it had before.
func TestManyKeys(t *testing.T) { // not beside others, whose memory it would count
	keys := 100_000
	if soak {
		keys = 1_000_000
	}
	c := connect(t, bedtest.New(t).Redis().Addr())
	l := newLocker(t, c, redislock.Options{Wait: redislock.Wait{UpTo: time.Minute}, MaxWaitersPerKey: 10})
	once := func(i int) {
		lease, err := l.Acquire(t.Context(), fmt.Sprintf("order:lock:%d", i))
		if err == nil {
			err = lease.Release(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	}
	bedtest.Each(leakCallers*10, leakCallers, once) // connections, scripts
	heap, goroutines := heapSize(), runtime.NumGoroutine()
	bedtest.Each(keys, leakCallers, once)
	mustBeQuiet(t, l)
	// Callers end before the runtime has counted them out.
	bedtest.Eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	if grown := int64(heapSize()) - int64(heap); grown > leakHeap {
		t.Errorf("the heap has grown by %d bytes", grown)
	} else {
		t.Logf("%d keys: the heap has grown by %d bytes", keys, grown)
	}
	mustHold(t, c, map[string]int{"fence": keys})
}

// TestLeftovers has the locks of many orders contended, by one that is granted the
// lock, one that leaves while it waits and one whose wait is over, for every kind.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	keys := 500
	if soak {
		keys = 10_000
	}
	for _, k := range []struct {
		opts redislock.Options
		left []string // for each key, besides the fence
	}{
		{redislock.Options{Kind: redislock.Exclusive}, nil},
		{redislock.Options{Kind: redislock.Exclusive, Format: redislock.String}, nil},
		{redislock.Options{Kind: redislock.Fair}, nil},
		{redislock.Options{Kind: redislock.Read}, nil},
		{redislock.Options{Kind: redislock.Write}, nil},
		{redislock.Options{Kind: redislock.Semaphore, Permits: 1}, []string{"semaphore", "permits"}},
	} {
		t.Run(fmt.Sprint(k.opts.Kind, k.opts.Format), func(t *testing.T) {
			c := connect(t, bedtest.New(t).Redis().Addr())
			want := map[string]int{"fence": keys}
			for _, what := range k.left {
				want[what] = keys
			}
			contend(t, []redis.UniversalClient{c}, k.opts, keys, redislockNew)
			mustHold(t, c, want)
		})
	}
}

// TestLeftoversOfAQuorum is TestLeftovers on three servers.
func TestLeftoversOfAQuorum(t *testing.T) {
	t.Parallel()
	keys := 200
	if soak {
		keys = 10_000
	}
	bed := bedtest.New(t)
	var clients []redis.UniversalClient
	for range 3 {
		clients = append(clients, connect(t, bed.Redis().Addr()))
	}
	contend(t, clients, redislock.Options{}, keys, redislock.NewQuorum)
	for _, c := range clients {
		// A server that was not needed for a majority may never have been asked.
		mustHold(t, c, map[string]int{"fence": keys})
	}
}

func redislockNew(clients []redis.UniversalClient, opts redislock.Options) (*redislock.Locker, error) {
	return redislock.New(clients[0], opts)
}

type maker func([]redis.UniversalClient, redislock.Options) (*redislock.Locker, error)

// contend has the lock of each key held by one Locker while three callers of
// another wait for it.
func contend(t *testing.T, clients []redis.UniversalClient, opts redislock.Options, keys int, build maker) {
	t.Helper()
	opts.Lease, opts.MaxWaitersPerKey = time.Minute, 10
	locker := func(kind redislock.Kind, w redislock.Wait) *redislock.Locker {
		o := opts
		o.Kind, o.Wait = kind, w
		l, err := build(clients, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
		return l
	}
	holding := opts.Kind
	if holding == redislock.Read { // readers alone do not contend
		holding = redislock.Write
	}
	a := locker(holding, redislock.Wait{})
	patient := locker(opts.Kind, redislock.Wait{UpTo: time.Minute})
	impatient := locker(opts.Kind, redislock.Wait{UpTo: 5 * time.Millisecond})
	bedtest.Each(keys, leakCallers, func(i int) {
		key := fmt.Sprintf("order:lock:%d", i)
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		held, err := a.Acquire(ctx, key)
		if err != nil {
			t.Error(err)
			return
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			lease, err := patient.Acquire(t.Context(), key)
			if err == nil {
				err = lease.Release(t.Context())
			}
			if err != nil {
				t.Error("patient:", err)
			}
		})
		wg.Go(func() {
			if lease, err := patient.Acquire(ctx, key); err == nil { // it was first in line
				err = lease.Release(t.Context())
				if err != nil {
					t.Error("leaving:", err)
				}
			} else if !errors.Is(err, context.Canceled) {
				t.Error("leaving:", err)
			}
		})
		if _, err := impatient.Acquire(ctx, key); !errors.Is(err, redislock.ErrBusy) {
			t.Error("impatient:", err)
		}
		leave()
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	for _, l := range []*redislock.Locker{a, patient, impatient} {
		mustBeQuiet(t, l)
		l.Close() // waits for what is given back
	}
}

func mustBeQuiet(t *testing.T, l *redislock.Locker) {
	t.Helper()
	if l.Held() != 0 || l.Waiting() != 0 {
		t.Errorf("%d held, %d waiting", l.Held(), l.Waiting())
	}
}

// heapSize returns the bytes of live objects.
func heapSize() uint64 {
	runtime.GC() // twice: pools are emptied at the second
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// mustHold compares what Redis has, by sort of key, with what it should. Fences have
// no end.
func mustHold(t *testing.T, c redis.UniversalClient, want map[string]int) {
	t.Helper()
	got := make(map[string]int)
	ctx := t.Context()
	for cursor := uint64(0); ; {
		keys, next, err := c.Scan(ctx, cursor, "", 1000).Result()
		if err != nil {
			t.Fatal(err)
		}
		ends := make([]*redis.DurationCmd, len(keys))
		if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, key := range keys {
				ends[i] = p.PTTL(ctx, key)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for i, key := range keys {
			sort := sortOf(key)
			got[sort]++
			if sort == "fence" && ends[i].Val() != -1 {
				t.Fatalf("%s ends in %v", key, ends[i].Val())
			}
			if want[sort] == 0 && got[sort] < 3 {
				t.Errorf("left in Redis: %s, ends in %v", key, ends[i].Val())
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	for sort, n := range want {
		if got[sort] != n {
			t.Errorf("Redis has %d keys of sort %q, not %d", got[sort], sort, n)
		}
	}
	t.Logf("Redis has %v", got)
}

// sortOf tells keys apart: the fence of a lock, the free permits of a semaphore
// and how many it was given, or the key itself.
func sortOf(key string) string {
	switch {
	case strings.HasPrefix(key, "redisson_lock_token:"):
		return "fence"
	case strings.HasSuffix(key, ":ordergate_permits"):
		return "permits"
	case strings.HasPrefix(key, "order:lock:"):
		return "semaphore" // or a lock, which nobody expects to find
	}
	return key
}
