// Package latch reads and changes countdown latches in Redis, in the format of Redisson's
// RCountDownLatch (4.7), so that Java services share them.
//
// Start with [Read]. [Set] and [CountDown] wake the Java threads that wait for the latch.
// Package redislock checks latches before a settlement.
package latch

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

var (
	//go:embed lua/count_down.lua
	countDown string
	//go:embed lua/set.lua
	set string
)

// State is a latch as Redis has it.
type State struct {
	Key    string
	Count  int64 // how many times it has to be counted down before it is open
	Exists bool  // there is a key
}

// Open reports whether the latch lets callers pass: it stands at 0 or below, or does not exist.
func (s State) Open() bool { return s.Count <= 0 }

var (
	// ErrExists means that the latch has a count.
	ErrExists = errors.New("the latch is set")
	// ErrNoLatch means that the key holds something else.
	ErrNoLatch = errors.New("the key holds no latch")
	// ErrUnsure means that the client sent the change twice, because it got no reply to the
	// first attempt. Redis made it once at most.
	ErrUnsure = errors.New("no reply of Redis at first, so that it is not known whether the latch was changed")
)

// Read returns a latch. It returns an error that wraps [ErrNoLatch] if the key holds anything
// but a number as Redis writes it: DECR refuses others, such as 007.
func Read(ctx context.Context, client redis.UniversalClient, key string) (State, error) {
	text, err := client.Get(ctx, key).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return State{Key: key}, nil
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return State{}, fmt.Errorf("reading latch %q: %w", key, ErrNoLatch)
	case err != nil:
		return State{}, fmt.Errorf("reading latch %q: %w", key, err)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return State{}, fmt.Errorf("reading latch %q: %w", key, ErrNoLatch)
	}
	return State{Key: key, Count: n, Exists: true}, nil
}

// Set sets the count of a latch, 0 or more; 0 opens it. It returns an error that wraps
// [ErrExists] if there is a latch, unless replace is set, and one that wraps [ErrNoLatch] if
// the key holds something else. Heard is the number of subscriptions that got the message.
func Set(ctx context.Context, client redis.UniversalClient, key string, count int64, replace bool) (heard int, err error) {
	mode := ""
	if replace {
		mode = "replace"
	}
	reply, repeated, err := run(ctx, client, set, key, count, publish(client), channel(client, key), mode)
	switch {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return 0, fmt.Errorf("setting latch %q: %w", key, ErrNoLatch)
	case err != nil:
		return 0, fmt.Errorf("setting latch %q: %w", key, err)
	case reply[0] == 1:
		return int(reply[1]), nil
	case repeated: // perhaps by the first attempt
		return 0, fmt.Errorf("setting latch %q: %w", key, ErrUnsure)
	}
	return 0, fmt.Errorf("setting latch %q: %w", key, ErrExists)
}

// CountDown counts a latch down by 1, and returns it. A latch that does not exist stays so.
func CountDown(ctx context.Context, client redis.UniversalClient, key string) (after State, heard int, err error) {
	for {
		before, err := Read(ctx, client, key)
		if err != nil || !before.Exists {
			return before, 0, err
		}
		reply, repeated, err := run(ctx, client, countDown, key, before.Count, publish(client), channel(client, key))
		switch {
		case err != nil:
			return State{}, 0, fmt.Errorf("counting latch %q down: %w", key, err)
		case reply[0] == 1:
			left := max(0, before.Count-1)
			return State{Key: key, Count: left, Exists: left > 0}, int(reply[1]), nil
		case repeated:
			return State{}, 0, fmt.Errorf("counting latch %q down: %w", key, ErrUnsure)
		}
		if err := ctx.Err(); err != nil {
			return State{}, 0, err
		}
	}
}

// run runs a script. It reports whether the client sent it more than once.
func run(ctx context.Context, client redis.UniversalClient, script, key string, args ...any) (reply []int64, repeated bool, err error) {
	text := redisbatch.NewCountedText(script)
	reply, err = client.Do(ctx, append([]any{"eval", text, 1, key}, args...)...).Int64Slice()
	if err == nil && len(reply) != 2 {
		err = errors.New("the script returned another number of values")
	}
	return reply, text.Repeated(), err
}

// publish returns the command that Redisson's subscriptions get: in a cluster, those of the
// shard.
func publish(client redis.UniversalClient) string {
	if _, cluster := client.(*redis.ClusterClient); cluster {
		return "spublish"
	}
	return "publish"
}

// channel returns the channel of a latch (org.redisson.RedissonCountDownLatch, getChannelName).
// In a cluster, that of a name with braces is in another slot. Redisson cannot use such a latch
// there, so that nobody waits for it.
func channel(client redis.UniversalClient, key string) string {
	if _, cluster := client.(*redis.ClusterClient); cluster && strings.Contains(key, "{") {
		return ""
	}
	return "redisson_countdownlatch__channel__{" + key + "}"
}
