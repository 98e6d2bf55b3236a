// Package redisson tests locks against a real Redisson, in a Java process that
// tests/redisson/agent is the source of.
package redisson

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lease outlasts every test, so that nothing ends that was not given back.
const lease = time.Minute

// patience is how long a waiter waits that is to be served.
const patience = 30 * time.Second

// stack is a Redis and a Java service with Redisson, and who talks to both.
type stack struct {
	*bedtest.Bed
	addr  string
	redis redis.UniversalClient
	java  *testbed.Redisson
}

func newStack(t *testing.T, opts testbed.RedissonOptions) *stack {
	t.Helper()
	bed := bedtest.New(t)
	opts.Addr = bed.Redis().Addr()
	client := redis.NewClient(&redis.Options{Addr: opts.Addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return &stack{Bed: bed, addr: opts.Addr, redis: client, java: bed.Redisson(opts)}
}

// newClusterStack has a cluster in place of the single server.
func newClusterStack(t *testing.T) *stack {
	t.Helper()
	bed := bedtest.New(t)
	addrs := bed.Cluster().Addrs()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	java := bed.Redisson(testbed.RedissonOptions{Addr: addrs[0], Cluster: true})
	return &stack{Bed: bed, addr: addrs[0], redis: client, java: java}
}

// thread starts a Java thread.
func (s *stack) thread() *testbed.RedissonThread { return s.RedissonThread(s.java) }

// state returns what Redis holds of a name, one line a key: the key, its value,
// how long it stays. Owners are replaced by what the map calls them. Times are
// rounded up to ten seconds, a time of day to those from now.
//
// Latches are left out: Redisson makes one with each unlock and deletes it a
// moment later (redisson_unlock_latch), and only the client that made it reads it.
func (s *stack) state(t *testing.T, name string, owners map[string]string) []string {
	t.Helper()
	keys, err := s.redis.Keys(t.Context(), "*"+name+"*").Result()
	must(t, err)
	pairs := []string{name, "NAME"}
	for owner, called := range owners {
		pairs = append(pairs, owner, called)
	}
	replace := strings.NewReplacer(pairs...).Replace
	var lines []string
	for _, key := range keys {
		if !strings.HasPrefix(key, "redisson_unlock_latch:") {
			lines = append(lines, fmt.Sprintf("%s = %s, %s", replace(key), s.value(t, key, replace), s.left(t, key)))
		}
	}
	slices.Sort(lines)
	return lines
}

// value returns the value of a key as text.
func (s *stack) value(t *testing.T, key string, replace func(string) string) string {
	t.Helper()
	ctx := t.Context()
	kind, err := s.redis.Type(ctx, key).Result()
	must(t, err)
	switch kind {
	case "string":
		return replace(value(s.redis.Get(ctx, key).Result())(t))
	case "hash":
		fields := make(map[string]string) // printed in the order of the new names
		for field, v := range value(s.redis.HGetAll(ctx, key).Result())(t) {
			fields[replace(field)] = v
		}
		return strings.TrimPrefix(fmt.Sprint(fields), "map")
	case "list":
		return "list " + replace(fmt.Sprint(value(s.redis.LRange(ctx, key, 0, -1).Result())(t)))
	case "zset":
		var members []string
		for _, z := range value(s.redis.ZRangeWithScores(ctx, key, 0, -1).Result())(t) {
			at := time.UnixMilli(int64(z.Score))
			members = append(members, fmt.Sprintf("%s:%s", replace(fmt.Sprint(z.Member)), round(time.Until(at))))
		}
		return "zset " + fmt.Sprint(members)
	}
	return kind // none, if it has ended meanwhile
}

// left returns how long a key stays.
func (s *stack) left(t *testing.T, key string) string {
	t.Helper()
	ttl, err := s.redis.PTTL(t.Context(), key).Result()
	must(t, err)
	if ttl < 0 { // go-redis has -1 and -2 as nanoseconds
		return map[time.Duration]string{-1: "stays", -2: "gone"}[ttl]
	}
	return round(ttl)
}

func round(d time.Duration) string {
	const step = 10 * time.Second
	return ((d + step - 1) / step * step).String()
}

// outcome is what a call in another goroutine came to.
type outcome[T any] struct {
	value T
	err   error
}

// background runs a call that waits; its outcome is received at most once.
func background[T any](call func() (T, error)) <-chan outcome[T] {
	done := make(chan outcome[T], 1)
	go func() {
		v, err := call()
		done <- outcome[T]{v, err}
	}()
	return done
}

// receive waits for the outcome of a call that is to succeed.
func receive[T any](t *testing.T, done <-chan outcome[T]) T {
	t.Helper()
	select {
	case o := <-done:
		must(t, o.err)
		return o.value
	case <-time.After(2 * patience):
		t.Fatal("a call did not end")
		panic("not reached")
	}
}

// value ends the test on an error: value(f())(t).
func value[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		must(t, err)
		return v
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
