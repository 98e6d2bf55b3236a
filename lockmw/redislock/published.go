package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// publishedTimeout bounds the wait for a message that was published.
const publishedTimeout = 2 * time.Second

// CheckPublished publishes on the channel of a lock at a key that nothing else uses, as a release
// does, and returns how long the message takes to a subscription like that of a waiter. Without
// messages, waiters go by their slow polls. It waits for some seconds if none arrives.
func (l *Locker) CheckPublished(ctx context.Context, key string) (took time.Duration, err error) {
	for _, n := range l.nodes {
		one, err := n.checkPublished(ctx, Channel(l.opts.Kind, key))
		if err != nil {
			return 0, err
		}
		took = max(took, one)
	}
	return took, nil
}

func (n *node) checkPublished(ctx context.Context, channel string) (time.Duration, error) {
	var pubsub *redis.PubSub
	if n.cluster != nil {
		primary, err := n.cluster.MasterForKey(ctx, channel)
		if err != nil {
			return 0, err
		}
		pubsub = primary.SSubscribe(ctx, channel)
	} else {
		pubsub = n.client.Subscribe(ctx, channel)
	}
	defer func() { _ = pubsub.Close() }() // it is only read
	if _, err := pubsub.ReceiveTimeout(ctx, publishedTimeout); err != nil {
		return 0, fmt.Errorf("subscribing to %s: %w", channel, err)
	}
	began := time.Now()
	if err := n.client.Do(ctx, n.publish, channel, "0").Err(); err != nil {
		return 0, fmt.Errorf("publishing on %s: %w", channel, err)
	}
	for {
		switch event, err := pubsub.ReceiveTimeout(ctx, publishedTimeout); event.(type) {
		case *redis.Message:
			return time.Since(began), nil
		case nil:
			return 0, fmt.Errorf("what is published on %s does not arrive: %w", channel, err)
		}
	}
}
