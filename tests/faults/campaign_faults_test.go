package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// node puts a wire before a Redis.
func (c *campaign) node(addr string) *redisNode {
	c.t.Helper()
	return &redisNode{addr: addr, wire: newWire(c.t, addr), admin: connect(c.t, addr)}
}

// announce has the nodes of the cluster name the wires in place of themselves.
func (c *campaign) announce() {
	c.t.Helper()
	for _, n := range c.nodes {
		_, port, err := net.SplitHostPort(n.wire.addr())
		bedtest.Check(c.t, err)
		bedtest.Check(c.t, n.admin.ConfigSet(c.t.Context(), "cluster-announce-port", port).Err())
		// None is to be replaced because the machine is busy.
		bedtest.Check(c.t, n.admin.ConfigSet(c.t.Context(), "cluster-node-timeout", "60000").Err())
		n.id, err = n.admin.ClusterMyID(c.t.Context()).Result()
		bedtest.Check(c.t, err)
	}
	bedtest.Eventually(c.t, "the nodes go by other addresses", func() bool {
		for _, n := range c.nodes {
			view, err := n.admin.ClusterNodes(c.t.Context()).Result()
			if err != nil {
				return false
			}
			for _, other := range c.nodes {
				if !strings.Contains(view, other.id+" "+other.wire.addr()+"@") {
					return false
				}
			}
		}
		return true
	})
}

// losses makes a plan by which now and then a call of a script or its answer gets lost,
// or a call comes later than the client waits for it.
func (c *campaign) losses(r *rand.Rand) func(packet) fate {
	lost := make(map[net.Conn]bool) // whose next answer is
	return func(p packet) fate {
		switch {
		case !c.losing.Load():
			return fate{}
		case !p.ask && lost[p.link]:
			delete(lost, p.link)
			return fate{drop: true, cut: true}
		case !p.script():
			return fate{}
		}
		switch n := r.IntN(1000); {
		case n < 15:
			c.tally.did("lost answer")
			lost[p.link] = true
		case n < 20:
			c.tally.did("lost call")
			return fate{drop: true, cut: true}
		case n < 23:
			c.tally.did("late call")
			return fate{late: campaignLease + between(r, 0, campaignLease/2)}
		case n < 60:
			return fate{late: between(r, 0, 20*time.Millisecond)}
		}
		return fate{}
	}
}

// breakSite stops, kills, ends and reconfigures an ordergate in turn.
func (c *campaign) breakSite(ctx context.Context, s *site, r *rand.Rand) {
	for ctx.Err() == nil {
		for _, what := range r.Perm(5) {
			wait(ctx, between(r, 300*time.Millisecond, 3*time.Second/2))
			if ctx.Err() != nil {
				return
			}
			switch what {
			case 0, 1:
				c.tally.did("stop")
				over := s.disturb()
				err := s.gate.Pause()
				wait(context.Background(), between(r, 50*time.Millisecond, 3*campaignLease/2))
				err = errors.Join(err, s.gate.Resume())
				over()
				if err != nil {
					c.t.Error(err)
				}
			case 2:
				c.tally.did("kill")
				over := s.disturb()
				s.gate.Kill()
				over()
				c.restart(s)
			case 3: // calls that run may finish: no excuse
				c.tally.did("end")
				c.end(s)
				c.restart(s)
			case 4: // nor here: calls that run have their locks until they are over
				c.tally.did("reload")
				if err := s.gate.WriteConfig(s.with(10 + r.IntN(90))); err != nil {
					c.t.Error(err)
				}
			}
		}
	}
}

func (c *campaign) restart(s *site) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*eventually)
	defer cancel()
	if err := s.gate.Restart(ctx); err != nil {
		c.t.Errorf("starting an ordergate again: %v", err)
	}
}

// disturb notes that an ordergate may lose leases from now on, until over is called.
func (s *site) disturb() (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.disturbed = append(s.disturbed, [2]time.Time{time.Now()})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.disturbed[len(s.disturbed)-1][1] = time.Now()
	}
}

// lost reports whether a settlement may not have been alone: its ordergate was killed or
// stopped meanwhile, or has written that the lease was lost.
func (c *campaign) lost(who suspect) bool {
	for at := range who.visit.of.places {
		s := c.sites[at]
		s.mu.Lock()
		for _, d := range s.disturbed {
			if d[0].Before(who.at) && d[1].After(who.visit.of.asked) {
				s.mu.Unlock()
				return true
			}
		}
		s.mu.Unlock()
		text, err := os.ReadFile(s.gate.Output())
		if err != nil {
			c.t.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			// Of several keys, that of the first may be written.
			for i, key := range who.visit.keys {
				if strings.Contains(line, `msg="lease lost"`) && strings.Contains(line, " key="+key+" fence="+strconv.FormatInt(who.visit.fences[i], 10)+" ") {
					return true
				}
			}
		}
	}
	return false
}

// fillMemory has all servers refuse what needs memory for a while, again and again.
func (c *campaign) fillMemory(ctx context.Context, r *rand.Rand) {
	set := func(bytes string) {
		for _, nodes := range [][]*redisNode{c.nodes, c.servers} {
			for _, n := range nodes {
				if err := n.admin.ConfigSet(context.Background(), "maxmemory", bytes).Err(); err != nil {
					c.t.Error(err)
				}
			}
		}
	}
	for ctx.Err() == nil {
		wait(ctx, between(r, 300*time.Millisecond, 900*time.Millisecond))
		c.tally.did("full memory")
		set("1")
		wait(ctx, between(r, 50*time.Millisecond, 400*time.Millisecond))
		set("0")
	}
}

// moveSlots moves the slots of orders from node to node, with a pause half way.
func (c *campaign) moveSlots(ctx context.Context, r *rand.Rand) {
	masters := c.nodes[:3] // testbed gives the first nodes the slots
	owners := make(map[int64]int)
	for ctx.Err() == nil {
		kind := []string{"exclusive", "string", "fair", "write"}[r.IntN(4)]
		slot, err := masters[0].admin.ClusterKeySlot(ctx, fmt.Sprintf("%s:%d", kind, 1+r.IntN(campaignOrders))).Result()
		if err != nil {
			return // the time is over
		}
		from, known := owners[slot]
		if !known {
			from = int(slot) * len(masters) / 16384
		}
		to := (from + 1 + r.IntN(len(masters)-1)) % len(masters)
		c.tally.did("slot moved")
		if err := c.move(ctx, r, slot, masters[from], masters[to]); err != nil {
			c.t.Errorf("moving slot %d: %v", slot, err)
			return
		}
		owners[slot] = to
		wait(ctx, between(r, 0, 200*time.Millisecond))
	}
}

func (c *campaign) move(ctx context.Context, r *rand.Rand, slot int64, from, to *redisNode) error {
	half := between(r, 0, 200*time.Millisecond)
	if r.IntN(5) == 0 {
		half += campaignLease // a lease has to be renewed
	}
	forever := context.Background()
	err := errors.Join(
		to.admin.Do(forever, "cluster", "setslot", slot, "importing", from.id).Err(),
		from.admin.Do(forever, "cluster", "setslot", slot, "migrating", to.id).Err())
	if err != nil {
		return err
	}
	wait(ctx, half/2)
	host, port, err := net.SplitHostPort(to.addr)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(eventually); ; {
		keys, err := from.admin.ClusterGetKeysInSlot(forever, int(slot), 100).Result()
		if err != nil || len(keys) == 0 {
			if err != nil {
				return err
			}
			break
		}
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, key := range keys {
			args = append(args, key)
		}
		// Refused while the memory is full.
		if err = from.admin.Do(forever, args...).Err(); err != nil && time.Now().After(deadline) {
			return err
		}
		wait(forever, 5*time.Millisecond)
	}
	wait(ctx, half/2)
	return errors.Join(
		to.admin.Do(forever, "cluster", "setslot", slot, "node", to.id).Err(),
		from.admin.Do(forever, "cluster", "setslot", slot, "node", to.id).Err())
}
