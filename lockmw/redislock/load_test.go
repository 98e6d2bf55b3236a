package redislock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// callsOf returns how many commands a single Redis has run, those of scripts
// included.
func callsOf(t *testing.T, c redis.UniversalClient) (n int) {
	t.Helper()
	stats, err := c.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(stats) {
		_, calls, ok := strings.Cut(line, "calls=")
		if calls, _, _ = strings.Cut(calls, ","); ok && !strings.HasPrefix(line, "cmdstat_info:") {
			more, err := strconv.Atoi(calls)
			if err != nil {
				t.Fatal(err)
			}
			n += more
		}
	}
	return n
}

// TestCommands holds what a lock costs Redis that nobody else wants, and which no
// call within enters.
func TestCommands(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(t *testing.T, _ redis.UniversalClient, opts Options) {
		c := single(t, 1)[0]
		l := newLocker(t, c, opts)
		release(t, acquire(t, l, "k")) // loads the scripts
		before := callsOf(t, c)
		release(t, acquire(t, l, "k"))
		most := map[Kind]int{Exclusive: 10, Fair: 14, Write: 10, Read: 23, Semaphore: 28}[opts.Kind]
		if opts.Format == String {
			most = 11
		}
		if n := callsOf(t, c) - before; n > most {
			t.Errorf("%d commands, want %d at most", n, most)
		} else {
			t.Logf("%d commands", n)
		}
	})
}

// TestManyHolders leaves a lock to very many whose outcome is unknown. Neither do
// they make it dear for others, nor do they stay when their hold is over.
func TestManyHolders(t *testing.T) {
	t.Parallel()
	const holders = 400
	for _, opts := range []Options{{Kind: Read}, {Kind: Semaphore, Permits: holders + 10}} {
		t.Run(string(opts.Kind), func(t *testing.T) {
			t.Parallel()
			c := single(t, 1)[0]
			opts.Hold = 3 * time.Second
			l := newLocker(t, c, opts)
			steady := acquire(t, l, "k") // its record keeps the others'
			bedtest.Eventually(t, "it is on record", func() bool { return steady.onRecord() })
			var wg sync.WaitGroup
			for range holders {
				wg.Go(func() {
					lease, err := l.Acquire(t.Context(), "k")
					if err == nil {
						err = lease.Hold(t.Context(), "a test")
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := c.HLen(t.Context(), after("k", recordSuffix)).Val(); n != holders+1 {
				t.Errorf("%d are on record, want %d", n, holders+1)
			}
			before := callsOf(t, c)
			release(t, acquire(t, l, "k"))
			if n := callsOf(t, c) - before; n > 60 {
				t.Errorf("beside %d holders a lock costs %d commands", holders, n)
			}
			const left = 50 // of a crowd, those that died go by and by
			bedtest.Eventually(t, "those whose hold is over are forgotten", func() bool {
				release(t, acquire(t, l, "k"))
				return c.HLen(t.Context(), "k").Val()+c.HLen(t.Context(), after("k", recordSuffix)).Val() <= left
			})
			release(t, steady)
			if opts.Kind == Read {
				release(t, acquire(t, newLocker(t, c, Options{Kind: Write}), "k"))
			}
		})
	}
}

// TestFullMemory has Redis refuse all that needs memory. It keeps what it has: leases
// are renewed, also of calls within, held and released.
func TestFullMemory(t *testing.T) {
	t.Parallel()
	c := connect(t, clientOptions(bedtest.New(t).Redis("--maxmemory-policy", "noeviction").Addr()))
	type play struct {
		name         string
		l            *Locker
		outer, inner *Lease
		other, held  *Lease
	}
	var plays []play
	for _, opts := range lockKinds {
		opts.Lease, opts.Hold = 2*time.Second, time.Minute
		l := newLocker(t, c, opts)
		p := play{name: fmt.Sprint(opts.Kind, opts.Format), l: l}
		p.outer = acquire(t, l, p.name)
		p.inner = acquire(t, l, p.name, Reenter(p.outer.Owner()))
		p.other, p.held = acquire(t, l, p.name+" other"), acquire(t, l, p.name+" held")
		plays = append(plays, p)
	}
	fair := newLocker(t, c, Options{Kind: Fair, Wait: never})
	held := acquire(t, fair, "line")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for n, ctx := range []context.Context{ctx, t.Context()} {
		_ = async(ctx, fair, "line")
		bedtest.Eventually(t, "a waiter is in line", func() bool { return c.LLen(t.Context(), before(fairQueue, "line")).Val() == int64(n+1) })
	}
	first := c.LIndex(t.Context(), before(fairQueue, "line"), 0).Val()

	bedtest.Check(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	if err := c.Set(t.Context(), "x", 1, 0).Err(); err == nil {
		t.Fatal("Redis takes whatever comes")
	}
	leave()
	bedtest.Eventually(t, "the first in line leaves it", func() bool {
		return !slices.Contains(c.LRange(t.Context(), before(fairQueue, "line"), 0, -1).Val(), first)
	})
	release(t, held)
	start := time.Now()
	for _, p := range plays {
		if err := p.held.Hold(t.Context(), "a test"); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
	bedtest.Eventually(t, "a lease passes", func() bool { return time.Since(start) > 5*time.Second/2 })
	for _, p := range plays {
		for what, lease := range map[string]*Lease{"a lease": p.other, "one with a call within": p.outer, "the call within": p.inner} {
			select {
			case <-lease.Lost():
				t.Errorf("%s: %s was lost", p.name, what)
			default:
			}
		}
		for _, lease := range []*Lease{p.outer, p.inner, p.other} {
			if err := lease.Release(t.Context()); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
		if s := inspect(t, c, p.l.opts, p.name+" held"); len(s.Holders) != 1 || s.Holders[0].TTL < 50*time.Second {
			t.Errorf("%s: it is held by %+v", p.name, s.Holders)
		}
		if s := inspect(t, c, p.l.opts, p.name); s.Held() {
			t.Errorf("%s: after its release it is held by %+v", p.name, s.Holders)
		}
	}
}

// TestMadeUpLease presents one that nobody was granted, for very many keys: they are
// asked about together.
func TestMadeUpLease(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	l := newLocker(t, c, Options{})
	p := watch(t, c, Exclusive, Redisson)
	const n = 1000
	keys := names("k", n)
	for _, name := range []string{"made-up", l.newOwner()} {
		lease, err := l.AcquireAll(t.Context(), keys, Reenter(name))
		if err != nil {
			t.Fatal(err)
		}
		trips := 0
		for _, trip := range p.seen() {
			if trip.has("reenter") {
				trips++
			}
		}
		// How many come together is up to Go's scheduler.
		if most := n / 8; trips > most {
			t.Errorf("presenting %s for %d keys: %d trips, want %d at most", name, n, trips, most)
		}
		release(t, lease)
		p.seen()
	}
}
