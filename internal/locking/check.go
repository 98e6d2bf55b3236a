package locking

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// Check takes a configured lock once, of an ID that no order has, and reports each problem
// with its place in the lock's section. Client and common are the common Redis and its
// settings; a quorum needs only the latter, which may be nil.
func Check(ctx context.Context, client redis.UniversalClient, common *config.Redis, c config.Lock, report func(place string, err error)) {
	locker, shut, err := openLocker(ctx, client, common, c, lockerOptions(c))
	if err != nil {
		report("", err)
		return
	}
	defer shut()
	short, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err = locker.Check(short, NewGateLocker(c, 0, false).Key(probeID))
	if err != nil && !errors.Is(err, redislock.ErrBusy) { // another instance checks it at this moment
		report("", err)
	}
	if c.Kind != config.LockQuorum {
		return
	}
	for i, server := range locker.Servers() {
		if err := server.Ping(ctx).Err(); err != nil {
			report(fmt.Sprintf(".quorum.addresses[%d]", i), fmt.Errorf("not reachable: %w", err))
		}
	}
	if found := redisconn.CheckEviction(ctx, redisconn.Stored{Locks: true}, locker.Servers()...); found.Text != "" {
		report("", errors.New(found.Text))
	}
}
