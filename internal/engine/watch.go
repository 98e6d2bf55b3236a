package engine

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

const (
	// noOrder stands for an order ID where locks are tried out. No format admits a
	// slash.
	noOrder = "ordergate/probe"
	// checkEvery is how often locks are tried out while they cannot be taken.
	checkEvery = 10 * time.Second
	// checkTime bounds one try: two questions to Redis, each asked twice.
	checkTime = 4 * redisconn.Timeout
)

// lockUnit is the Locker of a use with what is known of its health.
type lockUnit struct {
	use    lockUse
	config config.Lock
	log    *slog.Logger
	probe  string // a key that is no order's
	make   func() (locker *redislock.Locker, shut func(), err error)
	set    *lockers
	// eviction is of the servers of a quorum; nil: those of everything else are asked.
	eviction *redisconn.EvictionWatch
	locker   atomic.Pointer[redislock.Locker] // the last one; the rest is guarded by set.mu
	shut     func()                           // closes that
	users    int                              // calls that ask for a lock, or have one
	retired  chan struct{}                    // closed when no rule in force has it

	checked atomic.Bool // there was a try, whatever came of it
	passed  bool        // one has succeeded; watch's own
	said    string      // what was logged last; watch's own
}

// watch tries the lock out at the start, so that a Redis that does not serve locks
// is named before the first settlement, and again and again while it does not. It ends
// with ctx, or when the unit is retired.
func (u *lockUnit) watch(ctx context.Context) {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	for {
		if u.passed && u.refused() == nil {
			u.tell("")
		} else {
			u.check(ctx)
		}
		u.eviction.Check(ctx)
		select {
		case <-ctx.Done():
			return
		case <-u.retired:
			return
		case <-ticker.C:
		}
	}
}

// check tries the lock out. That Redis is away is not told here: it is a condition
// of its own.
func (u *lockUnit) check(ctx context.Context) {
	checkCtx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	err := u.locker.Load().Check(checkCtx, u.probe)
	u.passed = u.passed || err == nil
	u.checked.Store(true)
	if refused := u.refused(); refused != nil {
		u.tell(refused.Error())
	} else if err == nil {
		u.tell("")
	}
}

// refused returns why Redis does not serve the lock, or nil.
func (u *lockUnit) refused() error {
	err := u.locker.Load().Trouble()
	var refused *redislock.RefusedError
	if errors.As(err, &refused) {
		return err
	}
	return nil
}

// tell logs what has changed.
func (u *lockUnit) tell(text string) {
	switch {
	case text == u.said:
	case text == "":
		u.log.Info("locks can be taken again")
	default:
		u.log.Error("no lock can be taken", "error", text)
	}
	u.said = text
}

// condition tells readiness of the lock. Where it only observes, nothing depends on
// it. What is wrong with the key of one order keeps nobody else from settling.
func (u *lockUnit) condition() admin.Condition {
	c := admin.Condition{Name: "lock " + u.use.String(), Ready: true}
	trouble := u.locker.Load().Trouble()
	switch refused := u.refused(); {
	case refused != nil:
		c.Ready, c.Reason = u.use.observe, "settlements are refused: "+refused.Error()
	case trouble != nil:
		c.Reason = "settlements of an order are refused: " + trouble.Error()
	case !u.checked.Load():
		c.Ready, c.Reason = false, "not tried out yet"
	default:
		if found := u.eviction.Finding(); found.Text != "" {
			c.Ready, c.Reason = !found.Harmful, found.Text
		}
	}
	return c
}
