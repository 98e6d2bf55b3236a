package redislock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// onSingleAndCluster runs a test with servers of its own.
func onSingleAndCluster(t *testing.T, test func(*testing.T, redis.UniversalClient)) {
	t.Helper()
	for _, top := range []topology{{"single", single}, {"cluster", cluster}} {
		t.Run(top.name, func(t *testing.T) {
			t.Parallel()
			test(t, top.start(t, 1)[0])
		})
	}
}

func acquireAll(t *testing.T, l *Locker, keys ...string) *Lease {
	t.Helper()
	lease, err := l.AcquireAll(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// TestAllTakesOneScriptForEachSlot counts what is asked.
func TestAllTakesOneScriptForEachSlot(t *testing.T) {
	t.Parallel()
	onSingleAndCluster(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{})
		p := watch(t, c, Exclusive, Redisson)
		lease := acquireAll(t, l, "{a}1", "{b}1", "{a}2", "c", "{b}2", "{a}3", "{a}1", "c")
		var got, want []string
		for _, trip := range p.seen() {
			for _, a := range trip.asked {
				got = append(got, fmt.Sprintf("%s %d", a.deed, a.keys))
			}
		}
		if _, ok := c.(*redis.ClusterClient); ok {
			for _, group := range []struct {
				key string
				n   int
			}{{"a", 3}, {"b", 2}, {"c", 1}} {
				deed := "acquire_all"
				if group.n == 1 {
					deed = "acquire"
				}
				want = append(want, fmt.Sprintf("%05d %s %d", slotOf(group.key), deed, 2*group.n))
			}
			slices.Sort(want) // by slot
			for i := range want {
				want[i] = want[i][6:]
			}
		} else {
			want = []string{"acquire_all 12"}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("asked, and with how many keys (-want +got):\n%s", diff)
		}
		if n := l.Held(); n != 1 {
			t.Errorf("%d leases are renewed, want one", n)
		}
		release(t, lease)
		if left := keysLeft(t, c); len(left) != 6 {
			t.Errorf("left are %v, want six fences", left)
		}
	})
}

// TestAllFences compares the numbers of a lease with those that Redis remembers.
func TestAllFences(t *testing.T) {
	t.Parallel()
	onSingleAndCluster(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{})
		given := []string{"z", "{b}2", "a", "m", "{b}1", "z", "b", "a", "{b}2"}
		keys := slices.Compact(slices.Sorted(slices.Values(given)))
		for i, key := range keys { // or all would be much the same
			if err := c.Set(t.Context(), FenceKey(key), int64(4e15)+int64(len(keys)-i)*1e6, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		lease := acquireAll(t, l, given...)
		var want []int64
		for i, key := range keys {
			text, err := c.Get(t.Context(), FenceKey(key)).Result()
			if err != nil {
				t.Fatal(err)
			}
			n, err := strconv.ParseInt(text, 10, 64)
			if least := int64(4e15) + int64(len(keys)-i)*1e6; err != nil || n <= least {
				t.Errorf("the fence of %s is %d, want more than %d", key, n, least)
			}
			want = append(want, n)
		}
		if diff := gocmp.Diff(want, lease.Fences()); diff != "" {
			t.Errorf("fences of %v (-want +got):\n%s", keys, diff)
		}
		if lease.Key() != keys[0] || lease.Fence() != want[0] {
			t.Errorf("Key %s, Fence %d, want %s, %d", lease.Key(), lease.Fence(), keys[0], want[0])
		}
		for _, key := range keys {
			if owners := c.HGetAll(t.Context(), key).Val(); len(owners) != 2 || owners[lease.Owner()] != "1" {
				t.Errorf("%s is held by %v, want %s once", key, owners, lease.Owner())
			}
		}
		release(t, lease)
		for _, key := range keys {
			if c.Exists(t.Context(), key).Val() != 0 {
				t.Errorf("%s is still taken", key)
			}
		}
	})
}

// TestAllBusyLeavesNothing has each key in turn be another's.
func TestAllBusyLeavesNothing(t *testing.T) {
	t.Parallel()
	onSingleAndCluster(t, func(t *testing.T, c redis.UniversalClient) {
		keys := []string{"a", "{b}1", "{b}2", "c", "d"}
		other := newLocker(t, c, Options{})
		for _, wait := range []Wait{once, {Tries: 2, Every: time.Millisecond}, {UpTo: 20 * time.Millisecond}} {
			l := newLocker(t, c, Options{Wait: wait})
			for _, busy := range keys {
				flush(t, c)
				held := acquire(t, other, busy)
				if _, err := l.AcquireAll(t.Context(), keys); !errors.Is(err, ErrBusy) {
					t.Errorf("with %s taken: %v, want ErrBusy", busy, err)
				}
				l.cleanup.Wait()
				if l.Held() != 0 || l.Waiting() != 0 {
					t.Errorf("with %s taken: %d are held, %d wait", busy, l.Held(), l.Waiting())
				}
				for _, key := range keys {
					if n := c.Exists(t.Context(), key).Val(); (n == 1) != (key == busy) {
						t.Errorf("with %s taken: %d of %s", busy, n, key)
					}
				}
				if !c.HExists(t.Context(), busy, held.Owner()).Val() {
					t.Errorf("%s is no longer its holder's", busy)
				}
				release(t, held)
			}
		}
	})
}

// TestAllWithoutDeadlock has callers in two processes take sets of keys that
// overlap, one key or several, in any order. All get them, and nobody is inside
// with another.
func TestAllWithoutDeadlock(t *testing.T) {
	t.Parallel()
	onSingleAndCluster(t, func(t *testing.T, c redis.UniversalClient) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		keys := []string{"a", "b", "{b}1", "{b}2", "c", "{c}1", "d", "e"}
		lockers := []*Locker{
			newLocker(t, c, Options{Wait: Wait{UpTo: time.Minute}}), newLocker(t, c, Options{Wait: Wait{UpTo: time.Minute}}),
		}
		var mu sync.Mutex
		inside := make(map[string]int)
		enter := func(set []string, by int) {
			mu.Lock()
			defer mu.Unlock()
			for _, key := range slices.Compact(slices.Sorted(slices.Values(set))) {
				if inside[key] += by; inside[key] > 1 {
					t.Errorf("%d are inside with %s", inside[key], key)
				}
			}
		}
		var wg sync.WaitGroup
		for i := range 8 {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() {
				for range 25 {
					var set []string
					for range 1 + random.IntN(5) {
						set = append(set, keys[random.IntN(len(keys))])
					}
					lease, err := lockers[i%2].AcquireAll(t.Context(), set)
					if err != nil {
						t.Errorf("%v: %v", set, err)
						return
					}
					enter(set, 1)
					enter(set, -1)
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for _, l := range lockers {
			l.cleanup.Wait()
			if l.Held() != 0 || l.Waiting() != 0 {
				t.Errorf("%d are held, %d wait", l.Held(), l.Waiting())
			}
		}
		for _, key := range keys {
			if c.Exists(t.Context(), key).Val() != 0 {
				t.Errorf("%s is still taken", key)
			}
		}
	})
}

// TestGroupWaitsInLine has a caller wait for several keys beside callers of one: each
// key goes to whoever came first.
func TestGroupWaitsInLine(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{Wait: never})
		first, second := acquire(t, l, "k"), acquire(t, l, "z")
		got := make(chan result, 1)
		go func() {
			lease, err := l.AcquireAll(t.Context(), []string{"z", "k", "a"})
			got <- result{lease, err}
		}()
		wantWaiting(t, l, 1)
		behind := async(t.Context(), l, "k")
		wantWaiting(t, l, 2)
		release(t, first)
		bedtest.Eventually(t, "the group waits for z", func() bool { return l.waiters.occupied("z") })
		release(t, second)
		group := bedtest.Receive(t, "the group's grant", got).ok(t)
		if n := len(group.Fences()); n != 3 {
			t.Errorf("%d locks, want 3", n)
		}
		select {
		case r := <-behind:
			t.Fatalf("who came later has the lock: %v", r.err)
		default:
		}
		release(t, group)
		release(t, bedtest.Receive(t, "the grant of who was behind", behind).ok(t))
	})
}

// TestGroupBesideSteadyTraffic has four orders settled one by one without a pause: a
// batch of all four is not passed over for ever.
func TestGroupBesideSteadyTraffic(t *testing.T) {
	t.Parallel()
	onSingleAndCluster(t, func(t *testing.T, c redis.UniversalClient) {
		keys := []string{"{o}1", "{o}2", "{o}3", "{o}4"}
		opts := Options{Wait: Wait{UpTo: 20 * time.Second}}
		stop := traffic(t, c, opts, keys, func(_ int, err error) {
			if err != nil {
				t.Error(err)
			}
			time.Sleep(time.Millisecond) // the call that it brackets
		})
		l := newLocker(t, c, opts)
		for range 3 {
			lease, err := l.AcquireAll(t.Context(), keys)
			if err != nil {
				t.Error(err)
				break
			}
			release(t, lease)
		}
		stop()
	})
}

// traffic takes locks and gives them up, four callers in two processes for each key and
// without a pause, until stop is called. During is called with the number of a key while
// its lock is held, or with the error of asking for it.
func traffic(t *testing.T, c redis.UniversalClient, opts Options, keys []string, during func(key int, err error)) (stop func()) {
	t.Helper()
	lockers := []*Locker{newLocker(t, c, opts), newLocker(t, c, opts)}
	var stopping atomic.Bool
	var wg sync.WaitGroup
	for i := range 4 * len(keys) {
		wg.Go(func() {
			for !stopping.Load() {
				lease, err := lockers[i%2].Acquire(t.Context(), keys[i%len(keys)])
				during(i%len(keys), err)
				if err != nil {
					continue
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	return func() { stopping.Store(true); wg.Wait() }
}

// TestLateGrantIsGivenBack has the answer to a question come when the lease that it
// grants may have ended, on each way to a grant.
func TestLateGrantIsGivenBack(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		const lease = 200 * time.Millisecond
		for _, way := range []string{"acquire", "async", "acquire_all", "reenter", "handover"} {
			t.Run(way, func(t *testing.T) {
				flush(t, c)
				deed := way
				client := another(t, c)
				holder := newLocker(t, c, Options{})
				l, p := newLocker(t, client, Options{Lease: lease, Wait: never}), watch(t, client, Exclusive, Redisson)
				ask := func() (*Lease, error) { return l.Acquire(t.Context(), "k") }
				held := func() {}
				switch way {
				case "async":
					deed, ask = "acquire", func() (*Lease, error) { return acquireAsync(t.Context(), l, "k") }
				case "acquire_all":
					ask = func() (*Lease, error) { return l.AcquireAll(t.Context(), []string{"k", "z"}) }
				case "reenter":
					outer := acquire(t, holder, "k")
					ask = func() (*Lease, error) { return l.Acquire(t.Context(), "k", Reenter(outer.Owner())) }
					held = func() { release(t, outer) }
				}
				late, open := p.blockAnswer(isDeed(deed))
				defer open()
				if deed == "handover" {
					outer := acquire(t, l, "k")
					ask = func() (*Lease, error) {
						got := async(t.Context(), l, "k")
						p.settle(t, l, "k")
						go func() { _ = outer.Release(t.Context()) }()
						r := <-got
						return r.lease, r.err
					}
				}
				got := make(chan result, 1)
				go func() { lease, err := ask(); got <- result{lease, err} }()
				bedtest.Receive(t, "the answer", late)
				time.Sleep(2 * lease)
				open()
				r := bedtest.Receive(t, "the end", got)
				if deed == "handover" { // the waiter asks for itself then
					fence := r.ok(t).Fence()
					if last, err := c.Get(t.Context(), FenceKey("k")).Int64(); err != nil || fence != last {
						t.Errorf("the waiter has fence %d, and the last is %d (%v)", fence, last, err)
					}
					for _, trip := range p.seen() {
						if a := trip.asked[0]; a.deed == deed && a.args[1] == r.lease.Owner() {
							t.Error("the waiter has the lease that came late")
						}
					}
					release(t, r.lease)
				} else if !errors.Is(r.err, errLate) {
					t.Errorf("a grant that came late: %v, want %v", r.err, errLate)
				}
				l.cleanup.Wait()
				held()
				if n := c.Exists(t.Context(), "k", "z").Val(); n != 0 {
					t.Errorf("%d locks were left behind", n)
				}
			})
		}
	})
}

// TestAllForeign has one of the keys hold something else: nothing is granted, what it
// holds stays, and the error names it.
func TestAllForeign(t *testing.T) {
	t.Parallel()
	onSingleAndCluster(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{})
		keys := []string{"{a}1", "{a}2", "b", "c"}
		for _, foreign := range keys {
			for what, play := range map[string]func() error{
				"a string":          func() error { return c.Set(t.Context(), foreign, "7", 0).Err() },
				"a list":            func() error { return c.RPush(t.Context(), foreign, "7").Err() },
				"a read-write lock": func() error { return c.HSet(t.Context(), foreign, "mode", "read", "o:1", 1).Err() },
			} {
				flush(t, c)
				if err := play(); err != nil {
					t.Fatal(err)
				}
				before := c.Dump(t.Context(), foreign).Val()
				_, err := l.AcquireAll(t.Context(), keys)
				var said *ForeignError
				if !errors.As(err, &said) {
					t.Errorf("%s at %s: %v, want a ForeignError", what, foreign, err)
				} else if said.Key != foreign {
					t.Errorf("%s at %s: the error names %s", what, foreign, said.Key)
				}
				l.cleanup.Wait()
				for _, key := range keys {
					if n := c.Exists(t.Context(), key).Val(); (n == 1) != (key == foreign) {
						t.Errorf("%s at %s: %d of %s", what, foreign, n, key)
					}
				}
				if c.Dump(t.Context(), foreign).Val() != before {
					t.Errorf("%s at %s was changed", what, foreign)
				}
			}
		}
	})
}

// TestAllReentersSome presents the owner of one of the keys.
func TestAllReentersSome(t *testing.T) {
	t.Parallel()
	onSingleAndCluster(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{})
		outer := acquire(t, l, "b")
		all, err := l.AcquireAll(t.Context(), []string{"c", "b", "a"}, Reenter(outer.Owner()))
		if err != nil {
			t.Fatal(err)
		}
		if fences := all.Fences(); len(fences) != 3 || fences[1] != outer.Fence() || all.Owner() != outer.Owner() {
			t.Errorf("%s with %v, want %s with %d in the middle", all.Owner(), fences, outer.Owner(), outer.Fence())
		}
		release(t, all)
		if n := c.HGet(t.Context(), "b", outer.Owner()).Val(); n != "1" {
			t.Errorf("the outer lease is entered %q times", n)
		}
		release(t, outer)
		bedtest.Eventually(t, "all is free", func() bool {
			for _, key := range []string{"a", "b", "c"} {
				if c.Exists(t.Context(), key).Val() != 0 {
					return false
				}
			}
			return true
		})
	})
}
