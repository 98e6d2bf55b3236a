package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/testbed/bedtest"
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
	{"takes all or none", allOrNone},
	{"loads its scripts again", flushed},
	{"grows its fence", growsFence},
}

// TestEveryLock is the suite.
func TestEveryLock(t *testing.T) {
	for _, top := range topologies {
		t.Run(top.name, func(t *testing.T) {
			clients := top.start(t, 3)
			for _, s := range sorts {
				if s.quorum && len(clients) < 3 {
					continue // its servers are independent of each other
				}
				t.Run(s.name, func(t *testing.T) {
					for i, b := range behaviours {
						t.Run(b.name, func(t *testing.T) {
							b.test(t, &bench{sort: s, clients: clients, key: fmt.Sprintf("order:lock:%s-%d", s.name, i)})
						})
					}
				})
			}
		})
	}
}

func excludes(t *testing.T, b *bench) {
	holder, other := b.rivals(t, Options{}), b.locker(t, Options{})
	held := acquire(t, holder, b.key)
	if _, err := other.Acquire(t.Context(), b.key); !errors.Is(err, ErrBusy) {
		t.Fatalf("while it is held: %v, want ErrBusy", err)
	}
	release(t, acquire(t, other, b.key+"0")) // another key is free
	release(t, held)
	release(t, acquire(t, other, b.key))
}

// wakes would take an hour if releases did not wake.
func wakes(t *testing.T, b *bench) {
	holder, waiter := b.rivals(t, Options{}), b.locker(t, Options{Wait: never})
	for range 10 {
		held := acquire(t, holder, b.key)
		got := async(t.Context(), waiter, b.key)
		bedtest.Eventually(t, "somebody waits", func() bool { return waiter.Waiting() == 1 })
		release(t, held)
		release(t, (<-got).ok(t))
	}
}

// expires has a holder that died without a word.
func expires(t *testing.T, b *bench) {
	dead := b.rivals(t, Options{Lease: 300 * time.Millisecond})
	acquire(t, dead, b.key)
	dead.Close() // renews no more
	start := time.Now()
	got := async(t.Context(), b.locker(t, Options{Wait: Wait{UpTo: time.Minute}}), b.key)
	release(t, (<-got).ok(t))
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("a lease of 300ms was waited for for %v", took)
	}
	b.free(t)
}

func reenters(t *testing.T, b *bench) {
	if b.quorum {
		t.Skip("leases of a quorum are not re-entered")
	}
	l, other, rival := b.locker(t, Options{}), b.locker(t, Options{}), b.rivals(t, Options{})
	outer := acquire(t, l, b.key)
	inner := acquire(t, other, b.key, Reenter(outer.Owner()))
	if inner.Fence() != outer.Fence() || inner.Owner() != outer.Owner() {
		t.Errorf("inner %s %d, outer %s %d", inner.Owner(), inner.Fence(), outer.Owner(), outer.Fence())
	}
	release(t, inner)
	if _, err := rival.Acquire(t.Context(), b.key); !errors.Is(err, ErrBusy) {
		t.Fatalf("after the inner release: %v, want ErrBusy", err)
	}
	again := acquire(t, other, b.key, Reenter(outer.Owner()))
	release(t, outer)
	if b.opts.Kind != Semaphore { // whose re-entries share the outer permit
		if _, err := rival.Acquire(t.Context(), b.key); !errors.Is(err, ErrBusy) {
			t.Fatalf("while the inner one goes on: %v, want ErrBusy", err)
		}
	}
	release(t, again)
	b.free(t)
	// A lease that is over, or was never one, is no key to anything.
	held := acquire(t, rival, b.key)
	for _, presented := range []string{outer.Owner(), "made-up", ""} {
		if _, err := l.Acquire(t.Context(), b.key, Reenter(presented)); !errors.Is(err, ErrBusy) {
			t.Errorf("presenting %q: %v, want ErrBusy", presented, err)
		}
	}
	release(t, held)
}

// isLost has an operator delete everything about the lock.
func isLost(t *testing.T, b *bench) {
	l := b.locker(t, Options{Lease: time.Second})
	lease := acquire(t, l, b.key)
	for _, c := range b.clients {
		for _, key := range []string{b.key, after(b.key, permitsOfSuffix), after(b.key, permitsSuffix)} {
			c.Del(t.Context(), key)
		}
	}
	<-lease.Lost()
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("releasing what is known to be lost: %v", err)
	}
	if l.Held() != 0 {
		t.Error("a lost lease is still renewed")
	}
	b.free(t)
}

func isHeldOn(t *testing.T, b *bench) {
	l := b.locker(t, Options{Hold: time.Second})
	lease := acquire(t, l, b.key, Request("settle 7"))
	if err := lease.Hold(t.Context(), "nobody knows"); err != nil {
		t.Fatal(err)
	}
	field := l.field(lease.Owner())
	bedtest.Eventually(t, "a record", func() bool { // of a quorum, one server may be late
		note := b.clients[0].HGet(t.Context(), after(b.key, recordSuffix), field).Val()
		return strings.Contains(note, "nobody knows") && strings.Contains(note, "settle 7")
	})
	if _, err := b.rivals(t, Options{}).Acquire(t.Context(), b.key); !errors.Is(err, ErrBusy) {
		t.Fatalf("while it is held on: %v, want ErrBusy", err)
	}
	release(t, (<-async(t.Context(), b.rivals(t, Options{Wait: Wait{UpTo: time.Minute}}), b.key)).ok(t))
}

// waitsInLine has many callers in several processes, as it were, and counts who
// is inside.
func waitsInLine(t *testing.T, b *bench) {
	each := 15
	if b.quorum {
		each = 5 // everybody asks everywhere, and again when the votes were split
	}
	var mu sync.Mutex
	inside, shared, turns := 0, 0, 0
	var wg sync.WaitGroup
	work := func(l *Locker, kind Kind) {
		lease, err := l.Acquire(t.Context(), b.key)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		turns++
		if kind == Read {
			shared++
		} else {
			inside++
		}
		if inside > 1 || inside > 0 && shared > 0 {
			t.Errorf("%d are inside, and %d readers", inside, shared)
		}
		mu.Unlock()
		mu.Lock()
		if kind == Read {
			shared--
		} else {
			inside--
		}
		mu.Unlock()
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	opts := Options{Wait: Wait{UpTo: time.Minute}}
	lockers := []*Locker{b.locker(t, opts), b.locker(t, opts), b.rivals(t, opts)}
	for _, l := range lockers {
		for range each {
			wg.Go(func() { work(l, l.opts.Kind) })
		}
	}
	wg.Wait()
	if turns != len(lockers)*each {
		t.Errorf("%d turns, want %d", turns, len(lockers)*each)
	}
	for _, l := range lockers {
		if l.Waiting() != 0 || l.Held() != 0 {
			t.Errorf("%d wait, %d are held", l.Waiting(), l.Held())
		}
	}
	b.free(t)
}

// aborts has callers leave at random moments of asking, waiting and being granted,
// and looks for what they left behind.
func aborts(t *testing.T, b *bench) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	opts := Options{Wait: Wait{UpTo: time.Minute}}
	lockers := []*Locker{b.locker(t, opts), b.rivals(t, opts)}
	for range 8 {
		var wg sync.WaitGroup
		for range 12 {
			l, patience := lockers[random.IntN(2)], time.Duration(random.IntN(4000))*time.Microsecond
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if lease, err := l.Acquire(ctx, b.key); err == nil {
					_ = lease.Release(t.Context())
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, l := range lockers {
			l.cleanup.Wait()
			if l.Waiting() != 0 || l.Held() != 0 {
				t.Fatalf("%d wait, %d are held", l.Waiting(), l.Held())
			}
		}
		b.free(t)
	}
}

func allOrNone(t *testing.T, b *bench) {
	keys := make([]string, 5)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s:%d", b.key, i)
	}
	holder := b.rivals(t, Options{})
	l := b.locker(t, Options{})
	held := acquire(t, holder, keys[3])
	if _, err := l.AcquireAll(t.Context(), keys); !errors.Is(err, ErrBusy) {
		t.Fatalf("with one taken: %v, want ErrBusy", err)
	}
	l.cleanup.Wait()
	for i, key := range keys {
		if i != 3 {
			release(t, acquire(t, holder, key)) // none was kept
		}
	}
	waiter := b.locker(t, Options{Wait: never})
	got := make(chan result, 1)
	go func() {
		lease, err := waiter.AcquireAll(t.Context(), []string{keys[4], keys[3], keys[0], keys[3]})
		got <- result{lease, err}
	}()
	bedtest.Eventually(t, "it waits", func() bool { return waiter.Waiting() == 1 })
	release(t, held)
	all := (<-got).ok(t)
	if n := len(all.Fences()); n != 3 || all.Key() != keys[0] {
		t.Errorf("%d fences from %s, want 3 from %s", n, all.Key(), keys[0])
	}
	if _, err := holder.Acquire(t.Context(), keys[4]); !errors.Is(err, ErrBusy) {
		t.Errorf("one of all: %v, want ErrBusy", err)
	}
	release(t, all)
	crossed(t, b, keys)
	for _, key := range keys {
		release(t, acquire(t, holder, key))
	}
}

// crossed has callers that want overlapping sets of keys: none waits for ever.
func crossed(t *testing.T, b *bench, keys []string) {
	lockers := []*Locker{
		b.locker(t, Options{Wait: Wait{UpTo: time.Minute}}), b.locker(t, Options{Wait: Wait{UpTo: time.Minute}}),
	}
	callers := 12
	if b.quorum {
		callers = 5
	}
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			lease, err := lockers[i%2].AcquireAll(t.Context(), []string{keys[i%5], keys[(i+2)%5], keys[(i+3)%5]})
			if err != nil {
				t.Error(err)
				return
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// flushed is what a failover or an operator may do.
func flushed(t *testing.T, b *bench) {
	flush := func() {
		for _, c := range b.clients {
			if cl, ok := c.(*redis.ClusterClient); ok {
				if err := cl.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
					return c.ScriptFlush(ctx).Err()
				}); err != nil {
					t.Fatal(err)
				}
			} else {
				c.ScriptFlush(t.Context())
			}
		}
	}
	l := b.locker(t, Options{Lease: time.Second})
	flush()
	lease := acquire(t, l, b.key)
	flush()
	end := endOf(lease)
	bedtest.Eventually(t, "it is renewed", func() bool { return endOf(lease).After(end) })
	flush()
	release(t, lease)
	b.free(t)
}

func growsFence(t *testing.T, b *bench) {
	l, last := b.locker(t, Options{}), int64(0)
	turn := func(why string) {
		t.Helper()
		lease := acquire(t, l, b.key)
		if lease.Fence() <= last {
			t.Errorf("%s: fence %d after %d", why, lease.Fence(), last)
		}
		last = lease.Fence()
		release(t, lease)
	}
	turn("first")
	turn("again")
	for _, c := range b.clients {
		c.Del(t.Context(), FenceKey(b.key))
	}
	turn("number lost")
	last += 1e12 // the clock was eleven days ahead, and was set back
	for _, c := range b.clients {
		c.Set(t.Context(), FenceKey(b.key), last, 0)
	}
	turn("clock set back")
	turn("and on")
}
