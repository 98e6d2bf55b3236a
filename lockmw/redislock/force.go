package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// ErrChanged says that a lock no longer has the holders that were seen, and perhaps
// others.
var ErrChanged = errors.New("its holders have changed since they were read")

// ForceRelease takes a lock away from its holders as [Inspect] saw them, all of
// them, and wakes the waiters. It returns how many subscriptions got the message. When the
// lock is free by then, or has another holder, ForceRelease changes nothing
// and returns an error that wraps [ErrChanged]; a [ForeignError] when the key holds
// something else. When the first answer was lost and the client asked again, it
// returns no error as long as none of those holders holds the lock any more.
//
// The holders of a semaphore have nothing to do with each other: leave the one in
// seen.Holders whose permit is to return. Permits that Java has cannot be told
// apart, and stay.
//
// The holder may go on with its work: its Locker notices at the next renewal, and
// only the fence keeps what it does then from doing harm. The fence of the next
// grant is greater.
func ForceRelease(ctx context.Context, client redis.UniversalClient, seen State) (heard int, err error) {
	if heard, err = forceRelease(ctx, client, &seen); err != nil {
		return 0, fmt.Errorf("releasing lock %s by force: %w", seen.Key, err)
	}
	return heard, nil
}

func forceRelease(ctx context.Context, client redis.UniversalClient, seen *State) (int, error) {
	switch n := len(seen.Holders); {
	case seen.Foreign != "":
		return 0, &ForeignError{Key: seen.Key, cause: errors.New(seen.Foreign)}
	case n == 0:
		return 0, errors.New("it has no holder that is known")
	case seen.Kind == Semaphore && n > 1:
		return 0, fmt.Errorf("it has %d holders: name one", n)
	case seen.Kind != Semaphore && seen.More > 0:
		return 0, fmt.Errorf("it has more than %d holders", n)
	}
	publish := "publish"
	if _, ok := client.(*redis.ClusterClient); ok {
		publish = "spublish"
	}
	// Seldom needed, so the script is sent as it is.
	text := redisbatch.NewCountedText(operatorScript(seen.Kind, seen.Format, "force").Text)
	keys := operatorKeys(seen.Kind, seen.Key)
	args := []any{"eval", text, len(keys)}
	for _, key := range keys {
		args = append(args, key)
	}
	args = append(args, shapeOf(seen.Kind, seen.Format), mostListed, publish, Channel(seen.Kind, seen.Key), seen.Fence)
	for _, h := range seen.Holders {
		args = append(args, h.Owner)
		if seen.Kind == Write {
			args = append(args, h.Owner+writeSuffix) // and by its bare name it may read
		}
	}
	n, err := client.Do(ctx, args...).Int()
	if err != nil || n >= 0 {
		return n, err
	}
	if text.Repeated() { // the first time may have done it, with an unknown number of receivers
		gone, err := seen.gone(ctx, client)
		if gone || err != nil {
			return 0, err
		}
	}
	return 0, ErrChanged
}

// gone reports whether none of the holders holds the lock any more.
func (s *State) gone(ctx context.Context, client redis.UniversalClient) (bool, error) {
	now, err := Inspect(ctx, client, s.Kind, s.Format, s.Key)
	if err != nil {
		return false, err
	}
	for _, h := range s.Holders {
		if slices.ContainsFunc(now.Holders, func(other Holder) bool { return other.Owner == h.Owner }) {
			return false, nil
		}
	}
	return true, nil
}
