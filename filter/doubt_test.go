package filter

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ordergate/ordergate/internal/presence"
)

// TestDoubtComesBeforeTheLook: the log brings a doubt, and the reading that clears it
// adds the order, before the window is opened that a lookup has. Whoever sees the doubt answers
// Unknown, and whoever sees that it is cleared sees the order.
func TestDoubtComesBeforeTheLook(t *testing.T) {
	var f *Filter
	clears := false
	f = mustLoad(t, mustNew(t, Options{Window: func() Window {
		f.Doubt(Doubt{Reason: "Redis was restarted"})
		if clears {
			if err := f.CatchUp(t.Context(), func(_ context.Context, add func(string) error) error { return add("lost") }); err != nil {
				t.Error(err)
			}
		}
		return open()
	}}))
	if got := f.MayContain("lost"); got != presence.Unknown {
		t.Errorf("%v with a doubt, want unknown", got)
	}
	if state, reason := f.State(); state != StateUnknown || reason != "Redis was restarted" {
		t.Errorf("state %s: %s", state, reason)
	}
	f = mustLoad(t, mustNew(t, Options{Window: f.opts.Window}))
	clears = true
	if got := f.MayContain("lost"); got != presence.Maybe {
		t.Errorf("%v after the doubt was cleared, want maybe", got)
	}
}

func TestWhatClearsADoubt(t *testing.T) {
	errNo := errors.New("no database")
	settle := func(f *Filter) error { return f.WaitForPeers(t.Context(), func(context.Context) error { return nil }) }
	catchUp := func(f *Filter) error {
		return f.CatchUp(t.Context(), func(context.Context, func(string) error) error { return nil })
	}
	load := func(f *Filter) error { return f.Load(t.Context()) }
	for _, tc := range []struct {
		name   string
		doubts []Recovery
		by     func(*Filter) error
		clear  bool
		fails  bool
	}{
		{"time", []Recovery{ByWaiting}, settle, true, false},
		{"time is not enough", []Recovery{ByReload}, settle, false, false},
		{"nor for the greater of two", []Recovery{ByOperator, ByWaiting}, settle, false, false},
		{"catching up", []Recovery{ByWaiting, ByOperator}, catchUp, true, false},
		{"loading", []Recovery{ByReload, ByWaiting}, load, true, false},
		{"loading what nobody has changed", []Recovery{ByOperator, ByReload}, load, false, false},
		{"loading, on somebody's word", []Recovery{ByOperator}, func(f *Filter) error {
			return f.Reload(t.Context(), func(context.Context, func(string) error) error { return nil })
		}, true, false},
		{"a reading that fails", []Recovery{ByWaiting}, func(f *Filter) error {
			return f.CatchUp(t.Context(), func(context.Context, func(string) error) error { return errNo })
		}, false, true},
		{"a reading that began too early", []Recovery{ByWaiting}, func(f *Filter) error {
			return f.CatchUp(t.Context(), func(context.Context, func(string) error) error {
				f.Doubt(Doubt{Reason: "another"})
				return nil
			})
		}, false, false},
		{"a load that began too early", []Recovery{ByWaiting}, func(f *Filter) error {
			return f.Load(t.Context(), sourceFunc(func(context.Context, func(string) error) error {
				f.Doubt(Doubt{Reason: "another"})
				return nil
			}))
		}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := mustLoad(t, mustNew(t, Options{}))
			for _, cure := range tc.doubts {
				f.Doubt(Doubt{Reason: "a reason", Recovery: cure})
			}
			if got := f.MayContain("1"); got != presence.Unknown {
				t.Errorf("%v with a doubt, want unknown", got)
			}
			if f.Loaded() {
				t.Error("a snapshot could be written")
			}
			if err := tc.by(f); tc.fails != (err != nil) {
				t.Error(err)
			}
			want := presence.Unknown
			if tc.clear {
				want = presence.Absent
			}
			if got := f.MayContain("1"); got != want {
				t.Errorf("%v, want %v", got, want)
			}
			select {
			case <-f.DoubtAdded():
			default:
				t.Error("nobody is told")
			}
		})
	}
}

// TestScopeOfADoubt: a doubt about orders leaves out what the sources have told of, and
// the IDs that tell an earlier time than the orders can have.
func TestScopeOfADoubt(t *testing.T) {
	began := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	covered := Scope{}
	f := mustLoad(t, mustNew(t, Options{
		ClockMargin: time.Minute, Live: true,
		Covered: func() Scope { return covered },
		CreatedBefore: func(id string) (time.Time, bool) { // "t7": made seven seconds after it began
			n, err := strconv.Atoi(strings.TrimPrefix(id, "t"))
			return began.Add(time.Duration(n) * time.Second), err == nil && id[0] == 't'
		},
	}))
	f.Add("7")
	catchUp := func(meanwhile func()) {
		t.Helper()
		if err := f.CatchUp(t.Context(), func(context.Context, func(string) error) error { meanwhile(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when, absent, unknown string) {
		t.Helper()
		for want, ids := range map[presence.Answer]string{presence.Absent: absent, presence.Unknown: unknown, presence.Maybe: "7"} {
			for id := range strings.FieldsSeq(ids) {
				if got := f.MayContain(id); got != want {
					t.Errorf("%s: %s is %v, want %v", when, id, got, want)
				}
			}
		}
	}
	const others = "08 +8 -8 8.0 0x8 8000000000000000000000 t t-"
	want("no doubt", "0 8 99 t1 "+others, "")
	f.Doubt(Doubt{Reason: "one", Orders: true})
	want("nothing was read lately", "", "0 8 99 t1 "+others)
	catchUp(func() {})
	want("cleared", "0 8 99 t1 "+others, "")
	covered = Scope{Above: 50, Since: began.Add(10 * time.Second)}
	f.Doubt(Doubt{Reason: "two", Orders: true})
	want("covered", "0 8 50 t9", "51 99 t10 t11 "+others)
	f.Doubt(Doubt{Reason: "three", Orders: true, Since: began.Add(80 * time.Second)})
	want("the wider one counts", "0 8 50 t9", "51 99 t10 t11 "+others)
	catchUp(func() { f.Doubt(Doubt{Reason: "four", Orders: true, Since: began.Add(80 * time.Second)}) })
	want("the other is cleared", "0 8 50 t19", "51 99 t20 "+others)
	covered.Above = 60
	catchUp(func() { f.Doubt(Doubt{Reason: "five", Orders: true}) })
	want("a reading has covered more", "60 t9", "61 t10")
	// What the sources told may not be so any more.
	covered = Scope{}
	f.Doubt(Doubt{Reason: "six"})
	want("a doubt about a source", "", "0 8 50 t1 "+others)
	if state, reason := f.State(); state != StateUnknown || reason != "six" {
		t.Errorf("%s: %s", state, reason)
	}
	catchUp(func() { f.Doubt(Doubt{Reason: "seven", Orders: true, Since: began.Add(80 * time.Second)}) })
	want("the source was read, and has not covered yet", "t19", "0 8 50 t20")
	if state, reason := f.State(); state != StateReady || reason != "certain but for IDs from 2026-05-01T12:00:20Z on: seven" {
		t.Errorf("%s: %s", state, reason)
	}
	if f.Loaded() {
		t.Error("a snapshot could be written")
	}
	catchUp(func() {})
	want("cleared", "0 8 99 t1 "+others, "")
}

// TestMoreDoubtsThanAreToldApart: what is one with another is cleared with the later one,
// and leaves out no more than both do.
func TestMoreDoubtsThanAreToldApart(t *testing.T) {
	covered := Scope{}
	f := mustLoad(t, mustNew(t, Options{Covered: func() Scope { return covered }}))
	for n := range 3 * maxDoubts {
		covered.Above = uint64(1000 - n)
		f.Doubt(Doubt{Reason: strconv.Itoa(n), Orders: true})
	}
	if a, b := f.MayContain(strconv.Itoa(1001-3*maxDoubts)), f.MayContain(strconv.Itoa(1002-3*maxDoubts)); a != presence.Absent || b != presence.Unknown {
		t.Errorf("%v and %v", a, b)
	}
	if n := len(f.doubts.Load().open); n > maxDoubts {
		t.Errorf("%d are kept", n)
	}
	if err := f.CatchUp(t.Context(), func(context.Context, func(string) error) error {
		f.Doubt(Doubt{Reason: "last", Orders: true})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := len(f.doubts.Load().open); n != 1 {
		t.Errorf("%d are left of those from before a reading, and of one since", n)
	}
}

// TestLateDoubt: orders that may yet be created are not in what is read now.
func TestLateDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mustLoad(t, mustNew(t, Options{}))
		catchUp := func() {
			if err := f.CatchUp(t.Context(), func(context.Context, func(string) error) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		f.Doubt(Doubt{Reason: "a call may go on", Recovery: ByWaiting, Late: time.Minute, Orders: true})
		time.Sleep(time.Minute - time.Second)
		catchUp()
		if got := f.MayContain("1"); got != presence.Unknown || f.UntilClearable() != time.Second {
			t.Errorf("%v, and for %v", got, f.UntilClearable())
		}
		time.Sleep(time.Second)
		catchUp()
		if got := f.MayContain("1"); got != presence.Absent {
			t.Errorf("%v", got)
		}
	})
}

// TestConfirm: somebody's word is good for the doubts up to a place in the log, and for
// those of a log before it, not for what the log has yet to bring; and it needs a reading.
func TestConfirm(t *testing.T) {
	at := func(log string, n uint64) Entry { return Entry{Log: log, Number: n} }
	for _, tc := range []struct {
		name   string
		doubts []Entry
		upTo   Entry
		again  bool
		clear  bool
	}{
		{"up to it", []Entry{at("a", 3), at("a", 5)}, at("a", 5), false, true},
		{"one is behind it", []Entry{at("a", 3), at("a", 6)}, at("a", 5), false, false},
		{"of another log", []Entry{at("a", 9)}, at("b", 2), false, true},
		{"of another log, by a word that is read again", []Entry{at("a", 1)}, at("b", 2), true, false},
		{"up to it, by a word that is read again", []Entry{at("a", 3)}, at("a", 5), true, true},
		{"not in the log yet", []Entry{{}}, at("a", 9), false, false},
		{"brought by the log meanwhile", []Entry{{}, at("a", 9)}, at("a", 9), false, true},
		{"of which one was brought", []Entry{{}, {}, at("a", 9)}, at("a", 9), false, true}, // the same one, told twice
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := mustLoad(t, mustNew(t, Options{}))
			for _, in := range tc.doubts {
				f.Doubt(Doubt{Reason: "a reason", Recovery: ByOperator, Entry: in})
			}
			f.Confirm(tc.upTo, tc.again)
			if got := f.MayContain("1"); got != presence.Unknown {
				t.Errorf("%v before anything was read", got)
			}
			if cure, ok := f.Recoverable(); ok != tc.clear && len(tc.doubts) == 1 || ok && cure != ByReload {
				t.Errorf("%v, %v", cure, ok)
			}
			if err := f.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := presence.Unknown
			if tc.clear {
				want = presence.Absent
			}
			if got := f.MayContain("1"); got != want {
				t.Errorf("%v, want %v", got, want)
			}
			if _, reason := f.State(); !tc.clear && !strings.Contains(reason, "a reason: requests for orders that do not exist go on to the backend (all IDs) until") {
				t.Errorf("it says %q", reason)
			}
		})
	}
}

// TestConfirmOfAnothersEntry: of two creates that are alike, one's entry in the change log,
// here or of another process, is not that of the other, which could not be told yet.
func TestConfirmOfAnothersEntry(t *testing.T) {
	const reason = "the answer has no ID"
	for _, n := range []int{1, maxDoubts + 10} {
		a := &flaky{}
		f := mustLoad(t, mustNew(t, Options{Appender: a}))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		confirm := func(upTo uint64, want presence.Answer) {
			t.Helper()
			f.Confirm(Entry{Log: "a", Number: upTo}, false)
			if err := f.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := f.MayContain("x"); got != want {
				t.Errorf("%d doubts, confirmed up to %d: %v, want %v", n, upTo, got, want)
			}
		}
		brought := func(entry uint64) {
			f.Doubt(Doubt{Reason: reason, Recovery: ByOperator, Orders: true, Entry: Entry{Log: "a", Number: entry}})
		}
		told := func() {
			t.Helper()
			if err := f.MarkIncomplete(t.Context(), reason, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		a.set(true)
		for range n {
			if err := f.MarkIncomplete(ended, reason, time.Time{}); err == nil {
				t.Fatal("it is told")
			}
		}
		a.set(false)
		told() // entry 1
		brought(1)
		confirm(1, presence.Unknown)
		if err := f.appendPending(t.Context()); err != nil { // entries 2 to n+1
			t.Fatal(err)
		}
		confirm(uint64(n), presence.Unknown)
		brought(uint64(n) + 1)
		confirm(uint64(n)+1, presence.Absent)
		told() // n+2, which the log brings before it is acknowledged
		number := f.addDoubt(Doubt{Reason: reason, Recovery: ByOperator, Orders: true}, true)
		brought(uint64(n) + 2)
		brought(uint64(n) + 3)
		f.setEntry(number, Entry{Log: "a", Number: uint64(n) + 3})
		if open := len(f.doubts.Load().open); open != 2 {
			t.Errorf("%d doubts are open, want 2", open)
		}
		confirm(uint64(n)+2, presence.Unknown)
		confirm(uint64(n)+3, presence.Absent)
	}
}

// TestConfirmedBeforeItIsAcknowledged: after a failover Redis's acknowledgement of an entry
// counts late. By then somebody's word may have come that is good for it.
func TestConfirmedBeforeItIsAcknowledged(t *testing.T) {
	f := mustLoad(t, mustNew(t, Options{}))
	doubt := Doubt{Reason: "no ID", Recovery: ByOperator, Orders: true}
	number, behind := f.addDoubt(doubt, true), f.addDoubt(doubt, true)
	doubt.Entry = Entry{Log: "a", Number: 3}
	f.Doubt(doubt)
	f.Confirm(Entry{Log: "a", Number: 4}, false)
	if err := f.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.setEntry(number, Entry{Log: "a", Number: 3})
	if err := f.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if open := f.doubts.Load().open; len(open) != 1 || open[0].number != behind {
		t.Errorf("%+v are open", open)
	}
	f.setEntry(behind, Entry{Log: "a", Number: 5})
	if err := f.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.MayContain("1"); got != presence.Unknown {
		t.Errorf("%v with a doubt that is behind the word", got)
	}
}

// TestConfirmOfWhatFoundNoRoom: what could not be told one by one is told as one doubt, and
// a word that is good for that is good for all.
func TestConfirmOfWhatFoundNoRoom(t *testing.T) {
	for _, n := range []int{1, 5, maxDoubts + 10} {
		a := &flaky{}
		a.set(true)
		f := mustLoad(t, mustNew(t, Options{Appender: a, MaxPending: 2}))
		mustFailToLearn(t, f, "1")
		mustFailToLearn(t, f, "2")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range n {
			if err := f.MarkIncomplete(ended, "no ID", time.Now()); err == nil {
				t.Fatal("it is told")
			}
		}
		a.set(false)
		if err := f.appendPending(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.Confirm(Entry{Log: "a", Number: 9}, false)
		if err := f.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if open := f.doubts.Load(); open != nil {
			t.Errorf("of %d doubts, %+v are open", n, open.open)
		}
	}
}

// TestYoung: an order that its database may not have told of yet is never absent.
func TestYoung(t *testing.T) {
	f := mustLoad(t, mustNew(t, Options{WithinGrace: func(id string) bool { return id == "new" }}))
	if a, b := f.MayContain("new"), f.MayContain("old"); a != presence.Unknown || b != presence.Absent {
		t.Errorf("%v and %v", a, b)
	}
}

// TestLateOrder is created after its doubt was told of, by a call that nobody waited for:
// a reading that began before it may have been does not clear the doubt.
func TestLateOrder(t *testing.T) {
	catchUp := func(f *Filter, ids ...string) {
		t.Helper()
		if err := f.CatchUp(t.Context(), func(_ context.Context, add func(string) error) error {
			for _, id := range ids {
				if err := add(id); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	want := func(f *Filter, want presence.Answer, lasts time.Duration) {
		t.Helper()
		if got := f.MayContain("late"); got != want || f.UntilClearable() != lasts {
			t.Errorf("%v, and for %v nothing clears the doubt; want %v, %v", got, f.UntilClearable(), want, lasts)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		a := &flaky{}
		f := mustLoad(t, mustNew(t, Options{Appender: a, CommitDelay: 20 * time.Second}))
		if err := f.Abandoned(t.Context(), "no answer", time.Time{}); err != nil || len(a.missed) != 1 || a.missed[0] != "abandoned: no answer" {
			t.Errorf("%v, told of %q", err, a.missed)
		}
		catchUp(f)
		if err := f.Load(t.Context()); err != nil {
			t.Error(err)
		}
		want(f, presence.Unknown, 20*time.Second)
		time.Sleep(15 * time.Second)
		f.Doubt(Doubt{Reason: "another, of an order that is there"})
		want(f, presence.Unknown, 5*time.Second)
		f.Doubt(Doubt{Reason: "and another, told of elsewhere", Late: 10 * time.Second})
		time.Sleep(9 * time.Second)
		catchUp(f)
		want(f, presence.Unknown, time.Second)
		time.Sleep(time.Second)
		want(f, presence.Unknown, 0) // but no reading has begun since
		catchUp(f, "late")
		want(f, presence.Maybe, 0)
		if got := f.MayContain("other"); got != presence.Absent {
			t.Errorf("%v, want absent", got)
		}
	})
}

// TestClearedDoubtIsNeverAbsent clears a doubt between a lookup's steps, by a reading that brings
// the order.
func TestClearedDoubtIsNeverAbsent(t *testing.T) {
	for name, opts := range map[string]Options{
		"memory": {}, "a set that lost it": {Remote: newRemoteSet(), Appender: &sharedLog{}},
	} {
		t.Run(name, func(t *testing.T) {
			opts.Window = open
			f := mustLoad(t, mustNew(t, opts))
			for n := range 2000 {
				f.Doubt(Doubt{Reason: "Redis was restarted"})
				id := strconv.Itoa(1000 + n)
				var reading sync.WaitGroup
				reading.Go(func() {
					if err := f.CatchUp(t.Context(), func(_ context.Context, add func(string) error) error { return add(id) }); err != nil {
						t.Error(err)
					}
				})
				answer := presence.Unknown
				for answer == presence.Unknown {
					answer = f.Query(t.Context(), id)
				}
				reading.Wait()
				if answer != presence.Maybe {
					t.Fatalf("%v, want maybe", answer)
				}
			}
		})
	}
}

// TestOwnDoubtIsClearedOnce has the change log bring a doubt of this process before and after its
// append is acknowledged, while a reading runs that began when the doubt was already here. That
// reading clears it, and no other has to follow.
func TestOwnDoubtIsClearedOnce(t *testing.T) {
	for _, acknowledgedFirst := range []bool{true, false} {
		f := mustLoad(t, mustNew(t, Options{Live: true}))
		doubt := Doubt{Reason: "no ID", Recovery: ByOperator, Orders: true}
		number, at := f.addDoubt(doubt, true), Entry{Log: "a", Number: 7, Nonce: "x"}
		brought := doubt
		brought.Entry = at
		if err := f.CatchUp(t.Context(), func(context.Context, func(string) error) error {
			if acknowledgedFirst {
				f.setEntry(number, at)
				f.Doubt(brought)
			} else {
				f.Doubt(brought)
				f.setEntry(number, at)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		f.Doubt(brought) // once more: the log is read again
		if got := f.MayContain("1"); got != presence.Absent {
			t.Errorf("acknowledged first %v: %v after the reading", acknowledgedFirst, got)
		}
		brought.Entry.Nonce = "y" // another doubt, of a log that has lost the first
		f.Doubt(brought)
		if got := f.MayContain("1"); got != presence.Unknown {
			t.Errorf("acknowledged first %v: %v with a doubt of another process", acknowledgedFirst, got)
		}
	}
}
