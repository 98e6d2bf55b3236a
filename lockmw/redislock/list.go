package redislock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	// scanCount is how many keys a server looks at in one go: a fraction of a
	// millisecond, in which it serves nobody else.
	scanCount = 1000
	// readAtOnce is how many locks are asked for in one pipeline.
	readAtOnce = 100
)

// List calls each with every lock of one kind and format that is held, and whose
// key begins with prefix and ends with suffix; also with what else such a key
// holds, as far as it has the type of a lock (State.Foreign). It looks at all keys
// of all masters, in steps that do not keep others waiting. A lock that is taken
// or released meanwhile may be missed; none comes twice.
//
// The calls come one after the other, in no order. An error of each ends the
// listing and is returned, wrapped, as one of Redis is.
func List(ctx context.Context, client redis.UniversalClient, kind Kind, format Format, prefix, suffix string,
	each func(State) error,
) error {
	l := &listing{
		reader: newReader(client, kind, format), prefix: prefix, suffix: suffix,
		each: each, reported: make(map[string]struct{}),
	}
	err := l.scanAll(ctx)
	if err != nil {
		return fmt.Errorf("listing locks %s*%s: %w", prefix, suffix, err)
	}
	return nil
}

// listing is one call of List.
type listing struct {
	*reader
	prefix, suffix string

	mu       sync.Mutex // masters are asked at the same time
	each     func(State) error
	reported map[string]struct{} // SCAN may name a key more than once
	ended    error               // of each
}

// scanAll goes through the keys of all masters. The first error ends it.
func (l *listing) scanAll(ctx context.Context) error {
	if l.cluster == nil {
		return l.scan(ctx, l.client)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := l.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		err := l.scan(ctx, node)
		if err != nil {
			cancel(err) // the others end with a consequence of it
		}
		return err
	})
	if err != nil && context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	return err
}

// scan goes through the keys of one server.
func (l *listing) scan(ctx context.Context, node redis.Cmdable) error {
	keyType := "hash"
	if l.format == String || l.kind == Semaphore {
		keyType = "string"
	}
	pattern := literal(l.prefix) + "*" + literal(l.suffix)
	for cursor := uint64(0); ; {
		keys, next, err := node.ScanType(ctx, cursor, pattern, scanCount, keyType).Result()
		if err != nil {
			return err
		}
		keys = slices.DeleteFunc(keys, func(key string) bool {
			return len(key) <= len(l.prefix)+len(l.suffix) || besideLock(key)
		})
		for some := range slices.Chunk(keys, readAtOnce) {
			states, err := l.read(ctx, node, some)
			if err != nil {
				return err
			}
			if err := l.report(states); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func (l *listing) report(states []State) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range states {
		if _, again := l.reported[s.Key]; again || !s.Held() && s.Foreign == "" {
			continue
		}
		if l.ended != nil {
			break
		}
		l.reported[s.Key] = struct{}{}
		l.ended = l.each(s)
	}
	return l.ended
}

// literal escapes what has a meaning in a pattern of Redis.
func literal(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

// besideLock reports whether a key is one that stands beside a lock's, of the
// types that locks have.
func besideLock(key string) bool {
	return strings.Contains(key, ":ordergate_") || strings.Contains(key, ":rwlock_timeout:") ||
		strings.HasPrefix(key, fencePrefix+":") || strings.HasPrefix(key, "redisson_unlock_latch:")
}
