package tests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// chaosFault is one thing that goes wrong. One at a time does.
type chaosFault struct {
	name string
	do   func(ctx context.Context)
}

func (c *chaos) faults() []chaosFault {
	list := []chaosFault{
		{"Redis hangs", c.hang},
		{"instance killed", c.kill},
		{"connections to Redis cut", c.cutRedis},
		{"connections to Envoy cut", c.cutEnvoy},
		{"observed for a time", c.observe},
	}
	if c.cluster != nil {
		list = append(list, chaosFault{"slots moved", c.moveSlots}, chaosFault{"slots moved", c.moveSlots}, chaosFault{"failover", c.failOver})
	}
	if c.sentinel != nil {
		list = append(list, chaosFault{"failover", c.failOver}, chaosFault{"failover", c.failOver})
	}
	return list
}

// breakThings has one fault after the other, until ctx ends.
func (c *chaos) breakThings(ctx context.Context, r *rand.Rand, every time.Duration) {
	for {
		list := c.faults()
		for _, i := range r.Perm(len(list)) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(every/2 + time.Duration(r.Int64N(int64(every)))):
			}
			list[i].do(ctx)
			c.count("fault: " + list[i].name)
		}
	}
}

func (c *chaos) hang(context.Context) {
	node := c.nodes[rand.IntN(len(c.nodes))]
	must(c.t, node.Pause())
	time.Sleep(time.Duration(rand.IntN(700)) * time.Millisecond)
	must(c.t, node.Resume())
}

// kill replaces the second instance.
func (c *chaos) kill(context.Context) {
	old := c.second.Swap(newChaosSite(c.t, c.bed, c.chaosRedis, c.cashier.addr()))
	old.killed.Store(true)
	old.gate.Kill()
	old.envoy.Kill()
}

func (c *chaos) either() *chaosSite {
	if rand.IntN(2) == 0 {
		return c.first
	}
	return c.second.Load()
}

func (c *chaos) cutRedis(ctx context.Context) {
	for _, cable := range c.either().redis {
		cable.cut()
	}
	if c.section != "" {
		for _, node := range c.nodes {
			_ = c.at(node).Do(ctx, "client", "kill", "type", "normal").Err() // it may be away
		}
	}
}

func (c *chaos) cutEnvoy(context.Context) {
	for _, cable := range c.either().proc {
		cable.cut()
	}
}

// observe has the rules of one instance be observed for a time.
func (c *chaos) observe(context.Context) {
	c.cashier.mu.Lock()
	c.cashier.observing = time.Now().Add(time.Hour)
	c.cashier.mu.Unlock()
	c.reload(observed(c.first.config))
	time.Sleep(time.Duration(300+rand.IntN(500)) * time.Millisecond)
	c.reload(c.first.config)
	c.cashier.mu.Lock()
	c.cashier.observing = time.Now().Add(chaosLate) // calls that are observed may go on
	c.cashier.mu.Unlock()
	if c.section != "" {
		c.replicate() // what observed calls write is confirmed by no replica
	}
}

func (c *chaos) reload(config string) {
	const applied = `ordergate_config_reload_total{result="applied"}`
	before := c.first.metric(applied)
	must(c.t, c.first.gate.WriteConfig(config))
	bedtest.Eventually(c.t, "the configuration is applied", func() bool { return c.first.metric(applied) != before })
}

// at returns a client of one server.
func (c *chaos) at(node *testbed.Redis) *redis.Client { return c.atAddr(node.Addr()) }

func (c *chaos) atAddr(addr string) *redis.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := c.clients[addr]
	if client == nil {
		client = redis.NewClient(&redis.Options{Addr: addr})
		c.t.Cleanup(func() { _ = client.Close() })
		c.clients[addr] = client
	}
	return client
}

// replicate waits until the replicas have what their primaries have. A move of a slot writes there
// without one that waits for replicas, so that a failover right behind it could lose that.
func (c *chaos) replicate() {
	if c.cluster != nil { // on a busy machine, nodes take each other for dead too soon
		for _, node := range c.nodes {
			_ = c.at(node).ConfigSet(context.Background(), "cluster-node-timeout", "5000").Err()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if c.cluster != nil {
		must(c.t, c.cluster.Settle(ctx))
	} else {
		must(c.t, c.sentinel.Settle(ctx))
	}
	for _, node := range c.nodes {
		until := int64(-1) // the offset of the primary
		bedtest.Eventually(c.t, "the replicas have all", func() bool {
			role, err := c.at(node).Do(ctx, "role").Slice()
			if err != nil || role[0] != "master" {
				return err == nil
			}
			if until < 0 {
				until = role[1].(int64)
			}
			for _, replica := range role[2].([]any) {
				at, err := strconv.ParseInt(replica.([]any)[2].(string), 10, 64)
				if err != nil || at < until {
					return false
				}
			}
			return true
		})
	}
}

// failOver kills a primary, or has it replaced while it works.
func (c *chaos) failOver(context.Context) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c.replicate()
	key := c.key()
	current, await, force := c.cluster.MasterOf, c.cluster.Await, c.cluster.Failover
	if c.sentinel != nil {
		current = func(ctx context.Context, _ string) (*testbed.Redis, error) { return c.sentinel.Current(ctx) }
		await = func(ctx context.Context, _ string, old *testbed.Redis) (*testbed.Redis, error) {
			return c.sentinel.Await(ctx, old)
		}
		force = func(ctx context.Context, _ string) (*testbed.Redis, error) { return c.sentinel.Failover(ctx) }
	}
	if rand.IntN(2) == 0 {
		_, err := force(ctx, key)
		must(c.t, err)
		return
	}
	old, err := current(ctx, key)
	must(c.t, err)
	old.Kill()
	_, err = await(ctx, key, old)
	must(c.t, errors.Join(err, old.Restart(ctx)))
}

// key is that of an order that is called for now.
func (c *chaos) key() string {
	for kind := range chaosLocks {
		return kind + ":lock:" + c.order(1+rand.IntN(chaosOrders))
	}
	return ""
}

// moveSlots moves the slots of some orders to another primary, with a pause half way.
func (c *chaos) moveSlots(context.Context) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c.replicate()
	for range 5 {
		key := c.key()
		from, err := c.cluster.MasterOf(ctx, key)
		must(c.t, err)
		to := from
		for to == from {
			to, err = c.cluster.MasterOf(ctx, fmt.Sprint("other", rand.Int()))
			must(c.t, err)
		}
		slot, err := c.at(from).ClusterKeySlot(ctx, key).Result()
		must(c.t, cmp.Or(err, c.moveSlot(ctx, slot, from, to)))
	}
	c.replicate()
}

func (c *chaos) moveSlot(ctx context.Context, slot int64, from, to *testbed.Redis) error {
	old, next := c.at(from), c.at(to)
	oldID, err := old.ClusterMyID(ctx).Result()
	if err != nil {
		return err
	}
	nextID, err := next.ClusterMyID(ctx).Result()
	if err != nil {
		return err
	}
	err = errors.Join(
		next.Do(ctx, "cluster", "setslot", slot, "importing", oldID).Err(),
		old.Do(ctx, "cluster", "setslot", slot, "migrating", nextID).Err())
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(to.Addr())
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	for {
		keys, err := old.ClusterGetKeysInSlot(ctx, int(slot), 100).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, key := range keys {
			args = append(args, key)
		}
		if err := old.Do(ctx, args...).Err(); err != nil {
			return err
		}
	}
	time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	epoch := func(node *redis.Client) (n int) {
		info, _ := node.ClusterInfo(ctx).Result()
		_, info, _ = strings.Cut(info, "cluster_current_epoch:")
		_, _ = fmt.Sscan(info, &n)
		return n
	}
	bedtest.Eventually(c.t, "the new primary knows the epoch of the old one", func() bool { return epoch(next) >= epoch(old) })
	return errors.Join(
		next.Do(ctx, "cluster", "setslot", slot, "node", nextID).Err(),
		old.Do(ctx, "cluster", "setslot", slot, "node", nextID).Err())
}
