package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// mirrored is a Redis whose masters have replicas.
type mirrored struct {
	client   redis.UniversalClient
	probe    *probe
	replicas []*testbed.Redis // of the master that has "k"
	distant  string           // a key of another master; "" where there is one only
}

// replicaTime is how long replicas have in these tests, and tooLong what is no
// longer that and a round trip, on a machine that is busy. The client waits for
// longer still.
const (
	replicaTime = 200 * time.Millisecond
	tooLong     = 10 * time.Second
)

func mirroredOptions(addrs ...string) *redis.UniversalOptions {
	opts := clientOptions(addrs...)
	opts.ReadTimeout = 3 * tooLong
	return opts
}

// onEveryMirrored runs a test where there are replicas.
func onEveryMirrored(t *testing.T, test func(*testing.T, *mirrored)) {
	t.Helper()
	for _, tt := range []struct {
		name  string
		start func(*testing.T) *mirrored
	}{
		{"single", mirroredSingle}, {"sentinel", mirroredSentinel}, {"cluster", mirroredCluster},
	} {
		t.Run(tt.name, func(t *testing.T) { test(t, tt.start(t)) })
	}
}

func mirroredSingle(t *testing.T) *mirrored {
	bed := bedtest.New(t)
	master := bed.Redis("--repl-diskless-sync-delay", "0")
	m := &mirrored{replicas: []*testbed.Redis{bed.Replica(master)}}
	m.client = connect(t, mirroredOptions(master.Addr()))
	bedtest.Eventually(t, "the replica is in step", func() bool {
		return strings.Contains(m.client.Info(t.Context(), "replication").Val(), "state=online")
	})
	m.probe = watch(t, m.client, Exclusive, Redisson)
	return m
}

func mirroredSentinel(t *testing.T) *mirrored {
	s := bedtest.New(t).Sentinel()
	master, err := s.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	opts := mirroredOptions(s.Addrs()...)
	opts.MasterName = s.Master()
	m := &mirrored{client: connect(t, opts)}
	m.replicas = slices.DeleteFunc(s.Nodes(), func(r *testbed.Redis) bool { return r == master })
	m.probe = watch(t, m.client, Exclusive, Redisson)
	return m
}

func mirroredCluster(t *testing.T) *mirrored {
	c := bedtest.New(t).Cluster()
	m := &mirrored{}
	m.connectCluster(t, c.Addrs())
	master, err := c.MasterOf(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	m.replicas = replicasOf(t, master, c.Nodes())
	m.distant = distantKey(t, c, master)
	return m
}

// connectCluster makes a client. Its map of the cluster is read once, and again only when a node
// tells it of a move.
func (m *mirrored) connectCluster(t *testing.T, addrs []string) {
	t.Helper()
	opts := mirroredOptions(addrs...)
	opts.IsClusterMode = true
	m.client = connect(t, opts)
	m.probe = watch(t, m.client, Exclusive, Redisson)
}

// replicasOf returns those of the nodes that a master has for replicas, once there
// is one.
func replicasOf(t *testing.T, master *testbed.Redis, nodes []*testbed.Redis) (replicas []*testbed.Redis) {
	t.Helper()
	client := connect(t, clientOptions(master.Addr()))
	bedtest.Eventually(t, master.Name()+" has a replica", func() bool {
		replicas = followers(t, client, nodes)
		return len(replicas) > 0
	})
	return replicas
}

// followers returns those of the nodes that are replicas of a master now.
func followers(t *testing.T, master redis.UniversalClient, nodes []*testbed.Redis) (replicas []*testbed.Redis) {
	t.Helper()
	info := master.Info(t.Context(), "replication").Val()
	for _, node := range nodes {
		if _, port, _ := net.SplitHostPort(node.Addr()); strings.Contains(info, ",port="+port+",state=online") {
			replicas = append(replicas, node)
		}
	}
	return replicas
}

// distantKey returns a key that another master has.
func distantKey(t *testing.T, c *testbed.Cluster, than *testbed.Redis) string {
	t.Helper()
	for i := range 100 {
		key := fmt.Sprint("k", i)
		master, err := c.MasterOf(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if master != than {
			return key
		}
	}
	t.Fatalf("%s has all keys", than.Name())
	return ""
}

func (m *mirrored) locker(t *testing.T, opts Options) *Locker {
	t.Helper()
	if opts.Replicas == 0 {
		opts.Replicas = len(m.replicas)
	}
	opts.ReplicaTimeout = replicaTime
	return newLocker(t, m.client, opts)
}

// pause stops the last replica.
func (m *mirrored) pause(t *testing.T) {
	t.Helper()
	if err := m.replicas[len(m.replicas)-1].Pause(); err != nil {
		t.Fatal(err)
	}
}

func (m *mirrored) resume(t *testing.T) {
	t.Helper()
	if err := m.replicas[len(m.replicas)-1].Resume(); err != nil {
		t.Fatal(err)
	}
}

// free fails the test if one of the keys is taken on its master.
func (m *mirrored) free(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if n, err := m.client.Exists(t.Context(), key).Result(); err != nil || n != 0 {
			t.Errorf("%s is taken (%v)", key, err)
		}
	}
}

// TestConfirmedGrant looks for each grant on the replicas as soon as it is there.
func TestConfirmedGrant(t *testing.T) {
	t.Parallel()
	onEveryMirrored(t, func(t *testing.T, m *mirrored) {
		m.settled(t)
		l := m.locker(t, Options{Wait: never})
		wantMirrored := func(lease *Lease) {
			t.Helper()
			for _, r := range m.replicas {
				replica := redis.NewClient(&redis.Options{Addr: r.Addr()})
				conn := replica.Conn()
				conn.ReadOnly(t.Context()) // or a cluster's would send us to the master; elsewhere an error
				if got, err := conn.HExists(t.Context(), "k", lease.Owner()).Result(); err != nil || !got {
					t.Errorf("%s does not have the lock of %s (%v)", r.Name(), lease.Owner(), err)
				}
				if got, err := conn.Get(t.Context(), FenceKey("k")).Result(); err != nil || got != fmt.Sprint(lease.Fence()) {
					t.Errorf("%s has fence %s, want %d (%v)", r.Name(), got, lease.Fence(), err)
				}
				_ = conn.Close()
				_ = replica.Close()
			}
		}
		for range 20 {
			held := acquire(t, l, "k")
			wantMirrored(held)
			got := async(t.Context(), l, "k")
			wantWaiting(t, l, 1)
			release(t, held)
			next := bedtest.Receive(t, "the grant", got).ok(t)
			wantMirrored(next)
			release(t, next)
			all, err := l.AcquireAll(t.Context(), []string{"{k}2", "k", "{k}1"})
			if err != nil {
				t.Fatal(err)
			}
			wantMirrored(all)
			release(t, all)
		}
	})
}

// settled waits until the replicas confirm what is written.
func (m *mirrored) settled(t *testing.T) {
	t.Helper()
	bedtest.Eventually(t, "the replicas confirm", func() bool {
		l, err := New(m.client, Options{Replicas: len(m.replicas), ReplicaTimeout: replicaTime})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		lease, err := l.Acquire(t.Context(), "k")
		return err == nil && lease.Release(t.Context()) == nil
	})
	m.probe.seen()
}

// TestReplicaAway stops a replica. What it should confirm is not granted, in time,
// and given back.
func TestReplicaAway(t *testing.T) {
	t.Parallel()
	onEveryMirrored(t, func(t *testing.T, m *mirrored) {
		m.settled(t)
		l := m.locker(t, Options{Wait: never})
		// inTime checks that something fails for want of a replica, and when.
		inTime := func(what string, do func() error) {
			t.Helper()
			start := time.Now()
			err := do()
			took := time.Since(start)
			if !errors.Is(err, redisbatch.ErrNotReplicated) {
				t.Errorf("%s: %v, want %v", what, err, redisbatch.ErrNotReplicated)
			}
			if took < replicaTime*9/10 || took > tooLong {
				t.Errorf("%s took %v, want about %v", what, took, replicaTime)
			}
			l.cleanup.Wait()
			if l.Held() != 0 || l.Waiting() != 0 {
				t.Errorf("%s: %d are held, %d wait", what, l.Held(), l.Waiting())
			}
		}
		keys := []string{"k", "{k}1", "{k}2"}
		if m.distant != "" {
			keys = append(keys, m.distant)
		}
		held := acquire(t, l, "k")
		got := async(t.Context(), l, "k")
		m.probe.settle(t, l, "k")
		outer := acquire(t, m.locker(t, Options{Wait: never}), "{k}3")

		storePaid(t, l, "{k}4")
		storePaid(t, l, "{k}5")
		m.pause(t)
		for _, several := range [][]string{{"{k}4"}, {"{k}4", "{k}5"}} {
			if _, err := l.AcquireAll(t.Context(), several, Stored("pay")); !errors.Is(err, redisbatch.ErrNotReplicated) {
				t.Errorf("the stored answer of %q: %v, want %v", several, err, redisbatch.ErrNotReplicated)
			}
		}
		inTime("a hand-over", func() error {
			if err := held.Release(t.Context()); err != nil {
				t.Errorf("the release is done in any case: %v", err)
			}
			return bedtest.Receive(t, "the end of the wait", got).err
		})
		m.free(t, keys...)
		inTime("Acquire", func() error { _, err := l.Acquire(t.Context(), "k"); return err })
		m.free(t, keys...)
		inTime("AcquireAll", func() error { _, err := l.AcquireAll(t.Context(), keys); return err })
		m.free(t, keys...)
		inTime("a call within a lease", func() error {
			_, err := l.Acquire(t.Context(), "{k}3", Reenter(outer.Owner()))
			return err
		})
		if m.distant != "" { // whose replica is there
			release(t, acquire(t, l, m.distant))
		}
		if len(m.replicas) > 1 {
			release(t, acquire(t, m.locker(t, Options{Replicas: len(m.replicas) - 1}), "k"))
		}
		unconfirmed := newLocker(t, m.client, Options{})
		release(t, acquire(t, unconfirmed, "k"))

		m.resume(t)
		bedtest.Eventually(t, "it is granted again", func() bool {
			lease, err := l.Acquire(t.Context(), "k")
			if err != nil {
				l.cleanup.Wait()
				return false
			}
			return lease.Release(t.Context()) == nil
		})
		release(t, outer)
		m.free(t, append(keys, "{k}3")...)
	})
}

// TestReplicaAwayForAMoment has a hand-over that is not confirmed, and a replica
// that is back when the waiter asks for itself: it keeps what it gets, though what
// it was handed is given back.
func TestReplicaAwayForAMoment(t *testing.T) {
	t.Parallel()
	onEveryMirrored(t, func(t *testing.T, m *mirrored) {
		m.settled(t)
		l := m.locker(t, Options{Wait: never})
		held := acquire(t, l, "k")
		got := async(t.Context(), l, "k")
		m.probe.settle(t, l, "k")
		m.pause(t)
		blocked, open := m.probe.blockAnswer(isDeed("handover"))
		defer open()
		released := make(chan error, 1)
		go func() { released <- held.Release(t.Context()) }()
		handover := bedtest.Receive(t, "the hand-over", blocked).asked[0]
		m.resume(t)
		bedtest.Eventually(t, "the replica is back", func() bool {
			l := m.locker(t, Options{})
			lease, err := l.Acquire(t.Context(), "{k}other")
			if err != nil {
				return false
			}
			release(t, lease)
			return true
		})
		open()
		if err := bedtest.Receive(t, "the release", released); err != nil {
			t.Error(err)
		}
		next := bedtest.Receive(t, "the grant", got).ok(t)
		l.cleanup.Wait()
		if slices.Contains(handover.args, next.Owner()) {
			t.Errorf("the waiter has the name of the hand-over: %s", next.Owner())
		}
		if !m.client.HExists(t.Context(), "k", next.Owner()).Val() {
			t.Error("the lock was given back")
		}
		release(t, next)
		m.free(t, "k")
	})
}

// TestConfirmedBatch has many grants confirmed by one WAIT.
func TestConfirmedBatch(t *testing.T) {
	t.Parallel()
	m := mirroredSingle(t)
	m.settled(t)
	l := m.locker(t, Options{})
	blocked, open := m.probe.block(isDeed("acquire"))
	defer open()
	leases := make(chan result, 100)
	ask := func(key string) {
		go func() {
			lease, err := l.Acquire(context.WithoutCancel(t.Context()), key)
			leases <- result{lease, err}
		}()
	}
	for i := range redisbatch.MaxWorkers {
		ask(fmt.Sprint("first", i))
		bedtest.Receive(t, "a flight", blocked)
	}
	const callers = 50
	for i := range callers {
		ask(fmt.Sprint("k", i))
	}
	wantQueued(t, l, callers)
	open()
	for range callers + redisbatch.MaxWorkers {
		release(t, bedtest.Receive(t, "a grant", leases).ok(t))
	}
	var sizes []int
	for _, trip := range m.probe.seen() {
		grants := 0
		for _, a := range trip.asked {
			if a.deed == "acquire" { // a release may have come in time
				grants++
			}
		}
		if grants > 0 {
			sizes = append(sizes, grants)
			if !trip.confirm {
				t.Errorf("%d grants went without WAIT", grants)
			}
		}
	}
	if most := redisbatch.MaxWorkers + (callers+redisbatch.MinScripts-1)/redisbatch.MinScripts; len(sizes) > most || slices.Max(sizes) < redisbatch.MinScripts {
		t.Errorf("grants went in trips of %d, want %d trips at most", sizes, most)
	}
}

// TestConfirmedHold stops a replica. A hold that it does not have would end with the
// lease after a failover: it is not done until it is confirmed.
func TestConfirmedHold(t *testing.T) {
	t.Parallel()
	onEveryMirrored(t, func(t *testing.T, m *mirrored) {
		m.settled(t)
		l := m.locker(t, Options{Hold: time.Hour})
		lease := acquire(t, l, "k")
		m.pause(t)
		if err := lease.Hold(t.Context(), "a test"); !errors.Is(err, redisbatch.ErrNotReplicated) || errors.Is(err, ErrLost) {
			t.Errorf("Hold: %v, want %v", err, redisbatch.ErrNotReplicated)
		}
		if err := lease.HoldAgain(t.Context(), "a test"); !errors.Is(err, redisbatch.ErrNotReplicated) || errors.Is(err, ErrLost) {
			t.Errorf("HoldAgain: %v, want %v", err, redisbatch.ErrNotReplicated)
		}
		m.resume(t)
		bedtest.Eventually(t, "the hold is confirmed", func() bool { return lease.HoldAgain(t.Context(), "a test") == nil })
		if left := m.client.PTTL(t.Context(), "k").Val(); left < time.Minute {
			t.Errorf("it is held for %v", left)
		}
	})
}
