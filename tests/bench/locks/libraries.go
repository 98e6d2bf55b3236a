package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	ours "github.com/ordergate/ordergate/lockmw/redislock"
)

// ordergate is ours, with the client and the limits that the sidecar has.
type ordergate struct {
	client *redis.Client
	locker *ours.Locker
}

func openOurs(addr string, p patience) (instance, error) {
	client := redis.NewClient(&redis.Options{
		Addr: addr, ClientName: "ordergate", DialTimeout: 500 * time.Millisecond,
		ReadTimeout: time.Second, WriteTimeout: time.Second, PoolTimeout: time.Second,
		MaxRetries: 1, DialerRetries: 1, PoolSize: 64, ContextTimeoutEnabled: true,
	})
	locker, err := ours.New(client, ours.Options{
		Lease: lease, MaxWaitersPerKey: 100,
		Wait: ours.Wait{UpTo: p.upTo, Tries: p.tries, Every: p.every},
	})
	if err != nil {
		client.Close()
		return nil, err
	}
	return &ordergate{client, locker}, nil
}

func (o *ordergate) caller() caller { return &ordergateCaller{locker: o.locker} }

func (o *ordergate) close() {
	o.locker.Close()
	o.client.Close()
}

type ordergateCaller struct {
	locker *ours.Locker
	lease  *ours.Lease
}

func (c *ordergateCaller) lock(ctx context.Context, key string) (err error) {
	c.lease, err = c.locker.Acquire(ctx, key)
	if errors.Is(err, ours.ErrBusy) {
		return errBusy
	}
	return err
}

func (c *ordergateCaller) unlock(ctx context.Context) error { return c.lease.Release(ctx) }

// bsm is bsm/redislock with the backoff of its example: 100 ms. Its own client
// has go-redis's defaults, as its documentation has it.
type bsm struct {
	client   *redis.Client
	locker   *redislock.Client
	patience patience
}

func openBSM(addr string, p patience) (instance, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	return &bsm{client, redislock.New(client), p}, nil
}

func (b *bsm) caller() caller { return &bsmCaller{bsm: b} }
func (b *bsm) close()         { b.client.Close() }

type bsmCaller struct {
	*bsm
	held *redislock.Lock
}

const bsmBackoff = 100 * time.Millisecond

func (c *bsmCaller) lock(ctx context.Context, key string) (err error) {
	var opts *redislock.Options
	switch {
	case c.patience.upTo > 0:
		opts = &redislock.Options{RetryStrategy: redislock.LinearBackoff(bsmBackoff)}
	case c.patience.tries > 1:
		again := redislock.LinearBackoff(c.patience.every)
		opts = &redislock.Options{RetryStrategy: redislock.LimitRetry(again, c.patience.tries-1)}
	}
	c.held, err = c.locker.Obtain(ctx, key, lease, opts)
	if errors.Is(err, redislock.ErrNotObtained) {
		return errBusy
	}
	return err
}

func (c *bsmCaller) unlock(ctx context.Context) error { return c.held.Release(ctx) }

// redsyncLocks is redsync on one server, with its own expiry (8 s) and delay (50
// to 250 ms at random) where the scenario does not set them.
type redsyncLocks struct {
	client *redis.Client
	locks  *redsync.Redsync
	opts   []redsync.Option
}

func openRedsync(addr string, p patience) (instance, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	opts := []redsync.Option{redsync.WithTries(max(1, p.tries))}
	switch {
	case p.upTo > 0: // the context's deadline decides
		opts = []redsync.Option{redsync.WithTries(math.MaxInt)}
	case p.tries > 1:
		opts = append(opts, redsync.WithRetryDelay(p.every))
	}
	return &redsyncLocks{client, redsync.New(goredis.NewPool(client)), opts}, nil
}

func (r *redsyncLocks) caller() caller { return &redsyncCaller{redsyncLocks: r} }
func (r *redsyncLocks) close()         { r.client.Close() }

type redsyncCaller struct {
	*redsyncLocks
	mutex *redsync.Mutex
}

func (c *redsyncCaller) lock(ctx context.Context, key string) error {
	c.mutex = c.locks.NewMutex(key, c.opts...)
	err := c.mutex.LockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken) {
		return errBusy
	}
	return err
}

func (c *redsyncCaller) unlock(ctx context.Context) error {
	ok, err := c.mutex.UnlockContext(ctx)
	if err == nil && !ok {
		err = errNotHeld
	}
	return err
}

// rueidisLocks is rueidislock as its documentation recommends it for one server
// of version 7.0.5 or later, but for the time that Redis has to answer. It knows
// no number of tries: a wait has the length that they would have.
type rueidisLocks struct {
	locker rueidislock.Locker
	upTo   time.Duration // of a wait that is counted in tries
}

// rueidisAnswer is that time. At its default of 20 ms, one answer that is late on
// a busy machine leaves the caller asleep beside a free lock for good: nothing
// wakes it, and it does not poll.
const rueidisAnswer = time.Second

func openRueidislock(addr string, p patience) (instance, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:  1, NoLoopTracking: true, TryNextAfter: rueidisAnswer,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting with rueidislock: %w", err)
	}
	return &rueidisLocks{locker, p.every * time.Duration(max(0, p.tries-1))}, nil
}

func (r *rueidisLocks) caller() caller { return &rueidislockCaller{rueidisLocks: r} }
func (r *rueidisLocks) close()         { r.locker.Close() }

type rueidislockCaller struct {
	*rueidisLocks
	cancel  context.CancelFunc // waits until the lock is deleted
	timeout context.CancelFunc // of the wait
}

// lock never cuts the context of a lock that it holds: rueidislock releases a
// lock whose context ends.
func (c *rueidislockCaller) lock(ctx context.Context, key string) (err error) {
	c.timeout = func() {}
	inTime := func() bool { return true }
	if c.upTo > 0 {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		c.timeout = func() { cancel(nil) }
		inTime = time.AfterFunc(c.upTo, func() { cancel(errBusy) }).Stop
	}
	_, c.cancel, err = c.locker.WithContext(ctx, key)
	cause := context.Cause(ctx)
	if !inTime() { // the timer has ended the context, or is about to
		cause = errBusy
	}
	if cause != nil {
		if err == nil { // granted at the last moment, and gone with its context
			c.cancel()
		}
		err = cause
	}
	if err != nil {
		c.timeout()
	}
	return err
}

func (c *rueidislockCaller) unlock(context.Context) error {
	c.cancel()
	c.timeout()
	return nil
}
