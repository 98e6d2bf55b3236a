package redislock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// ForeignError says that a key holds something that is no lock of this kind: a
// value of another type, or a lock of another kind or format. It is never a
// grant.
type ForeignError struct {
	Key   string
	cause error
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("key %s holds something else than this kind of lock: %v", e.Key, e.cause)
}

// Unwrap returns what Redis said.
func (e *ForeignError) Unwrap() error { return e.cause }

// RefusedError says that Redis answers and cannot or will not serve locks: it is
// too old, its access control forbids a command, or most servers of a quorum are full.
type RefusedError struct{ cause error }

func (e *RefusedError) Error() string { return "redis does not serve locks: " + e.cause.Error() }

// Unwrap returns what Redis said.
func (e *RefusedError) Unwrap() error { return e.cause }

// The least version is that of SET with GET (6.2) in lua/common.lua.
const minMajor, minMinor = 6, 2

// health stores the last error that an operator has to act on, until the lock works again.
type health struct {
	refused atomic.Bool // spares the mutex while all is well

	mu      sync.Mutex
	err     error // a RefusedError
	full    bool  // it is for want of memory: releases are let through all the same
	foreign error // the last ForeignError
	at      time.Time
}

// foreignShown is how long a key that holds something else stays in Health: it
// concerns one order, and nothing reports its repair.
const foreignShown = 5 * time.Minute

// Health returns what keeps the locks from being taken although Redis is there:
// a [RefusedError] until a lock was released again, or, of a quorum that is full, until
// [Locker.Check] has taken one; else the last [ForeignError] of five minutes. Nil when there is nothing.
func (l *Locker) Health() error {
	t := &l.health
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.err
	}
	if t.foreign != nil && time.Since(t.at) < foreignShown {
		return t.foreign
	}
	return nil
}

// released is the release of a lock, of whichever age.
func (t *health) released() {
	if !t.refused.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.full {
		t.recoveredLocked()
	}
}

// recovered is the release of a lock that was taken just now.
func (t *health) recovered() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recoveredLocked()
}

func (t *health) recoveredLocked() {
	t.err, t.full = nil, false
	t.refused.Store(false)
}

// explain gives an error of Redis the type that says what is to be mended.
func (l *Locker) explain(key string, err error) error {
	said, ok := errors.AsType[redis.Error](err)
	if !ok {
		return err
	}
	t := &l.health
	t.mu.Lock()
	defer t.mu.Unlock()
	switch text := said.Error(); {
	case strings.Contains(text, "WRONGTYPE"), strings.HasPrefix(text, "FOREIGN"):
		err = &ForeignError{Key: key, cause: said}
		t.foreign, t.at = err, time.Now()
	case strings.HasPrefix(text, "NOPERM"), strings.HasPrefix(text, "NOAUTH"), strings.HasPrefix(text, "WRONGPASS"),
		strings.Contains(text, "ACL"), strings.Contains(text, "The user executing the script"),
		strings.Contains(strings.ToLower(text), "unknown command"), strings.Contains(text, "syntax error"),
		strings.Contains(text, "Unknown Redis command"):
		err = &RefusedError{cause: said}
		t.err, t.full = err, false
		t.refused.Store(true)
	case len(l.nodes) > 1 && strings.Contains(text, "OOM command not allowed"): // of a single Redis the owner of the client watches the memory
		err = &RefusedError{cause: said}
		t.err, t.full = err, true
		t.refused.Store(true)
	}
	return err
}

// refuse records why Redis does not serve locks, and returns that as an error.
func (t *health) refuse(cause error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err, t.full = &RefusedError{cause: cause}, false
	t.refused.Store(true)
	return t.err
}

// Check takes and releases the lock at a key that nothing else uses, after it has
// asked for the version of Redis; also with its stored answers by these names. The error says
// what an operator has to mend.
func (l *Locker) Check(ctx context.Context, key string, stored ...string) error {
	for _, n := range l.nodes {
		info, err := n.client.Info(ctx, "server").Result()
		_, replied := errors.AsType[redis.Error](err)
		switch {
		case err == nil && tooOld(info):
			return l.health.refuse(fmt.Errorf("version %d.%d or newer is needed", minMajor, minMinor))
		case err != nil && !replied && len(l.nodes) == 1:
			return err // it is away. One that refuses INFO may still serve locks
		}
	}
	released := true
	for _, name := range append([]string{""}, stored...) {
		granted, err := l.checkOnce(ctx, key, name)
		if refused, ok := errors.AsType[*RefusedError](err); ok && name != "" {
			err = l.health.refuse(fmt.Errorf("the stored answer %s: %w", StoredKey(key, name), refused.cause))
		}
		if err != nil {
			return err
		}
		released = released && granted
	}
	if len(stored) > 0 {
		err := l.nodes[0].client.HMGet(ctx, marksKey(key), AllAnswers).Err()
		if _, replied := errors.AsType[redis.Error](err); replied {
			return l.health.refuse(fmt.Errorf("what is undone, %s: %w", marksKey(key), err))
		}
	}
	if released {
		l.health.recovered()
	}
	return nil
}

// checkOnce takes and releases a lock, and looks for a stored answer by a name; "": for none.
func (l *Locker) checkOnce(ctx context.Context, key, stored string) (granted bool, err error) {
	owner := l.newOwner()
	a, err := l.try(ctx, key, owner, AcquireOption{stored: stored})
	switch {
	case isStored(err): // the script has read it
		return true, nil
	case err != nil:
		return false, err
	case a.granted():
		_, err = l.release(ctx, key, a.owner, "", false)
	case l.opts.Kind == Fair:
		l.dequeue(ctx, key, owner)
	}
	return a.granted(), l.explain(key, err)
}

// tooOld reads the version out of INFO. What it cannot read is not too old.
func tooOld(info string) bool {
	_, rest, found := strings.Cut(info, "redis_version:")
	if !found {
		return false
	}
	version, _, _ := strings.Cut(rest, "\r\n")
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major < minMajor || major == minMajor && minor < minMinor)
}
