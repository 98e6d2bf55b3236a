package locking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// Check takes a configured lock once, of an ID that no order has, and reports each problem
// with its place in the lock's section. Use is the lock's name, or that of a rule's keys, as
// [LockOf] has it. Client and common are the common Redis and its settings; a quorum needs only
// the latter, which may be nil.
func Check(ctx context.Context, client redis.UniversalClient, c *config.Config, use Use, lock config.Lock, report func(place string, err error)) {
	locker, shut, err := openLocker(ctx, client, c.Redis, lock, lockerOptions(use, lock))
	if err != nil {
		report("", err)
		return
	}
	defer shut()
	short, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err = locker.Check(short, newGateLocker(lock, 0, false).Key(probeID), storedNames(c, use)...)
	if err != nil && !errors.Is(err, redislock.ErrBusy) { // another instance checks it at this moment
		report("", err)
	}
	if lock.Kind != config.LockQuorum {
		return
	}
	for i, server := range locker.Servers() {
		if err := server.Ping(ctx).Err(); err != nil {
			report(fmt.Sprintf(".quorum.addresses[%d]", i), redisconn.Explain(err))
		}
	}
	if found := redisconn.CheckEviction(ctx, redisconn.Stored{Locks: true}, locker.Servers()...); found.Text != "" {
		report("", errors.New(found.Text))
	}
}

// CheckPublished returns how long a message takes to the waiters of a configured lock, or why none
// arrives.
func CheckPublished(ctx context.Context, client redis.UniversalClient, c *config.Config, name string) (time.Duration, error) {
	lock := c.Locks[name]
	locker, shut, err := openLocker(ctx, client, c.Redis, lock, lockerOptions(Use{Lock: name}, lock))
	if err != nil {
		return 0, err
	}
	defer shut()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return locker.CheckPublished(ctx, newGateLocker(lock, 0, false).Key(probeID))
}
