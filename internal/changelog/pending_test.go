package changelog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// failAppends makes appends of an instance fail.
func failAppends(t *testing.T, i *instance, w *wire, ids ...string) {
	t.Helper()
	w.set(only(i.append, cut))
	if err := i.Append(t.Context(), ids...); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("Append = %v", err)
	}
	w.set(nil)
}

// A slow append pauses renewal before Withdraw is called. Renewal resumes with the acknowledgement.
func TestAppendThatTakesTooLong(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		waitSure(t, a, b)
		h := hold(t)
		w.set(only(a.append, h.reply))
		appended := make(chan error, 1)
		began := time.Now()
		go func() { appended <- a.Append(t.Context(), "slow") }()
		<-h.entered
		waitAway(t, b, a.member.Name())
		if took := time.Since(began); took < leastPatience {
			t.Logf("away after %v: the machine was busy", took)
		}
		if n := a.State().Pending; n != 1 {
			t.Errorf("%d are pending, want 1", n)
		}
		h.release()
		if err := <-appended; err != nil {
			t.Fatal(err)
		}
		w.set(nil)
		waitSure(t, a, b)
		if n := a.State().Pending; n != 0 || !b.has("slow") {
			t.Errorf("%d are pending, the ID is there: %v", n, b.has("slow"))
		}
	})
}

func TestRetryAcknowledgesPendingWrites(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		waitSure(t, a, b)
		failAppends(t, a, w, "1", "2")
		if err := a.Withdraw(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p, err := b.requestPage(t.Context(), nil, time.Time{}, entry{seq: 0}, 1, "", "", ""); err != nil || p.away != a.member.Name() {
			t.Fatalf("away %q, %v", p.away, err)
		}
		a.mustAppend(t, "other", "1") // which does not acknowledge all
		if p, err := b.requestPage(t.Context(), nil, time.Time{}, entry{seq: 0}, 1, "", "", ""); err != nil || p.away != a.member.Name() || a.State().Pending != 1 {
			t.Fatalf("away %q, %v, %d pending", p.away, err, a.State().Pending)
		}
		a.mustAppend(t, "2")
		waitSure(t, a, b)
		if a.State().Pending != 0 || !b.has("1") || !b.has("2") || len(b.doubted()) > 0 {
			t.Errorf("%d pending, doubts %v", a.State().Pending, b.doubted())
		}
		began := time.Now()
		if err := a.Withdraw(t.Context()); err != nil || time.Since(began) > a.opts.Lease {
			t.Errorf("Withdraw of nothing = %v after %v", err, time.Since(began))
		}
	})
}

// If the same ID is appended twice at once, one acknowledgement suffices.
func TestSameIDTwice(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		waitSure(t, a)
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
			t.Errorf("%d are pending", n)
		}
		if err := a.Withdraw(t.Context()); err != nil {
			t.Error(err)
		}
		waitSure(t, a)
	})
}

// A doubt covers the writes that were pending when it began, and no later ones.
func TestDoubtCoversEarlierPendingWrites(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		waitSure(t, a, b)
		failAppends(t, a, w, "before")
		h := hold(t)
		w.set(only(a.append, h.reply))
		told := make(chan error, 1)
		go func() { _, err := a.AppendDoubt(t.Context(), Doubt{Kind: Lost, Reason: "too many"}); told <- err }()
		<-h.entered
		failAppends(t, a, w, "after")
		h.release()
		if err := <-told; err != nil {
			t.Fatal(err)
		}
		if n := a.State().Pending; n != 1 {
			t.Errorf("%d are pending, want the one that came later", n)
		}
		waitAway(t, b, a.member.Name())
		a.mustAppend(t, "after")
		waitSure(t, a, b)
		if got := b.doubted(); len(got) != 1 || got[0].Reason != "too many" || b.has("before") {
			t.Errorf("doubts %v", got)
		}
	})
}

// A member with too many pending writes opens no window before other members have a doubt.
func TestPendingWritesOverflow(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		waitSure(t, a, b)
		ids := make([]string, maxPending+1)
		for n := range ids {
			ids[n] = fmt.Sprint(n)
		}
		failAppends(t, a, w, ids...)
		if n := a.State().Pending; n != maxPending {
			t.Errorf("%d are pending", n)
		}
		// All remembered writes are acknowledged. The one that was not remembered may be pending.
		a.member.ack(ids...)
		if n := a.State().Pending; n != 0 {
			t.Errorf("%d are pending", n)
		}
		waitAway(t, b, a.member.Name())
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
		waitSure(t, a, b)
		if !b.hasKind(Lost) {
			t.Errorf("doubts %v", b.doubted())
		}
	})
}

// Record leaves nothing pending after an error, since no client has the IDs. A caller may never
// repeat it: for example, it may stop following a table.
func TestRecordLeavesNothingPending(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, w := wiredInstance(t, s, brisk("a"))
		b := runInstance(t, s, patient("b"))
		waitSure(t, a, b)
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
		waitSure(t, a, b)
		if n := a.State().Pending; n != 0 || b.has("1") || len(b.doubted()) > 0 {
			t.Errorf("%d are pending, doubts %v", n, b.doubted())
		}
		if err := errors.Join(a.Record(t.Context(), "1"), a.RecordDoubt(t.Context(), Doubt{Kind: Lost, Reason: "two"})); err != nil {
			t.Fatal(err)
		}
		waitSure(t, b)
		if d := b.doubted(); !b.has("1") || len(d) != 1 || d[0].Reason != "two" {
			t.Errorf("it has the ID: %v, doubts %v", b.has("1"), d)
		}
		if err := a.Record(t.Context(), ""); !errors.Is(err, ErrBadID) {
			t.Errorf("Record of nothing = %v", err)
		}
	})
}
