package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// storedText acquires with stored answers and returns the answer that it finds, or fails.
func storedText(t *testing.T, l *Locker, keys ...string) string {
	t.Helper()
	lease, err := l.AcquireAll(t.Context(), keys, Stored("pay"))
	answer, ok := errors.AsType[*StoredAnswer](err)
	if !ok {
		t.Fatalf("lease %v, error %v: no stored answer", lease, err)
	}
	if answer.Withheld {
		return ""
	}
	return answer.Text
}

// storePaid stores the answer "paid" by the name "pay", and returns the lease that it released.
func storePaid(t *testing.T, l *Locker, key string) *Lease {
	t.Helper()
	lease := acquire(t, l, key, Stored("pay"))
	lease.StoreAnswer("pay", "paid", "brief", time.Minute)
	release(t, lease)
	return lease
}

// storesAnswers releases with an answer, which every later caller by the same name gets in
// place of the lock.
func storesAnswers(t *testing.T, b *bench) {
	if b.quorum || b.opts.Kind.shared() {
		if _, err := b.locker(t, Options{}).Acquire(t.Context(), b.key, Stored("pay")); !errors.Is(err, errNoStore) {
			t.Fatalf("error %v", err)
		}
		return
	}
	l := b.locker(t, Options{Wait: Wait{UpTo: 20 * time.Second}})
	lease := acquire(t, l, b.key, Stored("pay"))
	const waiters = 20
	found := make(chan error, waiters)
	other := b.locker(t, Options{Wait: Wait{UpTo: 20 * time.Second}})
	for i := range waiters {
		go func() {
			_, err := []*Locker{l, other}[i%2].Acquire(t.Context(), b.key, Stored("pay"))
			found <- err
		}()
	}
	bedtest.Eventually(t, "all wait", func() bool { return l.Waiting()+other.Waiting() == waiters })
	lease.StoreAnswer("pay", "paid", "in brief", time.Minute)
	release(t, lease)
	for range waiters {
		if answer, ok := errors.AsType[*StoredAnswer](<-found); !ok || answer.Text != "paid" {
			t.Fatalf("a waiter got %v", answer)
		}
	}
	if text := storedText(t, other, b.key); text != "paid" {
		t.Fatalf("stored is %q", text)
	}
	if ttl := b.clients[0].PTTL(t.Context(), StoredKey(b.key, "pay")).Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("the answer is kept for %v", ttl)
	}
	// Another name does not see it, and the undoing call forgets it.
	undo := acquire(t, l, b.key, Stored("undo"))
	undo.ForgetAnswers(time.Hour, "pay", "other")
	release(t, undo)
	release(t, acquire(t, l, b.key, Stored("pay")))
	b.free(t)
}

// TestStoredAfterLoss checks that a call whose lease ended stores its answer, unless another
// call has done so.
func TestStoredAfterLoss(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{Lease: 5 * time.Second})
		lost := acquire(t, l, "k", Stored("pay"))
		if err := client.Del(t.Context(), "k").Err(); err != nil {
			t.Fatal(err)
		}
		second := acquire(t, l, "k", Stored("pay"))
		lost.StoreAnswer("pay", "first", "", time.Minute)
		if err := lost.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("the release of a lost lease: %v", err)
		}
		second.StoreAnswer("pay", "second", "", time.Minute)
		release(t, second)
		if text := storedText(t, l, "k"); text != "first" {
			t.Errorf("stored is %q", text)
		}
	})
}

// TestStoredAfterNoticedLoss checks that a call stores its answer, too, if the renewal has found
// out before that the lease has ended.
func TestStoredAfterNoticedLoss(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{Lease: 5 * time.Second})
		for _, keys := range [][]string{{"k"}, {"a", "b"}} {
			lost, err := l.AcquireAll(t.Context(), keys, Stored("pay"))
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Del(t.Context(), keys...).Err(); err != nil {
				t.Fatal(err)
			}
			<-lost.Lost()
			bedtest.Eventually(t, "it is renewed no more", func() bool { return l.Held() == 0 })
			lost.StoreAnswer("pay", "paid", "brief", time.Minute)
			if err := lost.Release(t.Context()); !errors.Is(err, ErrLost) {
				t.Errorf("the release of a lost lease: %v", err)
			}
			if text := storedText(t, l, keys...); text != "paid" {
				t.Errorf("stored is %q", text)
			}
			if err := lost.Release(t.Context()); err != nil {
				t.Errorf("a second release: %v", err)
			}
		}
	})
}

// TestStoredOfSeveral checks which of several locks get the whole answer, and that any of
// them finds it.
func TestStoredOfSeveral(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{})
		keys := []string{"a", "b", "c"}
		lease, err := l.AcquireAll(t.Context(), keys, Stored("pay"))
		if err != nil {
			t.Fatal(err)
		}
		lease.StoreAnswer("pay", "whole", "brief", time.Minute)
		release(t, lease)
		if text := storedText(t, l, "c", "a", "b"); text != "whole" {
			t.Errorf("the same locks find %q", text)
		}
		if text := storedText(t, l, "b", "d"); text != "" {
			t.Errorf("other locks find %q", text)
		}
		release(t, acquire(t, l, "d", Stored("pay"))) // it was not taken by the call before

		// Within a lease, the same locks find it, too, whichever of them is asked first.
		outer, err := l.AcquireAll(t.Context(), []string{"u", "v", "w", "x"})
		bedtest.Check(t, err)
		again := func() (*Lease, error) {
			return l.AcquireAll(t.Context(), []string{"u", "v", "w", "x"}, Stored("pay"), Reenter(outer.Owner()))
		}
		inner, err := again()
		bedtest.Check(t, err)
		inner.StoreAnswer("pay", "inner", "brief", time.Minute)
		release(t, inner)
		if _, err := again(); !isStored(err) || storedText(t, l, "u", "v", "w", "x") != "inner" {
			t.Errorf("within a lease: %v", err)
		} else if found, _ := errors.AsType[*StoredAnswer](err); found.Text != "inner" || len(found.All) != 4 {
			t.Errorf("within a lease, the same locks find %+v", found)
		}
		release(t, outer)
		for name, want := range map[string]string{"pay": "whole", "undo": ""} {
			if texts, err := ReadStored(t.Context(), client, name, "a"); err != nil || texts[0].Text != want {
				t.Errorf("stored as %s is %v, error %v", name, texts, err)
			}
		}
		if n, err := ForgetStored(t.Context(), client, "a", "pay", "undo"); err != nil || n != 1 {
			t.Errorf("forgot %d, error %v", n, err)
		}
		release(t, acquire(t, l, "a", Stored("pay")))
	})
}

// TestStoredOneByOne has a call with several locks wait for an equal one, which stores its answers and
// releases its locks one after the other. It gets the answer, as soon as all of it is there.
func TestStoredOneByOne(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{Wait: Wait{UpTo: 20 * time.Second}, MaxWaitersPerKey: 10})
		keys := []string{"a", "b", "c"}
		for first := range keys {
			before, err := l.AcquireAll(t.Context(), keys, Stored("pay"))
			bedtest.Check(t, err)
			got := make(chan error, 1)
			go func() {
				_, err := l.AcquireAll(t.Context(), keys, Stored("pay"))
				got <- err
			}()
			wantWaiting(t, l, 1)
			before.StoreAnswer("pay", "paid", "brief", time.Minute)
			for i := range keys {
				p := &before.parts[(first+i)%len(keys)]
				bedtest.Check(t, l.releaseStoring(t.Context(), p, before.stores()))
				if i < len(keys)-1 { // time enough to find what is there
					release(t, acquire(t, l, "other"))
					time.Sleep(30 * time.Millisecond)
				}
			}
			if found, ok := errors.AsType[*StoredAnswer](<-got); !ok || found.Text != "paid" {
				t.Errorf("released from %s on: %+v", keys[first], found)
			}
			before.finish()
			for _, key := range keys {
				_, err := ForgetStored(t.Context(), client, key, "pay")
				bedtest.Check(t, err)
			}
		}
	})
}

// TestSuspended checks that a suspended answer is given to no call and lets none act: before the
// release of the call that undoes, after its hold, and after its lease has ended.
func TestSuspended(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{Hold: time.Minute})
		for _, tt := range []struct {
			name string
			end  func(*testing.T, *Lease)
			want string // "none": the lock is granted
		}{
			{"undone", func(t *testing.T, undo *Lease) { undo.ForgetAnswers(time.Hour, "pay"); release(t, undo) }, "none"},
			{"not undone", release, "paid"},
			{"unknown", func(t *testing.T, undo *Lease) { bedtest.Check(t, undo.Hold(t.Context(), "unknown")) }, ""},
			{"dead", func(t *testing.T, undo *Lease) { bedtest.Check(t, client.Del(t.Context(), undo.Key()).Err()) }, ""},
			{"forgotten by hand, not undone", func(t *testing.T, undo *Lease) {
				if n, err := ForgetStored(t.Context(), client, undo.Key(), "pay"); err != nil || n != 1 {
					t.Errorf("forgot %d, error %v", n, err)
				}
				release(t, undo)
			}, "none"},
		} {
			key := strings.ReplaceAll(tt.name, " ", "-")
			storePaid(t, l, key)
			undo := acquire(t, l, key)
			bedtest.Check(t, undo.SuspendAnswers(t.Context(), time.Hour, "pay", "none"))
			bedtest.Check(t, undo.SuspendAnswers(t.Context(), time.Hour, "pay", "none")) // its reply may be lost
			if _, err := l.Acquire(t.Context(), key, Stored("pay")); !errors.Is(err, ErrBusy) {
				t.Errorf("%s: during the undo: %v, want ErrBusy", tt.name, err)
			}
			tt.end(t, undo)
			if tt.name == "unknown" {
				if _, err := l.AcquireAll(t.Context(), []string{key, "other"}, Stored("pay")); !errors.Is(err, ErrBusy) {
					t.Errorf("held: %v, want ErrBusy", err)
				}
				bedtest.Check(t, client.Del(t.Context(), key).Err())
			}
			if tt.want == "none" {
				release(t, acquire(t, l, key, Stored("pay")))
			} else if text := storedText(t, l, key); text != tt.want {
				t.Errorf("%s: %q is given, want %q", tt.name, text, tt.want)
			}
			if ttl := client.PTTL(t.Context(), StoredKey(key, "pay")).Val(); tt.want == "paid" && (ttl <= 0 || ttl > time.Minute) {
				t.Errorf("the answer is kept for %v", ttl)
			}
		}

		// What an undo with an unknown outcome has suspended, a further one does not give back, nor
		// lets a call within any other lease act. A call beside it waits.
		suspend := func(lease *Lease) *Lease {
			bedtest.Check(t, lease.SuspendAnswers(t.Context(), time.Hour, "pay"))
			return lease
		}
		storePaid(t, l, "twice")
		for range 2 {
			bedtest.Check(t, client.Del(t.Context(), suspend(acquire(t, l, "twice")).Key()).Err())
		}
		again := suspend(acquire(t, l, "twice"))
		release(t, again)
		if text := storedText(t, l, "twice"); text != "" {
			t.Errorf("after a second undo failed, %q is given", text)
		}
		other := acquire(t, l, "twice")
		if lease, err := l.Acquire(t.Context(), "twice", Stored("pay")); !errors.Is(err, ErrBusy) {
			t.Errorf("beside another call: %v, %v", lease, err)
		}
		for _, options := range [][]AcquireOption{{Stored("pay"), Reenter(other.Owner())}, {Stored("pay")}} {
			var found *StoredAnswer
			if lease, err := l.Acquire(t.Context(), "twice", options...); !errors.As(err, &found) || !found.Withheld {
				t.Errorf("within another call, and after it: %v, %v", lease, err)
			}
			_ = other.Release(t.Context())
		}

		// What was settled after an undo of unknown outcome, none of which could undo it, comes back when a
		// further one has failed.
		release(t, acquire(t, l, "anew"))
		undo := suspend(acquire(t, l, "anew"))
		undo.KeepSuspended()
		release(t, undo)
		storePaid(t, l, "anew")
		release(t, suspend(acquire(t, l, "anew")))
		if text := storedText(t, l, "anew"); text != "paid" {
			t.Errorf("settled after an undo of unknown outcome, and not undone: %q is given", text)
		}

		// Of undos that overlap and all fail, the last one gives the answer back, unless there are very many.
		for n, want := range map[int]string{5: "paid", 101: ""} {
			key := fmt.Sprint("many-", n)
			storePaid(t, l, key)
			undos := make([]*Lease, n)
			for i := range undos {
				undos[i] = suspend(acquire(t, l, key))
				bedtest.Check(t, client.Del(t.Context(), key).Err())
			}
			for _, undo := range undos {
				if text := storedText(t, l, key); text != "" {
					t.Errorf("before the last of %d undos has failed, %q is given", n, text)
				}
				_ = undo.Release(t.Context()) // its lease was lost
			}
			if text := storedText(t, l, key); text != want {
				t.Errorf("after all of %d undos have failed, %q is given", n, text)
			}
		}

		// An undo within an undo, of which one has failed.
		for _, inner := range []bool{true, false} {
			key := fmt.Sprint("nested-", inner)
			storePaid(t, l, key)
			outer := suspend(acquire(t, l, key))
			within := suspend(acquire(t, l, key, Reenter(outer.Owner())))
			failed, unknown := outer, within
			if inner {
				failed, unknown = within, outer
			}
			bedtest.Check(t, unknown.Hold(t.Context(), "unknown"))
			release(t, failed)
			bedtest.Check(t, client.Del(t.Context(), key).Err())
			if text := storedText(t, l, key); text != "" {
				t.Errorf("the inner one has failed: %t; %q is given", inner, text)
			}
		}

		late := storePaid(t, l, "late")
		if err := late.SuspendAnswers(t.Context(), time.Hour, "pay"); !errors.Is(err, ErrLost) {
			t.Errorf("suspended after the release: %v, want ErrLost", err)
		}
		if text := storedText(t, l, "late"); text != "paid" {
			t.Errorf("after that, %q is given", text)
		}

		// A call within the undo settles anew: that answer stays.
		storePaid(t, l, "k")
		undo = suspend(acquire(t, l, "k"))
		inner := acquire(t, l, "k", Stored("pay"), Reenter(undo.Owner()))
		inner.StoreAnswer("pay", "inner", "brief", time.Minute)
		release(t, inner)
		undo.ForgetAnswers(time.Hour, "pay")
		release(t, undo)
		if text := storedText(t, l, "k"); text != "inner" {
			t.Errorf("of a call within the undo, %q is stored", text)
		}
	})
}

// TestStoredInParts checks that a call within a lease stores its answer and finds it, whatever the
// outer call is, and that the answer of the outer call is stored while an inner one goes on.
func TestStoredInParts(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{})
		outer := acquire(t, l, "k", Stored("ship"))
		inner := acquire(t, l, "k", Stored("pay"), Reenter(outer.Owner()))
		inner.StoreAnswer("pay", "inner", "", time.Minute)
		release(t, inner)
		var found *StoredAnswer
		if _, err := l.Acquire(t.Context(), "k", Stored("pay"), Reenter(outer.Owner())); !errors.As(err, &found) || found.Text != "inner" {
			t.Errorf("the next one within the lease: %v", err)
		}
		if _, err := l.AcquireAll(t.Context(), []string{"j", "k"}, Stored("pay"), Reenter(outer.Owner())); !errors.As(err, &found) || !found.Withheld {
			t.Errorf("several locks, of which the lease has one: %v", err)
		}
		inner = acquire(t, l, "k", Stored("other"), Reenter(outer.Owner()))
		outer.StoreAnswer("ship", "outer", "", time.Minute)
		release(t, outer)
		for name, want := range map[string]string{"ship": "outer", "pay": "inner"} {
			if texts, err := ReadStored(t.Context(), client, name, "k"); err != nil || texts[0].Text != want {
				t.Errorf("stored as %s is %v, error %v", name, texts, err)
			}
		}
		if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, ErrBusy) {
			t.Errorf("the lock is free although the inner call goes on: %v", err)
		}
		release(t, inner)
		release(t, acquire(t, l, "k"))
	})
}

// TestStoredOnceWithin has two calls present one lease at once: one of them acts, and the other one
// gets its answer. The outer call may have an inner one act for it.
func TestStoredOnceWithin(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{})
		outer := acquire(t, l, "k", Stored("pay"))
		within := func(name string) (*Lease, error) {
			return l.Acquire(t.Context(), "k", Stored(name), Reenter(outer.Owner()))
		}
		inner, err := within("pay")
		bedtest.Check(t, err)
		if _, err := within("pay"); !errors.Is(err, ErrBusy) {
			t.Errorf("the second one at once: %v, want ErrBusy", err)
		}
		other, err := within("ship")
		bedtest.Check(t, err)
		release(t, inner) // it has done nothing
		inner, err = within("pay")
		bedtest.Check(t, err)
		inner.StoreAnswer("pay", "inner", "", time.Minute)
		release(t, inner)
		if _, err := within("pay"); !isStored(err) {
			t.Errorf("after it: %v, want its answer", err)
		}
		release(t, other)

		// A call that settles, under a name or by a key, and one that undoes do not run at once. Two that
		// undo do.
		for _, settle := range []AcquireOption{Stored("refund"), Settles()} {
			present := func(option AcquireOption) (*Lease, error) {
				return l.Acquire(t.Context(), "k", option, Reenter(outer.Owner()))
			}
			for _, order := range [][2]AcquireOption{{settle, Undoes()}, {Undoes(), settle}} {
				first, err := present(order[0])
				bedtest.Check(t, err)
				if beside, err := present(order[1]); !errors.Is(err, ErrBusy) {
					t.Errorf("%+v beside %+v: %v, %v, want ErrBusy", order[1], order[0], beside, err)
				}
				if same, err := present(order[0]); err == nil {
					release(t, same)
				} else if order[0].stored == "" || !errors.Is(err, ErrBusy) {
					t.Errorf("%+v beside another: %v", order[0], err)
				}
				release(t, first)
				next, err := present(order[1])
				bedtest.Check(t, err)
				release(t, next)
			}
		}
		release(t, outer)
	})
}

// TestStoredAndHandedOver has a call that looks for a stored answer wait behind calls that do not:
// it does not get the lock from them, but the answer.
func TestStoredAndHandedOver(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{Wait: Wait{UpTo: time.Minute}, MaxWaitersPerKey: 10})
		paid := acquire(t, l, "k", Stored("pay"))
		paid.StoreAnswer("pay", "paid", "", time.Hour)
		release(t, paid)
		first, second := acquire(t, l, "k"), make(chan *Lease, 1)
		go func() {
			lease, err := l.Acquire(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			second <- lease
		}()
		bedtest.Eventually(t, "the second waits", func() bool { return l.Waiting() == 1 })
		got := make(chan error, 1)
		go func() { // it does not ask Redis, since another one waits
			_, err := l.Acquire(t.Context(), "k", Stored("pay"))
			got <- err
		}()
		bedtest.Eventually(t, "it waits", func() bool { return l.Waiting() == 2 })
		release(t, first)
		release(t, bedtest.Receive(t, "the second's lease", second))
		if err := bedtest.Receive(t, "its end", got); !isStored(err) {
			t.Errorf("got %v", err)
		}
		third := acquire(t, l, "k")
		third.StoreAnswer("refund", "done", "", time.Hour)
		fourth := async(t.Context(), l, "k")
		bedtest.Eventually(t, "the fourth waits", func() bool { return l.Waiting() == 1 })
		release(t, third)
		release(t, bedtest.Receive(t, "the fourth's lease", fourth).ok(t))
		if client.Exists(t.Context(), StoredKey("k", "refund")).Val() != 1 {
			t.Error("a lock was handed over without its answer")
		}
	})
}

// TestStoredForeign checks that a key which holds something else is an error, and that the
// lock is not taken.
func TestStoredForeign(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{})
		if err := client.HSet(t.Context(), StoredKey("k", "pay"), "a", "b").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Acquire(t.Context(), "k", Stored("pay")); err == nil {
			t.Error("a hash was taken for no answer")
		}
		release(t, acquire(t, l, "k"))
	})
}

// TestReleaseAgain repeats the release of an answer that Redis did not take at first.
func TestReleaseAgain(t *testing.T) {
	t.Parallel()
	client := single(t, 1)[0]
	l := newLocker(t, client, Options{Lease: 5 * time.Second})
	lease := acquire(t, l, "k", Stored("pay"))
	lease.StoreAnswer("pay", "paid", "", time.Minute)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lease.Release(gone); err == nil {
		t.Fatal("released on a context that has ended")
	}
	if err := lease.ReleaseAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := storedText(t, l, "k"); text != "paid" {
		t.Errorf("stored is %q", text)
	}
	if err := lease.ReleaseAgain(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("a third release: %v", err)
	}
}

// TestPartWithoutReply checks that a release is repeated as long as a part has no reply, also if
// others are released by now.
func TestPartWithoutReply(t *testing.T) {
	t.Parallel()
	lease, away := &Lease{parts: []part{{key: "a"}, {key: "b"}}}, errors.New("away")
	for _, tt := range []struct {
		b    error
		lost bool
	}{{away, false}, {ErrLost, true}} {
		err := new(Locker).eachPart(lease, func(p *part) error {
			if p.key == "a" {
				return ErrLost
			}
			return tt.b
		})
		if !errors.Is(err, tt.b) || errors.Is(err, ErrLost) != tt.lost {
			t.Errorf("%v", err)
		}
	}
}

// TestStoredWithFullMemory stores and forgets answers when Redis takes no new data: a script that
// releases a lock does all of its work.
func TestStoredWithFullMemory(t *testing.T) {
	t.Parallel()
	client := single(t, 1)[0]
	l := newLocker(t, client, Options{})
	stores, forgets := acquire(t, l, "stores", Stored("pay")), acquire(t, l, "forgets")
	bedtest.Check(t, client.ConfigSet(t.Context(), "maxmemory", "500kb").Err())
	stores.StoreAnswer("pay", "{}", "{}", time.Hour)
	forgets.ForgetAnswers(time.Hour, "pay")
	bedtest.Check(t, stores.Release(t.Context()))
	bedtest.Check(t, forgets.Release(t.Context()))
	bedtest.Check(t, client.ConfigSet(t.Context(), "maxmemory", "0").Err())
	if text := storedText(t, l, "stores"); text != "{}" {
		t.Errorf("stored is %q", text)
	}
	release(t, acquire(t, l, "forgets", Stored("pay")))
}

// TestStoredDigits checks that a value which nobody has stored as an answer grants nothing.
func TestStoredDigits(t *testing.T) {
	t.Parallel()
	client := single(t, 1)[0]
	l := newLocker(t, client, Options{})
	bedtest.Check(t, client.Set(t.Context(), StoredKey("k", "pay"), "42", 0).Err())
	if _, err := l.Acquire(t.Context(), "k", Stored("pay")); !isStored(err) {
		t.Errorf("got %v", err)
	}
}

// TestForgottenUnderAnotherHolder checks that an answer which is forgotten while a Java service has
// the lock does not come back by the call that had it before.
func TestForgottenUnderAnotherHolder(t *testing.T) {
	t.Parallel()
	client := single(t, 1)[0]
	for name, opts := range map[string]Options{"k": {}, "s": {Format: String}} {
		l := newLocker(t, client, opts)
		before := acquire(t, l, name, Stored("pay"))
		bedtest.Check(t, client.Del(t.Context(), name).Err())
		if opts.Format == String {
			bedtest.Check(t, client.Set(t.Context(), name, "java", 0).Err())
			bedtest.Check(t, client.Del(t.Context(), after(name, "ordergate_grant")).Err())
		} else {
			bedtest.Check(t, client.HSet(t.Context(), name, "java:1", 1).Err())
		}
		if _, err := ForgetStored(t.Context(), client, name, "pay"); err != nil {
			t.Error(err)
		}
		before.StoreAnswer("pay", "{}", "{}", time.Hour)
		if err := before.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("released: %v", err)
		}
		if texts, err := ReadStored(t.Context(), client, "pay", name); err != nil || texts[0].Text != "" {
			t.Errorf("stored is %v, %v", texts, err)
		}
	}
}

// TestStoredSince has an answer that counts only for callers that came before it was stored.
func TestStoredSince(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		for _, o := range []Options{{}, {Format: String}, {Kind: Fair}, {Kind: Write}} {
			o.Wait = Wait{UpTo: 20 * time.Second}
			l, other := newLocker(t, client, o), newLocker(t, client, o)
			key := fmt.Sprint("k", o.Kind, o.Format)
			for n := range 3 { // a later answer replaces an earlier one
				first := acquire(t, l, key, StoredSince("pay", time.Now()))
				found := make(chan error, 2)
				time.Sleep(60 * time.Millisecond) // the answer before is older than these calls
				for _, l := range []*Locker{l, other} {
					go func() {
						// Who came less than a way to Redis before the answer acts anew.
						_, err := l.Acquire(t.Context(), key, StoredSince("pay", time.Now().Add(-50*time.Millisecond)))
						found <- err
					}()
				}
				bedtest.Eventually(t, "both wait", func() bool { return l.Waiting()+other.Waiting() == 2 })
				first.StoreAnswer("pay", fmt.Sprint("paid ", n), "", time.Hour)
				release(t, first)
				for range 2 {
					if answer, ok := errors.AsType[*StoredAnswer](<-found); !ok || answer.Text != fmt.Sprint("paid ", n) {
						t.Fatalf("%v: round %d: a waiter got %v", o, n, answer)
					}
				}
				// A caller that comes now acts anew, on either side.
				release(t, acquire(t, other, key, StoredSince("pay", time.Now())))
			}
			// An answer of a lease that was lost long ago replaces no later one.
			lost := acquire(t, l, key, StoredSince("pay", time.Now()))
			if err := client.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
			second := acquire(t, other, key, StoredSince("pay", time.Now()))
			second.StoreAnswer("pay", "second", "", time.Minute)
			release(t, second)
			lost.StoreAnswer("pay", "lost", "", time.Minute)
			_ = lost.Release(t.Context())
			if texts, err := ReadStored(t.Context(), client, "pay", key); err != nil || texts[0].Text != "second" {
				t.Errorf("%v: stored is %v, %v", o, texts, err)
			}
		}
	})
}

// TestSuspendedBefore has a call act within that of an undo of another name: what an earlier undo has
// suspended, it does not settle again.
func TestSuspendedBefore(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{})
		storePaid(t, l, "k")
		unknown := acquire(t, l, "k")
		bedtest.Check(t, unknown.SuspendAnswers(t.Context(), time.Hour, "pay"))
		unknown.KeepSuspended()
		release(t, unknown)
		other := acquire(t, l, "k")
		bedtest.Check(t, other.SuspendAnswers(t.Context(), time.Hour, "ship"))
		var found *StoredAnswer
		if lease, err := l.Acquire(t.Context(), "k", Stored("pay"), Reenter(other.Owner())); !errors.As(err, &found) || !found.Withheld {
			t.Errorf("within an undo of another name: %v, %v", lease, err)
		}
	})
}

// TestSettledAfterInnerUndo has a call settle after a call within it has undone what was before.
func TestSettledAfterInnerUndo(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{})
		outer := acquire(t, l, "k", Stored("pay"))
		inner := acquire(t, l, "k", Reenter(outer.Owner()))
		bedtest.Check(t, inner.SuspendAnswers(t.Context(), time.Minute, "pay"))
		inner.ForgetAnswers(time.Minute, "pay")
		release(t, inner)
		outer.StoreAnswer("pay", "outer", "", time.Minute)
		release(t, outer)
		if text := storedText(t, l, "k"); text != "outer" {
			t.Errorf("%q is stored", text)
		}
	})
}

// TestSettledBesideAnInnerUndo has a call settle while a call within it, which it does not wait for, undoes:
// nothing shows which came first.
func TestSettledBesideAnInnerUndo(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{})
		for name, tt := range map[string]struct {
			ends func(*Lease)
			want string
		}{
			"undone":  {func(undo *Lease) { undo.ForgetAnswers(time.Minute, AllAnswers) }, ""},
			"unknown": {func(undo *Lease) { undo.KeepSuspended() }, ""},
			"failed":  {func(*Lease) {}, "paid"},
		} {
			outer := acquire(t, l, name, Stored("pay"))
			undo := acquire(t, l, name, Reenter(outer.Owner()), Undoes())
			bedtest.Check(t, undo.SuspendAnswers(t.Context(), time.Minute, AllAnswers))
			outer.StoreAnswer("pay", "paid", "brief", time.Minute)
			release(t, outer)
			tt.ends(undo)
			release(t, undo)
			if text := storedText(t, l, name); text != tt.want {
				t.Errorf("%s: %q is given, want %q", name, text, tt.want)
			}
		}
	})
}

// TestLateAfterMark has an answer arrive late, below a mark: it does not count when the mark has ended.
func TestLateAfterMark(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{})
		for _, undone := range []bool{true, false} {
			key := fmt.Sprint("k-", undone)
			late := acquire(t, l, key, Stored("pay"))
			bedtest.Check(t, client.Del(t.Context(), key).Err())
			undo := acquire(t, l, key)
			bedtest.Check(t, undo.SuspendAnswers(t.Context(), time.Minute, "pay"))
			if undone {
				undo.ForgetAnswers(time.Minute, "pay")
				release(t, undo)
			}
			late.StoreAnswer("pay", "late", "", time.Hour)
			_ = late.Release(t.Context())
			marked := client.PTTL(t.Context(), marksKey(key)).Val() // the first of the two
			if left := client.PTTL(t.Context(), StoredKey(key, "pay")).Val(); undone != (left < 0) || left > marked {
				t.Errorf("undone: %t; the answer is kept for %v", undone, left)
			}
		}
	})
}

// TestSettledBesideAnUndo has a call within a lease look for the answer that another call within it, or one
// without the lock, may undo: it does not act anew.
func TestSettledBesideAnUndo(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{})
		for _, unknown := range []bool{false, true} {
			key := fmt.Sprint("k", unknown)
			storePaid(t, l, key)
			outer := acquire(t, l, key)
			want := func(what string, withheld bool) {
				t.Helper()
				_, err := l.Acquire(t.Context(), key, Stored("pay"), Reenter(outer.Owner()))
				if found, ok := errors.AsType[*StoredAnswer](err); !ok || found.Withheld != withheld {
					t.Errorf("unknown %t, %s: %v, want withheld: %t", unknown, what, err, withheld)
				}
			}
			bedtest.Check(t, l.MarkUndone(t.Context(), UndoBegins, "call", key, time.Hour, "pay"))
			want("while one without the lock undoes", true)
			bedtest.Check(t, l.MarkUndone(t.Context(), UndoFailed, "call", key, time.Hour, "pay"))
			undo := acquire(t, l, key, Reenter(outer.Owner()))
			bedtest.Check(t, undo.SuspendAnswers(t.Context(), time.Minute, AllAnswers))
			want("while another undoes", true)
			if unknown {
				undo.KeepSuspended()
			}
			release(t, undo)
			want("after it", unknown)
			release(t, outer)
		}
	})
}

// TestSettledWithinAnUndo settles an order within the lease of a call that has undone it, while another
// call undoes it without the lock. The latter may have undone that settlement, and the former has not.
func TestSettledWithinAnUndo(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{Hold: time.Minute})
		undo := acquire(t, l, "k")
		bedtest.Check(t, undo.SuspendAnswers(t.Context(), time.Hour, "pay"))
		bedtest.Check(t, l.MarkUndone(t.Context(), UndoBegins, "beside", "k", time.Hour, "pay"))
		inner := acquire(t, l, "k", Reenter(undo.Owner()))
		inner.StoreAnswer("pay", "paid", "", time.Hour)
		release(t, inner)
		bedtest.Check(t, l.MarkUndone(t.Context(), UndoDone, "beside", "k", time.Hour, "pay"))
		undo.ForgetAnswers(time.Hour, "pay")
		release(t, undo)
		_, err := l.Acquire(t.Context(), "k", Stored("pay"))
		if stored, _ := errors.AsType[*StoredAnswer](err); stored == nil || !stored.Withheld {
			t.Errorf("the next settlement gets %+v, %v", stored, err)
		}
	})
}

// TestMarksLastLonger undoes, with marks of a day, answers that are kept for longer, or that end after
// the last fence.
func TestMarksLastLonger(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		const day = 24 * time.Hour
		for name, tt := range map[string]struct {
			opts        Options
			inner       bool
			keep        time.Duration
			undoes, end bool // with the lock; the last fence has ended
		}{
			"long":                {Options{}, false, 3 * day, true, false},
			"long, unlocked":      {Options{FenceLife: 2 * day}, false, 3 * day, false, true},
			"as the fence":        {Options{FenceLife: day}, false, day, false, true},
			"within":              {Options{FenceLife: day + time.Hour}, true, day, false, true},
			"fair":                {Options{Kind: Fair, FenceLife: day}, false, day, false, true},
			"shorter, by a fence": {Options{FenceLife: day + time.Hour}, false, day, true, false},
		} {
			key := strings.ReplaceAll(name, " ", "-")
			l := newLocker(t, client, tt.opts)
			paid := acquire(t, l, key, Stored("pay"))
			outer := paid
			if tt.inner { // of a lease that was granted long ago
				paid = acquire(t, l, key, Stored("pay"), Reenter(outer.Owner()))
				bedtest.Check(t, client.PExpire(t.Context(), FenceKey(key), time.Hour).Err())
			}
			if tt.end && tt.opts.FenceLife == tt.keep { // the call takes a second
				bedtest.Check(t, client.PExpire(t.Context(), FenceKey(key), tt.keep-time.Second).Err())
			}
			paid.StoreAnswer("pay", "paid", "brief", tt.keep)
			release(t, paid)
			if tt.inner {
				release(t, outer)
			}
			if tt.end {
				bedtest.Check(t, client.Del(t.Context(), FenceKey(key)).Err())
			}
			if tt.undoes {
				undo := acquire(t, l, key)
				bedtest.Check(t, undo.SuspendAnswers(t.Context(), time.Hour, "pay"))
				undo.KeepSuspended()
				release(t, undo)
			} else {
				bedtest.Check(t, l.MarkUndone(t.Context(), UndoBegins, "call", key, time.Hour, "pay"))
			}
			if text := storedText(t, l, key); text != "" {
				t.Errorf("%s: %q is given", name, text)
			}
			if marks, answer := client.PTTL(t.Context(), marksKey(key)).Val(), client.PTTL(t.Context(), StoredKey(key, "pay")).Val(); marks < answer {
				t.Errorf("%s: the marks end in %v, the answer in %v", name, marks, answer)
			}
		}
	})
}

// TestMarkUndone undoes settlements without their lock.
func TestMarkUndone(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{Hold: time.Minute})
		markOf := func(call string, step UndoStep, key string) {
			t.Helper()
			bedtest.Check(t, l.MarkUndone(t.Context(), step, call, key, time.Hour, "pay"))
		}
		mark := func(step UndoStep, key string) { t.Helper(); markOf("call", step, key) }
		if mark(UndoBegins, "never-locked"); client.Exists(t.Context(), marksKey("never-locked")).Val() != 0 {
			t.Error("a mark of a lock that was never granted")
		}
		for key, tt := range map[string]struct {
			end  func(key string)
			want string // "none": the lock is granted
		}{
			"done":    {func(key string) { mark(UndoDone, key) }, "none"},
			"failed":  {func(key string) { mark(UndoFailed, key) }, "paid"},
			"unknown": {func(key string) { mark(UndoLeft, key) }, ""},
			"dead":    {func(string) {}, ""},
			"beside another": {func(key string) {
				markOf("another", UndoBegins, key)
				mark(UndoFailed, key)
			}, ""},
			"done beside another": {func(key string) {
				markOf("another", UndoBegins, key)
				mark(UndoDone, key)
			}, "none"},
			"marked late": {func(key string) {
				mark(UndoFailed, key)
				mark(UndoDone, key)
			}, ""},
		} {
			key = strings.ReplaceAll(key, " ", "-")
			storePaid(t, l, key)
			mark(UndoBegins, key)
			if text := storedText(t, l, key); text != "" {
				t.Errorf("%s: %q is given during the undo", key, text)
			}
			tt.end(key)
			if tt.want == "none" {
				release(t, acquire(t, l, key, Stored("pay")))
			} else if text := storedText(t, l, key); text != tt.want {
				t.Errorf("%s: %q is given, want %q", key, text, tt.want)
			}
		}
		// Of a settlement that ends beside an undo, nothing shows which came first: it is neither reported
		// nor repeated, unless the undo has failed. So is one that is the first to take the lock, and one of
		// an undo whose first step was lost.
		for _, begins := range []string{"later", "first", "unmarked"} {
			for end, name := range map[UndoStep]string{UndoDone: "done", UndoLeft: "unknown", UndoFailed: "failed"} {
				key := begins + "-" + name
				if begins == "later" {
					release(t, acquire(t, l, key))
				}
				if begins != "unmarked" {
					mark(UndoBegins, key)
				}
				storePaid(t, l, key)
				mark(end, key)
				mark(end, key) // again, as after a lost reply
				_, err := l.Acquire(t.Context(), key, Stored("pay"))
				stored, _ := errors.AsType[*StoredAnswer](err)
				if stored == nil || stored.Withheld != (end != UndoFailed) {
					t.Errorf("%s: %+v, %v", key, stored, err)
				}
			}
		}
		// A step that arrives late, or again, does nothing to the answer of a later settlement.
		for end, name := range map[UndoStep]string{UndoDone: "done", UndoLeft: "unknown", UndoFailed: "failed"} {
			for _, locked := range []bool{false, true} {
				key := fmt.Sprint("late-", name, "-", locked)
				if locked {
					release(t, acquire(t, l, key))
				}
				mark(end, key) // the first step was lost
				storePaid(t, l, key)
				mark(UndoBegins, key)
				mark(end, key)
				if text := storedText(t, l, key); text != "paid" {
					t.Errorf("after a late step of an undo, %s: %q is given", key, text)
				}
			}
		}
	})
}

// TestUndoneSince tells apart what undoes the settlements of a name.
func TestUndoneSince(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, client redis.UniversalClient) {
		l := newLocker(t, client, Options{})
		for _, tt := range []struct {
			key, name, forgets string
			restored, want     bool
		}{
			{"of its name", "pay", "pay", false, true},
			{"that failed", "pay", "pay", true, false},
			{"of another name", "pay", "ship", false, false},
			{"of all names", "pay", AllAnswers, false, true},
			{"of a settlement without a name", "", AllAnswers, false, true},
			{"of a settlement without a name, that failed", "", AllAnswers, true, false},
			{"of a settlement without a name, of another", "", "ship", false, false},
		} {
			paid := acquire(t, l, tt.key)
			release(t, paid)
			undo := acquire(t, l, tt.key)
			bedtest.Check(t, undo.SuspendAnswers(t.Context(), time.Hour, tt.forgets))
			if !tt.restored {
				undo.ForgetAnswers(time.Hour, tt.forgets)
			}
			release(t, undo)
			if got, err := UndoneSince(t.Context(), client, paid.Fences(), tt.name, tt.key); err != nil || got != tt.want {
				t.Errorf("an undo %s: %t, %v", tt.key, got, err)
			}
		}
	})
}
