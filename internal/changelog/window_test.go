package changelog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// windowed is a member whose window outlasts any test by default.
func windowed(instanceID string, window time.Duration) Options {
	o := patient(instanceID)
	o.Window = window
	return o
}

// open waits until each instance has a window, and no creator must wait for windows of former lease
// epochs.
func open(t *testing.T, all ...*instance) {
	t.Helper()
	for _, i := range all {
		eventually(t, "a window is open", func() bool { return i.Window().Holds() })
	}
}

// windowsOver makes an instance take the windows of former lease epochs for over.
func windowsOver(i *instance) {
	i.member.mu.Lock()
	defer i.member.mu.Unlock()
	i.member.epochSeen, i.member.othersOver = time.Now().Add(-3*time.Hour), time.Time{}
}

func TestWindowHolds(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tc := range []struct {
		name string
		w    *Window
		want bool
	}{
		{"none", nil, false},
		{"open", &Window{now, now.Round(0), time.Hour}, true},
		{"over", &Window{now.Add(-2 * time.Hour), now.Round(0).Add(-2 * time.Hour), time.Hour}, false},
		{"the machine slept", &Window{now, now.Round(0).Add(-time.Hour), time.Hour}, false},
		{"the clock was set back", &Window{now.Add(-time.Hour), now.Round(0).Add(time.Hour), time.Hour}, false},
	} {
		if got := tc.w.Holds(); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

// TestWindowsOpenAndClose checks a reader's window through several events.
func TestWindowsOpenAndClose(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		b := runInstance(t, s, windowed("b", time.Hour))
		open(t, b)
		if n := b.client.ZCard(t.Context(), b.keys[keyReaders]).Val(); n != 1 {
			t.Errorf("%d readers in the log of one that has a window", n)
		}
		join := func(score float64, name string) {
			_, err := b.client.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.ZAdd(t.Context(), b.keys[keyMembers], redis.Z{Score: score, Member: name})
				return p.HIncrBy(t.Context(), b.keys[keyMeta], "members", 1).Err()
			})
			must(t, err)
		}
		leave := func(name string) {
			_, err := b.client.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
				p.ZRem(t.Context(), b.keys[keyMembers], name)
				return p.HIncrBy(t.Context(), b.keys[keyMeta], "members", -1).Err()
			})
			must(t, err)
		}
		for name, want := range map[string]error{"lapsed#1~": ErrAway, "earlier#1+": ErrEarlierRelease} {
			join(float64(time.Now().UnixMilli()-1000), name)
			eventually(t, "the window is closed", func() bool { return !b.Window().Holds() && errors.Is(b.Err(), want) })
			leave(name)
			open(t, b)
		}
		// Redis goes away: the window ends by itself.
		s.stop(t)
		eventually(t, "the loss is noticed", func() bool { return b.State().Phase == Unavailable })
		if !b.Window().Holds() {
			t.Error("a server that does not answer has closed the window")
		}
		s.start(t)
		i := b.Window()
		eventually(t, "it is read again", func() bool { return b.Window() != i })
		b.stop()
		if b.Window().Holds() {
			t.Error("a window is open after Run")
		}
		if n := b.client.ZCard(t.Context(), b.keys[keyReaders]).Val(); n != 0 {
			t.Errorf("%d readers in the log after Run", n)
		}
	})
}

// TestWindowsReopenSoon has a member that is away for a moment, as each is that joins: windows do
// not stay closed until the next poll.
func TestWindowsReopenSoon(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		opts := windowed("b", time.Hour)
		opts.PollEvery = 16 * time.Second
		b := runInstance(t, s, opts)
		open(t, b)
		_, err := b.client.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.ZAdd(t.Context(), b.keys[keyMembers], redis.Z{Score: float64(time.Now().UnixMilli() - 1000), Member: "new#1~"})
			return p.HIncrBy(t.Context(), b.keys[keyMeta], "members", 1).Err()
		})
		must(t, err)
		if err := b.Wait(t.Context()); !errors.Is(err, ErrAway) || b.Window().Holds() {
			t.Fatalf("a window is open beside a member that is away: %v", err)
		}
		must(t, b.client.ZAdd(t.Context(), b.keys[keyMembers], redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: "new#1~"}).Err())
		closed := time.Now()
		open(t, b)
		if took := time.Since(closed); took > opts.PollEvery/2 {
			t.Errorf("the window stayed closed for %v", took)
		}
	})
}

// TestWaitForPeersWaitsForReaders appends while a reader's replies are held back.
func TestWaitForPeersWaitsForReaders(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a := runInstance(t, s, windowed("a", time.Hour))
		open(t, a)
		b, w := wiredInstance(t, s, windowed("b", time.Hour))
		open(t, a, b)
		windowsOver(a)
		for i := range 20 {
			must(t, a.appendAndWait(t.Context(), fmt.Sprint(i)))
			if !b.has(fmt.Sprint(i)) {
				t.Fatalf("a client received %d, and a reader with a window lacks it", i)
			}
		}
		h := hold(t)
		w.set(h.reply)
		<-h.entered
		returned := make(chan error, 1)
		go func() { returned <- a.appendAndWait(t.Context(), "1001") }()
		eventually(t, "it is in the log", func() bool { return a.client.XLen(t.Context(), a.keys[keyLog]).Val() == 21 })
		for range 20 { // with other reads
			a.mustWait(t)
		}
		select {
		case err := <-returned:
			t.Errorf("WaitForPeers returned %v: a reader with a window has not reported the entry; it has it: %v", err, b.has("1001"))
		default:
		}
		h.release()
		if err := <-returned; err != nil {
			t.Error(err)
		}
	})
}

// TestWaitForPeersOutlastsReaders kills a reader.
func TestWaitForPeersOutlastsReaders(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		const window = 300 * time.Millisecond
		a := runInstance(t, s, windowed("a", window))
		open(t, a)
		b, w := wiredInstance(t, s, windowed("b", window))
		open(t, a, b)
		w.set(func(context.Context, redis.Cmder, redis.ProcessHook) error { return errCut })
		began := time.Now()
		must(t, a.appendAndWait(t.Context(), "1"))
		if took := time.Since(began); took < window && !b.has("1") {
			t.Errorf("WaitForPeers returned after %v", took)
		}
		if b.Window().Holds() {
			t.Error("a window outlasts those who wait for it")
		}
		eventually(t, "it is forgotten", func() bool { return a.client.ZCard(t.Context(), a.keys[keyReaders]).Val() == 1 })
		windowsOver(a)
		for i := range 5 {
			must(t, a.appendAndWait(t.Context(), fmt.Sprint(10+i)))
			if a.unreported.Load() != nil {
				t.Error("it was waited for once more")
			}
		}
		w.set(nil) // it is back, and creators wait for it
		open(t, b)
		for i := range 5 {
			must(t, a.appendAndWait(t.Context(), fmt.Sprint(20+i)))
			if !b.has(fmt.Sprint(20 + i)) {
				t.Error("a reader that is back was not waited for")
			}
		}
	})
}

// TestWaitForPeersWithoutXRead relies on polls alone.
func TestWaitForPeersWithoutXRead(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, aWire := wiredInstance(t, s, windowed("a", time.Hour))
		open(t, a)
		b, bWire := wiredInstance(t, s, windowed("b", time.Hour))
		for _, w := range []*wire{aWire, bWire} {
			w.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if strings.EqualFold(cmd.Name(), "xread") {
					err := errors.New("NOPERM this user has no permissions to run the 'xread' command")
					cmd.SetErr(err)
					return err
				}
				return next(ctx, cmd)
			})
		}
		open(t, a, b)
		windowsOver(a)
		for i := range 5 {
			must(t, a.appendAndWait(t.Context(), fmt.Sprint(i)))
			if !b.has(fmt.Sprint(i)) {
				t.Errorf("a client received %d, and a reader with a window lacks it", i)
			}
		}
	})
}

// TestWaitForPeersInANewLeaseEpoch deletes the list of readers.
func TestWaitForPeersInANewLeaseEpoch(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		const window = 200 * time.Millisecond
		opts := windowed("a", window)
		opts.Lease = 500 * time.Millisecond
		a := runInstance(t, s, opts)
		open(t, a)
		opts.Member = "b"
		b := runInstance(t, s, opts)
		for _, key := range []int{4, 5} {
			open(t, a, b)
			windowsOver(a)
			before := a.member.lastLeaseEpoch()
			must(t, a.client.Del(t.Context(), a.keys[key]).Err())
			began := time.Now()
			id := fmt.Sprint("lost-", key)
			must(t, a.appendAndWait(t.Context(), id))
			if a.member.lastLeaseEpoch() == before {
				t.Error("no member has noticed that the readers are gone")
			}
			if took := time.Since(began); took < over(window) {
				t.Errorf("WaitForPeers returned after %v: a window that the log has lost may be open", took)
			}
			open(t, b)
		}
	})
}

// TestWindowsDiffer has one ordergate with a longer window. Others wait for it. It does not count
// before they know of it.
func TestWindowsDiffer(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		opts := brisk("a")
		opts.Lease, opts.Window = 3*time.Second, 100*time.Millisecond
		a := runInstance(t, s, opts)
		open(t, a)
		opts.Member, opts.Window = "b", 700*time.Millisecond
		b := runInstance(t, s, opts)
		open(t, b)
		if w := b.Window(); w.length != 100*time.Millisecond {
			t.Errorf("its first window lasts %v: no other reader knows the longer one", w.length)
		}
		eventually(t, "others know of it", func() bool { return b.Window().Holds() && b.Window().length == opts.Window })
		if w := a.longestWindow(); w != opts.Window {
			t.Errorf("who creates waits for windows of %v", w)
		}
	})
}

// TestPendingBeforeTheFirstLease joins while a reader has a window, and cannot append.
func TestPendingBeforeTheFirstLease(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		const window = 400 * time.Millisecond
		b, bWire := wiredInstance(t, s, windowed("b", window))
		open(t, b)
		h := hold(t)
		bWire.set(h.reply) // it reads no more, and its window continues
		<-h.entered
		defer h.release()
		a, w := wiredOnly(t, s, windowed("a", window))
		w.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if runs(cmd, a.append) {
				return errCut
			}
			return next(ctx, cmd)
		})
		must(t, a.member.join(t.Context()))
		if err := a.Append(t.Context(), "1001"); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("Append = %v", err)
		}
		must(t, a.Withdraw(t.Context()))
		if b.Window().Holds() {
			t.Error("a client may receive an order that a reader with a window lacks")
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wiredOnly is wiredInstance without running it.
func wiredOnly(t *testing.T, s server, opts Options) (*instance, *wire) {
	t.Helper()
	i := newInstance(t, s, opts)
	return i, wired(t, s, i)
}

// TestAcknowledgedOrdersAreNeverAbsent creates and looks up many orders at once, with windows that
// end all the time.
func TestAcknowledgedOrdersAreNeverAbsent(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		var all []*instance
		for i := range 3 {
			opts := brisk(fmt.Sprint("i", i))
			opts.Lease, opts.Window = time.Second, 100*time.Millisecond
			all = append(all, runInstance(t, s, opts))
			open(t, all...)
		}
		var wg sync.WaitGroup
		lookups, refused := make([]int, len(all)), make([]int, len(all))
		for n, creator := range all {
			wg.Go(func() {
				for i := range 150 {
					id := fmt.Sprint(n, "-", i)
					if err := creator.appendAndWait(t.Context(), id); err != nil {
						t.Error(err)
						return
					}
					for _, reader := range all {
						w := reader.Window()
						known := reader.has(id)
						if lookups[n]++; w.Holds() && !known {
							t.Errorf("%s is absent", id)
						}
						if w.Holds() {
							refused[n]++
						}
					}
				}
			})
		}
		wg.Wait()
		t.Logf("asked %v times, of which a window held %v times", lookups, refused)
	})
}

// TestListenToAnotherLog replaces the log by one with lower numbers. The listener still receives
// new entries at once.
func TestListenToAnotherLog(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		opts := windowed("a", time.Hour)
		opts.PollEvery = time.Hour // only XREAD receives anything
		a := newInstance(t, s, opts)
		n := a.startListener(t.Context())
		creator := newInstance(t, s, idle)
		for i := range 5 {
			must(t, creator.Append(t.Context(), fmt.Sprint(i)))
		}
		a.position.Store(5)
		n.request(5)
		must(t, creator.client.Del(t.Context(), creator.keys...).Err())
		a.position.Store(0)
		if entries := <-n.arrived; entries != nil {
			t.Errorf("%d entries of a log that has none", len(entries))
		}
		n.requested = false
		n.request(0)
		must(t, creator.Append(t.Context(), "1001"))
		if entries := <-n.arrived; len(entries) != 1 || entries[0].id != "1001" {
			t.Errorf("%+v", entries)
		}
	})
}
