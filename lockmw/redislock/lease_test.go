package redislock

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// counter is a hook that counts commands.
type counter struct{ commands atomic.Int32 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		return next(ctx, cmd)
	}
}
func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// afterwards is a hook that runs once, when the next command has been answered,
// and can replace the answer.
type afterwards struct {
	done atomic.Bool
	do   func() error
}

func (a *afterwards) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a *afterwards) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if a.done.CompareAndSwap(false, true) {
			if instead := a.do(); instead != nil {
				cmd.SetErr(instead)
				return instead
			}
		}
		return err
	}
}
func (a *afterwards) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestGrantThatCrossesAnAbort has the caller leave between Redis granting the
// lock and its answer being read.
func TestGrantThatCrossesAnAbort(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{})
		release(t, acquire(t, l, "k"))
		ctx, leave := context.WithCancel(t.Context())
		c.AddHook(&afterwards{do: func() error { leave(); return nil }})
		if _, err := l.Acquire(ctx, "k"); !errors.Is(err, context.Canceled) {
			t.Fatalf("Acquire: %v, want context.Canceled", err)
		}
		l.cleanup.Wait()
		if taken(t, c) {
			t.Error("the lock was left behind")
		}
		if l.Held() != 0 {
			t.Error("the lock is still renewed")
		}
	})
}

// TestAnswerNeverSeen has the connection break after Redis granted the lock.
func TestAnswerNeverSeen(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{})
		release(t, acquire(t, l, "k"))
		c.AddHook(&afterwards{do: func() error {
			return &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
		}})
		if _, err := l.Acquire(t.Context(), "k"); err == nil {
			t.Fatal("Acquire succeeded without an answer")
		}
		l.cleanup.Wait()
		if taken(t, c) {
			t.Error("the lock was left behind")
		}
	})
}

// TestRepeatedQuestion is what a client library does that lost an answer: the
// lock is ours once, so one release frees it.
func TestRepeatedQuestion(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{})
		for range 2 {
			a, err := l.try(t.Context(), "k", "me:1", AcquireOption{})
			if err != nil || !a.granted() {
				t.Fatal("not granted", err)
			}
			// Ours ends first, also when it was granted before and the answer lost.
			ours := time.Until(a.asked.Add(l.validity()))
			if left := c.PTTL(t.Context(), "k").Val(); left < ours-40*time.Millisecond { // miniredis goes by steps
				t.Errorf("the lock lasts for %v in Redis, and the lease for %v", left, ours)
			}
			time.Sleep(200 * time.Millisecond)
		}
		if r, err := l.release(t.Context(), "k", "me:1", "", false); err != nil || !r.held() {
			t.Fatal("not released", err)
		}
		if taken(t, c) {
			t.Error("the lock survived its release")
		}
	})
}

func TestRenewal(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{Lease: time.Second})
		lease := acquire(t, l, "k")
		first := endOf(lease)
		bedtest.Eventually(t, "three renewals", func() bool { return endOf(lease).Sub(first) > time.Second })
		if !taken(t, c) {
			t.Error("the lock ended although it is renewed")
		}
		// A replica that takes over, or an operator, may forget the scripts.
		c.ScriptFlush(t.Context())
		second := endOf(lease)
		bedtest.Eventually(t, "renewal after SCRIPT FLUSH", func() bool { return endOf(lease).After(second) })
		c.ScriptFlush(t.Context())
		release(t, lease)
		if taken(t, c) {
			t.Error("the lock survived its release")
		}
	})
}

// TestWhenRenewed has leases at moments of their lives: they are renewed when a third has passed, and put on record
// soon, but not beyond their maximum. A renewal counts from before its question.
func TestWhenRenewed(t *testing.T) {
	const lease = 30 * time.Second
	l, begun := &Locker{opts: Options{Lease: lease}}, time.Now()
	l.nodes = []*node{nil}
	for _, tt := range []struct {
		name  string
		after time.Duration
		lease *Lease
		want  bool
	}{
		{"before a third", lease/3 - 1, &Lease{noted: true}, false},
		{"after a third", lease / 3, &Lease{noted: true}, true},
		{"after its end", lease + 1, &Lease{noted: true}, true},
		{"young", noteAge - 1, &Lease{}, false},
		{"on no record yet", noteAge, &Lease{}, true},
		{"on its way", lease / 3, &Lease{noted: true, asked: true}, false},
		{"given up", lease / 3, &Lease{noted: true, done: true}, false},
		{"at its maximum", lease / 2, &Lease{noted: true, maxHold: lease / 2}, false},
	} {
		p := tt.lease
		p.locker, p.since, p.until = l, begun, begun.Add(lease)
		if due, _ := p.renewalState(begun.Add(tt.after)); due != tt.want {
			t.Errorf("%s: it is renewed: %t", tt.name, due)
		}
	}
	l.leases.leases = make(map[*Lease]struct{})
	if granted := l.leaseOf("k", AcquireOption{}, answer{fence: 1, asked: begun}); !granted.EndsAt().Equal(begun.Add(lease)) {
		t.Errorf("it ends %v after its question", granted.EndsAt().Sub(begun))
	}
	p := &Lease{locker: l, until: begun}
	for _, asked := range []time.Time{begun, begun.Add(-time.Second)} { // the answers may cross
		if p.renewed(asked, true); !p.EndsAt().Equal(begun.Add(lease)) {
			t.Errorf("asked %v earlier, it ends %v after the first question", begun.Sub(asked), p.EndsAt().Sub(begun))
		}
	}
}

func TestLost(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		seen := &losses{}
		a, b := newLocker(t, c, Options{Lease: 3 * time.Second, Observer: seen}), newLocker(t, c, Options{})
		lease := acquire(t, a, "k")
		c.Del(t.Context(), "k") // an operator, say
		other := acquire(t, b, "k")
		<-lease.Lost()
		if !lease.Ended() || other.Ended() {
			t.Errorf("the lost one has ended: %t, the other: %t", lease.Ended(), other.Ended())
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("releasing what is known to be lost: %v", err)
		}
		seen.wantOne(t)
		if a.Held() != 0 {
			t.Error("a lost lease is still renewed")
		}
		select {
		case <-other.Lost():
			t.Error("the new owner lost its lease too")
		default:
		}
		release(t, other)
		other.mu.Lock()
		other.until = time.Now() // a process that stood still has not noticed
		other.mu.Unlock()
		if !other.Ended() {
			t.Error("a lease whose time has passed has not ended")
		}
		both := acquireAll(t, a, "k", "l")
		c.Del(t.Context(), "l")
		<-both.Lost()
		lost := time.Now()
		bedtest.Eventually(t, "a lease has passed", func() bool { return time.Since(lost) > 3200*time.Millisecond })
		if c.Exists(t.Context(), "k").Val() != 1 {
			t.Error("the rest of a lease is not renewed")
		}
		_ = both.Release(t.Context()) // a part is lost
	})
}

func TestReleaseOfALostLease(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		seen := &losses{}
		l := newLocker(t, c, Options{Observer: seen})
		lease := acquire(t, l, "k")
		c.Del(t.Context(), "k")
		other := acquire(t, l, "k")
		if err := lease.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("Release: %v, want ErrLost", err)
		}
		seen.wantOne(t)
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("second Release: %v", err)
		}
		if !c.HExists(t.Context(), "k", other.Owner()).Val() {
			t.Error("the other's lock was released")
		}
	})
}

func TestMaxHold(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{Lease: 3 * time.Second, Hold: time.Hour})
		lease := acquire(t, l, "k", MaxHold(time.Millisecond))
		<-lease.Lost()
		if lease.Ended() {
			t.Error("its end is told too late")
		}
		if err := lease.Hold(t.Context(), "test"); err != nil || c.PTTL(t.Context(), "k").Val() < time.Minute {
			t.Errorf("it is not held: %v", err)
		}
	})
}

func TestHold(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{Hold: time.Hour})
		lease := acquire(t, l, "k")
		if err := lease.Hold(t.Context(), "why"); err != nil {
			t.Fatal(err)
		}
		if ttl := c.PTTL(t.Context(), "k").Val(); ttl < 59*time.Minute {
			t.Errorf("held for %v, want an hour", ttl)
		}
		if l.Held() != 0 {
			t.Error("a held lock is still renewed")
		}
		if err := lease.Release(t.Context()); err != nil || !taken(t, c) {
			t.Errorf("Release after Hold freed the lock (%v)", err)
		}
	})
}

func endOf(l *Lease) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// TestFenceLife has the last number stay for ever, or for as long as it is told.
func TestFenceLife(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		for _, opts := range []Options{{}, {FenceLife: 48 * time.Hour}} {
			l := newLocker(t, c, opts)
			for _, old := range []time.Duration{0, time.Minute, time.Hour * 1000} {
				for _, key := range []string{"k", "other"} {
					c.Set(t.Context(), FenceKey(key), 7, old)
				}
				release(t, acquire(t, l, "k"))
				release(t, acquireAll(t, l, "k", "other"))
				for _, key := range []string{"k", "other"} {
					left := c.PTTL(t.Context(), FenceKey(key)).Val()
					if opts.FenceLife == 0 && left != -1 || opts.FenceLife != 0 && (left > opts.FenceLife || left < opts.FenceLife-time.Minute) {
						t.Errorf("life %v: with an end in %v before, it ends in %v", opts.FenceLife, old, left)
					}
				}
			}
			last := c.Incr(t.Context(), FenceKey("k")).Val() // as Redisson does
			lease := acquire(t, l, "k")
			if lease.Fence() <= last || last < 1e15 {
				t.Errorf("fence %d after Redisson's %d", lease.Fence(), last)
			}
			release(t, lease)
		}
		if _, err := New(c, Options{FenceLife: time.Hour}); err == nil {
			t.Error("a life of an hour was let pass")
		}
	})
}

// TestLostInTimeIsHeld has the answers to renewals be lost for longer than a lease, or
// those of one key of two: what Redis has of the lease is renewed and held all the same.
func TestLostInTimeIsHeld(t *testing.T) {
	t.Parallel()
	const term = time.Second
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		for _, mute := range [][]string{{"k"}, {"{k}1"}, {"{k}1", "{k}2"}} {
			t.Run(strings.Join(mute, " "), func(t *testing.T) {
				flush(t, c)
				client := another(t, c)
				l := newLocker(t, client, Options{Lease: term, Hold: time.Hour})
				keys := []string{"k"}
				if mute[0] != "k" {
					keys = []string{"{k}1", "{k}2"}
				}
				p := watch(t, client, Exclusive, Redisson)
				lease := acquireAll(t, l, keys...)
				p.mu.Lock()
				p.after = func(trip trip) error {
					if slices.ContainsFunc(trip.asked, func(a asked) bool { return a.deed == "extend" && slices.Contains(mute, a.key) }) {
						return io.EOF
					}
					return nil
				}
				p.mu.Unlock()
				bedtest.Receive(t, "the loss is told", lease.Lost())
				lost := time.Now()
				bedtest.Eventually(t, "more than a lease has passed", func() bool { return time.Since(lost) > 2*term })
				away := io.EOF
				p.mu.Lock()
				p.before, p.after = func(trip) error { p.mu.Lock(); defer p.mu.Unlock(); return away }, nil
				p.mu.Unlock()
				if err := lease.Hold(t.Context(), "a test"); !errors.Is(err, io.EOF) {
					t.Errorf("Hold: %v, want %v", err, io.EOF)
				}
				if err := lease.HoldAgain(t.Context(), "a test"); !errors.Is(err, io.EOF) || errors.Is(err, ErrLost) {
					t.Errorf("HoldAgain: %v, want %v", err, io.EOF)
				}
				p.mu.Lock()
				away = nil
				p.mu.Unlock()
				if err := lease.HoldAgain(t.Context(), "a test"); err != nil {
					t.Error(err)
				}
				for _, key := range keys {
					if left := c.PTTL(t.Context(), key).Val(); left < time.Minute {
						t.Errorf("%s lasts for %v, want the hold time", key, left)
					}
				}
			})
		}
	})
}
