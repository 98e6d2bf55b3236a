package redislock

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestQuorumFull fills most servers of a quorum. A release is no sign of room: only a lock
// that is taken is.
func TestQuorumFull(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	servers := []*testbed.Redis{bed.Redis(), bed.Redis(), bed.Redis()}
	var clients []redis.UniversalClient
	for _, s := range servers {
		client := redis.NewClient(&redis.Options{Addr: s.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	limit := func(most string) {
		for _, c := range clients[:2] {
			bedtest.Check(t, c.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
			bedtest.Check(t, c.ConfigSet(t.Context(), "maxmemory", most).Err())
		}
	}
	l, err := NewQuorum(clients, Options{})
	bedtest.Check(t, err)
	t.Cleanup(l.Close)
	held := acquire(t, l, "a")
	limit("500kb")
	var refused *RefusedError
	if _, err := l.Acquire(t.Context(), "b", Request("test")); !errors.As(err, &refused) {
		t.Errorf("acquiring: %v", err)
	}
	if !errors.As(l.Health(), &refused) {
		t.Errorf("trouble: %v", l.Health())
	}
	bedtest.Check(t, held.Release(t.Context()))
	if !errors.As(l.Health(), &refused) {
		t.Errorf("after a release: %v", l.Health())
	}
	if err := l.Check(t.Context(), "probe"); !errors.As(err, &refused) {
		t.Errorf("checking: %v", err)
	}
	limit("0")
	if err := l.Check(t.Context(), "probe"); err != nil || l.Health() != nil {
		t.Errorf("with room again: %v, %v", err, l.Health())
	}
}
