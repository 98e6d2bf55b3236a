package redislock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// ensemble is a Redis whose masters are replaced.
type ensemble struct {
	client     redis.UniversalClient
	master     func(context.Context) (*testbed.Redis, error)                 // the one that has "k"
	await      func(context.Context, *testbed.Redis) (*testbed.Redis, error) // another than that
	switchover func(context.Context) (*testbed.Redis, error)                 // while the old one works
	settle     func(context.Context) error
	nodes      []*testbed.Redis
}

// failoverLimit bounds the replacement of a master on a machine that is busy.
const failoverLimit = time.Minute

// onEveryEnsemble runs a test where masters are replaced.
func onEveryEnsemble(t *testing.T, test func(*testing.T, *ensemble)) {
	t.Helper()
	t.Run("sentinel", func(t *testing.T) {
		s := bedtest.New(t).Sentinel()
		opts := clientOptions(s.Addrs()...)
		opts.MasterName = s.Master()
		test(t, &ensemble{
			client: connect(t, opts), master: s.Current, await: s.Await, switchover: s.Failover, settle: s.Settle, nodes: s.Nodes(),
		})
	})
	t.Run("cluster", func(t *testing.T) {
		c := bedtest.New(t).Cluster()
		// As the sidecar has it: a master that died redirects nobody, and go-redis looks
		// for its slots where it was until it reads the map again, after a minute.
		opts := clientOptions(c.Addrs()...).Cluster()
		opts.ClusterStateReloadInterval = time.Second
		opts.MaxRetries, opts.MaxRedirects = -1, 2
		client := redis.NewClusterClient(opts)
		t.Cleanup(func() { _ = client.Close() })
		test(t, &ensemble{
			client: client, settle: c.Settle, nodes: c.Nodes(),
			master: func(ctx context.Context) (*testbed.Redis, error) { return c.MasterOf(ctx, "k") },
			await: func(ctx context.Context, old *testbed.Redis) (*testbed.Redis, error) {
				return c.Await(ctx, "k", old)
			},
			switchover: func(ctx context.Context) (*testbed.Redis, error) { return c.Failover(ctx, "k") },
		})
	})
}

// within bounds a wait for the servers, and ends the test if it was in vain.
func within[T any](t *testing.T, do func(context.Context) (T, error)) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), failoverLimit)
	defer cancel()
	v, err := do(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// direct returns a client of one server.
func (e *ensemble) direct(t *testing.T, r *testbed.Redis) redis.UniversalClient {
	return connect(t, clientOptions(r.Addr()))
}

// replaced waits for another master than the one that was, and until the client has
// found it.
func (e *ensemble) replaced(t *testing.T, old *testbed.Redis) *testbed.Redis {
	t.Helper()
	master := within(t, func(ctx context.Context) (*testbed.Redis, error) { return e.await(ctx, old) })
	bedtest.Eventually(t, "the client has found the new master", func() bool {
		return e.client.Set(t.Context(), "{k}probe", "1", 0).Err() == nil
	})
	return master
}

// everywhere waits until the replicas of a master have a key as it has it.
func (e *ensemble) everywhere(t *testing.T, master *testbed.Redis, key string) {
	t.Helper()
	client := e.direct(t, master).(*redis.Client)
	bedtest.Eventually(t, "the replicas have "+key, func() bool {
		conn := client.Conn()
		defer func() { _ = conn.Close() }()
		replicas := len(replicasOf(t, master, e.nodes))
		if err := conn.Set(t.Context(), "{k}written", "1", 0).Err(); err != nil {
			return false
		}
		return conn.Wait(t.Context(), replicas, 100*time.Millisecond).Val() >= int64(replicas)
	})
}

// persist acquires in the background, again when Redis fails: one who waits asks
// when it has subscribed anew, and may be sent to the old master.
func persist(ctx context.Context, l *Locker, key string) <-chan result {
	c := make(chan result, 1)
	go func() {
		for {
			lease, err := l.Acquire(ctx, key)
			if err == nil || errors.Is(err, ErrBusy) || ctx.Err() != nil {
				c <- result{lease, err}
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return c
}

// TestMasterKilled replaces the master under a lease, one who waits for it, and a
// grant that no replica has heard of.
func TestMasterKilled(t *testing.T) {
	t.Parallel()
	onEveryEnsemble(t, func(t *testing.T, e *ensemble) {
		within(t, func(ctx context.Context) (any, error) { return nil, e.settle(ctx) })
		l := newLocker(t, e.client, Options{Lease: time.Hour})
		other := newLocker(t, e.client, Options{Wait: never})
		old := within(t, e.master)
		first := acquire(t, l, "{k}missed")
		release(t, first)
		held := acquire(t, l, "k")
		got := persist(t.Context(), other, "k")
		wantWaiting(t, other, 1)
		e.everywhere(t, old, "k")

		// The replicas lose their master, and cannot look for it: what is granted now
		// dies with it.
		replicas := replicasOf(t, old, e.nodes)
		for _, r := range replicas {
			if err := r.Pause(); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.direct(t, old).Do(t.Context(), "client", "kill", "type", "replica").Err(); err != nil {
			t.Fatal(err)
		}
		missed := acquire(t, l, "{k}missed")
		old.Kill()
		for _, r := range replicas {
			if err := r.Resume(); err != nil {
				t.Fatal(err)
			}
		}
		master := e.replaced(t, old)
		now := e.direct(t, master)
		if n := now.Exists(t.Context(), "{k}missed").Val(); n != 0 {
			t.Fatal("the new master has the grant that it was to miss")
		}
		if known := now.Get(t.Context(), FenceKey("{k}missed")).Val(); known != fmt.Sprint(first.Fence()) {
			t.Errorf("the new master has fence %s, want %d", known, first.Fence())
		}
		for _, exists := range now.ScriptExists(t.Context(), l.scripts.acquire.Hash, l.scripts.release.Hash).Val() {
			if exists { // who waits asks
				now.ScriptFlush(t.Context())
			}
		}
		// From here on no caller sees that anything was.
		again := acquire(t, l, "{k}missed")
		if again.Fence() <= missed.Fence() {
			t.Errorf("fence %d after %d", again.Fence(), missed.Fence())
		}
		select {
		case <-missed.Lost(): // a renewal was told
		default:
			if err := missed.Release(t.Context()); !errors.Is(err, ErrLost) {
				t.Errorf("releasing the grant that was forgotten: %v, want ErrLost", err)
			}
		}
		if !e.client.HExists(t.Context(), "{k}missed", again.Owner()).Val() {
			t.Error("the new holder's lock was released")
		}
		release(t, again)

		// The lease that was replicated is still one, and its waiter still waits.
		select {
		case r := <-got:
			t.Fatalf("the waiter did not wait: %v", r.err)
		case <-held.Lost():
			t.Fatal("the lease was lost")
		default:
		}
		// On a cluster it is the next to wait, or to poll, who moves the subscription.
		ctx, leave := context.WithCancel(t.Context())
		behind := persist(ctx, other, "k")
		wantWaiting(t, other, 2)
		e.heard(t, master, Channel(Exclusive, "k"))
		leave()
		bedtest.Receive(t, "the end of who was behind", behind)
		release(t, held)
		next := bedtest.Receive(t, "the grant", got).ok(t)
		if next.Fence() <= held.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), held.Fence())
		}
		release(t, next)
	})
}

// heard waits until what a master publishes on a channel is listened to: on it, or,
// but for a cluster, on one of its replicas, which are told of all messages. The
// client may have connected anew before it knew that its server is a replica now.
func (e *ensemble) heard(t *testing.T, master *testbed.Redis, channel string) {
	t.Helper()
	client := e.direct(t, master)
	if _, ok := e.client.(*redis.ClusterClient); ok {
		bedtest.Eventually(t, "the new master is listened to", func() bool {
			return client.PubSubShardNumSub(t.Context(), channel).Val()[channel] == 1
		})
		return
	}
	direct := make(map[*testbed.Redis]redis.UniversalClient)
	for _, node := range e.nodes {
		direct[node] = e.direct(t, node)
	}
	bedtest.Eventually(t, "the new master or a replica is listened to", func() bool {
		for _, node := range append(followers(t, client, e.nodes), master) {
			if direct[node].PubSubNumSub(t.Context(), channel).Val()[channel] == 1 {
				return true
			}
		}
		return false
	})
}

// TestWaiterFollowsTheMaster has a master step down that goes on as a replica. Who
// waits listens to the new one, and hears of a release.
func TestWaiterFollowsTheMaster(t *testing.T) {
	t.Parallel()
	onEveryEnsemble(t, func(t *testing.T, e *ensemble) {
		within(t, func(ctx context.Context) (any, error) { return nil, e.settle(ctx) })
		old := within(t, e.master)
		l := newLocker(t, e.client, Options{Lease: time.Hour})
		other := newLocker(t, e.client, Options{Wait: Wait{UpTo: failoverLimit}})
		held := acquire(t, l, "k")
		got := async(t.Context(), other, "k")
		wantWaiting(t, other, 1)
		e.everywhere(t, old, "k")
		within(t, e.switchover)
		master := e.replaced(t, old)
		e.heard(t, master, Channel(Exclusive, "k"))
		release(t, held)
		release(t, bedtest.Receive(t, "the grant", got).ok(t))
	})
}
