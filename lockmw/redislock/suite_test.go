package redislock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// sort is a kind of lock in a format, and how the suite handles it.
type sort struct {
	name   string
	opts   Options
	rival  Kind // whose holder shuts this one out; "" when its own does
	quorum bool
}

var sorts = []sort{
	{name: "exclusive"},
	{name: "string", opts: Options{Format: String}},
	{name: "fair", opts: Options{Kind: Fair}},
	{name: "read", opts: Options{Kind: Read}, rival: Write},
	{name: "write", opts: Options{Kind: Write}, rival: Read},
	{name: "semaphore", opts: Options{Kind: Semaphore, Permits: 1}},
	{name: "quorum", quorum: true},
}

// case of the suite: one sort of lock on one topology.
type bench struct {
	sort
	clients []redis.UniversalClient
	key     string // this test's own
}

// locker returns a Locker of the sort, with a quarter of a minute's lease unless
// said.
func (b *bench) locker(t *testing.T, opts Options) *Locker {
	t.Helper()
	return b.lockerOf(t, b.opts.Kind, opts)
}

// rivals returns a Locker whose lease shuts out those of the sort.
func (b *bench) rivals(t *testing.T, opts Options) *Locker {
	t.Helper()
	if b.rival == "" {
		return b.locker(t, opts)
	}
	return b.lockerOf(t, b.rival, opts)
}

func (b *bench) lockerOf(t *testing.T, kind Kind, opts Options) *Locker {
	t.Helper()
	opts.Kind, opts.Format, opts.Permits = kind, b.opts.Format, b.opts.Permits
	if opts.Lease == 0 {
		opts.Lease = 15 * time.Second
	}
	if opts.MaxWaitersPerKey == 0 {
		opts.MaxWaitersPerKey = 1000
	}
	clients := b.clients
	if !b.quorum {
		clients = clients[:1]
	}
	l, err := build(clients, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// free fails the test unless the lock can be had at once.
func (b *bench) free(t *testing.T) {
	t.Helper()
	lease, err := b.rivals(t, Options{}).Acquire(t.Context(), b.key)
	if err == nil && b.rival != "" {
		err = errors.Join(lease.Release(t.Context()))
		if err == nil {
			lease, err = b.locker(t, Options{}).Acquire(t.Context(), b.key)
		}
	}
	if err != nil {
		t.Fatalf("the lock is not free: %v", err)
	}
	release(t, lease)
}

// async acquires in the background.
func async(ctx context.Context, l *Locker, key string) <-chan result {
	c := make(chan result, 1)
	go func() {
		lease, err := l.Acquire(ctx, key)
		c <- result{lease, err}
	}()
	return c
}

type result struct {
	lease *Lease
	err   error
}

func (r result) ok(t *testing.T) *Lease {
	t.Helper()
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.lease
}

// behaviours are what every sort of lock does on every topology.
var behaviours = []struct {
	name string
	test func(*testing.T, *bench)
}{
	{"excludes", excludes},
	{"wakes", wakes},
	{"expires", expires},
	{"reenters", reenters},
	{"is lost", isLost},
	{"is held on", isHeldOn},
	{"waits in line", waitsInLine},
	{"stops when its caller leaves", aborts},
	{"stops when who waits without a goroutine leaves", abortsAsync},
	{"takes all or none", allOrNone},
	{"grows its fence", growsFence},
	{"stores answers", storesAnswers},
}

// TestEveryLock is the suite.
func TestEveryLock(t *testing.T) {
	t.Parallel()
	for _, top := range topologies {
		t.Run(top.name, func(t *testing.T) {
			t.Parallel()
			clients := top.start(t, 3)
			for _, s := range sorts {
				if s.quorum && len(clients) < 3 {
					continue // its servers are independent of each other
				}
				on := func(what string) *bench {
					return &bench{sort: s, clients: clients, key: fmt.Sprintf("order:lock:%s-%s", s.name, what)}
				}
				// Alone, or another sort loads the scripts that are missing.
				t.Run(s.name+" loads its scripts again", func(t *testing.T) { flushed(t, on("flushed")) })
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					for i, b := range behaviours {
						t.Run(b.name, func(t *testing.T) { b.test(t, on(fmt.Sprint(i))) })
					}
				})
			}
		})
	}
}
