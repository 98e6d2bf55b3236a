package redislock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pingInterval is how often a subscription asks its server whether the
	// connection still works: one that is half open looks like one on which nothing
	// is published.
	pingInterval = 3 * time.Second
	// leastResubscribe and mostResubscribe bound the pause before a subscription
	// connects again; it doubles from one to the other.
	leastResubscribe = 10 * time.Millisecond
	mostResubscribe  = time.Second
)

// subscriber receives the releases that are published on one Redis. All the keys of
// a Locker share one subscription; on a cluster, where messages stay in their
// shard, one for each primary.
type subscriber struct {
	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is one
	queues  *waitQueues
	wg      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[*redis.Client]*subscription // by primary of a cluster, nil elsewhere
	where  map[string]*subscription        // by channel
}

// subscription is one connection. A waiter only marks its channel as dirty, and a
// goroutine sends the commands, so that a server which hangs delays no waiter of
// another server.
//
// go-redis would subscribe again after the connection broke, to all channels by one
// command, which a cluster refuses when they lie in several slots. So a subscription
// begins anew with every connection.
type subscription struct {
	in   *subscriber
	node *redis.Client
	done context.Context
	stop context.CancelFunc

	dirty    chan struct{} // of capacity 1: changed is not empty
	received atomic.Int64  // messages

	// Guarded by the subscriber's mu.
	pubsub  *redis.PubSub   // nil while there is no connection
	changed map[string]bool // the dirty channels; true: one that was requested is requested again
	state   map[string]subscribed
}

type subscribed int8

const (
	notSubscribed subscribed = iota
	requested                // the command was sent
	confirmed                // the server answered it
)

// subscribe makes every subscription fit whether a caller waits on the channel.
func (l *Locker) subscribe(channel string) {
	for _, n := range l.nodes {
		n.subscriber.update(channel)
	}
}

// subscribed reports whether each Redis has confirmed that it sends what is published
// on the channel.
func (l *Locker) subscribed(channel string) bool {
	for _, n := range l.nodes {
		if !n.subscriber.confirmed(channel) {
			return false
		}
	}
	return true
}

func (s *subscriber) confirmed(channel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.where[channel]
	return at != nil && at.state[channel] == confirmed
}

// update marks a channel as dirty where it is, or is to be, subscribed to. Whether it
// is wanted is looked at when the command is sent, so of two calls that race the later
// is right. A subscription that was requested and not confirmed is requested again.
func (s *subscriber) update(channel string) {
	wanted := s.queues.wanted(channel)
	var node *redis.Client
	if wanted && s.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
		defer cancel()
		var err error
		// From the client's map of the cluster: the servers are asked only without one.
		if node, err = s.cluster.MasterForKey(ctx, channel); err != nil {
			return // the poll behind every wait tries again
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	at := s.where[channel]
	if wanted && (at == nil || at.node != node) {
		if at != nil { // the slot has moved
			at.mark(channel, false)
		}
		at = s.on(node)
		s.where[channel] = at
	}
	if at == nil || wanted && at.state[channel] == confirmed {
		return
	}
	at.mark(channel, true)
}

// on returns the subscription at a node.
func (s *subscriber) on(node *redis.Client) *subscription {
	if a := s.open[node]; a != nil {
		return a
	}
	a := &subscription{
		in: s, node: node, dirty: make(chan struct{}, 1),
		changed: make(map[string]bool), state: make(map[string]subscribed),
	}
	a.done, a.stop = context.WithCancel(context.Background())
	a.pubsub = a.connection()
	if s.open == nil {
		s.open, s.where = make(map[*redis.Client]*subscription), make(map[string]*subscription)
	}
	s.open[node] = a
	s.wg.Go(a.send)
	s.wg.Go(a.receive)
	return a
}

// connection returns a new one, which connects when it is first used.
func (a *subscription) connection() *redis.PubSub {
	if a.node != nil {
		return a.node.SSubscribe(a.done)
	}
	return a.in.client.Subscribe(a.done)
}

func (a *subscription) mark(channel string, again bool) {
	a.changed[channel] = a.changed[channel] || again
	select {
	case a.dirty <- struct{}{}:
	default:
	}
}

// send sends the commands for dirty channels, those of many waiters together, and
// closes a connection that no longer answers.
func (a *subscription) send() {
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	var pinged *redis.PubSub
	var before int64 // received when it was pinged
	for {
		select {
		case <-a.done.Done():
			return
		case <-a.dirty:
			pubsub, more, less := a.commands()
			a.each(pubsub, more, (*redis.PubSub).Subscribe, (*redis.PubSub).SSubscribe)
			a.each(pubsub, less, (*redis.PubSub).Unsubscribe, (*redis.PubSub).SUnsubscribe)
		case <-ping.C:
			a.in.mu.Lock()
			pubsub := a.pubsub
			a.in.mu.Unlock()
			switch {
			case pubsub == nil:
			case pubsub == pinged && a.received.Load() == before:
				_ = pubsub.Close() // receive connects again
			default:
				pinged, before = pubsub, a.received.Load()
				ctx, cancel := context.WithTimeout(a.done, cleanupTime)
				_ = pubsub.Ping(ctx)
				cancel()
			}
		}
	}
}

// commands returns the channels to subscribe to and to unsubscribe from, and forgets
// those without a waiter.
func (a *subscription) commands() (pubsub *redis.PubSub, more, less []string) {
	s := a.in
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.pubsub == nil {
		return nil, nil, nil // renew marks them all
	}
	for channel, again := range a.changed {
		here := s.where[channel] == a
		wanted := here && s.queues.wanted(channel)
		if here && !wanted {
			delete(s.where, channel)
		}
		switch {
		case wanted && (a.state[channel] == notSubscribed || again && a.state[channel] == requested):
			a.state[channel] = requested
			more = append(more, channel)
		case !wanted && a.state[channel] != notSubscribed:
			delete(a.state, channel)
			less = append(less, channel)
		}
	}
	clear(a.changed)
	return a.pubsub, more, less
}

// each sends one command for all channels; on a cluster, one for each slot. A command
// that fails breaks the connection, and receive begins anew.
func (a *subscription) each(
	pubsub *redis.PubSub, channels []string, plain, sharded func(*redis.PubSub, context.Context, ...string) error,
) {
	if len(channels) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(a.done, cleanupTime)
	defer cancel()
	if a.node == nil {
		_ = plain(pubsub, ctx, channels...)
		return
	}
	bySlot := make(map[uint16][]string)
	for _, channel := range channels {
		slot := slotOf(channel)
		bySlot[slot] = append(bySlot[slot], channel)
	}
	for _, of := range bySlot {
		_ = sharded(pubsub, ctx, of...)
	}
}

// receive wakes waiters, and connects again after an error, until the subscriber is
// closed or no channel is left.
func (a *subscription) receive() {
	defer a.stop()
	pause := leastResubscribe
	for pubsub := a.pubsub; pubsub != nil; pubsub = a.renew() {
		before := a.received.Load()
		a.messages(pubsub)
		_ = pubsub.Close()
		a.disconnected()
		if a.received.Load() != before {
			pause = leastResubscribe
		}
		select {
		case <-a.done.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, mostResubscribe)
	}
}

// messages returns at the first error: a broken connection, or a command that the
// server refused.
func (a *subscription) messages(pubsub *redis.PubSub) {
	for {
		event, err := pubsub.Receive(a.done)
		if err != nil {
			return
		}
		a.received.Add(1)
		switch m := event.(type) {
		case *redis.Message:
			a.in.queues.wake(m.Channel)
		case *redis.Subscription:
			switch m.Kind {
			case "subscribe", "ssubscribe":
				// The lock may have been released before the server subscribed us.
				a.confirm(m.Channel)
				a.in.queues.wake(m.Channel)
			case "sunsubscribe":
				a.dropped(m.Channel)
			}
		}
	}
}

func (a *subscription) confirm(channel string) {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	if a.state[channel] == requested {
		a.state[channel] = confirmed
	}
}

// dropped subscribes again to a channel whose slot has moved, at the new primary once
// the client knows it. The answer to a command of ours is about a channel without state,
// or one that was requested again since.
func (a *subscription) dropped(channel string) {
	a.in.mu.Lock()
	moved := a.state[channel] == confirmed
	if moved {
		delete(a.state, channel)
	}
	a.in.mu.Unlock()
	if moved {
		a.in.update(channel)
		a.in.queues.wake(channel)
	}
}

// disconnected notes that nothing is subscribed to.
func (a *subscription) disconnected() {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	a.pubsub = nil
	clear(a.state)
}

// renew returns a new connection for the channels that are still wanted here. Those of
// slots that have moved go elsewhere. Without a channel it ends the subscription.
func (a *subscription) renew() *redis.PubSub {
	for _, channel := range a.channels() {
		a.in.update(channel)
	}
	s := a.in
	s.mu.Lock()
	defer s.mu.Unlock()
	left := false
	for channel, at := range s.where {
		switch {
		case at != a:
		case s.queues.wanted(channel):
			a.mark(channel, false)
			left = true
		default:
			delete(s.where, channel)
		}
	}
	if s.closed || !left {
		delete(s.open, a.node)
		return nil
	}
	a.pubsub = a.connection()
	return a.pubsub
}

func (a *subscription) channels() (all []string) {
	a.in.mu.Lock()
	defer a.in.mu.Unlock()
	for channel, at := range a.in.where {
		if at == a {
			all = append(all, channel)
		}
	}
	return all
}

func (s *subscriber) close() {
	s.mu.Lock()
	s.closed = true
	for _, a := range s.open {
		a.stop()
		if a.pubsub != nil {
			_ = a.pubsub.Close()
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
}
