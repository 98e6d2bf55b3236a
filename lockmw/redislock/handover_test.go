package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

var errReset = &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}

// handed are the sorts that a release hands on within a process.
var handed = []Options{{Kind: Exclusive}, {Format: String}}

// onEveryHanded runs a test of hand-over on each simple topology.
func onEveryHanded(t *testing.T, test func(*testing.T, redis.UniversalClient, Options)) {
	t.Helper()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		for _, opts := range handed {
			opts.ensureDefaults()
			opts.Logger, opts.Observer = nil, nil
			t.Run(string(opts.Format), func(t *testing.T) {
				c.FlushAll(t.Context())
				test(t, another(t, c), opts)
			})
		}
	})
}

// holder returns who holds the lock "k".
func holder(t *testing.T, c redis.UniversalClient, format Format) string {
	t.Helper()
	if format == String {
		return c.Get(t.Context(), "k").Val()
	}
	owners := slices.DeleteFunc(c.HKeys(t.Context(), "k").Val(), func(field string) bool { return field == "ordergate_fence" })
	if len(owners) != 1 {
		t.Errorf("%d hold the lock: %v", len(owners), owners)
		return ""
	}
	return owners[0]
}

// TestHandOverIsOneQuestion has the next in line get the lock with what releases
// it, and without a word to anybody.
func TestHandOverIsOneQuestion(t *testing.T) {
	t.Parallel()
	onEveryHanded(t, func(t *testing.T, c redis.UniversalClient, opts Options) {
		opts.Wait = never
		l := newLocker(t, c, opts)
		ear := c.Subscribe(t.Context(), Channel(Exclusive, "k"))
		defer func() { _ = ear.Close() }()
		wantListeners(t, c, Channel(Exclusive, "k"), 1)
		p := watch(t, c, opts.Kind, opts.Format)
		held := acquire(t, l, "k")
		for range 5 {
			got := async(t.Context(), l, "k")
			p.settle(t, l, "k")
			held.parts[0].handed = handovers{} // a busy machine would take longer than maxHandoverTime
			release(t, held)
			next := bedtest.Receive(t, "the grant", got).ok(t)
			if diff := gocmp.Diff([]string{"handover"}, p.deedsSeen()); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if next.Fence() <= held.Fence() || next.Owner() == held.Owner() {
				t.Errorf("%s %d came after %s %d", next.Owner(), next.Fence(), held.Owner(), held.Fence())
			}
			if owner := holder(t, c, opts.Format); owner != next.Owner() {
				t.Errorf("held by %s, want %s", owner, next.Owner())
			}
			held = next
			wantListeners(t, c, Channel(Exclusive, "k"), 1) // or the next wait would end the last one's subscription
		}
		release(t, held)
		if m, err := ear.ReceiveMessage(t.Context()); err != nil || m.Payload != "0" {
			t.Fatal(m, err)
		}
		select { // that was the first word
		case m := <-ear.Channel():
			t.Errorf("%v was said as well", m)
		default:
		}
	})
}

// TestOthersGetTheirTurn has a crowd in one process, which would have the lock to
// itself, and one who waits in another.
func TestOthersGetTheirTurn(t *testing.T) {
	t.Parallel()
	onEveryHanded(t, func(t *testing.T, c redis.UniversalClient, opts Options) {
		elsewhere := another(t, c)
		opts.Wait = never
		other := newLocker(t, elsewhere, opts)
		opts.Wait = Wait{UpTo: time.Minute}
		crowd := newLocker(t, c, opts)
		held := acquire(t, crowd, "k")
		got := async(t.Context(), other, "k")
		var turns, arrived atomic.Int32
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for arrived.Load() == 0 {
					lease, err := crowd.Acquire(t.Context(), "k")
					if err != nil {
						t.Error(err)
						return
					}
					turns.Add(1)
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wantWaiting(t, crowd, 20)
		wantListeners(t, c, Channel(Exclusive, "k"), 2)
		p := watch(t, c, opts.Kind, opts.Format)
		p.seen()
		release(t, held)
		r := bedtest.Receive(t, "the other's turn", got)
		before := turns.Load()
		arrived.Store(1)
		release(t, r.ok(t))
		wg.Wait()
		// Each time, the other has a head start that is long for a machine with nothing
		// else to do. This allows for a hundred that it misses.
		if limit := int32(100 * (maxHandovers + 1)); before > limit {
			t.Errorf("the other waited for %d turns, want %d at most", before, limit)
		}
		row, longest := 0, 0
		for _, deed := range p.deedsSeen() {
			switch deed {
			case "handover":
				row++
				longest = max(longest, row)
			case "release":
				row = 0
			}
		}
		if longest > maxHandovers {
			t.Errorf("%d turns in a row, want %d at most", longest, maxHandovers)
		}
		t.Logf("%d turns before the other's, at most %d in a row", before, longest)
	})
}

// TestOthersGetTheirTurnBesideTwo has two callers in one process take the lock in turns, so
// that at most one waits there, and at times none does. One who waits in another process gets
// it all the same.
func TestOthersGetTheirTurnBesideTwo(t *testing.T) {
	t.Parallel()
	onEveryHanded(t, func(t *testing.T, c redis.UniversalClient, opts Options) {
		elsewhere := another(t, c)
		opts.Wait = never
		other, pair := newLocker(t, elsewhere, opts), newLocker(t, c, opts)
		held := acquire(t, pair, "k")
		got := async(t.Context(), other, "k")
		wantListeners(t, c, Channel(Exclusive, "k"), 1)
		for range 100 * (maxHandovers + 1) { // see TestOthersGetTheirTurn
			next := async(t.Context(), pair, "k")
			bedtest.Eventually(t, "it waits for a release alone", func() bool {
				if !pair.subscribed(Channel(Exclusive, "k")) {
					return false
				}
				pair.waiters.mu.Lock()
				defer pair.waiters.mu.Unlock()
				line := pair.waiters.queues["k"]
				return line != nil && !line.waiters[0].asking && !line.waiters[0].woken
			})
			release(t, held)
			select {
			case r := <-got:
				release(t, r.ok(t))
				release(t, bedtest.Receive(t, "the grant of who waits", next).ok(t))
				return
			case r := <-next:
				held = r.ok(t)
			}
		}
		t.Error("the other waits for ever")
		release(t, held)
		release(t, bedtest.Receive(t, "the other's grant", got).ok(t))
	})
}

// checkOrder has callers come one by one while the lock "k" is held, and checks that
// they are served as they came. Arrived returns when so many of them wait.
func checkOrder(t *testing.T, lockers []*Locker, held *Lease, callers int, arrived func(int)) {
	t.Helper()
	var order, want []int
	var wg sync.WaitGroup
	for i := range callers {
		want = append(want, i)
		l := lockers[i%len(lockers)]
		wg.Go(func() {
			lease, err := l.Acquire(t.Context(), "k")
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, i) // the lock guards it
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
		arrived(i + 1)
	}
	release(t, held)
	wg.Wait()
	if diff := gocmp.Diff(want, order); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
}

// TestFirstComeFirstServed is the order within one process.
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		for _, opts := range append(slices.Clone(handed), Options{Kind: Write}, Options{Kind: Semaphore, Permits: 1}) {
			t.Run(fmt.Sprint(opts.Kind, opts.Format), func(t *testing.T) {
				c.FlushAll(t.Context())
				opts.Wait = Wait{UpTo: time.Minute}
				l := newLocker(t, c, opts)
				held := acquire(t, l, "k")
				checkOrder(t, []*Locker{l}, held, 40, func(n int) { wantWaiting(t, l, n) })
			})
		}
	})
}

// TestClaimedWaiterLeaves has a caller leave while the lock is being handed to it:
// the next in line gets it, and no request is needed but the hand-overs'.
func TestClaimedWaiterLeaves(t *testing.T) {
	t.Parallel()
	onEveryHanded(t, func(t *testing.T, c redis.UniversalClient, opts Options) {
		for _, answer := range []bool{false, true} { // until before it is sent, and until it was answered
			t.Run(fmt.Sprint("answered ", answer), func(t *testing.T) {
				opts.Wait = never
				client := another(t, c)
				l, p := newLocker(t, client, opts), watch(t, client, opts.Kind, opts.Format)
				held := acquire(t, l, "k")
				ctx, leave := context.WithCancel(t.Context())
				first := async(ctx, l, "k")
				p.settle(t, l, "k")
				second := async(t.Context(), l, "k")
				wantWaiting(t, l, 2)
				block := p.block
				if answer {
					block = p.blockAnswer
				}
				blocked, open := block(isDeed("handover"))
				defer open()
				released := make(chan error, 1)
				go func() { released <- held.Release(t.Context()) }()
				bedtest.Receive(t, "the hand-over", blocked)
				leave()
				if r := bedtest.Receive(t, "the end of the first", first); !errors.Is(r.err, context.Canceled) {
					t.Errorf("who left: %v", r.err)
				}
				open()
				if err := bedtest.Receive(t, "the release", released); err != nil {
					t.Error(err)
				}
				next := bedtest.Receive(t, "the second's turn", second).ok(t)
				l.cleanup.Wait()
				if diff := gocmp.Diff([]string{"handover", "handover"}, p.deedsSeen()); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
				if owner := holder(t, c, opts.Format); owner != next.Owner() || l.Held() != 1 || l.Waiting() != 0 {
					t.Errorf("held by %s, want %s; %d held, %d wait", owner, next.Owner(), l.Held(), l.Waiting())
				}
				release(t, next)
				if taken(t, c) {
					t.Error("the lock was left behind")
				}
			})
		}
	})
}

// TestWaitEndsDuringHandOver has a wait that is over while the lock is being handed
// to its caller, who gets it.
func TestWaitEndsDuringHandOver(t *testing.T) {
	t.Parallel()
	onEveryHanded(t, func(t *testing.T, c redis.UniversalClient, opts Options) {
		opts.Wait = Wait{UpTo: 500 * time.Millisecond}
		l, p := newLocker(t, c, opts), watch(t, c, opts.Kind, opts.Format)
		held := acquire(t, l, "k")
		blocked, open := p.block(isDeed("handover"))
		defer open()
		start := time.Now()
		got := async(t.Context(), l, "k")
		p.settle(t, l, "k")
		released := make(chan error, 1)
		go func() { released <- held.Release(t.Context()) }()
		bedtest.Receive(t, "the hand-over", blocked)
		bedtest.Eventually(t, "the wait is over", func() bool { return time.Since(start) > 2*opts.Wait.UpTo })
		open()
		if err := bedtest.Receive(t, "the release", released); err != nil {
			t.Error(err)
		}
		release(t, bedtest.Receive(t, "the grant", got).ok(t))
	})
}

// TestBrokenHandOver has the connection break under a hand-over, before Redis saw
// it and after. Nobody knows whose the lock is then: both are given back, and the
// waiter, who asks again, must not have what it gets given back as well.
func TestBrokenHandOver(t *testing.T) {
	t.Parallel()
	onEveryHanded(t, func(t *testing.T, c redis.UniversalClient, opts Options) {
		for _, sent := range []bool{false, true} {
			t.Run(fmt.Sprint("sent ", sent), func(t *testing.T) {
				opts.Wait = never
				client := another(t, c)
				l, p := newLocker(t, client, opts), watch(t, client, opts.Kind, opts.Format)
				held := acquire(t, l, "k")
				got := async(t.Context(), l, "k")
				p.settle(t, l, "k")
				p.once(isDeed("handover"), sent, errReset)
				if err := held.Release(t.Context()); !errors.Is(err, errReset) {
					t.Errorf("Release: %v, want %v", err, errReset)
				}
				next := bedtest.Receive(t, "the grant", got).ok(t)
				l.cleanup.Wait() // what was to be given back has been, late attempts included
				for _, trip := range p.seen() {
					if a := trip.asked[0]; a.deed == "handover" && slices.Contains(a.args, next.Owner()) {
						t.Errorf("the waiter has the name of the hand-over that broke: %v", a.args)
					}
				}
				if owner := holder(t, c, opts.Format); owner != next.Owner() {
					t.Errorf("held by %q, want %s", owner, next.Owner())
				}
				release(t, next)
				if taken(t, c) || l.Held() != 0 {
					t.Error("the lock was left behind")
				}
			})
		}
	})
}

// TestHandOverOfALostLock has an operator delete the lock: the one who releases it
// hears of that, and the one who waits takes it anew.
func TestHandOverOfALostLock(t *testing.T) {
	t.Parallel()
	onEveryHanded(t, func(t *testing.T, c redis.UniversalClient, opts Options) {
		opts.Wait = never
		l, p := newLocker(t, c, opts), watch(t, c, opts.Kind, opts.Format)
		held := acquire(t, l, "k")
		got := async(t.Context(), l, "k")
		p.settle(t, l, "k")
		c.Del(t.Context(), "k")
		if err := held.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
		release(t, bedtest.Receive(t, "the grant", got).ok(t))
	})
}

// TestInnerIsNotHandedOver has a call within a lease end while another one waits in this process: the outer call
// keeps the lock, and hands it over.
func TestInnerIsNotHandedOver(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{Wait: never})
		outer := acquire(t, l, "k")
		inner := acquire(t, l, "k", Reenter(outer.Owner()))
		next := async(t.Context(), l, "k")
		bedtest.Eventually(t, "it waits", func() bool { return l.Waiting() == 1 })
		release(t, inner)
		if l.Waiting() != 1 {
			t.Error("the lock was handed over within the outer call")
		}
		release(t, outer)
		release(t, bedtest.Receive(t, "the next lease", next).ok(t))
	})
}
