package redislock

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// ears hears the releases that are published on one Redis. All the keys of a
// Locker share one subscription; on a cluster, where messages stay in their
// shard, one for each master.
type ears struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is one
	room    *room
	wg      sync.WaitGroup

	// mu orders what is said to Redis. It is never taken with the room's held.
	mu     sync.Mutex
	closed bool
	open   map[*redis.Client]*redis.PubSub // by master of a cluster, nil elsewhere
	where  map[string]*redis.Client        // the channels that are listened on
}

// listen makes every subscription fit whether somebody waits on the channel.
func (l *Locker) listen(channel string) {
	for _, n := range l.nodes {
		n.ears.listen(channel)
	}
}

// listen looks afresh, so that of two calls that race the later is right. An
// error is left to the poll behind every wait; go-redis subscribes again by itself
// when a connection was lost.
func (e *ears) listen(channel string) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	wanted := e.room.wanted(channel)
	node, listening := e.where[channel]
	if wanted && e.cluster != nil {
		master, err := e.cluster.MasterForKey(ctx, channel)
		if err != nil {
			return
		}
		if listening && master != node { // the slot has moved
			e.unsubscribe(ctx, node, channel)
			listening = false
		}
		node = master
	}
	switch {
	case wanted && !listening:
		e.subscribe(ctx, node, channel)
	case !wanted && listening:
		e.unsubscribe(ctx, node, channel)
	}
}

func (e *ears) subscribe(ctx context.Context, node *redis.Client, channel string) {
	if e.where == nil {
		e.where = make(map[string]*redis.Client)
		e.open = make(map[*redis.Client]*redis.PubSub)
	}
	e.where[channel] = node
	p := e.open[node]
	if p == nil {
		if node != nil {
			p = node.SSubscribe(ctx) // connects when first used
		} else {
			p = e.client.Subscribe(ctx)
		}
		e.open[node] = p
		e.wg.Go(func() { e.hear(p) })
	}
	if node != nil {
		_ = p.SSubscribe(ctx, channel)
	} else {
		_ = p.Subscribe(ctx, channel)
	}
}

func (e *ears) unsubscribe(ctx context.Context, node *redis.Client, channel string) {
	delete(e.where, channel)
	if node != nil {
		_ = e.open[node].SUnsubscribe(ctx, channel)
	} else {
		_ = e.open[node].Unsubscribe(ctx, channel)
	}
}

// hear wakes waiters until the subscription is closed.
func (e *ears) hear(p *redis.PubSub) {
	for event := range p.ChannelWithSubscriptions() {
		switch m := event.(type) {
		case *redis.Message:
			e.room.wake(m.Channel)
		case *redis.Subscription:
			// The lock may have been released before we could hear of it, or while
			// the connection was down.
			if m.Kind == "subscribe" || m.Kind == "ssubscribe" {
				e.room.wake(m.Channel)
			}
		}
	}
}

func (e *ears) close() {
	e.mu.Lock()
	e.closed = true
	for _, p := range e.open {
		_ = p.Close()
	}
	e.mu.Unlock()
	e.wg.Wait()
}
