// Package redislock takes locks in Redis in the format of Redisson's RLock, so
// that a Java service calling getLock(key) and a [Locker] exclude and wake each
// other. Each grant carries a fence, a number that grows with every grant of
// the key.
//
// Start with [New] and [Locker.Acquire], and give every [Lease] back with
// [Lease.Release], or [Lease.Hold] where nobody knows whether the work it
// guarded goes on. The package says nothing about when which of the two is
// right.
//
// A lease is renewed at a third of its length. It can still be lost (Redis away
// for longer than the lease, the key deleted by hand, this process stopped):
// [Lease.Lost] tells, and the fence lets a database refuse what a holder does
// after that.
package redislock

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed acquire.lua
	acquireLua string
	//go:embed release.lua
	releaseLua string
	//go:embed extend.lua
	extendLua string

	acquireScript = redis.NewScript(acquireLua)
	releaseScript = redis.NewScript(releaseLua)
	extendScript  = redis.NewScript(extendLua)
)

// ErrBusy says that another held the lock for as long as the caller would wait,
// or that too many were waiting for it already.
var ErrBusy = errors.New("lock is held by another")

// Options says how a [Locker] behaves. Durations are rounded to milliseconds.
type Options struct {
	Lease            time.Duration // 0: 30s. At least 100ms
	Hold             time.Duration // what Hold leaves on the lock; 0: Lease
	Wait             Wait
	MaxWaitersPerKey int          // waiting callers of this Locker for one key; past it ErrBusy. 0: nobody waits
	MaxWaiters       int          // the same over all keys; 0: 10,000
	Observer         Observer     // nil: none
	Logger           *slog.Logger // nil: none
}

// Wait bounds how long Acquire tries.
type Wait struct {
	Tries int           // attempts, Every apart; 0 means as many as fit UpTo
	Every time.Duration // pause between attempts, ended early when the lock is published as free
	UpTo  time.Duration // total; 0 means Tries decides
}

// Observer is told what happens to locks. Its methods are called from many
// goroutines and must not block.
type Observer interface {
	Acquired(result Result, waited time.Duration)
	Released(held time.Duration) // released or left to its hold time
	Lost()
}

// Result is how an Acquire ended.
type Result string

// The results.
const (
	Granted  Result = "granted"
	Busy     Result = "busy"
	Canceled Result = "canceled" // the caller's context ended
	Failed   Result = "failed"   // Redis could not be asked
)

const (
	// fenceLife is how long the last fence outlives its grant. After it the clock
	// alone keeps fences growing (acquire.lua), so it need only be longer than
	// the clock of Redis could ever be set back.
	fenceLife = 24 * time.Hour
	// cleanupTime bounds what is done on behalf of a caller that has gone.
	cleanupTime = 2 * time.Second
	// slowestPoll is the longest pause of a wait that counts on being woken: a
	// message of Redis is delivered at most once.
	slowestPoll = time.Second

	defaultLease      = 30 * time.Second
	defaultMaxWaiters = 10_000
)

// Locker takes locks of one kind. It is safe for concurrent use. Close it to
// stop its goroutines.
type Locker struct {
	client redis.UniversalClient
	opts   Options
	log    *slog.Logger

	leases  renewer
	waiters waitRoom
	cleanup sync.WaitGroup // lock returns on contexts of their own
	closed  context.Context
	close   context.CancelFunc
	serial  atomic.Uint64
}

// New returns a Locker that speaks to Redis through client, which it does not
// close. The client should have ContextTimeoutEnabled, or a context's deadline
// does not shorten its calls.
func New(client redis.UniversalClient, opts Options) *Locker {
	if opts.Lease == 0 {
		opts.Lease = defaultLease
	}
	if opts.Hold == 0 {
		opts.Hold = opts.Lease
	}
	if opts.MaxWaiters == 0 {
		opts.MaxWaiters = defaultMaxWaiters
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Observer == nil {
		opts.Observer = noObserver{}
	}
	l := &Locker{client: client, opts: opts, log: opts.Logger}
	l.closed, l.close = context.WithCancel(context.Background())
	l.leases.start(l)
	l.waiters.start(client, opts)
	return l
}

// Close stops renewing and waiting, and waits for what it started. Leases that
// are still held are left to end by themselves: release them first.
func (l *Locker) Close() {
	l.close()
	l.waiters.stop()
	l.leases.stop()
	l.cleanup.Wait()
}

// Held returns how many leases are being renewed.
func (l *Locker) Held() int { return l.leases.count() }

// Waiting returns how many callers of Acquire are waiting for a lock.
func (l *Locker) Waiting() int { return l.waiters.count() }

// Acquire takes the lock at key and returns its lease. It blocks until then,
// until the wait is over (an error that wraps [ErrBusy]), until ctx ends (its
// error), or until Redis fails (any other error). Whatever the reason, when it
// returns an error, no lock is left behind: one whose grant nobody saw is given
// back.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	start := time.Now()
	lease, err := l.acquire(ctx, key, opts)
	l.opts.Observer.Acquired(resultOf(ctx, err), time.Since(start))
	if err != nil {
		return nil, fmt.Errorf("acquiring lock %s: %w", key, err)
	}
	return lease, nil
}

// AcquireOption changes one lease.
type AcquireOption func(*Lease)

// MaxHold ends renewal this long after the lock was asked for, so that a call
// that never ends does not keep its order for ever. The lease then ends as one
// that is lost. 0 means never.
func MaxHold(d time.Duration) AcquireOption { return func(l *Lease) { l.maxHold = d } }

func resultOf(ctx context.Context, err error) Result {
	switch {
	case err == nil:
		return Granted
	case errors.Is(err, ErrBusy):
		return Busy
	case ctx.Err() != nil:
		return Canceled
	}
	return Failed
}

// try asks once. A nil lease without an error means that another holds the lock,
// for the returned time unless it is released earlier.
func (l *Locker) try(ctx context.Context, key, owner string, opts []AcquireOption) (*Lease, time.Duration, error) {
	// The lease is counted from before the question was sent: Redis counts from
	// when it arrived, so ours ends first.
	asked := time.Now()
	reply, err := acquireScript.Run(ctx, l.client, []string{key, FenceKey(key)},
		l.opts.Lease.Milliseconds(), owner, fenceLife.Milliseconds()).Int64Slice()
	if err != nil {
		if !neverSent(err) {
			l.giveBack(ctx, key, owner)
		}
		return nil, 0, err
	}
	if len(reply) != 2 {
		return nil, 0, fmt.Errorf("the acquire script answered %d values", len(reply))
	}
	if reply[0] == 0 {
		return nil, time.Duration(reply[1]) * time.Millisecond, nil
	}
	lease := newLease(l, key, owner, reply[1], asked)
	for _, o := range opts {
		o(lease)
	}
	if ctx.Err() != nil { // the grant crossed the caller's leaving
		l.giveBack(ctx, key, owner)
		return nil, 0, ctx.Err()
	}
	l.leases.add(lease)
	return lease, 0, nil
}

// giveBack releases a lock that may have been granted without anybody hearing
// of it. It does not wait: the caller has gone, or has its error.
func (l *Locker) giveBack(ctx context.Context, key, owner string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	l.cleanup.Go(func() {
		defer cancel()
		if _, err := l.release(ctx, key, owner); err != nil {
			l.log.Warn("a lock may stay taken until its lease ends", "key", key, "error", err)
		}
	})
}

// release reports whether the owner held the lock.
func (l *Locker) release(ctx context.Context, key, owner string) (bool, error) {
	return releaseScript.Run(ctx, l.client, []string{key}, owner, Channel(key)).Bool()
}

// neverSent tells a question that did not leave this process.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// newOwner names a lease as Redisson names a thread of a client: a UUID and a
// number. The UUID is random for each lease, since the name is shown to the
// backend and must not tell another's.
func (l *Locker) newOwner() string {
	id := uuid.Must(uuid.NewRandomFromReader(rand.Reader))
	return id.String() + ":" + strconv.FormatUint(l.serial.Add(1), 10)
}

// FenceKey returns the key that holds the last fence of a lock, in the lock's
// cluster slot. The name is that of Redisson's RFencedLock.
func FenceKey(key string) string { return prefixed("redisson_lock_token", key) }

// Channel returns the channel that the release of a lock is published on.
func Channel(key string) string { return prefixed("redisson_lock__channel", key) }

// prefixed builds a name beside another as Redisson does: a name without braces
// is put into braces whole, so that both hash to one slot.
func prefixed(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

type noObserver struct{}

func (noObserver) Acquired(Result, time.Duration) {}
func (noObserver) Released(time.Duration)         {}
func (noObserver) Lost()                          {}
