package bedtest

import (
	"context"

	"github.com/ordergate/ordergate/tests/testbed"
)

// Redisson starts a Java service with Redisson; see [testbed.Bed.Redisson].
func (b *Bed) Redisson(opts testbed.RedissonOptions) *testbed.Redisson {
	b.tb.Helper()
	return start(b, func(ctx context.Context) (*testbed.Redisson, error) { return b.Bed.Redisson(ctx, opts) })
}

// RedissonThread starts a thread that ends with the test; see
// [testbed.Redisson.Thread].
func (b *Bed) RedissonThread(r *testbed.Redisson) *testbed.RedissonThread {
	b.tb.Helper()
	thread := start(b, r.Thread)
	b.tb.Cleanup(func() { _ = thread.Close() }) // or when the test was done with it
	return thread
}
