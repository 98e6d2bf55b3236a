package redislock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// waiters has a Locker wait for so many locks, each of another key and, on a cluster,
// mostly of another slot. Leave ends the waits.
func waiters(t *testing.T, c redis.UniversalClient, n int) (l *Locker, keys []string, leave func()) {
	t.Helper()
	holder := newLocker(t, c, Options{Lease: time.Hour})
	l = newLocker(t, c, Options{Lease: time.Hour, Wait: Wait{UpTo: time.Hour}})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range n {
		key := fmt.Sprintf("order:%d", i)
		keys = append(keys, key)
		acquire(t, holder, key)
		wg.Go(func() {
			for ctx.Err() == nil { // Redis may be away for a moment
				if lease, err := l.Acquire(ctx, key); err == nil {
					_ = lease.Release(context.WithoutCancel(ctx))
					return
				}
			}
		})
	}
	wantWaiting(t, l, n)
	leave = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(leave)
	return l, keys, leave
}

// subscribers returns how many of the keys' channels have a subscriber, by what the
// servers say.
func subscribers(t *testing.T, c redis.UniversalClient, keys []string) int {
	t.Helper()
	var mu sync.Mutex
	found := make(map[string]bool)
	err := onMasters(t.Context(), c, func(ctx context.Context, node redis.Cmdable) error {
		open := node.PubSubChannels
		if _, ok := c.(*redis.ClusterClient); ok {
			open = node.PubSubShardChannels
		}
		channels, err := open(ctx, "*").Result()
		mu.Lock()
		defer mu.Unlock()
		for _, channel := range channels {
			found[channel] = true
		}
		return err
	})
	if err != nil {
		t.Log(err)
		return 0
	}
	n := 0
	for _, key := range keys {
		if found[Channel(Exclusive, key)] {
			n++
		}
	}
	return n
}

// TestSubscriptionsSurviveTheirConnections has waiters on keys of many slots: each has
// a subscription, also after the connections were closed by the server.
func TestSubscriptionsSurviveTheirConnections(t *testing.T) {
	t.Parallel()
	onSingleAndCluster(t, func(t *testing.T, c redis.UniversalClient) {
		l, keys, leave := waiters(t, c, 60)
		all := func() bool {
			missing := slices.ContainsFunc(keys, func(key string) bool { return !l.subscribed(Channel(Exclusive, key)) })
			return !missing && subscribers(t, c, keys) == len(keys)
		}
		bedtest.Eventually(t, "all are subscribed", all)
		for range 3 {
			err := onMasters(t.Context(), c, func(ctx context.Context, node redis.Cmdable) error {
				return node.ClientKillByFilter(ctx, "type", "pubsub").Err()
			})
			if err != nil {
				t.Fatal(err)
			}
			bedtest.Eventually(t, "all are subscribed again", all)
		}
		leave()
		bedtest.Eventually(t, "all have unsubscribed", func() bool { return subscribers(t, c, keys) == 0 })
	})
}

// TestIdleWaitersAskRarely counts what waiters ask that have a subscription.
func TestIdleWaitersAskRarely(t *testing.T) {
	t.Parallel()
	onSingleAndCluster(t, func(t *testing.T, c redis.UniversalClient) {
		p := watch(t, c, Exclusive, Redisson)
		l, keys, _ := waiters(t, c, 50)
		bedtest.Eventually(t, "all have a subscription, and asked after it", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			answers := 0
			for _, n := range p.answered {
				answers += n
			}
			return answers >= 3*len(keys) // the holder's, and two of each waiter
		})
		for _, key := range keys {
			if !l.subscribed(Channel(Exclusive, key)) {
				t.Errorf("%s: no subscription", key)
			}
		}
		p.seen()
		time.Sleep(2 * usualPoll) // what must not happen cannot be waited for
		asked := 0
		for _, deed := range p.deedsSeen() { // the holder writes its records meanwhile
			if deed == "acquire" {
				asked++
			}
		}
		if asked > len(keys)/2 {
			t.Errorf("%d idle waiters asked %d times in %v", len(keys), asked, 2*usualPoll)
		}
	})
}

// TestSubscriptionHalfOpen has a server that no longer answers on a connection that
// stays open: the subscription moves to another connection once it does.
func TestSubscriptionHalfOpen(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis()
	c := connect(t, clientOptions(server.Addr()))
	l, keys, _ := waiters(t, c, 1)
	channel := Channel(Exclusive, keys[0])
	bedtest.Eventually(t, "it is subscribed", func() bool { return l.subscribed(channel) })
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "it is noticed", func() bool { return !l.subscribed(channel) })
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "it is subscribed again", func() bool { return l.subscribed(channel) })
}

// TestNoSubscriptionIsLeftBehind has waiters come and leave at any moment of their
// subscription.
func TestNoSubscriptionIsLeftBehind(t *testing.T) {
	t.Parallel()
	onSingleAndCluster(t, func(t *testing.T, c redis.UniversalClient) {
		l, keys, leave := waiters(t, c, 20)
		leave()
		var wg sync.WaitGroup
		for i, key := range slices.Repeat(keys, 20) {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%40)*100*time.Microsecond)
				defer cancel()
				if _, err := l.Acquire(ctx, key); err == nil {
					t.Error("granted")
				}
			})
		}
		wg.Wait()
		bedtest.Eventually(t, "all have unsubscribed", func() bool { return subscribers(t, c, keys) == 0 })
	})
}
