package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestCloseWhileOthersWait has waiters leave the line, by questions of their own,
// while Close waits for what is on its way.
func TestCloseWhileOthersWait(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		held := acquire(t, newLocker(t, c, Options{Kind: Fair}), "k")
		l := newLocker(t, c, Options{Kind: Fair, Wait: never})
		var waiting []<-chan result
		for i := range 5 {
			waiting = append(waiting, async(t.Context(), l, "k"))
			wantLine(t, c, i+1)
		}
		l.Close()
		for _, got := range waiting {
			if r := bedtest.Receive(t, "the end of a wait", got); !errors.Is(r.err, ErrClosed) {
				t.Errorf("a waiter of a closed Locker: %v, want ErrClosed", r.err)
			}
		}
		bedtest.Eventually(t, "all have left the line", func() bool { return len(lineOf(t, c)) == 0 })
		release(t, held)
	})
}

// TestUserWithoutChannels: so is a new user of Redis 7.
func TestUserWithoutChannels(t *testing.T) {
	t.Parallel()
	f := startFenced(t)
	l := newLocker(t, f.client, Options{})
	f.allow(t, "resetchannels")
	err := l.Check(t.Context(), "check")
	var refused *RefusedError
	if !errors.As(err, &refused) || !errors.Is(l.Health(), refused) {
		t.Errorf("Check: %v, Trouble: %v, want a RefusedError", err, l.Health())
	}
}

// TestReleaseRefused: a grant alone does not show that all is well again.
func TestReleaseRefused(t *testing.T) {
	t.Parallel()
	f := startFenced(t)
	l := newLocker(t, f.client, Options{})
	f.allow(t, "-publish")
	lease := acquire(t, l, "k")
	if err := lease.Release(t.Context()); err == nil || l.Health() == nil {
		t.Errorf("Release: %v, Trouble: %v", err, l.Health())
	}
	_ = l.Check(t.Context(), "check")
	_ = acquire(t, l, "k").Release(t.Context())
	if l.Health() == nil {
		t.Error("Trouble after a grant, with PUBLISH still forbidden: nil")
	}
}

// TestTroubleEndsWithSeveralKeys: they are taken by a script of their own.
func TestTroubleEndsWithSeveralKeys(t *testing.T) {
	t.Parallel()
	f := startFenced(t)
	l := newLocker(t, f.client, Options{})
	f.allow(t, "-evalsha")
	if _, err := l.Acquire(t.Context(), "k"); err == nil {
		t.Fatal("granted")
	}
	f.allow(t)
	release(t, acquireAll(t, l, "a", "b"))
	if err := l.Health(); err != nil {
		t.Errorf("Trouble after AcquireAll was granted: %v", err)
	}
}

// TestSemaphoreMeetsString: the owner of a lock in format String may be a number.
func TestSemaphoreMeetsString(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		for _, value := range []string{"owner-1", "1"} {
			c.Set(t.Context(), "k", value, time.Minute)
			lease, err := newLocker(t, c, Options{Kind: Semaphore, Permits: 3}).Acquire(t.Context(), "k")
			var foreign *ForeignError
			if !errors.As(err, &foreign) {
				t.Errorf("SET k %s PX 60000: lease %v, %v, want a ForeignError", value, lease != nil, err)
			}
		}
	})
}

// TestBusyNeedsNoReplica: there is nothing that a replica could forget.
func TestBusyNeedsNoReplica(t *testing.T) {
	t.Parallel()
	m := mirroredSingle(t)
	m.settled(t)
	held := acquire(t, newLocker(t, m.client, Options{}), "k")
	l := m.locker(t, Options{})
	m.pause(t)
	if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, ErrBusy) {
		t.Errorf("held by another: %v, want ErrBusy", err)
	}
	m.resume(t)
	release(t, held)
}

// TestDeadCrowd has several waiters of a fair lock die at once: the next need not
// wait for one after the other.
func TestDeadCrowd(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	l := newLocker(t, c, Options{Kind: Fair, Wait: Wait{UpTo: time.Minute}})
	held := acquire(t, l, "k")
	for i := range 4 {
		if a, err := l.try(t.Context(), "k", fmt.Sprint("dead:", i), AcquireOption{}); err != nil || a.granted() {
			t.Fatal(a, err)
		}
	}
	got := async(t.Context(), l, "k")
	wantLine(t, c, 5)
	start := time.Now()
	release(t, held)
	release(t, bedtest.Receive(t, "the grant", got).ok(t))
	if took := time.Since(start); took > fairWaiterTimeout+2*time.Second {
		t.Errorf("passing over 4 dead waiters took %v, want about %v", took, fairWaiterTimeout)
	}
}

// TestDeafMaster has one master of a cluster hang while callers are about to listen
// to it: those of another master are not held up.
func TestDeafMaster(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t).Cluster("--cluster-node-timeout", "60000")
	opts := clientOptions(bed.Addrs()...)
	opts.IsClusterMode = true
	c := connect(t, opts)
	master, err := bed.MasterOf(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	near, far := []string{}, distantKey(t, bed, master)
	for i := 0; len(near) < 10; i++ {
		near = append(near, fmt.Sprintf("{k}%d", i))
	}
	holder := newLocker(t, c, Options{Lease: time.Hour})
	for _, key := range append(near, far) {
		acquire(t, holder, key)
	}
	l := newLocker(t, c, Options{Wait: Wait{UpTo: time.Minute}})
	// Ten are answered "busy" and about to listen when their master hangs.
	answered := make(chan struct{}, 100)
	opened := make(chan struct{})
	c.AddHook(doorman{answered, opened})
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, key := range near {
		wg.Go(func() { _, _ = l.Acquire(ctx, key) })
	}
	<-answered
	if err := master.Pause(); err != nil {
		t.Fatal(err)
	}
	close(opened)
	bedtest.Eventually(t, "they sit", func() bool { return l.Waiting() >= 1 })
	start := time.Now()
	brief, done := context.WithTimeout(t.Context(), 100*time.Millisecond)
	_, err = l.Acquire(brief, far)
	done()
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > time.Second {
		t.Errorf("with 100ms to live, on a master that is well: %v after %v", err, took)
	}
	leave()
	wg.Wait()
	if err := master.Resume(); err != nil {
		t.Error(err)
	}
}

// doorman keeps callers of a script from hearing its answer.
type doorman struct {
	answered chan struct{}
	opened   chan struct{}
}

func (g doorman) DialHook(next redis.DialHook) redis.DialHook { return next }
func (g doorman) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "evalsha" {
			g.answered <- struct{}{}
			<-g.opened
		}
		return err
	}
}
func (g doorman) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if len(cmds) > 0 && cmds[0].Name() == "evalsha" {
			<-g.opened
		}
		return err
	}
}
