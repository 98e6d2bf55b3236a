package locking

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// undoing is what a call that is only observed does to the stored answers of enforced calls. It has
// another lock than they have, and may undo what they report all the same. Its methods do nothing for
// nil, that of a call that is enforced.
type undoing struct {
	client redis.UniversalClient
	log    *slog.Logger
	keys   []string // of the enforced lock
	keep   time.Duration
	names  []string
	has    undone
}

// undone says what a call has undone.
type undone int8

const (
	undoesNothing undone = iota
	undoesMaybe
	undoesSurely
)

func (g GateLocker) undoing(request gate.LockRequest) *undoing {
	if !g.unit.use.Observe || g.unit.use.isOfKeys() {
		return nil
	}
	u := &undoing{client: g.unit.set.opts.Redis, log: g.unit.log}
	for _, id := range request.IDs {
		u.keys = append(u.keys, strings.TrimSuffix(g.Key(id), config.ObservedSuffix))
	}
	return u
}

// Undone implements gate.UndoneLocker.
func (g GateLocker) Undone(ctx context.Context, ids []string, name string, fence int64) (bool, error) {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = g.Key(id)
	}
	return redislock.UndoneSince(ctx, g.unit.set.opts.Redis, fence, name, keys...)
}

func (u *undoing) set(has undone, keep time.Duration, names []string) {
	if u != nil {
		u.keep, u.names = keep, names
		u.is(has)
	}
}

func (u *undoing) is(has undone) {
	if u != nil {
		u.has = has
	}
}

// acts reports whether end does anything.
func (u *undoing) acts() bool { return u != nil && u.has != undoesNothing && len(u.names) > 0 }

// end changes the stored answers. An error does not keep the call from its end: nothing waits for it.
func (u *undoing) end(ctx context.Context) {
	if !u.acts() {
		return
	}
	for _, key := range u.keys {
		if err := redislock.Undone(ctx, u.client, u.has == undoesMaybe, key, u.keep, u.names...); err != nil {
			u.log.Warn("a call that is only observed may have undone a settlement, and its stored answer is given on", "error", err)
		}
	}
}
