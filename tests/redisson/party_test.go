package redisson

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// sort is a lock that both sides have.
type sort struct {
	name    string
	kind    redislock.Kind
	permits int // of a semaphore
	java    func(*testbed.RedissonThread, string) javaLock
}

// javaLock is what the locks of Redisson have in common.
type javaLock interface {
	TryLock(ctx context.Context, wait, lease time.Duration) (bool, error)
	Unlock(ctx context.Context) error
}

var (
	exclusive = sort{"exclusive", redislock.Exclusive, 0,
		func(t *testbed.RedissonThread, name string) javaLock { return t.Lock(name) }}
	fenced = sort{"fenced", redislock.Exclusive, 0,
		func(t *testbed.RedissonThread, name string) javaLock { return t.FencedLock(name) }}
	fair = sort{"fair", redislock.Fair, 0,
		func(t *testbed.RedissonThread, name string) javaLock { return t.FairLock(name) }}
	read = sort{"read", redislock.Read, 0,
		func(t *testbed.RedissonThread, name string) javaLock { return t.ReadLock(name) }}
	write = sort{"write", redislock.Write, 0,
		func(t *testbed.RedissonThread, name string) javaLock { return t.WriteLock(name) }}
	semaphore = sort{"semaphore", redislock.Semaphore, 1,
		func(t *testbed.RedissonThread, name string) javaLock { return permit{t.Semaphore(name)} }}
)

// permit is a semaphore of Redisson's as a lock, which has no lease.
type permit struct{ *testbed.RedissonSemaphore }

func (p permit) TryLock(ctx context.Context, wait, _ time.Duration) (bool, error) {
	return p.TryAcquire(ctx, 1, wait)
}

func (p permit) Unlock(ctx context.Context) error { return p.Release(ctx, 1) }

// party is one of the two sides.
type party interface {
	// ask takes a lock for the length of lease, renewed or not. The grant is nil
	// when another has it for longer than is waited. It may run in any goroutine.
	ask(ctx context.Context, s sort, name string, lease time.Duration, w wait) (*grant, error)
	// waiting returns how many of this side wait for any lock.
	waiting(t *testing.T) int
}

// wait is how a party waits for a lock.
type wait int

const (
	notAtAll  wait = iota
	toBeWoken      // for patience; ours by a message only: its polls come too late
	untilFree      // for patience, by any means
)

// grant is a lock that somebody holds.
type grant struct {
	owner string
	at    time.Time // when its holder knew
	// release returns when it was called for.
	release func(context.Context) (time.Time, error)
	// abandon leaves the lock to its lease.
	abandon func()
}

// pair is who holds a lock, and who is to wait for it.
type pair struct {
	name           string
	holder, waiter party
}

// pairs returns each side as the holder, with the other waiting.
func (s *stack) pairs(t *testing.T) []pair {
	java, ours := newJavaParty(s), newGoParty(t, s)
	return []pair{{"Java holds", java, ours}, {"we hold", ours, java}}
}

// javaParty asks in a new Java thread each time.
type javaParty struct {
	*stack
	observer *testbed.RedissonThread
}

func newJavaParty(s *stack) *javaParty { return &javaParty{s, s.thread()} }

func (p *javaParty) waiting(t *testing.T) int {
	t.Helper()
	return value(p.observer.Waiting(t.Context()))(t)
}

func (p *javaParty) ask(ctx context.Context, s sort, name string, lease time.Duration, w wait) (*grant, error) {
	thread, err := p.java.Thread(ctx)
	if err != nil {
		return nil, err
	}
	lock := s.java(thread, name)
	limit := time.Duration(0)
	if w != notAtAll {
		limit = patience
	}
	ok, err := lock.TryLock(ctx, limit, lease)
	if err != nil || !ok {
		return nil, errors.Join(err, thread.Close())
	}
	return &grant{
		owner: thread.Owner(), at: thread.Last().Returned,
		release: func(ctx context.Context) (time.Time, error) {
			err := lock.Unlock(ctx)
			last := thread.Last()
			return last.Returned.Add(-last.Took), errors.Join(err, thread.Close())
		},
		abandon: func() { _ = thread.Close() }, // Redis is not told
	}, nil
}

// goParty has a Locker for each way that it is asked.
type goParty struct {
	stack *stack

	mu      sync.Mutex
	lockers map[redislock.Options]*redislock.Locker
}

func newGoParty(t *testing.T, s *stack) *goParty {
	p := &goParty{stack: s, lockers: make(map[redislock.Options]*redislock.Locker)}
	t.Cleanup(func() {
		p.mu.Lock() // of a test that failed, some may still wait
		defer p.mu.Unlock()
		for _, l := range p.lockers {
			l.Close()
		}
	})
	return p
}

// waits are a wait's options.
var waits = map[wait]redislock.Wait{
	toBeWoken: {Tries: 2, Every: time.Hour},
	untilFree: {UpTo: patience},
}

func (p *goParty) waiting(*testing.T) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, l := range p.lockers {
		n += l.Waiting()
	}
	return n
}

func (p *goParty) ask(ctx context.Context, s sort, name string, lease time.Duration, w wait) (*grant, error) {
	opts := redislock.Options{Kind: s.kind, Permits: s.permits, Lease: lease, Wait: waits[w], MaxWaitersPerKey: 100}
	p.mu.Lock()
	locker, err := p.lockers[opts], error(nil)
	if locker == nil {
		locker, err = redislock.New(p.stack.redis, opts)
		p.lockers[opts] = locker
	}
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	held, err := locker.Acquire(ctx, name)
	if errors.Is(err, redislock.ErrBusy) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &grant{
		owner: held.Owner(), at: time.Now(),
		release: func(ctx context.Context) (time.Time, error) {
			start := time.Now()
			return start, held.Release(ctx)
		},
		abandon: func() {
			p.mu.Lock()
			delete(p.lockers, opts)
			p.mu.Unlock()
			locker.Close()
		},
	}, nil
}

// take has a party get a lock that is free.
func take(t *testing.T, p party, s sort, name string, lease time.Duration) *grant {
	t.Helper()
	g := value(p.ask(t.Context(), s, name, lease, notAtAll))(t)
	if g == nil {
		t.Fatalf("%s: the lock is taken", s.name)
	}
	return g
}

// wait has a party wait for a lock that is taken, and returns once only a message
// or a poll ends that.
func (s *stack) wait(t *testing.T, p party, sort sort, name string, w wait) <-chan outcome[*grant] {
	t.Helper()
	before := p.waiting(t)
	done := background(func() (*grant, error) { return p.ask(t.Context(), sort, name, lease, w) })
	bedtest.Eventually(t, "somebody waits for "+name, func() bool {
		return p.waiting(t) > before && s.channels(t, name) > 0
	})
	return done
}

// channels counts the channels of a lock that somebody listens on.
func (s *stack) channels(t *testing.T, name string) int {
	t.Helper()
	ctx, pattern := t.Context(), "*"+name+"*"
	cluster, ok := s.redis.(*redis.ClusterClient)
	if !ok {
		return len(value(s.redis.PubSubChannels(ctx, pattern).Result())(t))
	}
	var n atomic.Int64
	must(t, cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		channels, err := master.PubSubShardChannels(ctx, pattern).Result()
		n.Add(int64(len(channels)))
		return err
	}))
	return int(n.Load())
}

// granted waits for a lock that was waited for.
func granted(t *testing.T, done <-chan outcome[*grant]) *grant {
	t.Helper()
	g := receive(t, done)
	if g == nil {
		t.Fatal("the lock was waited for in vain")
	}
	return g
}

// release gives a lock back and returns when that was begun.
func release(t *testing.T, g *grant) time.Time {
	t.Helper()
	return value(g.release(t.Context()))(t)
}
