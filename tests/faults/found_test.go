package faults

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/testbed/bedtest"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// TestLateAcquire: S1
func TestLateAcquire(t *testing.T) {
	addr := bedtest.New(t).Redis().Addr()
	direct := connect(t, addr)
	w := newWire(t, addr)
	l := newLocker(t, connect(t, w.addr()), redislock.Options{Lease: 30 * time.Second})
	warm(t, l)
	let := make(chan struct{})
	caught := make(chan struct{}, 1)
	first := true
	w.set(func(p packet) fate {
		if p.script() && p.says("late") && first {
			first = false
			caught <- struct{}{}
			return fate{till: let}
		}
		return fate{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := l.Acquire(ctx, "late"); done <- err }()
	<-caught
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-time.After(100 * time.Millisecond)
	close(let)
	deadline := time.Now().Add(3 * time.Second)
	<-time.After(100 * time.Millisecond)
	for direct.Exists(t.Context(), "late").Val() == 1 {
		if time.Now().After(deadline) {
			t.Fatalf("the lock stays taken: %v, ends in %v", direct.HGetAll(t.Context(), "late").Val(), direct.PTTL(t.Context(), "late").Val())
		}
		<-time.After(time.Millisecond)
	}
}

func warm(t *testing.T, l *redislock.Locker) {
	t.Helper()
	lease, err := l.Acquire(t.Context(), "warm")
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestHandOverCut: S2
func TestHandOverCut(t *testing.T) {
	addr := bedtest.New(t).Redis().Addr()
	direct := connect(t, addr)
	w := newWire(t, addr)
	c := connect(t, w.addr())
	l := newLocker(t, c, redislock.Options{Lease: 30 * time.Second, Wait: redislock.Wait{UpTo: 10 * time.Second}, MaxWaitersPerKey: 10})
	for range 200 {
		w.set(nil)
		first, err := l.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		granted := make(chan *redislock.Lease, 1)
		go func() {
			lease, err := l.Acquire(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			granted <- lease
		}()
		bedtest.Eventually(t, "waits", func() bool { return l.Waiting() == 1 })
		armed := true
		w.set(func(p packet) fate {
			if p.script() && armed {
				armed = false
				return fate{late: 20 * time.Millisecond}
			}
			return fate{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		err = first.Release(ctx)
		cancel()
		second := <-granted
		if second == nil {
			t.Fatal("no lease")
		}
		<-time.After(50 * time.Millisecond)
		if n := direct.Exists(t.Context(), "k").Val(); n != 1 {
			t.Fatalf("the lock is free although its lease %d is held (release said %v)", second.Fence(), err)
		}
		_ = second.Release(t.Context())
	}
}

// TestHoldOvertaken: S3
func TestHoldOvertaken(t *testing.T) {
	addr := bedtest.New(t).Redis().Addr()
	direct := connect(t, addr)
	w := newWire(t, addr)
	l := newLocker(t, connect(t, w.addr()), redislock.Options{Lease: time.Second, Hold: time.Minute})
	warm(t, l)
	lease, err := l.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	caught, let := make(chan struct{}, 1), make(chan struct{})
	armed := true
	w.set(func(p packet) fate {
		if p.script() && armed {
			armed = false
			caught <- struct{}{}
			return fate{till: let}
		}
		return fate{}
	})
	<-caught
	if err := lease.Hold(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	before := direct.PTTL(t.Context(), "k").Val()
	close(let)
	<-time.After(100 * time.Millisecond)
	after := direct.PTTL(t.Context(), "k").Val()
	if after < 50*time.Second {
		t.Fatalf("held for %v, after the late renewal %v", before, after)
	}
}

// TestLostInTime: S4
func TestLostInTime(t *testing.T) {
	addr := bedtest.New(t).Redis().Addr()
	w := newWire(t, addr)
	const leaseTime = 1200 * time.Millisecond
	l := newLocker(t, connect(t, w.addr()), redislock.Options{Lease: leaseTime})
	warm(t, l)
	worst := time.Duration(0)
	for i := range 10 {
		w.set(nil)
		key := "k" + string(rune('a'+i))
		asked := time.Now()
		var lease *redislock.Lease
		bedtest.Eventually(t, "acquired", func() bool {
			asked = time.Now()
			var err error
			lease, err = l.Acquire(t.Context(), key)
			return err == nil
		})
		<-time.After(time.Duration(i) * 10 * time.Millisecond)
		w.set(func(p packet) fate { return fate{drop: p.ask} })
		<-lease.Lost()
		late := time.Since(asked) - leaseTime
		t.Log("lost told", late, "after the end")
		worst = max(worst, late)
	}
	if worst > leaseTime/12+20*time.Millisecond {
		t.Errorf("worst %v", worst)
	}
}
