package faults

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/faults/register"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// soak has the tests run in their long form.
var soak = os.Getenv("SOAK") != ""

// seed repeats the choices of a run, not its timing.
var seed = flag.Uint64("seed", 0, "of the random faults; 0: another each time")

// newRand returns a source of random choices and tells how to have it again.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("random choices: -seed=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}

const (
	chaosWorkers = 4
	chaosCallers = 2 // in each: they hand the lock over among themselves
	chaosKeys    = 3
	chaosHold    = 3 * time.Millisecond
)

// TestChaos has four processes read and write three numbers under locks while
// faults hit them and their connections. With the fence, every history has to fit
// the model, and there has to be one: the workers get on whenever the faults let
// them.
func TestChaos(t *testing.T) {
	t.Parallel()
	long := 8 * time.Second
	rounds := 1
	if soak {
		long, rounds = 20*time.Second, 6
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			addr := bedtest.New(t).Redis().Addr()
			c := newChaos(t, []string{addr}, "redis", addr)
			c.admin = []*redis.Client{connect(t, addr)}
			c.run(long, nil)
		})
	}
}

// TestChaosSentinel adds failovers. A lock that was granted and not replicated is
// lost with its master, so that two hold it; the fence has to make up for it.
func TestChaosSentinel(t *testing.T) {
	t.Parallel()
	long := 10 * time.Second
	rounds := 1
	if soak {
		long, rounds = 20*time.Second, 4
	}
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			s := bedtest.New(t).Sentinel()
			var addrs []string
			var admin []*redis.Client
			for _, node := range s.Nodes() {
				addrs = append(addrs, node.Addr())
				admin = append(admin, connect(t, node.Addr()))
			}
			c := newChaos(t, addrs, "sentinels", strings.Join(s.Addrs(), ","), "master", s.Master())
			c.admin = admin
			c.run(long, func(ctx context.Context, r *rand.Rand) { c.failover(ctx, s, r) })
		})
	}
}

// chaos is a set of workers, each behind proxies of its own, and what has been
// done to them.
type chaos struct {
	t       *testing.T
	reg     *register.Server
	workers []*worker
	proxies [][]*proxy // of each worker, one for each Redis
	admin   []*redis.Client
	inside  [chaosWorkers]atomic.Pointer[func()] // what to do at the next reading

	mu    sync.Mutex
	count map[string]int
}

func newChaos(t *testing.T, redisAddrs []string, redisFlags ...any) *chaos {
	t.Helper()
	c := &chaos{t: t, reg: listen(t, register.Fenced), count: make(map[string]int)}
	c.reg.OnRead(func(s *register.Section) {
		if f := c.inside[s.Worker].Swap(nil); f != nil {
			(*f)()
		}
	})
	for i := range chaosWorkers {
		addrs := make(map[string]string)
		var proxies []*proxy
		for _, addr := range redisAddrs {
			p := newProxy(t, addr)
			proxies = append(proxies, p)
			addrs[addr] = p.addr()
		}
		c.proxies = append(c.proxies, proxies)
		c.workers = append(c.workers, startWorker(t, i, append(
			flags("register", c.reg.Addr(), "via", via(addrs), "lease", shortLease,
				"callers", chaosCallers, "keys", chaosKeys, "hold", chaosHold), flags(redisFlags...)...)...))
	}
	return c
}

// run lets faults happen for so long, one at a time to each worker, and checks
// the history. More, if any, happens beside them again and again.
func (c *chaos) run(long time.Duration, more func(context.Context, *rand.Rand)) {
	t := c.t
	t.Helper()
	random := newRand(t)
	if !c.reg.Until(eventually, func(all []register.Section) bool { return len(all) > 10*chaosWorkers }) {
		t.Fatal("the workers do nothing")
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var hands sync.WaitGroup
	for i := range c.workers {
		r := rand.New(rand.NewPCG(random.Uint64(), 0))
		hands.Go(func() {
			for ctx.Err() == nil {
				c.hit(ctx, i, r)
			}
		})
	}
	if more != nil {
		r := rand.New(rand.NewPCG(random.Uint64(), 0))
		hands.Go(func() {
			for ctx.Err() == nil {
				more(ctx, r)
			}
		})
	}
	hands.Wait()
	healed := len(c.reg.Sections())
	if !c.reg.Until(eventually, func(all []register.Section) bool {
		return register.Count(all[healed:], register.Applied) > 10*chaosWorkers
	}) {
		t.Error("the workers did not recover")
	}
	for _, w := range c.workers {
		w.finish()
	}
	history := c.reg.Sections()
	applied, refused := register.Count(history, register.Applied), register.Count(history, register.Refused)
	t.Logf("%d sections: %d applied, %d refused, %d broken off; faults: %s",
		len(history), applied, refused, len(history)-applied-refused, c.faults())
	mustBeLinearizable(t, history)
}

// did counts a fault.
func (c *chaos) did(what string) {
	c.mu.Lock()
	c.count[what]++
	c.mu.Unlock()
}

func (c *chaos) faults() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for _, what := range slices.Sorted(maps.Keys(c.count)) {
		list = append(list, fmt.Sprintf("%d %s", c.count[what], what))
	}
	return strings.Join(list, ", ")
}

// hit does one thing to a worker, lets it last, undoes it, and leaves the worker
// alone for a while.
func (c *chaos) hit(ctx context.Context, i int, r *rand.Rand) {
	w := c.workers[i]
	// Up to two leases: some faults outlast the lease, some do not.
	last := time.Duration(r.Int64N(int64(2 * shortLease)))
	through := func(do func(*proxy)) {
		for _, p := range c.proxies[i] {
			do(p)
		}
		wait(ctx, last)
		for _, p := range c.proxies[i] {
			p.heal()
		}
	}
	switch what := r.IntN(8); what {
	case 0:
		c.did("latency")
		through(func(p *proxy) { p.latency(10 + r.IntN(200)) })
	case 1:
		c.did("bandwidth")
		through(func(p *proxy) { p.bandwidth(1 + r.IntN(4)) })
	case 2:
		c.did("cut")
		last = min(last, shortLease/10)
		through((*proxy).cut)
	case 3:
		c.did("half-open")
		through((*proxy).swallow)
	case 4:
		c.did("client kill")
		kind := []string{"normal", "pubsub"}[r.IntN(2)]
		for _, admin := range c.admin {
			_ = admin.ClientKillByFilter(ctx, "TYPE", kind, "SKIPME", "yes").Err() // a master that is down has none
		}
	case 5:
		c.did("kill -9")
		w.kill()
		wait(ctx, last)
		w.start()
	case 6:
		c.did("stop")
		w.stop()
		wait(ctx, last)
		w.cont()
	case 7:
		c.did("stop inside")
		reached := make(chan struct{})
		f := func() {
			w.stop()
			close(reached)
			wait(ctx, shortLease+last)
			w.cont()
		}
		c.inside[i].Store(&f)
		select {
		case <-reached:
			wait(ctx, shortLease+last)
		case <-time.After(shortLease): // it gets no lock
			if c.inside[i].CompareAndSwap(&f, nil) {
				return
			}
			<-reached
			wait(ctx, shortLease+last)
		}
	}
	wait(ctx, time.Duration(r.Int64N(int64(shortLease))))
}

// failover replaces the master, by the Sentinels' own decision when it is stopped
// or killed.
func (c *chaos) failover(ctx context.Context, s *testbed.Sentinel, r *rand.Rand) {
	wait(ctx, time.Second)
	old, err := s.Current(ctx)
	if err != nil {
		return // out of time
	}
	// Past the end of the run: the servers have to be whole for the next one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventually)
	defer cancel()
	switch r.IntN(3) {
	case 0:
		c.did("failover")
		if _, err := s.Failover(ctx); err != nil {
			// The Sentinels put it off: one that they began before is not over for them.
			c.t.Logf("a failover on demand did not come: %v", err)
			return
		}
	case 1: // for a while there are two masters
		c.did("failover, master stopped")
		if err = old.Pause(); err == nil {
			_, err = s.Await(ctx, old)
			_ = old.Resume()
		}
	case 2:
		c.did("failover, master killed")
		old.Kill()
		if _, err = s.Await(ctx, old); err == nil {
			err = old.Restart(ctx)
		}
	}
	if err == nil {
		err = s.Settle(ctx)
	}
	if err != nil {
		c.t.Errorf("failing over: %v", err)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
