package faults

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const (
	// abortLease is far longer than the test: a lock that is not given back is
	// seen, and two holders are never the fault of a lease that ended.
	abortLease = 10 * time.Minute
	abortHold  = 50 * time.Millisecond
)

// TestAborts has callers take, wait for, hand over, renew, hold and release locks,
// with contexts that end at random points, over wires that delay or break at random
// packets. Never may two hold one lock. When all have gone, the lock has to be free
// at once, unless a caller was told that its release may not have arrived.
func TestAborts(t *testing.T) {
	t.Parallel()
	rounds := 250
	if soak {
		rounds = 4_000
	}
	bed := bedtest.New(t)
	shared := bed.Redis().Addr()
	quorum := []string{bed.Redis().Addr(), bed.Redis().Addr(), bed.Redis().Addr()}
	random := newRand(t)
	var lanes []*lane
	add := func(name string, opts redislock.Options, addrs ...string) {
		lanes = append(lanes, newLane(t, fmt.Sprintf("%s-%d", name, len(lanes)), opts, addrs, random.Uint64()))
	}
	for range 6 {
		add("exclusive", redislock.Options{}, shared)
	}
	add("string", redislock.Options{Format: redislock.String}, shared)
	add("fair", redislock.Options{Kind: redislock.Fair}, shared)
	add("fair", redislock.Options{Kind: redislock.Fair}, shared)
	add("read", redislock.Options{Kind: redislock.Read}, shared)
	add("write", redislock.Options{Kind: redislock.Write}, shared)
	add("semaphore", redislock.Options{Kind: redislock.Semaphore, Permits: 1}, shared)
	add("quorum", redislock.Options{}, quorum...)

	var next, done atomic.Int64
	var wg sync.WaitGroup
	for _, l := range lanes {
		wg.Go(func() {
			for int(next.Add(1)) <= rounds && !t.Failed() {
				l.round(t)
				done.Add(1)
			}
		})
	}
	wg.Wait()
	var sum tally
	for _, l := range lanes {
		sum.add(&l.tally)
		for _, locker := range l.lockers {
			mustBeQuiet(t, locker)
			locker.Close()
		}
	}
	t.Logf("%d rounds: %s", done.Load(), &sum)
	if sum.granted.Load() == 0 || sum.waited.Load() == 0 || sum.canceled.Load() == 0 || sum.cut.Load() == 0 {
		t.Error("some of what was to be tried never happened")
	}
}

// tally counts what happened.
type tally struct {
	granted, waited, canceled, busy, failed atomic.Int64 // acquires
	unsure, heldOn, late, cut, delayed      atomic.Int64
}

func (a *tally) add(b *tally) {
	for _, p := range [][2]*atomic.Int64{
		{&a.granted, &b.granted}, {&a.waited, &b.waited}, {&a.canceled, &b.canceled}, {&a.busy, &b.busy},
		{&a.failed, &b.failed}, {&a.unsure, &b.unsure}, {&a.heldOn, &b.heldOn}, {&a.late, &b.late},
		{&a.cut, &b.cut}, {&a.delayed, &b.delayed},
	} {
		p[0].Add(p[1].Load())
	}
}

func (a *tally) String() string {
	return fmt.Sprintf("%d grants, %d of them after a wait, %d canceled, %d busy, %d failed, %d releases unsure, "+
		"%d held for longer, %d lost by a repeated release, %d cuts, %d delays",
		a.granted.Load(), a.waited.Load(), a.canceled.Load(), a.busy.Load(), a.failed.Load(), a.unsure.Load(),
		a.heldOn.Load(), a.late.Load(), a.cut.Load(), a.delayed.Load())
}

// lane does one round after the other, with two Lockers that have a wire each to
// every server.
type lane struct {
	name    string
	random  *rand.Rand
	opts    redislock.Options
	lockers []*redislock.Locker
	wires   []*wire
	probe   *redislock.Locker // over no wire
	direct  []redis.UniversalClient
	serial  int
	tally   tally
	warned  warnings
}

func newLane(t *testing.T, name string, opts redislock.Options, addrs []string, seed uint64) *lane {
	t.Helper()
	l := &lane{name: name, opts: opts, random: rand.New(rand.NewPCG(seed, 0))}
	opts.Lease, opts.Hold, opts.MaxWaitersPerKey = abortLease, abortHold, 100
	opts.Wait = redislock.Wait{UpTo: time.Minute}
	opts.Logger = slog.New(&l.warned)
	for range 2 {
		var clients []redis.UniversalClient
		for _, addr := range addrs {
			w := newWire(t, addr)
			l.wires = append(l.wires, w)
			clients = append(clients, connectWithin(t, w.addr(), mostWait))
		}
		locker := build(t, clients, opts)
		// Connections and scripts are made before anything is timed.
		if err := mustAcquire(t, locker, name+":warm").Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.lockers = append(l.lockers, locker)
	}
	for _, addr := range addrs {
		l.direct = append(l.direct, connectWithin(t, addr, mostWait))
	}
	probe := opts
	probe.Wait, probe.Logger = redislock.Wait{}, nil
	if probe.Kind == redislock.Read { // a reader gets in beside others
		probe.Kind = redislock.Write
	}
	l.probe = build(t, l.direct, probe)
	return l
}

// build makes a Locker of one server or of a quorum.
func build(t testing.TB, clients []redis.UniversalClient, opts redislock.Options) *redislock.Locker {
	t.Helper()
	if len(clients) == 1 {
		return newLocker(t, clients[0], opts)
	}
	l, err := redislock.NewQuorum(clients, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// warnings remembers the keys of which a Locker has said that they may stay taken.
type warnings struct {
	mu   sync.Mutex
	keys map[string]bool
}

// Enabled is for a slog.Handler.
func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

// Handle is for a slog.Handler.
func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	if !strings.Contains(r.Message, "may stay taken") {
		return nil
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "key" {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.keys == nil {
				w.keys = make(map[string]bool)
			}
			w.keys[a.Value.String()] = true
		}
		return true
	})
	return nil
}

// WithAttrs is for a slog.Handler.
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

// WithGroup is for a slog.Handler.
func (w *warnings) WithGroup(string) slog.Handler { return w }

func (w *warnings) has(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys[key]
}
