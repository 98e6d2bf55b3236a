package locking

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestNamesBesideALock uses locks of every kind, and looks in Redis for the keys that
// belong to them: the configuration refuses a lock whose keys can be taken for one.
func TestNamesBesideALock(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: bedtest.New(t).Redis().Addr()})
	t.Cleanup(func() { _ = c.Close() })
	found := make(map[string]bool) // names with "*" for the lock's key
	for i, opts := range []redislock.Options{
		{Kind: redislock.Exclusive},
		{Kind: redislock.Exclusive, Format: redislock.String},
		{Kind: redislock.Fair, Wait: redislock.Wait{UpTo: time.Minute}, MaxWaitersPerKey: 1},
		{Kind: redislock.Read},
		{Kind: redislock.Write},
		{Kind: redislock.Semaphore, Permits: 2},
	} {
		key := fmt.Sprintf("{t}%d", i)
		l, err := redislock.New(c, opts)
		bedtest.Check(t, err)
		outer, err := l.Acquire(t.Context(), key)
		bedtest.Check(t, err)
		_, err = l.Acquire(t.Context(), key, redislock.Reenter(outer.Owner()))
		bedtest.Check(t, err)
		ctx, leave := context.WithCancel(t.Context())
		waited := make(chan struct{})
		go func() {
			defer close(waited)
			if opts.Kind == redislock.Fair {
				_, _ = l.Acquire(ctx, key) // it stands in line
			}
		}()
		bedtest.Eventually(t, "one stands in line", func() bool {
			return opts.Kind != redislock.Fair || c.Exists(t.Context(), "redisson_lock_queue:"+key).Val() == 1
		})
		bedtest.Check(t, outer.Hold(t.Context(), "a test"))
		names, err := c.Keys(t.Context(), "*"+key+"*").Result()
		bedtest.Check(t, err)
		for _, name := range names {
			name = strings.Replace(name, key, "*", 1)
			name = strings.ReplaceAll(strings.ReplaceAll(name, ":"+outer.Owner(), ""), ":write", "")
			found[regexp.MustCompile(`:rwlock_timeout:\d+$`).ReplaceAllString(name, ":rwlock_timeout:1")] = true
		}
		leave()
		<-waited
		l.Close()
	}
	delete(found, "*") // the lock
	if !found["*:ordergate_grant"] || !found["*:rwlock_timeout:1"] || !found["*:ordergate_entry"] || !found["redisson_lock_queue:*"] {
		t.Errorf("this test does not see the names beside a lock: %v", found)
	}
	for name := range found {
		before, after, _ := strings.Cut(name, "*")
		key := before + "{id}{t}" // which makes a key that has this name of another order's
		if before == "" {
			key = "{t}{id}" + after
		}
		_, err := config.Parse("ordergate.yaml", fmt.Appendf(nil, `
locks: {s: {key: %q}}
rules:
  - {name: a, match: {methods: [POST], path: "/a/{id}"}, id: {path: id, format: pattern, pattern: "[-a-z0-9:_]+"}, settle: {lock: s}}
`, key), func(string) string { return "" })
		if err == nil || !strings.Contains(err.Error(), "could make the key of an order that belongs to the lock of another one") {
			t.Errorf("the configuration accepts a key that has the name %s of another order's lock, %s: %v", name, key, err)
		}
	}
}
