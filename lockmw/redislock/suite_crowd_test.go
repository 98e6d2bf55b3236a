package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

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
	abortsOf(t, b, func(ctx context.Context, l *Locker, key string) (*Lease, error) { return l.Acquire(ctx, key) },
		func(lease *Lease) { _ = lease.Release(t.Context()) })
}

// abortsAsync has those leave who wait without a goroutine.
func abortsAsync(t *testing.T, b *bench) {
	abortsOf(t, b, acquireAsync, func(lease *Lease) { _ = lease.Release(t.Context()) })
}

func abortsOf(t *testing.T, b *bench, acquire func(context.Context, *Locker, string) (*Lease, error), release func(*Lease)) {
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
				if lease, err := acquire(ctx, l, b.key); err == nil {
					release(lease)
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
