package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// loser loses the answer to one script call, on any of its wires: the client's
// library asks again, and Redis does it twice.
type loser struct {
	mu    sync.Mutex
	about string // the calls that count have this text in them
	lose  int    // which of them; 0: none
	seen  int
	link  net.Conn // whose next answer is lost
	then  func()   // what happens before the client asks again; may be nil
}

// set begins to count calls about something.
func (l *loser) set(about string, lose int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.about, l.lose, l.seen, l.link = about, lose, 0, nil
}

func (l *loser) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

func (l *loser) plan(p packet) fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case p.ask && p.script() && p.says(l.about):
		if l.seen++; l.seen == l.lose {
			l.link = p.link
		}
	case !p.ask && p.link == l.link:
		l.link = nil
		if l.then != nil {
			l.then()
		}
		return fate{drop: true, cut: true}
	}
	return fate{}
}

// wire returns one to a server.
func (l *loser) wire(t *testing.T, addr string) *wire {
	w := newWire(t, addr)
	w.set(l.plan)
	return w
}

// lossy is a Locker whose answers get lost, and one of the same locks whose do not.
type lossy struct {
	*loser
	locker, rival *redislock.Locker
	wired, direct []redis.UniversalClient
	kind          redislock.Kind
	format        redislock.Format
	key           string
}

const repeatHold = time.Hour

// play is what callers do with a lock, whatever answer is lost. It leaves the lock
// free.
type play struct {
	name string
	do   func(*testing.T, *lossy)
}

var plain = []play{
	{"released", func(t *testing.T, l *lossy) {
		lease := l.acquire(t)
		l.busy(t)
		l.release(t, lease)
	}},
	{"held", func(t *testing.T, l *lossy) {
		lease := l.acquire(t)
		l.hold(t, lease)
		l.busy(t)
		l.clear(t)
	}},
}

var nested = []play{
	{"outer released first", func(t *testing.T, l *lossy) {
		outer := l.acquire(t)
		inner := l.reenter(t, outer)
		l.release(t, outer)
		l.busy(t)
		l.release(t, inner)
	}},
	{"inner released first", func(t *testing.T, l *lossy) {
		outer := l.acquire(t)
		one := l.reenter(t, outer)
		two := l.reenter(t, outer)
		l.release(t, one)
		l.busy(t)
		l.release(t, two)
		l.busy(t)
		l.release(t, outer)
	}},
	{"outer held", func(t *testing.T, l *lossy) {
		outer := l.acquire(t)
		inner := l.reenter(t, outer)
		l.hold(t, outer)
		l.release(t, inner)
		l.busy(t)
		l.clear(t)
	}},
	{"taken by force", func(t *testing.T, l *lossy) {
		lease := l.acquire(t)
		seen, err := redislock.Inspect(t.Context(), l.wired[0], l.kind, l.format, l.key)
		bedtest.Check(t, err)
		if _, err = redislock.ForceRelease(t.Context(), l.wired[0], seen); err != nil {
			t.Error(err)
		}
		l.free(t, l.key)
		_ = lease.Release(t.Context()) // it was lost
	}},
	{"inner held", func(t *testing.T, l *lossy) {
		outer := l.acquire(t)
		inner := l.reenter(t, outer)
		l.hold(t, inner)
		l.release(t, outer)
		l.busy(t)
		l.clear(t)
	}},
}

// several is of kinds whose locks are taken together.
var several = play{"several", func(t *testing.T, l *lossy) {
	keys := []string{l.key, l.key + "2", l.key + "3"}
	outer, err := l.locker.AcquireAll(t.Context(), keys)
	bedtest.Check(t, err)
	inner, err := l.locker.AcquireAll(t.Context(), keys, redislock.Reenter(outer.Owner()))
	bedtest.Check(t, err)
	l.release(t, outer)
	for _, key := range keys {
		l.busyAt(t, key)
	}
	l.release(t, inner)
	for _, key := range keys {
		l.free(t, key)
	}
}}

var handover = []play{
	{"handed over", func(t *testing.T, l *lossy) {
		first := l.acquire(t)
		next := l.wait(t)
		l.release(t, first)
		second := <-next
		if second == nil {
			t.FailNow()
		}
		if second.Fence() <= first.Fence() {
			t.Errorf("fence %d after %d", second.Fence(), first.Fence())
		}
		l.busy(t)
		l.release(t, second)
	}},
	{"handed over with a call within", func(t *testing.T, l *lossy) {
		first := l.acquire(t)
		inner := l.reenter(t, first)
		next := l.wait(t)
		l.release(t, first)
		select {
		case <-next:
			t.Error("handed over while a call within it went on")
		default:
		}
		l.busy(t)
		l.release(t, inner)
		second := <-next
		if second == nil {
			t.FailNow()
		}
		l.release(t, second)
	}},
}

// TestLostReplies has callers take, enter, hand over, hold and release locks of
// every sort. The answer to each of their script calls in turn is lost after Redis
// ran it, so it runs twice. Nobody is to notice: no call fails, no lease counts as
// lost, the lock is taken for as long as one of them has it, and free afterwards.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for _, sort := range []struct {
		name  string
		opts  redislock.Options
		start func(t *testing.T, l *loser) (wired, direct []redis.UniversalClient)
		plays [][]play
	}{
		{"exclusive", redislock.Options{}, oneLossy, [][]play{plain, nested, handover, {several}}},
		{"scripts flushed", redislock.Options{}, flushLossy, [][]play{plain, nested, handover}},
		{"string", redislock.Options{Format: redislock.String}, oneLossy, [][]play{plain, nested, handover, {several}}},
		{"fair", redislock.Options{Kind: redislock.Fair}, oneLossy, [][]play{plain, nested, handover, {several}}},
		{"write", redislock.Options{Kind: redislock.Write}, oneLossy, [][]play{plain, nested, {several}}},
		{"read", redislock.Options{Kind: redislock.Read}, oneLossy, [][]play{plain, nested, {several}}},
		{"semaphore", redislock.Options{Kind: redislock.Semaphore, Permits: 1}, oneLossy, [][]play{plain, nested, {several}}},
		{"quorum", redislock.Options{}, quorumLossy, [][]play{plain}},
		{"cluster", redislock.Options{}, clusterLossy, [][]play{plain, nested, handover, {several}}},
	} {
		t.Run(sort.name, func(t *testing.T) {
			t.Parallel()
			l := &lossy{
				loser: &loser{about: "nothing"}, kind: cmp.Or(sort.opts.Kind, redislock.Exclusive),
				format: cmp.Or(sort.opts.Format, redislock.Redisson),
			}
			wired, direct := sort.start(t, l.loser)
			opts := sort.opts
			opts.Lease, opts.Hold, opts.MaxWaitersPerKey = abortLease, repeatHold, 10
			opts.Wait = redislock.Wait{UpTo: time.Minute}
			l.locker, l.wired, l.direct = build(t, wired, opts), wired, direct
			opts.Wait = redislock.Wait{}
			if opts.Kind == redislock.Read { // a reader gets in beside others
				opts.Kind = redislock.Write
			}
			l.rival = build(t, direct, opts)
			for _, plays := range sort.plays {
				for _, p := range plays {
					t.Run(p.name, func(t *testing.T) {
						calls := 1
						for lose := 0; lose <= calls; lose++ { // with none lost, the first counts
							l.key = fmt.Sprintf("{%s %d}", p.name, lose)
							l.set(l.key, lose)
							p.do(t, l)
							l.free(t, l.key)
							calls = max(calls, l.count())
							if t.Failed() {
								t.Fatalf("with the answer to call %d lost", lose)
							}
						}
						t.Logf("%d calls", calls)
					})
				}
			}
		})
	}
}

func (l *lossy) acquire(t *testing.T) *redislock.Lease {
	t.Helper()
	return mustAcquire(t, l.locker, l.key)
}

func (l *lossy) reenter(t *testing.T, outer *redislock.Lease) *redislock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()
	inner, err := l.locker.Acquire(ctx, l.key, redislock.Reenter(outer.Owner()))
	bedtest.Check(t, err)
	if inner.Fence() != outer.Fence() {
		t.Errorf("the call within has fence %d, that around it %d", inner.Fence(), outer.Fence())
	}
	return inner
}

// wait has a caller wait for the lock.
func (l *lossy) wait(t *testing.T) <-chan *redislock.Lease {
	t.Helper()
	granted, key := make(chan *redislock.Lease, 1), l.key
	go func() {
		lease, err := l.locker.Acquire(t.Context(), key)
		if err != nil {
			t.Error(err)
		}
		granted <- lease
	}()
	bedtest.Eventually(t, "one waits", func() bool { return l.locker.Waiting() == 1 })
	return granted
}

func (l *lossy) release(t *testing.T, lease *redislock.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func (l *lossy) hold(t *testing.T, lease *redislock.Lease) {
	t.Helper()
	if err := lease.Hold(t.Context(), "a test"); err != nil {
		t.Error(err)
	}
}

func (l *lossy) busy(t *testing.T) {
	t.Helper()
	l.busyAt(t, l.key)
}

func (l *lossy) busyAt(t *testing.T, key string) {
	t.Helper()
	if _, err := l.rival.Acquire(t.Context(), key); !errors.Is(err, redislock.ErrBusy) {
		t.Errorf("while it is taken: %v, want %v", err, redislock.ErrBusy)
	}
}

func (l *lossy) free(t *testing.T, key string) {
	t.Helper()
	bedtest.Eventually(t, "the lock is free", func() bool {
		lease, err := l.rival.Acquire(t.Context(), key)
		return err == nil && lease.Release(t.Context()) == nil
	})
}

// clear checks that what is held is held for the hold time, and takes it away.
func (l *lossy) clear(t *testing.T) {
	t.Helper()
	for _, client := range l.direct {
		bedtest.Eventually(t, "it is held for the hold time", func() bool { // of a quorum, one server may be late
			seen, err := redislock.Inspect(t.Context(), client, l.kind, l.format, l.key)
			if err != nil || len(seen.Holders) != 1 || seen.Holders[0].TTL < repeatHold-time.Minute {
				return false
			}
			_, err = redislock.ForceRelease(t.Context(), client, seen)
			return err == nil
		})
	}
}

func oneLossy(t *testing.T, l *loser) (wired, direct []redis.UniversalClient) {
	t.Helper()
	addr := bedtest.New(t).Redis().Addr()
	return []redis.UniversalClient{connect(t, l.wire(t, addr).addr())}, []redis.UniversalClient{connect(t, addr)}
}

// flushLossy has Redis forget its scripts before it is asked again, as one does that has
// taken the place of another.
func flushLossy(t *testing.T, l *loser) (wired, direct []redis.UniversalClient) {
	t.Helper()
	wired, direct = oneLossy(t, l)
	l.then = func() { bedtest.Check(t, direct[0].ScriptFlush(context.Background()).Err()) }
	return wired, direct
}

func quorumLossy(t *testing.T, l *loser) (wired, direct []redis.UniversalClient) {
	t.Helper()
	for range 3 {
		w, d := oneLossy(t, l)
		wired, direct = append(wired, w...), append(direct, d...)
	}
	return wired, direct
}

// clusterLossy has a wire to each node, in place of the address by which the cluster
// names it.
func clusterLossy(t *testing.T, l *loser) (wired, direct []redis.UniversalClient) {
	t.Helper()
	addrs := bedtest.New(t).Cluster().Addrs()
	wires := make(map[string]string)
	for _, addr := range addrs {
		wires[addr] = l.wire(t, addr).addr()
	}
	var dialer net.Dialer
	opts := redis.ClusterOptions{
		Addrs: addrs, ContextTimeoutEnabled: true,
		DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second,
	}
	add := func() redis.UniversalClient {
		o := opts
		c := redis.NewClusterClient(&o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	direct = append(direct, add())
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if wires[addr] == "" {
			return nil, fmt.Errorf("no wire to %s", addr)
		}
		return dialer.DialContext(ctx, network, wires[addr])
	}
	return append(wired, add()), direct
}
