package redislock

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// While a slot moves from one node of a cluster to another, each of the two refuses a
// script that names a key which it does not have, and mostly some key of a lock does not
// exist. A lease that runs is kept, and given up, with one key alone then. Who wants a
// lock waits for the end of the move, or gets an error.
var (
	extendAlone  = composed(nil, "alone_extend")
	releaseAlone = composed(nil, "alone_release")
)

// isMoving reports whether a script was refused because a slot moves. Redis finds that out
// before the script runs, or at a key that the script makes the name of.
func isMoving(err error) bool {
	refused, ok := errors.AsType[redis.Error](err)
	return ok && (redis.HasErrorPrefix(err, "TRYAGAIN") ||
		redis.HasErrorPrefix(err, "ASK") || strings.Contains(refused.Error(), "non local key") ||
		strings.Contains(refused.Error(), "rehashing of the slot")) // since 7.2, of two keys in one command
}

// extendAlone is extend for a lock whose slot moves. What to put on record is left out,
// and a lease is never shortened.
func (l *Locker) extendAlone(ctx context.Context, p *part, e extension) (bool, error) {
	key, owner := p.key, l.field(p.owner)
	extend := func(key, name string) (bool, error) {
		n, err := l.nodes[0].batcher.Do(ctx, redisbatch.NewCall(extendAlone(), key).Text(name).Number(e.to.Milliseconds()))
		return n == 1, err
	}
	// Where calls go on within the lease, its first part has an end there, too.
	if ok, err := extend(after(key, entrySuffix+":"+owner), cmp.Or(p.entry, owner)); err != nil || !ok && p.entry != "" {
		return false, err
	}
	switch l.opts.Kind {
	case Semaphore:
		key = after(p.key, permitsOfSuffix)
	case Read:
		if ok, err := extend(after(p.key, owner+":rwlock_timeout:1"), ""); err != nil || !ok {
			return false, err
		}
	}
	return extend(key, owner)
}

// releaseAlone is release for a lock of its own whose slot moves. It wakes no waiter of
// a fair lock: their queue is in other keys. Why is the error of the release.
func (l *Locker) releaseAlone(ctx context.Context, n *node, key, owner string, why error) (released, error) {
	at, channel, word := key, Channel(l.opts.Kind, key), "0"
	switch {
	case l.opts.Format == String: // whether calls go on within the lease stands in another key
		return 0, why
	case l.opts.Kind == Fair:
		channel = ""
	case l.opts.Kind == Write:
		word = "1"
	case l.opts.Kind == Semaphore:
		at, word = after(key, permitsOfSuffix), "1"
	}
	c := redisbatch.NewCall(releaseAlone(), at).Text(l.field(owner)).Text(n.publish).Text(channel).Text(word)
	c.Repeated = 1
	r, err := n.batcher.Do(ctx, c)
	if r == 0 && !redis.HasErrorPrefix(why, "TRYAGAIN") {
		r = 1 // the release had come that far before it was refused
	}
	return released(r), err
}
