package testbed

import (
	"context"
	"slices"
	"strconv"
	"time"
)

// RedissonLatch is an RCountDownLatch as one thread sees it.
type RedissonLatch struct {
	thread *RedissonThread
	name   string
}

// Latch returns the one of getCountDownLatch.
func (t *RedissonThread) Latch(name string) *RedissonLatch {
	return &RedissonLatch{thread: t, name: name}
}

// TrySetCount sets the count, unless there is one, which it reports.
func (l *RedissonLatch) TrySetCount(ctx context.Context, count int64) (bool, error) {
	return l.thread.boolOf(ctx, "trySetCount", l.args(strconv.FormatInt(count, 10))...)
}

// CountDown lowers the count by 1. At 0, it wakes the waiters.
func (l *RedissonLatch) CountDown(ctx context.Context) error {
	_, err := l.thread.call(ctx, "countDown", l.args()...)
	return err
}

// Count returns the count, 0 if there is no latch.
func (l *RedissonLatch) Count(ctx context.Context) (int64, error) {
	n, _, err := l.thread.intOf(ctx, "getCount", l.args()...)
	return n, err
}

// Await waits for the count 0 as long as wait, and reports whether it was reached.
func (l *RedissonLatch) Await(ctx context.Context, wait time.Duration) (bool, error) {
	return l.thread.boolOf(ctx, "await", l.args(millis(wait))...)
}

func (l *RedissonLatch) args(own ...string) []string {
	return slices.Concat([]string{"latch"}, own, []string{l.name})
}
