package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// keysLeft returns all keys of all masters, sorted.
func keysLeft(t *testing.T, c redis.UniversalClient) []string {
	t.Helper()
	var keys []string
	err := onMasters(t.Context(), c, func(ctx context.Context, node redis.Cmdable) error {
		iter := node.Scan(ctx, 0, "*", 1000).Iterator()
		for iter.Next(ctx) {
			keys = append(keys, iter.Val())
		}
		return iter.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// testForceRelease takes a lock away from its holder while another waits for it
// and would not ask again by itself.
func testForceRelease(t *testing.T, c redis.UniversalClient) {
	onEveryKind(t, func(t *testing.T, opts Options, key string) {
		if opts.Kind == Semaphore {
			opts.Permits = 1
		}
		opts.Lease = 3 * time.Second
		holder := newLocker(t, c, opts)
		lease := acquire(t, holder, key)
		acquire(t, holder, key, Reenter(lease.Owner())) // the nested call loses it as well
		bedtest.Eventually(t, "it is on record", func() bool {
			return inspect(t, c, opts, key).Holders[0].Recorded
		})

		waiting := opts
		waiting.Lease, waiting.Wait = time.Minute, never
		if opts.Kind == Read { // another reader would not wait
			waiting.Kind = Write
		}
		waiter := newLocker(t, c, waiting)
		granted := make(chan *Lease, 1)
		go func() {
			if l, err := waiter.Acquire(t.Context(), key); err == nil {
				granted <- l
			} else {
				t.Error(err)
				granted <- nil
			}
		}()
		bedtest.Eventually(t, "somebody waits", func() bool { return inspect(t, c, opts, key).Waiting == 1 })

		heard, err := ForceRelease(t.Context(), c, inspect(t, c, opts, key))
		// One in a fair lock's line may be about to listen, and asks again when it does.
		if err != nil || heard != 1 && opts.Kind != Fair {
			t.Fatalf("ForceRelease: %d heard, %v, want 1", heard, err)
		}
		next := <-granted
		if next == nil {
			return
		}
		if next.Fence() <= lease.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), lease.Fence())
		}
		<-lease.Lost()
		if s := inspect(t, c, opts, key); len(s.Holders) != 1 || s.Holders[0].Owner != next.Owner() {
			t.Errorf("held by %+v, want the waiter", s.Holders)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("releasing what is known to be lost: %v", err)
		}
		release(t, next)
	})
}

// testForceReleaseLeavesNothing counts the keys that are left of a lock.
func testForceReleaseLeavesNothing(t *testing.T, c redis.UniversalClient) {
	onEveryKind(t, func(t *testing.T, opts Options, key string) {
		l := newLocker(t, c, opts)
		leases := []*Lease{acquire(t, l, key)}
		if opts.Kind.shared() {
			leases = append(leases, acquire(t, l, key))
		}
		for _, lease := range leases {
			if err := lease.Hold(t.Context(), "why"); err != nil {
				t.Fatal(err)
			}
		}
		seen := inspect(t, c, opts, key)
		if len(seen.Holders) != len(leases) {
			t.Fatalf("%d holders, want %d", len(seen.Holders), len(leases))
		}
		want := []string{FenceKey(key)}
		if opts.Kind == Semaphore {
			want = append(want, key, after(key, permitsSuffix))
			for _, h := range seen.Holders { // one by one
				one := seen
				one.Holders = []Holder{h}
				if _, err := ForceRelease(t.Context(), c, one); err != nil {
					t.Fatal(err)
				}
			}
		} else if _, err := ForceRelease(t.Context(), c, seen); err != nil {
			t.Fatal(err)
		}
		if s := inspect(t, c, opts, key); s.Held() || s.Fence != leases[len(leases)-1].Fence() || s.Free != opts.Permits {
			t.Errorf("afterwards it is %+v", s)
		}
		left := slices.DeleteFunc(keysLeft(t, c), func(k string) bool { return !strings.Contains(k, key) })
		slices.Sort(want)
		if diff := gocmp.Diff(want, left); diff != "" {
			t.Errorf("keys (-want +got):\n%s", diff)
		}
	})
}

// testForceReleaseRefuses changes a lock between the look and the release.
func testForceReleaseRefuses(t *testing.T, c redis.UniversalClient) {
	readers := "hset k mode read " + java + " 1\nset {k}:" + java + ":rwlock_timeout:1 1 px 60000"
	tests := []struct {
		name          string
		opts          Options
		before, after string // commands, one a line
		released      bool
	}{
		{"unchanged", Options{}, "hset k " + java + " 1", "", true},
		{"entered once more", Options{}, "hset k " + java + " 1", "hincrby k " + java + " 1", true},
		{"renewed", Options{}, "hset k " + java + " 1", "pexpire k 60000", true},
		{"another holder", Options{}, "hset k " + java + " 1", "hdel k " + java + "\nhset k " + other + " 1", false},
		{
			"the same thread again", Options{}, "hset k " + java + " 1\nset redisson_lock_token:{k} 7",
			"del k\nhset k " + java + " 1\nincr redisson_lock_token:{k}", false,
		},
		{"ended", Options{}, "hset k " + java + " 1", "del k", false},
		{"another kind", Options{}, "hset k " + java + " 1", "hset k mode read", false},
		{"another type", Options{}, "hset k " + java + " 1", "set k " + java, false},
		{"fair, another holder", Options{Kind: Fair}, "hset k " + java + " 1", "del k\nhset k " + other + " 1", false},
		{"a reader more", Options{Kind: Read}, readers, "hset k " + other + " 1\nset {k}:" + other + ":rwlock_timeout:1 1 px 60000", false},
		{"a reader more who died", Options{Kind: Read}, readers, "hset k " + other + " 1", true},
		{
			"a reader less", Options{Kind: Read},
			readers + "\nhset k " + other + " 1\nset {k}:" + other + ":rwlock_timeout:1 1 px 60000", "hdel k " + java, true,
		},
		{"a reader who became a writer", Options{Kind: Read}, readers, "hset k mode write " + java + ":write 1\nhdel k " + java, false},
		{"a writer", Options{Kind: Write}, "hset k mode write " + java + ":write 1", "", true},
		{"a writer who reads by now", Options{Kind: Read}, "hset k mode write " + java + ":write 1", "hset k " + java + " 1", true},
		{"another writer", Options{Kind: Write}, "hset k mode write " + java + ":write 1", "del k\nhset k mode write " + other + ":write 1", false},
		{"string", Options{Format: String}, "set k worker-7", "", true},
		{"string of another", Options{Format: String}, "set k worker-7", "set k worker-77", false},
		{
			"permit", Options{Kind: Semaphore}, "set k 1\nzadd {k}:ordergate_leases 9000000000000 a:1",
			"zadd {k}:ordergate_leases 9000000000000 b:1\nset redisson_lock_token:{k} 8", true,
		},
		{
			"permit of another", Options{Kind: Semaphore}, "set k 1\nzadd {k}:ordergate_leases 9000000000000 a:1",
			"del {k}:ordergate_leases\nzadd {k}:ordergate_leases 9000000000000 b:1", false,
		},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key := fmt.Sprintf("k%d", i)
			tt.opts.ensureDefaults()
			play(t, c, key, tt.before)
			seen := inspect(t, c, tt.opts, key)
			play(t, c, key, tt.after)
			before := inspect(t, c, tt.opts, key)
			_, err := ForceRelease(t.Context(), c, seen)
			after := inspect(t, c, tt.opts, key)
			if tt.released {
				if err != nil || len(after.Holders) >= len(before.Holders) {
					t.Errorf("ForceRelease: %v, held by %+v", err, after.Holders)
				}
				return
			}
			if !errors.Is(err, ErrChanged) {
				t.Errorf("ForceRelease: %v, want ErrChanged", err)
			}
			before.At, after.At = time.Time{}, time.Time{}
			ends := gocmp.Comparer(func(a, b time.Duration) bool { return (a > 0) == (b > 0) })
			if diff := gocmp.Diff(before, after, ends); diff != "" {
				t.Errorf("the lock has changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestForceReleaseOfNothing(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	play(t, c, "sem", `rpush list a
		set java 0
		set k 0
		zadd {k}:ordergate_leases 9000000000000 a:1 9000000000000 b:1`)
	for _, tt := range []struct {
		key  string
		opts Options
		want string
	}{
		{"free", Options{Kind: Exclusive}, "releasing lock free by force: it has no holder that is known"},
		{"list", Options{Kind: Exclusive}, "releasing lock list by force: key list holds something else than this kind of lock: a list"},
		{"java", Options{Kind: Semaphore}, "releasing lock java by force: it has no holder that is known"},
		{"sem", Options{Kind: Semaphore}, "releasing lock sem by force: it has 2 holders: name one"},
	} {
		tt.opts.ensureDefaults()
		_, err := ForceRelease(t.Context(), c, inspect(t, c, tt.opts, tt.key))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s: got %v, want %s", tt.key, err, tt.want)
		}
	}
}

// TestForceReleaseMessage listens as Redisson does.
func TestForceReleaseMessage(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	for _, tt := range []struct {
		name, commands string
		opts           Options
		channel, want  string
	}{
		{"lock", "hset k " + java + " 1", Options{Kind: Exclusive}, "redisson_lock__channel:{k}", "0"},
		{
			"fair", "hset k " + java + " 1\nrpush redisson_lock_queue:{k} " + other + "\nzadd redisson_lock_timeout:{k} 9000000000000 " + other,
			Options{Kind: Fair}, "redisson_lock__channel:{k}:" + other, "0",
		},
		// Redisson wakes all who wait on 1, readers and writers, and one on 0.
		{"read", "hset k mode read " + java + " 1\nset {k}:" + java + ":rwlock_timeout:1 1", Options{Kind: Read}, "redisson_rwlock:{k}", "1"},
		{"write", "hset k mode write " + java + ":write 1", Options{Kind: Write}, "redisson_rwlock:{k}", "1"},
		{"semaphore", "set k 0\nzadd {k}:ordergate_leases 9000000000000 a:1", Options{Kind: Semaphore}, "redisson_sc:{k}", "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			play(t, c, "k", "flushall\n"+tt.commands)
			sub := c.Subscribe(t.Context(), tt.channel)
			defer func() { _ = sub.Close() }()
			if _, err := sub.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			tt.opts.ensureDefaults()
			if heard, err := ForceRelease(t.Context(), c, inspect(t, c, tt.opts, "k")); err != nil || heard != 1 {
				t.Fatalf("%d heard, %v", heard, err)
			}
			if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != tt.want {
				t.Errorf("heard %v, %v, want %s", m, err, tt.want)
			}
		})
	}
}
