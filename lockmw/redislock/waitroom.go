package redislock

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// waitRoom holds the callers that wait for a lock, and wakes the first of each
// queue when a release is published. All of a Locker's keys share one
// subscription.
//
// A message wakes one caller: the lock has room for no more, and the rest would
// only ask in vain. A message can be lost (Redis delivers at most once, and it
// may come before the subscription stands), so nobody relies on being woken.
type waitRoom struct {
	maxPerKey, max int
	pubsub         *redis.PubSub
	wg             sync.WaitGroup

	mu     sync.Mutex
	queues map[string][]*seat // by channel, first come first
	total  int

	// subMu orders what is said to Redis. It is never taken with mu held.
	subMu      sync.Mutex
	subscribed map[string]bool
}

// seat is one caller's place in a queue.
type seat struct {
	channel string
	woken   chan struct{} // holds one wake-up
}

func (w *waitRoom) start(client redis.UniversalClient, opts Options) {
	w.maxPerKey, w.max = opts.MaxWaitersPerKey, opts.MaxWaiters
	w.queues = make(map[string][]*seat)
	w.subscribed = make(map[string]bool)
	w.pubsub = client.Subscribe(context.Background()) // connects when first used
	events := w.pubsub.ChannelWithSubscriptions()
	w.wg.Go(func() {
		for event := range events {
			switch e := event.(type) {
			case *redis.Message:
				w.wake(e.Channel)
			case *redis.Subscription:
				// The lock may have been released before we could hear of it, or
				// while the connection was down.
				if e.Kind == "subscribe" {
					w.wake(e.Channel)
				}
			}
		}
	})
}

func (w *waitRoom) stop() {
	_ = w.pubsub.Close()
	w.wg.Wait()
}

func (w *waitRoom) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// enter takes a seat, or reports that there is none.
func (w *waitRoom) enter(key string) (*seat, bool) {
	s := &seat{channel: Channel(key), woken: make(chan struct{}, 1)}
	w.mu.Lock()
	queue := w.queues[s.channel]
	ok := len(queue) < w.maxPerKey && w.total < w.max
	if ok {
		w.queues[s.channel] = append(queue, s)
		w.total++
	}
	w.mu.Unlock()
	if ok && len(queue) == 0 {
		w.listen(s.channel)
	}
	return s, ok
}

// leave gives the seat up. A wake-up that came too late to be used goes to the
// next in the queue.
func (w *waitRoom) leave(s *seat) {
	w.mu.Lock()
	queue := w.queues[s.channel]
	i := slices.Index(queue, s)
	queue = slices.Delete(queue, i, i+1)
	w.total--
	last := len(queue) == 0
	if last {
		delete(w.queues, s.channel)
	} else {
		w.queues[s.channel] = queue
	}
	w.mu.Unlock()
	select {
	case <-s.woken:
		w.wake(s.channel)
	default:
	}
	if last {
		w.listen(s.channel)
	}
}

// wake wakes the first in the queue that has not been woken yet.
func (w *waitRoom) wake(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.queues[channel] {
		select {
		case s.woken <- struct{}{}:
			return
		default:
		}
	}
}

// listen makes the subscription fit whether somebody waits on the channel. It
// looks afresh, so that of two calls that race the later is right. An error is
// left to the poll behind every wait; go-redis subscribes again by itself when
// a connection was lost.
func (w *waitRoom) listen(channel string) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	w.subMu.Lock()
	defer w.subMu.Unlock()
	w.mu.Lock()
	wanted := len(w.queues[channel]) > 0
	w.mu.Unlock()
	switch {
	case wanted && !w.subscribed[channel]:
		w.subscribed[channel] = true
		_ = w.pubsub.Subscribe(ctx, channel)
	case !wanted && w.subscribed[channel]:
		delete(w.subscribed, channel)
		_ = w.pubsub.Unsubscribe(ctx, channel)
	}
}
