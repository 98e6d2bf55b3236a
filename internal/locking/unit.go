package locking

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

const (
	// probeID is the order ID of test locks. No format accepts a slash.
	probeID = "ordergate/probe"
	// checkInterval is the time between two checks of a lock that cannot be taken.
	checkInterval = 10 * time.Second
	// checkTimeout bounds one check: two commands, each sent twice.
	checkTimeout = 4 * redisconn.Timeout
)

// Unit is the Locker of a lock in one mode, with its health.
type Unit struct {
	use      Use
	config   config.Lock
	log      *slog.Logger
	probeKey string   // of no order
	stored   []string // the names of the stored answers beside the lock, when the unit was new
	open     func() (locker *redislock.Locker, shut func(), err error)
	set      *Lockers
	// eviction watches the servers of a quorum; nil: the common Redis is watched elsewhere.
	eviction *redisconn.EvictionWatch
	locker   atomic.Pointer[redislock.Locker] // the current one; set.mu guards the rest
	shut     func()                           // closes locker
	users    int                              // calls that wait for a lock, or hold one
	retired  chan struct{}                    // closed when no active rule uses the unit

	checked atomic.Bool // there was a check, with any result
	passed  bool        // a check has succeeded; used by Watch alone
	logged  string      // the last logged error; used by Watch alone
}

// Watch checks the lock at the start, and periodically while it cannot be taken. So the log
// and readiness name a Redis that does not serve locks before the first settlement. Watch
// returns when ctx ends, or when the unit is retired.
func (u *Unit) Watch(ctx context.Context) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		if u.passed && u.refused() == nil {
			u.logOnce("")
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

// check takes the test lock. It does not report an unreachable Redis, which is a condition of
// its own.
func (u *Unit) check(ctx context.Context) {
	checkCtx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := u.locker.Load().Check(checkCtx, u.probeKey, u.stored...)
	u.passed = u.passed || err == nil
	u.checked.Store(true)
	if refused := u.refused(); refused != nil {
		u.logOnce(refused.Error())
	} else if err == nil {
		u.logOnce("")
	}
}

// MarkChecked makes the unit ready before its first check. The other instances rely on this
// one: it was ready before a reload.
func (u *Unit) MarkChecked() { u.checked.Store(true) }

// refused returns why Redis does not serve the lock, or nil.
func (u *Unit) refused() error {
	err := u.locker.Load().Health()
	if _, refused := errors.AsType[*redislock.RefusedError](err); refused {
		return err
	}
	return nil
}

// logOnce logs a state that differs from the logged one.
func (u *Unit) logOnce(text string) {
	switch {
	case text == u.logged:
	case text == "":
		u.log.Info("locks can be taken again")
	default:
		u.log.Error("no lock can be taken", "error", text,
			runbook.LocksFail.Do("look at Redis and the way to it; ordergate tries again"))
	}
	u.logged = text
}

// Settlements are the calls of rules that settle.
const Settlements = "settlements"

// Calls names the calls that a use of a lock is for, by the rules, or those that any enforced lock is for
// (of is nil); "": there are none.
func Calls(rules []config.Rule, of *Use) string {
	var calls []string
	for i := range rules {
		r := &rules[i]
		add := func(lock, call string) {
			isOurs := of == nil && r.Mode.Enforces() || of != nil && UseOf(r, lock, of.Observe) == *of
			if isOurs && !slices.Contains(calls, call) {
				calls = append(calls, call)
			}
		}
		switch {
		case r.Settle != nil:
			add(r.Settle.Lock, Settlements)
			if r.Settle.Limit != nil {
				add(r.Settle.Limit.Lock, Settlements)
			}
		case r.OrderLock() != "":
			add(r.OrderLock(), "creates with a lock")
		}
		if by, _ := r.ByKey(); by != nil {
			add(config.OnceLock, "calls with a key")
		}
	}
	return strings.Join(calls, " and ")
}

// condition reports the lock's readiness. Nothing depends on a lock that only observes. A
// failure of one order's key does not affect the other orders.
func (u *Unit) condition(rules []config.Rule) health.Condition {
	c := health.Condition{Name: "lock " + u.use.String(), Ready: true}
	failure := u.locker.Load().Health()
	switch refused := u.refused(); {
	case refused != nil:
		c.Ready = u.use.Observe
		c.Refuse(Calls(rules, &u.use), refused.Error())
	case failure != nil:
		c.Reason = Calls(rules, &u.use) + " of an order are refused: " + failure.Error()
	case !u.checked.Load():
		c.Ready, c.Reason = false, "not tested yet"
	default:
		if found := u.eviction.Finding(); found.Text != "" {
			c.Ready, c.Reason = !found.Harmful, found.Text
		}
	}
	return c
}
