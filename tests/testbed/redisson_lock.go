package testbed

import (
	"context"
	"slices"
	"strconv"
	"time"
)

// Renewed is the lease of Redisson's watchdog: the lock ends when it is unlocked,
// or some time after the process has died.
const Renewed = -time.Millisecond

// RedissonLock is an RLock as one thread sees it. Times count in milliseconds.
type RedissonLock struct {
	thread *RedissonThread
	kind   string
	names  []string
}

// Lock returns the lock of getLock.
func (t *RedissonThread) Lock(name string) *RedissonLock { return t.lock("lock", name) }

// FairLock returns the lock of getFairLock.
func (t *RedissonThread) FairLock(name string) *RedissonLock { return t.lock("fair", name) }

// ReadLock returns the read lock of getReadWriteLock.
func (t *RedissonThread) ReadLock(name string) *RedissonLock { return t.lock("read", name) }

// WriteLock returns the write lock of getReadWriteLock.
func (t *RedissonThread) WriteLock(name string) *RedissonLock { return t.lock("write", name) }

// MultiLock returns the lock of getMultiLock over getLock of each name. It has
// Lock, TryLock and Unlock only.
func (t *RedissonThread) MultiLock(names ...string) *RedissonLock { return t.lock("multi", names...) }

func (t *RedissonThread) lock(kind string, names ...string) *RedissonLock {
	return &RedissonLock{thread: t, kind: kind, names: names}
}

// Lock waits for the lock without an end.
func (l *RedissonLock) Lock(ctx context.Context, lease time.Duration) error {
	_, err := l.thread.call(ctx, "lock", l.args(millis(lease))...)
	return err
}

// TryLock waits for the lock as long as wait, and reports whether it has it.
func (l *RedissonLock) TryLock(ctx context.Context, wait, lease time.Duration) (bool, error) {
	return l.thread.boolOf(ctx, "tryLock", l.args(millis(wait), millis(lease))...)
}

// Unlock gives the lock up once. If the thread does not hold it, that is an
// IllegalMonitorStateException.
func (l *RedissonLock) Unlock(ctx context.Context) error {
	_, err := l.thread.call(ctx, "unlock", l.args()...)
	return err
}

// ForceUnlock frees the lock, whoever holds it, and reports whether somebody did.
func (l *RedissonLock) ForceUnlock(ctx context.Context) (bool, error) {
	return l.thread.boolOf(ctx, "forceUnlock", l.args()...)
}

// IsLocked reports whether anybody holds the lock.
func (l *RedissonLock) IsLocked(ctx context.Context) (bool, error) {
	return l.thread.boolOf(ctx, "isLocked", l.args()...)
}

// HoldCount returns how many times the thread has yet to unlock.
func (l *RedissonLock) HoldCount(ctx context.Context) (int, error) {
	n, _, err := l.thread.intOf(ctx, "holdCount", l.args()...)
	return int(n), err
}

// RemainTimeToLive returns what is left of the lease: -1 ms for a lock without
// an end, and -2 ms for one that nobody holds.
func (l *RedissonLock) RemainTimeToLive(ctx context.Context) (time.Duration, error) {
	n, _, err := l.thread.intOf(ctx, "remainTimeToLive", l.args()...)
	return time.Duration(n) * time.Millisecond, err
}

func (l *RedissonLock) args(own ...string) []string {
	return slices.Concat([]string{l.kind}, own, l.names)
}

// RedissonFencedLock is an RFencedLock as one thread sees it.
type RedissonFencedLock struct{ *RedissonLock }

// FencedLock returns the lock of getFencedLock.
func (t *RedissonThread) FencedLock(name string) *RedissonFencedLock {
	return &RedissonFencedLock{t.lock("fenced", name)}
}

// LockAndGetToken waits for the lock without an end and returns its token. The
// lease is the watchdog's.
func (l *RedissonFencedLock) LockAndGetToken(ctx context.Context) (int64, error) {
	token, _, err := l.thread.intOf(ctx, "lockAndGetToken", l.args()...)
	return token, err
}

// TryLockAndGetToken waits for the lock as long as wait, and reports whether it
// has it.
func (l *RedissonFencedLock) TryLockAndGetToken(ctx context.Context, wait, lease time.Duration) (token int64, ok bool, err error) {
	return l.thread.intOf(ctx, "tryLockAndGetToken", l.args(millis(wait), millis(lease))...)
}

// Token returns the token of the last grant to anybody, 0 if there was none.
func (l *RedissonFencedLock) Token(ctx context.Context) (int64, error) {
	token, _, err := l.thread.intOf(ctx, "getToken", l.args()...)
	return token, err
}

// RedissonSemaphore is an RSemaphore as one thread sees it.
type RedissonSemaphore struct {
	thread *RedissonThread
	name   string
}

// Semaphore returns the one of getSemaphore.
func (t *RedissonThread) Semaphore(name string) *RedissonSemaphore {
	return &RedissonSemaphore{thread: t, name: name}
}

// TrySetPermits sets the free permits, unless they were set before, which it
// reports.
func (s *RedissonSemaphore) TrySetPermits(ctx context.Context, permits int) (bool, error) {
	return s.thread.boolOf(ctx, "trySetPermits", s.args(strconv.Itoa(permits))...)
}

// Acquire waits for permits without an end.
func (s *RedissonSemaphore) Acquire(ctx context.Context, permits int) error {
	_, err := s.thread.call(ctx, "acquire", s.args(strconv.Itoa(permits))...)
	return err
}

// TryAcquire waits for permits as long as wait, and reports whether it has them.
func (s *RedissonSemaphore) TryAcquire(ctx context.Context, permits int, wait time.Duration) (bool, error) {
	return s.thread.boolOf(ctx, "tryAcquire", s.args(strconv.Itoa(permits), millis(wait))...)
}

// Release gives permits back, whoever took them.
func (s *RedissonSemaphore) Release(ctx context.Context, permits int) error {
	_, err := s.thread.call(ctx, "release", s.args(strconv.Itoa(permits))...)
	return err
}

// AvailablePermits returns how many are free.
func (s *RedissonSemaphore) AvailablePermits(ctx context.Context) (int, error) {
	n, _, err := s.thread.intOf(ctx, "availablePermits", s.args()...)
	return int(n), err
}

func (s *RedissonSemaphore) args(own ...string) []string {
	return slices.Concat([]string{"semaphore"}, own, []string{s.name})
}
