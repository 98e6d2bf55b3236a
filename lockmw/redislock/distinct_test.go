package redislock

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// benchLocker returns a Locker on a server of its own, with enough connections for
// callers that do not share them.
func benchLocker(b *testing.B) *Locker {
	b.Helper()
	opts := clientOptions(bedtest.New(b).Redis().Addr())
	opts.PoolSize = 64
	client := redis.NewUniversalClient(opts)
	l, err := New(client, Options{Wait: Wait{UpTo: 10 * time.Second}, MaxWaitersPerKey: 100})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		l.Close()
		_ = client.Close()
	})
	cycle(b, l, "warm")
	return l
}

// cycle takes a lock and gives it back.
func cycle(b *testing.B, l *Locker, key string) {
	lease, err := l.Acquire(b.Context(), key)
	if err == nil {
		err = lease.Release(b.Context())
	}
	if err != nil {
		b.Error(err)
	}
}

// crowd shares b.N cycles among so many goroutines.
func crowd(b *testing.B, callers int, do func(caller int)) {
	var wg sync.WaitGroup
	for i := range callers {
		n := b.N / callers
		if i < b.N%callers {
			n++
		}
		wg.Go(func() {
			for range n {
				do(i)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

// BenchmarkUncontended is one caller with a key that nobody else wants: two round
// trips.
func BenchmarkUncontended(b *testing.B) {
	l := benchLocker(b)
	b.ReportAllocs()
	b.ResetTimer()
	crowd(b, 1, func(int) { cycle(b, l, "order:lock:1001") })
}

// BenchmarkDistinctKeys is many callers, each with a key of its own: what the
// sharing of round trips is for.
func BenchmarkDistinctKeys(b *testing.B) {
	for _, callers := range []int{2, 8, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			l := benchLocker(b)
			keys := names("order:lock:", callers)
			b.ReportAllocs()
			b.ResetTimer()
			crowd(b, callers, func(caller int) { cycle(b, l, keys[caller]) })
		})
	}
}

// BenchmarkOneKey is many callers of one process with the same key: what the
// hand-over is for.
func BenchmarkOneKey(b *testing.B) {
	l := benchLocker(b)
	b.ReportAllocs()
	b.ResetTimer()
	crowd(b, 64, func(int) { cycle(b, l, "order:lock:1001") })
}
