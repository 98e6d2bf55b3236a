package redisbatch

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// both runs as often as it finds both its keys at one node.
var both = NewScript("redis.call('incr', KEYS[1]) return redis.call('incr', KEYS[2])")

// TestOnceInAMovingSlot sends a batch to a slot that moves: the node has one of the two keys of
// the first script, and none of the others'. Those run once, at the new node.
func TestOnceInAMovingSlot(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	from, err := c.MasterForKey(t.Context(), "{m}")
	bedtest.Check(t, err)
	others := make(chan *redis.Client, 16)
	bedtest.Check(t, c.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
		if node != from {
			others <- node
		}
		return nil
	}))
	to := <-others
	slot, err := c.ClusterKeySlot(t.Context(), "{m}").Result()
	bedtest.Check(t, err)
	bedtest.Check(t, from.Set(t.Context(), "{m}stays", 1, 0).Err())
	fromID, toID := from.ClusterMyID(t.Context()).Val(), to.ClusterMyID(t.Context()).Val()
	bedtest.Check(t, to.Do(t.Context(), "cluster", "setslot", slot, "importing", fromID).Err())
	bedtest.Check(t, from.Do(t.Context(), "cluster", "setslot", slot, "migrating", toID).Err())

	batch := []*ScriptCall{NewCall(both, "{m}stays").Key("{m}missing")}
	for _, key := range names("{m}moved", 20) {
		batch = append(batch, NewCall(incr, key))
	}
	newBatcher(t, c).send(t.Context(), from, batch)
	if !redis.IsTryAgainError(batch[0].err) {
		t.Errorf("a script with a key at each node: %v", batch[0].err)
	}
	for _, call := range batch[1:] {
		if call.err != nil || call.number() != 1 {
			t.Errorf("%s: %d, %v", call.firstKey(), call.number(), call.err)
		}
	}
	for _, node := range []*redis.Client{to, from} {
		bedtest.Check(t, node.Do(t.Context(), "cluster", "setslot", slot, "node", fromID).Err())
	}
}
