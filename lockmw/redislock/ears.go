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

	mu     sync.Mutex
	closed bool
	open   map[*redis.Client]*ear // by master of a cluster, nil elsewhere
	where  map[string]*ear        // the channels that are listened on
}

// ear is one subscription. Whoever waits only leaves word of a channel; a goroutine
// tells Redis, so that a server which hangs holds up nobody, least of all those who
// wait for others.
type ear struct {
	ears   *ears
	node   *redis.Client
	pubsub *redis.PubSub
	word   chan struct{} // of capacity 1: changed is not empty
	done   context.Context
	stop   context.CancelFunc

	mu      sync.Mutex
	changed map[string]bool // channels to look at again; true: Redis has dropped it
}

// listen makes every subscription fit whether somebody waits on the channel.
func (l *Locker) listen(channel string) {
	for _, n := range l.nodes {
		n.ears.listen(channel)
	}
}

// listen leaves word of a channel. It is looked at afresh when Redis is told, so of
// two calls that race the later is right. An error is left to the poll behind every
// wait; go-redis subscribes again by itself when a connection was lost.
func (e *ears) listen(channel string) {
	wanted := e.room.wanted(channel)
	var node *redis.Client
	if wanted && e.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
		defer cancel()
		var err error
		// From what is known of the cluster: it is asked only when that is nothing.
		if node, err = e.cluster.MasterForKey(ctx, channel); err != nil {
			return
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	at := e.where[channel]
	if wanted && (at == nil || at.node != node) {
		if at != nil { // the slot has moved
			at.tell(channel, false)
		}
		if e.where == nil {
			e.where = make(map[string]*ear)
		}
		at = e.at(node)
		e.where[channel] = at
	}
	if at != nil {
		at.tell(channel, false)
	}
}

// at returns the subscription on a node.
func (e *ears) at(node *redis.Client) *ear {
	if a := e.open[node]; a != nil {
		return a
	}
	a := &ear{ears: e, node: node, word: make(chan struct{}, 1), changed: make(map[string]bool)}
	a.done, a.stop = context.WithCancel(context.Background())
	if node != nil {
		a.pubsub = node.SSubscribe(a.done) // connects when first used
	} else {
		a.pubsub = e.client.Subscribe(a.done)
	}
	if e.open == nil {
		e.open = make(map[*redis.Client]*ear)
	}
	e.open[node] = a
	e.wg.Go(a.follow)
	e.wg.Go(a.hear)
	return a
}

// wants reports whether a channel is to be heard here, and forgets where one is
// listened on that nobody waits on any more.
func (e *ears) wants(a *ear, channel string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.where[channel] != a {
		return false
	}
	if e.room.wanted(channel) {
		return true
	}
	delete(e.where, channel)
	return false
}

func (a *ear) tell(channel string, dropped bool) {
	a.mu.Lock()
	a.changed[channel] = a.changed[channel] || dropped
	a.mu.Unlock()
	select {
	case a.word <- struct{}{}:
	default:
	}
}

// follow tells Redis which channels are wanted, those of many waiters at once.
func (a *ear) follow() {
	on := make(map[string]bool)
	for {
		select {
		case <-a.done.Done():
			return
		case <-a.word:
		}
		a.mu.Lock()
		changed := a.changed
		a.changed = make(map[string]bool)
		a.mu.Unlock()
		var more, less []string
		for channel, dropped := range changed {
			if dropped {
				delete(on, channel)
			}
			switch wanted := a.ears.wants(a, channel); {
			case wanted && !on[channel]:
				on[channel] = true
				more = append(more, channel)
			case !wanted && on[channel]:
				delete(on, channel)
				less = append(less, channel)
			}
		}
		a.subscribe(more, less)
	}
}

func (a *ear) subscribe(more, less []string) {
	ctx, cancel := context.WithTimeout(a.done, cleanupTime)
	defer cancel()
	switch {
	case len(more) == 0:
	case a.node != nil:
		_ = a.pubsub.SSubscribe(ctx, more...)
	default:
		_ = a.pubsub.Subscribe(ctx, more...)
	}
	switch {
	case len(less) == 0:
	case a.node != nil:
		_ = a.pubsub.SUnsubscribe(ctx, less...)
	default:
		_ = a.pubsub.Unsubscribe(ctx, less...)
	}
}

// hear wakes waiters until the subscription is closed.
func (a *ear) hear() {
	for event := range a.pubsub.ChannelWithSubscriptions() {
		switch m := event.(type) {
		case *redis.Message:
			a.ears.room.wake(m.Channel)
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				// The lock may have been released before we could hear of it, or while
				// the connection was down.
				a.ears.room.wake(m.Channel)
			case "sunsubscribe":
				// Ours, or the slot has moved: whoever waits looks where to.
				if a.ears.room.wanted(m.Channel) {
					a.tell(m.Channel, true)
					a.ears.room.wake(m.Channel)
				}
			}
		}
	}
}

func (e *ears) close() {
	e.mu.Lock()
	e.closed = true
	for _, a := range e.open {
		a.stop()
		_ = a.pubsub.Close()
	}
	e.mu.Unlock()
	e.wg.Wait()
}
