package engine

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// settlement begins a call that settles an order, and has its lock.
func settlement(t *testing.T, g *gate.Gate, id string) (*gate.Call, gate.Step) {
	t.Helper()
	call := opened(g, id)
	return call, gatetest.Settle(t.Context(), call)
}

func opened(g *gate.Gate, id string) *gate.Call {
	call := g.Open(order.Request{Method: "POST", Target: "/orders/" + id + "/settle", Host: "shop", Header: noHeader{}, BodyState: order.BodyComplete})
	return call
}

type noHeader struct{}

func (noHeader) Next(int) (name, value string, next int) { return "", "", -1 }

func end(t *testing.T, call *gate.Call) {
	t.Helper()
	gatetest.Answer(call, &gate.Response{Status: 200, Details: "via_upstream", Attempts: 1, AttemptHeader: -1, HasServiceTime: true})
	gatetest.Finish(call)
	gatetest.End(call)
}

// ttl returns how long a lock is held at most.
func (b *reloadBed) ttl(id string) time.Duration {
	return b.Engine.redis.PTTL(b.t.Context(), "order:lock:"+id).Val()
}

func (b *reloadBed) openLockers() int {
	open, _ := b.lockers.Usage()
	return open
}

// TestReloadOfALock changes a lock while settlements run, wait, and are about to ask.
func TestReloadOfALock(t *testing.T) {
	t.Parallel()
	b := newReloadBed(t)
	old := b.Gate()
	running, step := settlement(t, old, "1")
	if step.Do != gate.PassRequest {
		t.Fatalf("step %+v", step)
	}
	late := opened(old, "2")
	b.write(b.with("{lease: 30s}", "{lease: 300s, wait: {up_to: 30s}}"), "applied")
	if n := b.openLockers(); n != 2 {
		t.Errorf("%d lockers while a call of the old one runs", n)
	}

	// The new lock waits for the old, which shares what it says of itself.
	waiting := opened(b.Gate(), "1")
	granted := make(chan gate.Grant, 1)
	gatetest.AcquireTo(t.Context(), waiting, granted)
	bedtest.Eventually(t, "one holds and one waits", func() bool {
		return b.metric(`ordergate_lock_held{lock="settlement"}`) == "1" && b.metric(`ordergate_lock_waiters{lock="settlement"}`) == "1"
	})
	if ttl := b.ttl("1"); ttl > 30*time.Second {
		t.Errorf("the old lease was changed: %v", ttl)
	}
	end(t, running)
	if step := gatetest.Granted(waiting, <-granted); step.Do != gate.PassRequest {
		t.Errorf("the waiter: %+v", step)
	}
	if ttl := b.ttl("1"); ttl < time.Minute {
		t.Errorf("the new lease: %v", ttl)
	}
	bedtest.Eventually(t, "the old locker is closed", func() bool { return b.openLockers() == 1 })

	// One that began under the old rules, and asks only now.
	if step := gatetest.Settle(t.Context(), late); step.Do != gate.PassRequest {
		t.Errorf("the late one: %+v", step)
	}
	if n, ttl := b.openLockers(), b.ttl("2"); n != 2 || ttl > 30*time.Second {
		t.Errorf("%d lockers for the late one, lease %v", n, ttl)
	}
	end(t, late)
	end(t, waiting)
	bedtest.Eventually(t, "the old locker is closed again", func() bool { return b.openLockers() == 1 })
	// The release of the new lock may still be on its way.
	bedtest.Eventually(t, "no lock is left behind", func() bool {
		return len(b.Engine.redis.Keys(t.Context(), "order:lock:?").Val()) == 0
	})
	if got := b.metric(`ordergate_lock_outcome_total{lock="settlement",outcome="known"}`); got != "3" {
		t.Errorf("outcomes that are known: %s", got)
	}
}

// TestReloadsLeaveNothing changes rules and locks again and again while settlements
// run. No lock, Locker or goroutine stays.
func TestReloadsLeaveNothing(t *testing.T) { // not beside others, whose goroutines it would count
	b := newReloadBed(t)
	texts := []string{
		b.text,
		b.with("{lease: 30s}", "{lease: 40s}", "lookup: {filter: orders}", "lookup: {filter: orders, absent: {status: 410}}"),
		b.with("{lease: 30s}", "{lease: 50s}", "{lock: settlement}", "{lock: settlement, limit: {lock: merchants, id: {header: x-merchant}}}"),
		b.without("  - name: settle"),
	}
	var versions []*config.Config
	for _, text := range texts {
		c, err := config.Parse("a.yaml", []byte(text), func(string) string { return "" })
		bedtest.Check(t, err)
		versions = append(versions, c)
	}
	bedtest.Eventually(t, "the filter is ready", func() bool { return strings.Contains(b.out.String(), "filter is ready") })
	before := runtime.NumGoroutine()
	ctx, stop := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for i := range 8 {
		calls.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Millisecond) // several calls for each reload
				call := opened(b.Gate(), fmt.Sprint(i%4+1))
				if !call.NeedsLock || call.LimitKey() != "" {
					continue
				}
				if step := gatetest.Settle(t.Context(), call); step.Do == gate.PassRequest {
					end(t, call)
				}
			}
		})
	}
	for i := range 400 {
		if _, err := b.apply(t.Context(), versions[i%len(versions)]); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	calls.Wait()
	_, err := b.apply(t.Context(), versions[1])
	bedtest.Check(t, err)
	bedtest.Eventually(t, "one locker", func() bool { return b.openLockers() == 1 })
	// One that each reload left, or each fourth, would be a hundred. Some that the engine has
	// anyway may have begun after they were counted.
	bedtest.Eventually(t, "no more goroutines", func() bool { return runtime.NumGoroutine() < before+20 })
	if keys := b.Engine.redis.Keys(t.Context(), "order:lock:?").Val(); len(keys) > 0 {
		t.Errorf("left behind: %q", keys)
	}
	_, using := b.lockers.Usage()
	if units := len(b.lockers.Units()); units != 1 || using != 0 {
		t.Errorf("%d units, %d calls", units, using)
	}
}

// TestReloadOfAQuorum changes a lock on servers of its own: with its last call, the old
// connections go.
func TestReloadOfAQuorum(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	var addrs []string
	for range 3 {
		addrs = append(addrs, bed.Redis().Addr())
	}
	const rules = `
locks: {settlement: {kind: quorum, lease: LEASE, quorum: {addresses: [ADDRS]}}}
rules:
  - {name: settle, match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id}, settle: {lock: settlement}}
`
	version := func(lease string) *config.Config {
		c, err := config.Parse("a.yaml", []byte(strings.NewReplacer("LEASE", lease, "ADDRS", strings.Join(addrs, ", ")).Replace(rules)), func(string) string { return "" })
		bedtest.Check(t, err)
		return c
	}
	m, err := build(t.Context(), version("30s"), slog.New(slog.DiscardHandler))
	bedtest.Check(t, err)
	defer m.Close()
	operator := redis.NewClient(&redis.Options{Addr: addrs[0]})
	defer func() { _ = operator.Close() }()
	connections := func() int {
		list, err := operator.ClientList(t.Context()).Result()
		bedtest.Check(t, err)
		return strings.Count(list, "name=ordergate ")
	}
	running, step := settlement(t, m.Gate(), "1")
	if step.Do != gate.PassRequest {
		t.Fatalf("step %+v", step)
	}
	for lease := range 10 {
		_, err := m.apply(t.Context(), version(fmt.Sprintf("%ds", 40+lease)))
		bedtest.Check(t, err)
		call, step := settlement(t, m.Gate(), "2")
		if step.Do != gate.PassRequest {
			t.Fatalf("version %d: %+v", lease, step)
		}
		end(t, call)
	}
	end(t, running)
	// Eleven lockers had at least one each. The last has as many as it asked questions at
	// once: of the one that tries it out, and of a call.
	bedtest.Eventually(t, "the old connections are closed", func() bool { return connections() <= 5 })
	now := version("60s")
	addrs[0] = "127.0.0.1:1"
	if got := takesRestart(now, version("60s"), nil, nil); !slices.Equal(got, []string{"locks.settlement.quorum.addresses"}) {
		t.Errorf("other servers: %q", got)
	}
}
