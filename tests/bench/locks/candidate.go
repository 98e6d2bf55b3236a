package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// errBusy says that a caller gave up waiting for a lock that others held.
var errBusy = errors.New("busy")

// candidate is one way to take a lock.
type candidate struct {
	name string
	// open returns what one process would have of it.
	open func(addr string, p patience) (instance, error)
}

// instance is a client of Redis and a maker of locks upon it, shared by the
// callers of one process.
type instance interface {
	caller() caller
	close()
}

// caller is what one goroutine has of an instance. It holds one lock at most;
// keeping it here costs no candidate an allocation that is not its own.
type caller interface {
	// lock blocks until the lock is held. It returns errBusy, maybe wrapped, when
	// the patience is at an end, and may return any error once ctx has ended.
	lock(ctx context.Context, key string) error
	// unlock releases the lock that is held, and waits until Redis has said so.
	unlock(ctx context.Context) error
}

// patience is how long a caller waits for a lock that is taken. The zero value
// does not wait: the lock is free.
type patience struct {
	upTo  time.Duration // total, also the deadline of the context
	tries int           // attempts, every apart; not with upTo
	every time.Duration
}

// candidates returns all that are compared.
func candidates() []candidate {
	return []candidate{
		{nameOurs, openOurs},
		{nameGoRedis, openGoRedis},
		{nameRueidis, openRueidis},
		{nameBSM, openBSM},
		{nameRedsync, openRedsync},
		{nameRueidislock, openRueidislock},
	}
}

const (
	nameOurs        = "ordergate"
	nameGoRedis     = "bare go-redis"
	nameRueidis     = "bare rueidis"
	nameBSM         = "bsm/redislock"
	nameRedsync     = "redsync"
	nameRueidislock = "rueidislock"
)

// lease is how long a lock is taken for where the candidate asks for it. No
// round lasts as long, so nobody's lock ends under it.
const lease = 30 * time.Second

// retry calls try until it grants the lock, as often and as far apart as the
// patience says: what one writes by hand around a SET NX. Without a number of
// tries it polls every 5 to 15 ms: at random, since callers in step would find
// the lock free only at the same instants.
func (p patience) retry(ctx context.Context, try func() (bool, error)) error {
	var timer *time.Timer
	for n := 1; ; n++ {
		granted, err := try()
		if granted || err != nil {
			return err
		}
		pause := p.every
		switch {
		case p.upTo > 0:
			pause = 5*time.Millisecond + rand.N(10*time.Millisecond)
		case n >= p.tries:
			return errBusy
		}
		if timer == nil {
			timer = time.NewTimer(pause)
			defer timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
}
