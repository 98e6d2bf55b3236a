package testbed

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	shards       = 3
	clusterNodes = 2 * shards // a replica each
	clusterSlots = 16384      // Redis cluster specification, "Key distribution model"
)

// clusterArgs has a node that does not answer for a second replaced.
var clusterArgs = slices.Concat(quickSync, []string{
	"--cluster-enabled", "yes",
	"--cluster-node-timeout", "1000",
	"--cluster-replica-validity-factor", "0", // a busy machine must not make a replica stand back
	"--masteruser", User, "--masterauth", Password,
})

// Cluster is a Redis Cluster of three masters, which have all slots between them,
// and a replica of each: a master that does not answer for a second is replaced.
// Its methods are safe for concurrent use.
type Cluster struct {
	nodes []*Redis

	mu       sync.Mutex
	promoted time.Time // when a new master was last seen; guarded by mu
}

// restBetweenPromotions is how long a node has to have been master before its
// votes are forgotten, twice the node timeout, and a bit. In Redis 7.0.15 a replica
// that is to be promoted again before that takes the old votes for new ones: it
// serves, with an epoch that nobody else accepts.
const restBetweenPromotions = 2500 * time.Millisecond

// Cluster starts the six servers and makes a cluster of them. The arguments are
// for each of them. It returns a [*MissingError] if redis-server is not
// installed. The context bounds the start.
func (b *Bed) Cluster(ctx context.Context, args ...string) (*Cluster, error) {
	c := &Cluster{nodes: make([]*Redis, clusterNodes)}
	role := redisRole{kind: "redis", bus: true, args: clusterArgs}
	err := together(ctx, c.nodes, func(ctx context.Context) (*Redis, error) {
		return b.redisServer(ctx, role, args)
	})
	if err == nil {
		err = c.create(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("starting a cluster: %w", err)
	}
	return c, nil
}

// create gives the first nodes the slots, has all meet, and makes the others
// replicas.
func (c *Cluster) create(ctx context.Context) error {
	for i, node := range c.nodes {
		// Different epochs, or the nodes settle by themselves who yields to whom.
		if err := node.insist(ctx, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		if i < shards {
			first, last := i*clusterSlots/shards, (i+1)*clusterSlots/shards-1
			if err := node.insist(ctx, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last)); err != nil {
				return err
			}
		}
	}
	if err := poll(ctx, func() error { return c.meet(ctx) }); err != nil {
		return err
	}
	for i, node := range c.nodes[shards:] {
		var id string
		err := poll(ctx, func() (err error) {
			id, err = c.nodes[i].askText(ctx, "CLUSTER", "MYID")
			return err
		})
		if err != nil {
			return err
		}
		if err := node.insist(ctx, "CLUSTER", "REPLICATE", id); err != nil {
			return err
		}
	}
	return c.Settle(ctx)
}

// insist asks for something until it is so: a busy machine may take longer to
// answer than ask waits.
func (r *Redis) insist(ctx context.Context, words ...string) error {
	return poll(ctx, func() error {
		_, err := r.ask(ctx, words...)
		if err != nil && strings.Contains(err.Error(), " already ") { // it was heard
			return nil
		}
		return err
	})
}

// meet has the first node meet the others, and is nil once each knows all: what the
// first knows, it tells them. On a busy machine a meeting may take longer than the
// second after which a node gives it up, or half of it may: then they meet again.
func (c *Cluster) meet(ctx context.Context) error {
	known := make([]map[string]bool, len(c.nodes))
	for i, node := range c.nodes {
		var err error
		if known[i], err = node.acquaintances(ctx); err != nil {
			return err
		}
	}
	first := c.nodes[0]
	var strange error
	for i, node := range c.nodes {
		if !known[0][node.addr] || !known[i][first.addr] {
			host, port, err := net.SplitHostPort(node.addr)
			if err != nil {
				return err
			}
			// While they are about to meet, this does nothing.
			if _, err := first.ask(ctx, "CLUSTER", "MEET", host, port); err != nil {
				return err
			}
		}
		for _, other := range c.nodes {
			if !known[i][other.addr] {
				strange = fmt.Errorf("%s does not know %s", node.name, other.name)
			}
		}
	}
	return strange
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

// Nodes returns all nodes, which change places.
func (c *Cluster) Nodes() []*Redis { return slices.Clone(c.nodes) }

// MasterOf waits until the nodes that answer agree on the master that has a key's
// slot, and returns it. Kill, Stop or Pause it for a failover, and give it to
// Await.
func (c *Cluster) MasterOf(ctx context.Context, key string) (*Redis, error) {
	return c.Await(ctx, key, nil)
}

// Await is MasterOf for another master than old, which serves.
func (c *Cluster) Await(ctx context.Context, key string, old *Redis) (master *Redis, err error) {
	err = poll(ctx, func() (err error) {
		if master, err = c.agreed(ctx, key); err == nil && master == old {
			err = fmt.Errorf("%s still has the slot", old.name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the master of %s: %w", key, err)
	}
	if old != nil {
		c.mu.Lock()
		c.promoted = time.Now()
		c.mu.Unlock()
	}
	return master, nil
}

// Failover has a replica take the place of the master of a key, which works, and
// returns it once all agree.
func (c *Cluster) Failover(ctx context.Context, key string) (*Redis, error) {
	old, err := c.MasterOf(ctx, key)
	if err != nil {
		return nil, err
	}
	err = poll(ctx, func() error {
		for _, node := range running(c.nodes) {
			if node != old && node.follows(ctx, old) == nil {
				_, err := node.ask(ctx, "CLUSTER", "FAILOVER")
				return err
			}
		}
		return fmt.Errorf("%s has no replica", old.name)
	})
	if err != nil {
		return nil, fmt.Errorf("forcing a failover: %w", err)
	}
	return c.Await(ctx, key, old)
}

// Settle waits until every node that runs finds the cluster in order, knows the
// others, and is a master with slots or a replica that is in step with one: until
// then a failover may find nobody to promote.
func (c *Cluster) Settle(ctx context.Context) error {
	err := poll(ctx, func() error {
		var masters, replicas int
		for _, node := range running(c.nodes) {
			view, err := node.view(ctx)
			if err != nil {
				return err
			}
			if len(view) != len(c.nodes) {
				return fmt.Errorf("%s knows %d nodes", node.name, len(view))
			}
			self := view[node.addr]
			if len(self.slots) > 0 {
				masters++
				continue
			}
			replicas++
			master := find(c.nodes, self.master)
			if master == nil {
				return fmt.Errorf("%s has neither slots nor a master", node.name)
			}
			if err := node.follows(ctx, master); err != nil {
				return err
			}
		}
		c.mu.Lock()
		rested := time.Since(c.promoted)
		c.mu.Unlock()
		if rested < restBetweenPromotions {
			return fmt.Errorf("a master was promoted only %v ago", rested)
		}
		if want := len(running(c.nodes)) - shards; masters != shards || replicas != want {
			return fmt.Errorf("%d masters and %d replicas", masters, replicas)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the cluster: %w", err)
	}
	return nil
}

// agreed returns the master of a key by all nodes that answer, most of which
// have to.
func (c *Cluster) agreed(ctx context.Context, key string) (*Redis, error) {
	owners := make([]string, len(c.nodes))
	var group errgroup.Group
	for i, node := range c.nodes {
		if node.running() {
			group.Go(func() (err error) {
				owners[i], err = node.ownerOf(ctx, key)
				return err
			})
		}
	}
	err := group.Wait() // of one that is paused, say; the others may be enough
	owners = slices.DeleteFunc(owners, func(addr string) bool { return addr == "" })
	if len(owners) <= clusterNodes/2 { // then some did not answer, and err says so
		return nil, fmt.Errorf("%d nodes answer: %w", len(owners), err)
	}
	for _, other := range owners[1:] {
		if other != owners[0] {
			return nil, fmt.Errorf("the nodes name %s", strings.Join(owners, " and "))
		}
	}
	master := find(c.nodes, owners[0])
	if master == nil || !master.running() {
		return nil, fmt.Errorf("the nodes name %s, which does not run", owners[0])
	}
	return master, master.isMaster(ctx)
}
