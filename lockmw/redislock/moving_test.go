package redislock

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// slotMove is the slot of a key on its way from one primary of a cluster to another.
type slotMove struct {
	t        *testing.T
	slot     uint16
	from, to *redis.Client
	toID     string
}

// beginMove opens a slot at both primaries. Nothing has moved yet.
func beginMove(t *testing.T, c *redis.ClusterClient, key string) *slotMove {
	t.Helper()
	m := &slotMove{t: t, slot: slotOf(key)}
	var err error
	if m.from, err = c.MasterForKey(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	targets := make(chan *redis.Client, 16)
	err = c.ForEachMaster(t.Context(), func(_ context.Context, node *redis.Client) error {
		if node.Options().Addr != m.from.Options().Addr {
			targets <- node
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m.to = <-targets
	m.toID = m.id(m.to)
	m.do(m.to, "cluster", "setslot", m.slot, "importing", m.id(m.from))
	m.do(m.from, "cluster", "setslot", m.slot, "migrating", m.toID)
	return m
}

func (m *slotMove) id(node *redis.Client) string {
	m.t.Helper()
	id, err := node.ClusterMyID(m.t.Context()).Result()
	if err != nil {
		m.t.Fatal(err)
	}
	return id
}

// epoch returns the latest epoch of the cluster that a node knows of.
func (m *slotMove) epoch(node *redis.Client) (epoch int) {
	m.t.Helper()
	info, err := node.ClusterInfo(m.t.Context()).Result()
	if err != nil {
		m.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "cluster_current_epoch:")
	if _, err := fmt.Sscan(rest, &epoch); err != nil {
		m.t.Fatalf("%v: %s", err, info)
	}
	return epoch
}

func (m *slotMove) do(node *redis.Client, args ...any) {
	m.t.Helper()
	if err := node.Do(m.t.Context(), args...).Err(); err != nil {
		m.t.Fatal(args, err)
	}
}

// move moves the keys that the slot has.
func (m *slotMove) move() {
	m.t.Helper()
	host, port, err := net.SplitHostPort(m.to.Options().Addr)
	if err != nil {
		m.t.Fatal(err)
	}
	for {
		keys, err := m.from.ClusterGetKeysInSlot(m.t.Context(), int(m.slot), 100).Result()
		if err != nil {
			m.t.Fatal(err)
		}
		if len(keys) == 0 {
			return
		}
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, key := range keys {
			args = append(args, key)
		}
		m.do(m.from, args...)
	}
}

// end gives the slot to its new primary, once that knows how often slots have moved so far:
// its claim to the slot has to be newer than the one of the old primary, or it gives the
// slot back when it next hears of it.
func (m *slotMove) end() {
	m.t.Helper()
	m.move()
	bedtest.Eventually(m.t, "the new primary knows the epoch of the old one", func() bool {
		return m.epoch(m.to) >= m.epoch(m.from)
	})
	for _, node := range []*redis.Client{m.to, m.from} {
		m.do(node, "cluster", "setslot", m.slot, "node", m.toID)
	}
}

// TestLeaseInAMovingSlot has a slot stand half way between two primaries, before its keys
// have moved and after: leases in it are renewed and released. Redis refuses every script
// there that names a key which does not exist.
func TestLeaseInAMovingSlot(t *testing.T) {
	t.Parallel()
	c := cluster(t, 1)[0].(*redis.ClusterClient)
	for _, s := range sorts {
		if s.quorum {
			continue
		}
		for _, moved := range []bool{false, true} {
			name := s.name + ", keys at the old primary"
			if moved {
				name = s.name + ", keys at the new primary"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := &bench{sort: s, clients: []redis.UniversalClient{c}, key: "{" + name + "}k"}
				l := b.locker(t, Options{Lease: 3 * time.Second})
				lease := acquire(t, l, b.key)
				m := beginMove(t, c, b.key)
				if moved {
					m.move()
				}
				first := endOf(lease)
				bedtest.Eventually(t, "renewals", func() bool {
					select {
					case <-lease.Lost():
						t.Fatal("the lease was lost")
					default:
					}
					return endOf(lease).Sub(first) > 1500*time.Millisecond
				})
				if _, err := b.rivals(t, Options{}).Acquire(t.Context(), b.key); err == nil {
					t.Error("granted to another")
				}
				err := lease.Release(t.Context())
				if s.opts.Format == String { // it ends by itself
					if !isMoving(err) {
						t.Errorf("Release: %v, want TRYAGAIN", err)
					}
				} else if err != nil {
					t.Error(err)
				}
				m.end()
				bedtest.Eventually(t, "the client follows", func() bool {
					return c.Set(t.Context(), "{"+name+"}x", "1", 0).Err() == nil
				})
				if s.opts.Format == String {
					bedtest.Eventually(t, "it has ended", func() bool { return c.Exists(t.Context(), b.key).Val() == 0 })
				}
				b.free(t)
			})
		}
	}
}

// TestCallsInAMovingSlot has a slot stand half way for longer than a lease, while a call
// goes on within another one: neither loses its lease, and both are given up after it.
func TestCallsInAMovingSlot(t *testing.T) {
	t.Parallel()
	c := cluster(t, 1)[0].(*redis.ClusterClient)
	for _, s := range sorts {
		if s.quorum {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			b := &bench{sort: s, clients: []redis.UniversalClient{c}, key: "{" + s.name + "}k"}
			l := b.locker(t, Options{Lease: 4 * time.Second, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}) // why a lease was lost
			outer := acquire(t, l, b.key)
			inner := acquire(t, l, b.key, Reenter(outer.Owner()))
			m := beginMove(t, c, b.key)
			begun := endOf(outer)
			bedtest.Eventually(t, "renewals", func() bool {
				select {
				case <-outer.Lost():
					t.Fatal("the outer lease was lost")
				case <-inner.Lost():
					t.Fatal("the inner lease was lost")
				default:
				}
				return endOf(outer).Sub(begun) > 3*time.Second && endOf(inner).Sub(begun) > 3*time.Second
			})
			m.end()
			bedtest.Eventually(t, "the client follows", func() bool {
				return c.Set(t.Context(), "{"+s.name+"}x", "1", 0).Err() == nil
			})
			release(t, outer)
			if _, err := b.rivals(t, Options{}).Acquire(t.Context(), b.key); err == nil {
				t.Error("granted to another while a call goes on")
			}
			release(t, inner)
			b.free(t)
		})
	}
}

// TestReshardUnderLoad moves slots from node to node while locks in them are taken and
// given up: nobody is inside with another, and no lease is lost. Who wants a lock may get
// an error.
func TestReshardUnderLoad(t *testing.T) {
	t.Parallel()
	c := cluster(t, 1)[0].(*redis.ClusterClient)
	keys := names("order", 8)
	var inside [8]atomic.Int32
	var grants atomic.Int32
	opts := Options{Lease: 10 * time.Second, Wait: Wait{UpTo: 5 * time.Second}}
	stop := traffic(t, c, opts, keys, func(key int, err error) {
		if err != nil {
			return // the slot is half way
		}
		grants.Add(1)
		if n := inside[key].Add(1); n != 1 {
			t.Errorf("%d are inside with %s", n, keys[key])
		}
		time.Sleep(time.Millisecond) // the call that it brackets
		inside[key].Add(-1)
	})
	for range 3 {
		for _, key := range keys {
			m := beginMove(t, c, key)
			m.end()
			bedtest.Eventually(t, "the client follows", func() bool {
				c.ReloadState(t.Context())
				node, err := c.MasterForKey(t.Context(), key)
				return err == nil && node.Options().Addr == m.to.Options().Addr
			})
		}
	}
	stop()
	if grants.Load() == 0 {
		t.Error("no lock was granted")
	}
	t.Logf("%d grants", grants.Load())
}
