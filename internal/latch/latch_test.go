package latch

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onSingleAndCluster runs a test on each.
func onSingleAndCluster(t *testing.T, test func(*testing.T, redis.UniversalClient)) {
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		client := redis.NewClient(&redis.Options{Addr: bedtest.New(t).Redis().Addr()})
		t.Cleanup(func() { _ = client.Close() })
		test(t, client)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: bedtest.New(t).Cluster().Addrs()})
		t.Cleanup(func() { _ = client.Close() })
		test(t, client)
	})
}

func TestLatch(t *testing.T) {
	t.Parallel()
	onSingleAndCluster(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := t.Context()
		for _, key := range []string{"loaders:42", "loaders:{42}"} {
			want := func(what string, s State, err error, count int64, exists bool) {
				t.Helper()
				if err != nil || s.Count != count || s.Exists != exists || s.Open() != (count <= 0) || s.Key != key {
					t.Errorf("%s, %s: %+v (%v), want %d, exists %v", key, what, s, err, count, exists)
				}
			}
			s, err := Read(ctx, client, key)
			want("before", s, err, 0, false)
			s, _, err = CountDown(ctx, client, key)
			want("counted down before", s, err, 0, false)
			_, err = Set(ctx, client, key, 2, false)
			bedtest.Check(t, err)
			if _, err = Set(ctx, client, key, 5, false); !errors.Is(err, ErrExists) {
				t.Errorf("set twice: %v", err)
			}
			s, err = Read(ctx, client, key)
			want("set", s, err, 2, true)
			s, _, err = CountDown(ctx, client, key)
			want("counted down", s, err, 1, true)
			_, err = Set(ctx, client, key, 7, true)
			bedtest.Check(t, err)
			s, err = Read(ctx, client, key)
			want("replaced", s, err, 7, true)
			_, err = Set(ctx, client, key, 0, true)
			bedtest.Check(t, err)
			s, err = Read(ctx, client, key)
			want("opened", s, err, 0, false)
			for _, odd := range []string{"0", "-3"} {
				bedtest.Check(t, client.Set(ctx, key, odd, 0).Err())
				s, _, err = CountDown(ctx, client, key)
				want("counted down from "+odd, s, err, 0, false)
			}
			for _, text := range []string{"soon", "", "007", "+1", "-0", "1 "} {
				bedtest.Check(t, client.Set(ctx, key, text, 0).Err())
				_, err = Read(ctx, client, key)
				_, _, errDown := CountDown(ctx, client, key)
				if !errors.Is(err, ErrNoLatch) || !errors.Is(errDown, ErrNoLatch) {
					t.Errorf("%q: %v, %v", text, err, errDown)
				}
			}
			bedtest.Check(t, client.Set(ctx, key, "soon", 0).Err())
			for _, replace := range []bool{false, true} {
				if _, err := Set(ctx, client, key, 1, replace); !errors.Is(err, ErrNoLatch) {
					t.Errorf("a text is set, replace %v: %v", replace, err)
				}
			}
			bedtest.Check(t, client.Set(ctx, key, math.MaxInt64, 0).Err())
			s, _, err = CountDown(ctx, client, key)
			want("counted down from the most", s, err, math.MaxInt64-1, true)
			bedtest.Check(t, client.Del(ctx, key).Err())
			bedtest.Check(t, client.RPush(ctx, key, "a").Err())
			_, err = Read(ctx, client, key)
			_, errSet := Set(ctx, client, key, 1, true)
			if !errors.Is(err, ErrNoLatch) || !errors.Is(errSet, ErrNoLatch) {
				t.Errorf("a list: %v, %v", err, errSet)
			}
		}
	})
}

// TestCountedDownAtOnce counts each of many counts once.
func TestCountedDownAtOnce(t *testing.T) {
	t.Parallel()
	onSingleAndCluster(t, func(t *testing.T, client redis.UniversalClient) {
		const n = 30
		_, err := Set(t.Context(), client, "loaders:1", n, false)
		bedtest.Check(t, err)
		var wg sync.WaitGroup
		var mu sync.Mutex
		seen := make(map[int64]bool)
		for range n {
			wg.Go(func() {
				s, _, err := CountDown(t.Context(), client, "loaders:1")
				mu.Lock()
				defer mu.Unlock()
				if err != nil || seen[s.Count] {
					t.Errorf("%+v, %v", s, err)
				}
				seen[s.Count] = true
			})
		}
		wg.Wait()
		if s, err := Read(t.Context(), client, "loaders:1"); err != nil || s.Exists || len(seen) != n {
			t.Errorf("%+v after %d (%v)", s, len(seen), err)
		}
	})
}

// TestReplyLost has a Redis that hangs for longer than the client waits, so that the client
// sends a change twice.
func TestReplyLost(t *testing.T) {
	t.Parallel()
	for _, change := range []string{"set", "count down"} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			server := bedtest.New(t).Redis()
			client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: 300 * time.Millisecond, MaxRetries: 1})
			t.Cleanup(func() { _ = client.Close() })
			operator := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { _ = operator.Close() })
			if change == "count down" {
				bedtest.Check(t, operator.Set(t.Context(), "loaders:1", "5", 0).Err())
			}
			bedtest.Check(t, client.Ping(t.Context()).Err())
			// Redis runs what it has received after this, and the client has given up the first.
			bedtest.Check(t, operator.ClientPause(t.Context(), 450*time.Millisecond).Err())
			var err error
			switch change {
			case "set":
				_, err = Set(t.Context(), client, "loaders:1", 5, false)
			default:
				err = countDownFrom(t, client)
			}
			if !errors.Is(err, ErrUnsure) {
				t.Logf("the error is %v", err) // the pause ended before the second attempt
			}
			want := map[string]string{"set": "5", "count down": "4"}[change]
			bedtest.Eventually(t, "the change is made once", func() bool { return operator.Get(t.Context(), "loaders:1").Val() == want })
		})
	}
}

// countDownFrom counts down without reading the latch during a pause.
func countDownFrom(t *testing.T, client redis.UniversalClient) error {
	reply, repeated, err := run(t.Context(), client, countDown, "loaders:1", 5, publish(client), channel(client, "loaders:1"))
	if err == nil && reply[0] == 0 && repeated {
		err = ErrUnsure
	}
	return fmt.Errorf("%v: %w", reply, err)
}
