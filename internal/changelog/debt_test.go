package changelog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// owes has an append of an instance fail.
func owes(t *testing.T, i *instance, w *wire, ids ...string) {
	t.Helper()
	w.set(only(i.append, cut))
	if err := i.Append(t.Context(), ids...); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("Append = %v", err)
	}
	w.set(nil)
}

// An append that takes too long stops the renewals before anybody withdraws, and they go
// on when it is acknowledged.
func TestAppendThatTakesTooLong(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		sure(t, a, b)
		h := hold(t)
		w.set(only(a.append, h.reply))
		appended := make(chan error, 1)
		began := time.Now()
		go func() { appended <- a.Append(t.Context(), "slow") }()
		<-h.entered
		finds(t, b, a.member.Name())
		if took := time.Since(began); took < leastPatience {
			t.Logf("away after %v: somebody else kept the machine busy", took)
		}
		if n := a.State().Pending; n != 1 {
			t.Errorf("%d are owed, want 1", n)
		}
		h.release()
		if err := <-appended; err != nil {
			t.Fatal(err)
		}
		w.set(nil)
		sure(t, a, b)
		if n := a.State().Pending; n != 0 || !b.has("slow") {
			t.Errorf("%d are owed, the ID is there: %v", n, b.has("slow"))
		}
	})
}

func TestDebtIsPaidByTryingAgain(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		sure(t, a, b)
		owes(t, a, w, "1", "2")
		if err := a.Withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p, err := b.requestPage(t.Context(), nil, time.Time{}, entry{seq: 0}, 1, "", "", ""); err != nil || p.away != a.member.Name() {
			t.Fatalf("away %q, %v", p.away, err)
		}
		a.mustAppend(t, "other", "1") // that does not pay for all
		if p, err := b.requestPage(t.Context(), nil, time.Time{}, entry{seq: 0}, 1, "", "", ""); err != nil || p.away != a.member.Name() || a.State().Pending != 1 {
			t.Fatalf("away %q, %v, %d owed", p.away, err, a.State().Pending)
		}
		a.mustAppend(t, "2")
		sure(t, a, b)
		if a.State().Pending != 0 || !b.has("1") || !b.has("2") || len(b.doubted()) > 0 {
			t.Errorf("%d owed, doubts %v", a.State().Pending, b.doubted())
		}
		began := time.Now()
		if err := a.Withdraw(t.Context()); err != nil || time.Since(began) > a.opts.Lease {
			t.Errorf("Withdraw of nothing = %v after %v", err, time.Since(began))
		}
	})
}

// One of two that append the same ID at the same time is enough.
func TestSameIDTwice(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		sure(t, a)
		first := make(chan struct{}, 1)
		first <- struct{}{}
		h, failing := hold(t), make(chan struct{})
		w.set(only(a.append, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			select {
			case <-first:
				close(failing)
				<-h.open
				return errCut
			default:
				return next(ctx, cmd)
			}
		}))
		failed := make(chan error, 1)
		go func() { failed <- a.Append(t.Context(), "twice") }()
		<-failing
		a.mustAppend(t, "twice")
		h.release()
		if err := <-failed; !errors.Is(err, ErrUnavailable) {
			t.Errorf("Append = %v", err)
		}
		if n := a.State().Pending; n != 0 {
			t.Errorf("%d are owed", n)
		}
		if err := a.Withdraw(t.Context()); err != nil {
			t.Error(err)
		}
		sure(t, a)
	})
}

// A doubt pays for what was owed when it was begun, and for nothing that came later.
func TestDoubtPaysForWhatItCovers(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		sure(t, a, b)
		owes(t, a, w, "before")
		h := hold(t)
		w.set(only(a.append, h.reply))
		told := make(chan error, 1)
		go func() { _, err := a.AppendDoubt(t.Context(), Doubt{Kind: Lost, Reason: "too many"}); told <- err }()
		<-h.entered
		owes(t, a, w, "after")
		h.release()
		if err := <-told; err != nil {
			t.Fatal(err)
		}
		if n := a.State().Pending; n != 1 {
			t.Errorf("%d are owed, want the one that came later", n)
		}
		finds(t, b, a.member.Name())
		a.mustAppend(t, "after")
		sure(t, a, b)
		if got := b.doubted(); len(got) != 1 || got[0].Reason != "too many" || b.has("before") {
			t.Errorf("doubts %v", got)
		}
	})
}

// Who owes more than it remembers is not sure of anything before others have a doubt.
func TestOverdrawn(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		sure(t, a, b)
		ids := make([]string, maxPending+1)
		for n := range ids {
			ids[n] = fmt.Sprint(n)
		}
		owes(t, a, w, ids...)
		if n := a.State().Pending; n != maxPending {
			t.Errorf("%d are owed", n)
		}
		// All that are remembered are paid. The one that is not may still be owed.
		a.member.ack(ids...)
		if n := a.State().Pending; n != 0 {
			t.Errorf("%d are owed", n)
		}
		finds(t, b, a.member.Name())
		if err := a.Withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.mustAppend(t, "one more")
		if p, err := b.requestPage(t.Context(), nil, time.Time{}, entry{seq: 0}, 1, "", "", ""); err != nil || p.away != a.member.Name() {
			t.Fatalf("away %q, %v", p.away, err)
		}
		if _, err := a.AppendDoubt(t.Context(), Doubt{Kind: Lost, Reason: "too many"}); err != nil {
			t.Fatal(err)
		}
		sure(t, a, b)
		if !b.hasKind(Lost) {
			t.Errorf("doubts %v", b.doubted())
		}
	})
}

// What nobody was told of is not owed: it may never be tried again here, by who gave up
// following a table, say, or found the log whole the next time.
func TestNothingIsOwedForARecord(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		sure(t, a, b)
		w.set(only(a.append, cut))
		forgotten := make(map[item]uint64)
		a.mu.Lock()
		for i := range recentItems {
			a.recent.add(item{"id", fmt.Sprint("old ", i)}, uint64(i+1))
		}
		a.mu.Unlock()
		for name, err := range map[string]error{
			"Record":      a.Record(t.Context(), "1"),
			"RecordDoubt": a.RecordDoubt(t.Context(), Doubt{Kind: Lost, Reason: "one"}),
			"giveBack":    (&reader{log: a.Log, rescanned: forgotten}).reappendLost(t.Context()),
		} {
			if !errors.Is(err, ErrUnavailable) {
				t.Errorf("%s = %v", name, err)
			}
		}
		w.set(nil)
		time.Sleep(2 * leastPatience)
		sure(t, a, b)
		if n := a.State().Pending; n != 0 || b.has("1") || len(b.doubted()) > 0 {
			t.Errorf("%d are owed, doubts %v", n, b.doubted())
		}
		if err := errors.Join(a.Record(t.Context(), "1"), a.RecordDoubt(t.Context(), Doubt{Kind: Lost, Reason: "two"})); err != nil {
			t.Fatal(err)
		}
		sure(t, b)
		if d := b.doubted(); !b.has("1") || len(d) != 1 || d[0].Reason != "two" {
			t.Errorf("it has the ID: %v, doubts %v", b.has("1"), d)
		}
		if err := a.Record(t.Context(), ""); !errors.Is(err, ErrBadID) {
			t.Errorf("Record of nothing = %v", err)
		}
	})
}
